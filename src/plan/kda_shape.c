/* SPDX-License-Identifier: Apache-2.0
 * Products of numbers that a caller gives, checked before anything is derived from them. */
#include "plan/kda_shape.h"

#include "base/checked.h"

brim_status brim_kda_shape_check(const brim_kda_args *args, brim_error *err)
{
    BRIM_REQUIRE(err, args->n_value_head >= 1, BRIM_E_SHAPE,
                 "kda: n_value_head %lld must be at least 1", (long long)args->n_value_head);
    BRIM_REQUIRE(err, args->n_seq >= 0 && args->n_tok >= 0, BRIM_E_SHAPE,
                 "kda: n_seq %lld and n_tok %lld must not be negative", (long long)args->n_seq,
                 (long long)args->n_tok);
    uint64_t n_task, n_row = (uint64_t)args->n_tok, out_bytes;
    BRIM_REQUIRE(err,
                 brim_mul_u64((uint64_t)args->n_seq, (uint64_t)args->n_value_head, &n_task) &&
                     n_task <= INT32_MAX,
                 BRIM_E_SHAPE, "kda: n_seq * n_value_head does not fit 31 bits");
    /* What `out` takes at least: 128 bf16 values for each token and head. */
    bool packed = args->cu_seqlens || args->offset_bytes;
    BRIM_REQUIRE(err,
                 (packed || brim_mul_u64(n_row, (uint64_t)args->n_seq, &n_row)) &&
                     brim_mul_u64(n_row, (uint64_t)args->n_value_head, &out_bytes) &&
                     brim_mul_u64(out_bytes, BRIM_KDA_DIM * 2, &out_bytes) &&
                     out_bytes <= INT64_MAX,
                 BRIM_E_SHAPE,
                 "kda: n_seq %lld, n_tok %lld and n_value_head %lld reach beyond what memory can "
                 "hold",
                 (long long)args->n_seq, (long long)args->n_tok, (long long)args->n_value_head);
    return BRIM_OK;
}
