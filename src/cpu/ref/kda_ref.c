/* SPDX-License-Identifier: Apache-2.0
 * The specification of Kimi Delta Attention: one token at a time, fp64 throughout, on the inputs as
 * they are stored. Everything else that computes KDA is judged against this file. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "cpu/kda.h"
#include "tensor/dtype.h"

/* q or k of one token in double, divided by its norm where asked for. */
static void load_row(const brim_kda_args *args, const uint16_t *row, double *out)
{
    double sum = 1e-6;
    for (int i = 0; i < 128; i++) {
        out[i] = brim_f32_from_bf16(row[i]);
        sum += out[i] * out[i];
    }
    if (args->flags & BRIM_KDA_L2NORM)
        for (int i = 0; i < 128; i++) out[i] /= sqrt(sum);
}

static void row_span(const brim_kda_args *args, const double *s, const double *q, double *span)
{
    double norm = 0;
    for (int i = 0; i < 128; i++) norm += q[i] * q[i];
    for (int j = 0; j < 128; j++) {
        double column = 0;
        for (int i = 0; i < 128; i++) column += s[i * 128 + j] * s[i * 128 + j];
        span[j] = fabs(args->scale) * sqrt(norm * column);
    }
}

static void store_state(const brim_kda_args *args, const double *state, float *narrow, void *to)
{
    for (int i = 0; i < 16384; i++) narrow[i] = (float)state[i];
    brim_kda_state_store(args, narrow, to);
}

brim_status brim_kda_ref_task(const brim_kda_args *args, const struct brim_kda_task *task, bool dry,
                              double *out64, double *span64, double *state64, brim_error *err)
{
    double *s = brim_calloc(16384, sizeof *s); /* [K][V] */
    float *narrow = brim_alloc(16384 * sizeof *narrow);
    if (!s || !narrow) {
        brim_free(s);
        brim_free(narrow);
        return brim_fail(err, BRIM_E_NO_MEMORY, "kda: no memory for the reference's state");
    }
    if (task->initial) {
        brim_kda_state_load(args, task->initial, narrow);
        for (int i = 0; i < 16384; i++) s[i] = narrow[i];
    }
    double q[128], k[128], u[128], o[128];
    for (int64_t t = 0; t < task->n_tok; t++) {
        double beta = brim_kda_beta(args, task, t);
        load_row(args, task->q + t * task->q_token, q);
        load_row(args, task->k + t * task->k_token, k);
        memset(u, 0, sizeof u);
        for (int i = 0; i < 128; i++) {
            double decay = exp(brim_kda_log_decay(args, task, t, i));
            for (int j = 0; j < 128; j++) {
                s[i * 128 + j] *= decay;
                u[j] += k[i] * s[i * 128 + j];
            }
        }
        for (int j = 0; j < 128; j++)
            u[j] = beta * (brim_f32_from_bf16(task->v[t * task->v_token + j]) - u[j]);
        memset(o, 0, sizeof o);
        for (int i = 0; i < 128; i++)
            for (int j = 0; j < 128; j++) {
                s[i * 128 + j] += k[i] * u[j];
                o[j] += q[i] * s[i * 128 + j];
            }
        if (span64) row_span(args, s, q, span64 + t * 128);
        for (int j = 0; j < 128; j++) {
            o[j] *= args->scale;
            if (out64) out64[t * 128 + j] = o[j];
            if (!dry) task->out[t * task->out_token + j] = brim_bf16_from_f32((float)o[j]);
        }
        if (!dry && task->checkpoints && t % 64 == 63)
            store_state(args, s, narrow, task->checkpoints + t / 64 * task->checkpoint_step);
    }
    if (state64) memcpy(state64, s, 16384 * sizeof *s);
    if (!dry && task->final) store_state(args, s, narrow, task->final);
    brim_free(s);
    brim_free(narrow);
    return BRIM_OK;
}

brim_status brim_kda_ref(const brim_kda_args *args, brim_error *err)
{
    for (int64_t n = 0; n < args->n_seq; n++)
        for (int64_t h = 0; h < args->n_value_head; h++) {
            struct brim_kda_task task;
            brim_kda_task_make(args, n, h, &task);
            BRIM_TRY(brim_kda_ref_task(args, &task, false, NULL, NULL, NULL, err));
        }
    brim_kda_zero_tail(args);
    return BRIM_OK;
}
