/* SPDX-License-Identifier: Apache-2.0
 * KDA on the CPU, whole calls: tasks in order on the calling thread. */
#include "base/mem.h"
#include "cpu/kda.h"

void brim_kda_chunk_task_tier(enum brim_cpu_tier tier, const brim_kda_args *args,
                              const struct brim_kda_task *task, void *scratch)
{
#if defined(__x86_64__)
    if (args->lower_bound < 0 && tier == BRIM_CPU_TIER_AVX512) {
        brim_kda_chunk_task_avx512(args, task, scratch);
        return;
    }
    if (args->lower_bound < 0 && tier == BRIM_CPU_TIER_AVX2) {
        brim_kda_chunk_task_avx2(args, task, scratch);
        return;
    }
#endif
    (void)tier;
    brim_kda_chunk_task(args, task, BRIM_KDA_FP32, scratch);
}

brim_status brim_kda_cpu(const brim_kda_args *args, enum brim_kda_rounding rounding,
                         brim_error *err)
{
    void *scratch = brim_alloc(brim_kda_chunk_scratch_bytes());
    if (!scratch) return brim_fail(err, BRIM_E_NO_MEMORY, "kda: no memory for one chunk");
    enum brim_cpu_tier tier = brim_cpu_detect().tier;
    for (int64_t n = 0; n < args->n_seq; n++)
        for (int64_t h = 0; h < args->n_value_head; h++) {
            struct brim_kda_task task;
            brim_kda_task_make(args, n, h, &task);
            if (rounding == BRIM_KDA_FP32)
                brim_kda_chunk_task_tier(tier, args, &task, scratch);
            else
                brim_kda_chunk_task(args, &task, rounding, scratch);
        }
    brim_kda_zero_tail(args);
    brim_free(scratch);
    return BRIM_OK;
}
