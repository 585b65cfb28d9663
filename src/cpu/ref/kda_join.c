/* SPDX-License-Identifier: Apache-2.0
 * A sequence cut into segments that are joined exactly: the state map of a segment is affine,
 * S' = M S + B. B is what the segment writes from zero, M what it makes of the identity without
 * values, both by the same chunks as always; then the states at the cuts in order, in fp32; then
 * the outputs from each segment's true incoming state. The model of the GPU's chain of launches
 * (src/cuda/kda/join.cu, docs/kernels/kda_split.md). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "cpu/kda.h"

enum { D = 128, N = D * D };

struct join {
    float state[N];   /* [K][V], of the cut that has been reached */
    float map[N];     /* M, [K][K] */
    float written[N]; /* B */
};

static void run_range(const brim_kda_args *args, const struct brim_kda_task *task,
                      enum brim_kda_rounding rounding, int64_t begin, int64_t end, bool quiet,
                      float *state, void *scratch)
{
    struct brim_kda_range range = {.begin = begin, .end = end, .quiet = quiet, .state = state};
    brim_kda_chunk_range(args, task, rounding, &range, scratch);
}

/* M: the columns of the identity instead of values' columns, and no values. */
static void run_map(const brim_kda_args *args, const struct brim_kda_task *task,
                    enum brim_kda_rounding rounding, int64_t begin, int64_t end, float *map,
                    void *scratch)
{
    static const uint16_t no_value[D];
    struct brim_kda_task inner = *task;
    inner.v = no_value;
    inner.v_token = 0;
    memset(map, 0, N * sizeof *map);
    for (int i = 0; i < D; i++) map[i * D + i] = 1;
    struct brim_kda_range range = {begin, end, true, map, NULL, NULL, true};
    brim_kda_chunk_range(args, &inner, rounding, &range, scratch);
}

/* B + M S, a sum of 128 terms in order. */
static void join_states(float *state, const float *map, float *written)
{
    for (int k = 0; k < D; k++)
        for (int j = 0; j < D; j++)
            for (int v = 0; v < D; v++)
                written[k * D + v] = fmaf(map[k * D + j], state[j * D + v], written[k * D + v]);
    memcpy(state, written, N * sizeof *state);
}

static void join_task(const brim_kda_args *args, const struct brim_kda_task *task,
                      enum brim_kda_rounding rounding, int64_t length, struct join *join,
                      void *scratch)
{
    int64_t n_chunk = brim_kda_n_chunk(task);
    memset(join->state, 0, sizeof join->state);
    if (task->initial) brim_kda_state_load(args, task->initial, join->state);
    for (int64_t begin = 0; begin < n_chunk; begin += length) {
        int64_t end = n_chunk - begin > length ? begin + length : n_chunk;
        /* the GPU runs these for all segments at once, and `outputs` after all joins */
        float *outputs = join->map;
        memcpy(outputs, join->state, sizeof join->state);
        run_range(args, task, rounding, begin, end, false, outputs, scratch);
        /* The first segment's incoming state is known, so its B is the state after it; nobody reads
         * the last one's map. */
        if (begin == 0 || end == n_chunk) {
            memcpy(join->state, outputs, sizeof join->state);
        } else {
            memset(join->written, 0, sizeof join->written);
            run_range(args, task, rounding, begin, end, true, join->written, scratch);
            run_map(args, task, rounding, begin, end, join->map, scratch);
            join_states(join->state, join->map, join->written);
        }
    }
    if (task->final) brim_kda_state_store(args, join->state, task->final);
}

brim_status brim_kda_join_task(const brim_kda_args *args, const struct brim_kda_task *task,
                               enum brim_kda_rounding rounding, int64_t length, brim_error *err)
{
    struct join *join = brim_alloc(sizeof *join);
    void *scratch = brim_alloc(brim_kda_chunk_scratch_bytes());
    brim_status status = BRIM_OK;

    if (join && scratch)
        join_task(args, task, rounding, length, join, scratch);
    else
        status = brim_fail(err, BRIM_E_NO_MEMORY,
                           "kda: no memory for the maps of a sequence's segments");
    brim_free(join);
    brim_free(scratch);
    return status;
}
