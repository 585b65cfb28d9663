/* SPDX-License-Identifier: Apache-2.0
 * The contract of brim_kda_args in code: every refusal, and the addresses of one task. */
#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "cpu/kda.h"
#include "plan/kda_shape.h"
#include "plan/kda_split.h"
#include "tensor/dtype.h"

enum {
    KNOWN_FLAGS = BRIM_KDA_L2NORM | BRIM_KDA_BETA_LOGIT | BRIM_KDA_STATE_K_FIRST | BRIM_KDA_CHECKED
};

static size_t dtype_bytes(brim_kernel_dtype dtype)
{
    return dtype == BRIM_KERNEL_F32 ? 4 : 2;
}

static bool is_f32_or_bf16(brim_kernel_dtype dtype)
{
    return dtype == BRIM_KERNEL_F32 || dtype == BRIM_KERNEL_BF16;
}

/* One [.., n_tok, n_head, 128] operand: pointer, alignment, strides of at least one row. */
static brim_status check_tensor(const char *name, const void *data, const brim_kda_stride *stride,
                                size_t bytes, int64_t n_head, const brim_kda_args *args,
                                brim_error *err)
{
    int64_t unit = 16 / (int64_t)bytes;
    BRIM_REQUIRE(err, data, BRIM_E_ARGUMENT, "kda: %s is null", name);
    BRIM_REQUIRE(err, (uintptr_t)data % 16 == 0, BRIM_E_ALIGNMENT, "kda: %s is not 16-byte aligned",
                 name);
    BRIM_REQUIRE(
        err, stride->token >= 128 && stride->token % unit == 0, BRIM_E_STRIDE,
        "kda: the token stride of %s is %lld; at least 128 and a multiple of %lld is taken", name,
        (long long)stride->token, (long long)unit);
    BRIM_REQUIRE(err, n_head == 1 || (stride->head >= 128 && stride->head % unit == 0),
                 BRIM_E_STRIDE,
                 "kda: the head stride of %s is %lld; at least 128 and a multiple of %lld is taken",
                 name, (long long)stride->head, (long long)unit);
    if (!args->cu_seqlens && args->n_seq > 1 && args->n_tok > 0)
        BRIM_REQUIRE(
            err, stride->batch >= 128 && stride->batch % unit == 0, BRIM_E_STRIDE,
            "kda: the batch stride of %s is %lld; at least 128 and a multiple of %lld is taken",
            name, (long long)stride->batch, (long long)unit);
    return BRIM_OK;
}

static brim_status check_shape(const brim_kda_args *args, brim_error *err)
{
    BRIM_REQUIRE(err, args->device == BRIM_KERNEL_CPU || args->device == BRIM_KERNEL_CUDA,
                 BRIM_E_ARGUMENT, "kda: device %d is neither CPU nor CUDA", (int)args->device);
    BRIM_REQUIRE(err, args->head_dim == BRIM_KDA_DIM, BRIM_E_SHAPE,
                 "kda: head_dim is %lld; only 128 is taken", (long long)args->head_dim);
    BRIM_REQUIRE(err, args->n_head >= 1 && args->n_value_head >= 1, BRIM_E_SHAPE,
                 "kda: n_head %lld and n_value_head %lld must be at least 1",
                 (long long)args->n_head, (long long)args->n_value_head);
    BRIM_REQUIRE(err, args->n_value_head % args->n_head == 0, BRIM_E_SHAPE,
                 "kda: n_value_head %lld is not a multiple of n_head %lld",
                 (long long)args->n_value_head, (long long)args->n_head);
    BRIM_TRY(brim_kda_shape_check(args, err));
    if (args->cu_seqlens) {
        BRIM_REQUIRE(err, args->offset_bytes == 4 || args->offset_bytes == 8, BRIM_E_DTYPE,
                     "kda: offset_bytes is %d; 4 or 8 is taken", args->offset_bytes);
        BRIM_REQUIRE(err, (uintptr_t)args->cu_seqlens % (unsigned)args->offset_bytes == 0,
                     BRIM_E_ALIGNMENT, "kda: cu_seqlens is not aligned to its elements");
        BRIM_REQUIRE(err, args->max_tok >= 0 && args->max_tok <= args->n_tok, BRIM_E_OFFSETS,
                     "kda: max_tok %lld lies outside [0, n_tok = %lld]", (long long)args->max_tok,
                     (long long)args->n_tok);
    } else {
        BRIM_REQUIRE(err, args->offset_bytes == 0, BRIM_E_ARGUMENT,
                     "kda: offset_bytes without cu_seqlens");
    }
    return BRIM_OK;
}

static brim_status check_gate(const brim_kda_args *args, brim_error *err)
{
    bool given = args->gate == BRIM_KDA_GATE_GIVEN;
    float lb = args->lower_bound;
    switch (args->gate) {
    case BRIM_KDA_GATE_LOWER_BOUND:
        BRIM_REQUIRE(err, lb >= -5 && lb < 0, BRIM_E_RANGE,
                     "kda: lower_bound %g lies outside [-5, 0) and has no default", (double)lb);
        break;
    case BRIM_KDA_GATE_SOFTPLUS:
        BRIM_REQUIRE(err, lb == 0, BRIM_E_RANGE,
                     "kda: the softplus gate takes no lower_bound; set it to 0");
        break;
    case BRIM_KDA_GATE_GIVEN:
        BRIM_REQUIRE(err, lb >= -5 && lb <= 0, BRIM_E_RANGE,
                     "kda: lower_bound %g of a given decay lies outside [-5, 0]", (double)lb);
        BRIM_REQUIRE(err, !args->a_log && !args->dt_bias, BRIM_E_ARGUMENT,
                     "kda: a_log and dt_bias do not belong to a given decay");
        break;
    default:
        return brim_fail(err, BRIM_E_ARGUMENT, "kda: gate %d is unknown", (int)args->gate);
    }
    BRIM_REQUIRE(err,
                 args->g_dtype == BRIM_KERNEL_BF16 || (given && args->g_dtype == BRIM_KERNEL_F32),
                 BRIM_E_DTYPE, "kda: g must be bf16, or f32 when it is a given decay");
    return BRIM_OK;
}

static brim_status check_state(const brim_kda_args *args, brim_error *err)
{
    bool any = args->initial_state || args->final_state || args->checkpoints;
    if (any)
        BRIM_REQUIRE(err, is_f32_or_bf16(args->state_dtype), BRIM_E_DTYPE,
                     "kda: state_dtype must be f32 or bf16");
    if (args->initial_state || args->final_state)
        BRIM_REQUIRE(
            err, args->state_stride >= args->n_value_head * 16384 && args->state_stride % 8 == 0,
            BRIM_E_STRIDE,
            "kda: state_stride %lld is below n_value_head * 16384 or no multiple of 8",
            (long long)args->state_stride);
    const void *pointers[] = {args->initial_state, args->final_state, args->checkpoints};
    for (int i = 0; i < 3; i++)
        BRIM_REQUIRE(err, (uintptr_t)pointers[i] % 16 == 0, BRIM_E_ALIGNMENT,
                     "kda: a state is not 16-byte aligned");
    if (args->state_index) {
        BRIM_REQUIRE(err, args->n_slot >= 1, BRIM_E_ARGUMENT,
                     "kda: a pool needs n_slot of at least 1");
        BRIM_REQUIRE(err, args->initial_state || args->final_state, BRIM_E_ARGUMENT,
                     "kda: state_index without an initial or final state");
        BRIM_REQUIRE(err, (uintptr_t)args->state_index % 4 == 0, BRIM_E_ALIGNMENT,
                     "kda: state_index is not aligned to its elements");
    }
    return BRIM_OK;
}

/* Where an operand lies: rows of `width` bytes, `pitch` apart, `bytes` from first to last. */
struct span {
    const char *name;
    uintptr_t at;
    uint64_t bytes, pitch, width;
};

/* n_block blocks of n_row rows of n_head pieces of `piece` elements; false: beyond 64 bits. */
static bool span_make(struct span *s, const char *name, const void *data, size_t element,
                      int64_t n_block, int64_t block, int64_t n_row, int64_t row, int64_t n_head,
                      int64_t head, int64_t piece)
{
    uint64_t blocks = 0, rows = 0, heads = 0, sum;
    *s = (struct span){.name = name, .at = (uintptr_t)data};
    if (!data || n_block == 0 || n_row == 0) return true;
    if (!brim_mul_u64((uint64_t)(n_block - 1), (uint64_t)block, &blocks) ||
        !brim_mul_u64((uint64_t)(n_row - 1), (uint64_t)row, &rows) ||
        !brim_mul_u64((uint64_t)(n_head - 1), (uint64_t)head, &heads) || blocks > INT64_MAX / 4 ||
        rows > INT64_MAX / 4 || heads > INT64_MAX / 4)
        return false;
    sum = blocks + rows + heads + (uint64_t)piece;
    if (!brim_mul_u64(sum, element, &s->bytes) || s->at + s->bytes < s->at) return false;
    s->width = (heads + (uint64_t)piece) * element;
    /* blocks that do not start on a row of the first one leave no common pitch */
    s->pitch = n_block > 1 && (row == 0 || block % row) ? 0 : (uint64_t)row * element;
    return true;
}

/* Rows of equal pitch may lie beside each other, as views of one packed projection do. */
static bool spans_meet(const struct span *a, const struct span *b)
{
    if (!a->bytes || !b->bytes || a->at + a->bytes <= b->at || b->at + b->bytes <= a->at)
        return false;
    if (!a->pitch || a->pitch != b->pitch) return true;
    uint64_t apart = b->at >= a->at ? (b->at - a->at) % a->pitch
                                    : (a->pitch - (a->at - b->at) % a->pitch) % a->pitch;
    return !(apart >= a->width && apart + b->width <= a->pitch);
}

/* Everything must fit an address space, and what is written must lie apart from the rest. */
static brim_status check_apart(const brim_kda_args *args, brim_error *err)
{
    int64_t n_block = args->cu_seqlens ? 1 : args->n_seq, hv = args->n_value_head;
    int64_t n_state = args->state_index ? args->n_slot : args->n_seq;
    int64_t n_checkpoint = args->cu_seqlens ? args->n_tok / BRIM_KDA_CHECKPOINT
                                            : args->n_seq * (args->n_tok / BRIM_KDA_CHECKPOINT);
    size_t state = dtype_bytes(args->state_dtype);
    enum { OUT, FINAL, CHECKPOINTS, INITIAL, Q, K, V, G, BETA, N };
    struct span s[N];
    bool fits = args->n_tok <= INT64_MAX / (args->n_seq > 1 ? args->n_seq : 1);
    const struct {
        const char *name;
        const void *data;
        const brim_kda_stride *stride;
        size_t element;
        int64_t n_head, piece;
    } rows[] = {
        [Q] = {"q", args->q, &args->q_stride, 2, args->n_head, 128},
        [K] = {"k", args->k, &args->k_stride, 2, args->n_head, 128},
        [V] = {"v", args->v, &args->v_stride, 2, hv, 128},
        [G] = {"g", args->g, &args->g_stride, dtype_bytes(args->g_dtype), hv, 128},
        [BETA] = {"beta", args->beta, &args->beta_stride, dtype_bytes(args->beta_dtype), hv, 1},
        [OUT] = {"out", args->out, &args->out_stride, 2, hv, 128}};
    for (int i = 0; i < N && fits; i++)
        if (i == OUT || i >= Q)
            fits = span_make(&s[i], rows[i].name, rows[i].data, rows[i].element, n_block,
                             rows[i].stride->batch, args->n_tok, rows[i].stride->token,
                             rows[i].n_head, rows[i].stride->head, rows[i].piece);
    fits = fits &&
           span_make(&s[FINAL], "final_state", args->final_state, state, 1, 0, n_state,
                     args->state_stride, hv, 16384, 16384) &&
           span_make(&s[INITIAL], "initial_state", args->initial_state, state, 1, 0, n_state,
                     args->state_stride, hv, 16384, 16384) &&
           span_make(&s[CHECKPOINTS], "checkpoints", args->checkpoints, state, 1, 0, n_checkpoint,
                     hv * 16384, hv, 16384, 16384);
    BRIM_REQUIRE(err, fits, BRIM_E_SHAPE,
                 "kda: n_seq %lld, n_tok %lld and the strides reach beyond what memory can hold",
                 (long long)args->n_seq, (long long)args->n_tok);
    for (int i = OUT; i <= CHECKPOINTS; i++)
        for (int j = i + 1; j < N; j++) {
            if (i == FINAL && j == INITIAL && s[i].at == s[j].at) continue; /* in place */
            BRIM_REQUIRE(err, !spans_meet(&s[i], &s[j]), BRIM_E_ARGUMENT, "kda: %s overlaps %s",
                         s[i].name, s[j].name);
        }
    return BRIM_OK;
}

static int64_t offset_at(const brim_kda_args *args, int64_t i)
{
    if (args->offset_bytes == 4) return ((const int32_t *)args->cu_seqlens)[i];
    return ((const int64_t *)args->cu_seqlens)[i];
}

/* What only host memory lets us look at. */
static brim_status check_host_values(const brim_kda_args *args, brim_error *err)
{
    if (args->cu_seqlens) {
        BRIM_REQUIRE(err, offset_at(args, 0) == 0, BRIM_E_OFFSETS,
                     "kda: cu_seqlens[0] is %lld, not 0", (long long)offset_at(args, 0));
        for (int64_t n = 0; n < args->n_seq; n++) {
            int64_t a = offset_at(args, n), b = offset_at(args, n + 1);
            BRIM_REQUIRE(err, b >= a && b <= args->n_tok, BRIM_E_OFFSETS,
                         "kda: cu_seqlens[%lld] is %lld after %lld of %lld rows", (long long)n + 1,
                         (long long)b, (long long)a, (long long)args->n_tok);
            BRIM_REQUIRE(err, b - a <= args->max_tok, BRIM_E_OFFSETS,
                         "kda: sequence %lld has %lld tokens, more than max_tok %lld", (long long)n,
                         (long long)(b - a), (long long)args->max_tok);
        }
    }
    if (args->state_index)
        for (int64_t n = 0; n < args->n_seq; n++)
            BRIM_REQUIRE(err, args->state_index[n] >= -1 && args->state_index[n] < args->n_slot,
                         BRIM_E_RANGE, "kda: state_index[%lld] is %d in a pool of %lld",
                         (long long)n, (int)args->state_index[n], (long long)args->n_slot);
    if (!(args->flags & BRIM_KDA_CHECKED)) return BRIM_OK;
    for (int64_t n = 0; args->state_index && n < args->n_seq; n++)
        for (int64_t m = n + 1; m < args->n_seq && args->state_index[n] >= 0; m++)
            BRIM_REQUIRE(err, args->state_index[m] != args->state_index[n], BRIM_E_ARGUMENT,
                         "kda: sequences %lld and %lld share slot %d", (long long)n, (long long)m,
                         (int)args->state_index[n]);
    if (args->gate != BRIM_KDA_GATE_GIVEN) return BRIM_OK;
    /* bf16 rounds a decay at the bound outward by up to half a unit in its last place */
    double low = args->lower_bound < 0 ? (double)args->lower_bound * (1 + 1.0 / 256) : -INFINITY;
    for (int64_t n = 0; n < args->n_seq; n++)
        for (int64_t h = 0; h < args->n_value_head; h++) {
            struct brim_kda_task task;
            brim_kda_task_make(args, n, h, &task);
            for (int64_t t = 0; t < task.n_tok; t++)
                for (int i = 0; i < 128; i++) {
                    double g = brim_kda_log_decay(args, &task, t, i);
                    BRIM_REQUIRE(err, g <= 0 && g >= low, BRIM_E_RANGE, /* NaN is outside */
                                 "kda: the decay %g of sequence %lld, token %lld, channel %d lies "
                                 "outside its bounds",
                                 g, (long long)n, (long long)t, i);
                }
        }
    return BRIM_OK;
}

brim_status brim_kda_check(const brim_kda_args *args, brim_error *err)
{
    BRIM_REQUIRE(err, args, BRIM_E_ARGUMENT, "kda: the arguments are null");
    BRIM_REQUIRE(err, !(args->flags & ~(uint32_t)KNOWN_FLAGS), BRIM_E_ARGUMENT,
                 "kda: unknown flags 0x%x", args->flags & ~(uint32_t)KNOWN_FLAGS);
    BRIM_REQUIRE(err, args->n_thread >= 0 && args->n_thread <= 4096, BRIM_E_RANGE,
                 "kda: n_thread %d lies outside [0, 4096]", args->n_thread);
    BRIM_TRY(brim_kda_split_check(args->split_length, args->split_first, args->split_window, err));
    BRIM_TRY(check_shape(args, err));
    BRIM_REQUIRE(err, args->qkv_dtype == BRIM_KERNEL_BF16, BRIM_E_DTYPE,
                 "kda: q, k, v and out must be bf16");
    BRIM_REQUIRE(err, is_f32_or_bf16(args->beta_dtype), BRIM_E_DTYPE,
                 "kda: beta must be bf16 or f32");
    BRIM_TRY(check_gate(args, err));
    BRIM_REQUIRE(err, isfinite(args->scale), BRIM_E_RANGE, "kda: scale is not finite");
    BRIM_TRY(check_tensor("q", args->q, &args->q_stride, 2, args->n_head, args, err));
    BRIM_TRY(check_tensor("k", args->k, &args->k_stride, 2, args->n_head, args, err));
    BRIM_TRY(check_tensor("v", args->v, &args->v_stride, 2, args->n_value_head, args, err));
    BRIM_TRY(check_tensor("g", args->g, &args->g_stride, dtype_bytes(args->g_dtype),
                          args->n_value_head, args, err));
    BRIM_TRY(check_tensor("out", args->out, &args->out_stride, 2, args->n_value_head, args, err));
    BRIM_REQUIRE(err, args->beta, BRIM_E_ARGUMENT, "kda: beta is null");
    BRIM_REQUIRE(err, (uintptr_t)args->beta % dtype_bytes(args->beta_dtype) == 0, BRIM_E_ALIGNMENT,
                 "kda: beta is not aligned to its elements");
    BRIM_REQUIRE(err,
                 args->beta_stride.token >= 0 && args->beta_stride.head >= 0 &&
                     args->beta_stride.batch >= 0,
                 BRIM_E_STRIDE, "kda: a stride of beta is negative");
    BRIM_REQUIRE(err, (uintptr_t)args->a_log % 4 == 0 && (uintptr_t)args->dt_bias % 16 == 0,
                 BRIM_E_ALIGNMENT, "kda: a_log must be 4-byte and dt_bias 16-byte aligned");
    BRIM_TRY(check_state(args, err));
    BRIM_TRY(check_apart(args, err));
    return args->device == BRIM_KERNEL_CPU ? check_host_values(args, err) : BRIM_OK;
}

void brim_kda_task_make(const brim_kda_args *args, int64_t seq, int64_t head,
                        struct brim_kda_task *task)
{
    int64_t q_head = head / (args->n_value_head / args->n_head), row0 = 0, batch = seq;
    memset(task, 0, sizeof *task);
    task->n_tok = args->n_tok;
    task->row0 = seq * args->n_tok;
    if (args->cu_seqlens) {
        row0 = task->row0 = offset_at(args, seq);
        task->n_tok = offset_at(args, seq + 1) - row0;
        batch = 0;
    }
#define AT(s, h) (batch * (s).batch + row0 * (s).token + (h) * (s).head)
    task->q = (const uint16_t *)args->q + AT(args->q_stride, q_head);
    task->k = (const uint16_t *)args->k + AT(args->k_stride, q_head);
    task->v = (const uint16_t *)args->v + AT(args->v_stride, head);
    task->out = (uint16_t *)args->out + AT(args->out_stride, head);
    task->g =
        (const char *)args->g + (int64_t)dtype_bytes(args->g_dtype) * AT(args->g_stride, head);
    task->beta = (const char *)args->beta +
                 (int64_t)dtype_bytes(args->beta_dtype) * AT(args->beta_stride, head);
#undef AT
    task->q_token = args->q_stride.token;
    task->k_token = args->k_stride.token;
    task->v_token = args->v_stride.token;
    task->g_token = args->g_stride.token;
    task->beta_token = args->beta_stride.token;
    task->out_token = args->out_stride.token;
    task->a_scale = args->a_log ? expf(args->a_log[head]) : 1;
    task->bias = args->dt_bias ? args->dt_bias + head * 128 : NULL;

    int64_t state_bytes = (int64_t)dtype_bytes(args->state_dtype);
    int64_t slot = args->state_index ? args->state_index[seq] : seq;
    int64_t at = (slot * args->state_stride + head * 16384) * state_bytes;
    bool fresh = args->fresh && args->fresh[seq];
    if (args->initial_state && slot >= 0 && !fresh)
        task->initial = (const char *)args->initial_state + at;
    if (args->final_state && slot >= 0) task->final = (char *)args->final_state + at;
    if (args->checkpoints) {
        int64_t first = args->cu_seqlens ? row0 / 64 : seq * (args->n_tok / 64);
        task->checkpoint_step = args->n_value_head * 16384 * state_bytes;
        task->checkpoints =
            (char *)args->checkpoints + first * task->checkpoint_step + head * 16384 * state_bytes;
    }
}

void brim_kda_zero_tail(const brim_kda_args *args)
{
    if (!args->cu_seqlens) return;
    for (int64_t t = offset_at(args, args->n_seq); t < args->n_tok; t++)
        for (int64_t h = 0; h < args->n_value_head; h++)
            memset((uint16_t *)args->out + t * args->out_stride.token + h * args->out_stride.head,
                   0, 256);
}

double brim_kda_log_decay(const brim_kda_args *args, const struct brim_kda_task *task, int64_t t,
                          int i)
{
    int64_t at = t * task->g_token + i;
    double x = args->g_dtype == BRIM_KERNEL_F32
                   ? ((const float *)task->g)[at]
                   : brim_f32_from_bf16(((const uint16_t *)task->g)[at]);
    if (args->gate == BRIM_KDA_GATE_GIVEN) return x;
    if (task->bias) x += task->bias[i];
    if (args->gate == BRIM_KDA_GATE_LOWER_BOUND)
        return args->lower_bound / (1 + exp(-(double)task->a_scale * x));
    return -(double)task->a_scale * (x > 30 ? x : log1p(exp(x)));
}

double brim_kda_beta(const brim_kda_args *args, const struct brim_kda_task *task, int64_t t)
{
    int64_t at = t * task->beta_token;
    double x = args->beta_dtype == BRIM_KERNEL_F32
                   ? ((const float *)task->beta)[at]
                   : brim_f32_from_bf16(((const uint16_t *)task->beta)[at]);
    return args->flags & BRIM_KDA_BETA_LOGIT ? 1 / (1 + exp(-x)) : x;
}
