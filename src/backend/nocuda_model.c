/* SPDX-License-Identifier: Apache-2.0
 * Stands in for src/cuda/model in a build without nvcc. */
#include "cuda/model/ops.h"

#ifndef BRIM_HAVE_CUDA
static brim_status no_kernel(const char *name, brim_error *err)
{
    return brim_fail(err, BRIM_E_DEVICE, "%s: this build of brim has no CUDA kernels", name);
}

/* NAME(const struct ARGS *, void *stream, brim_error *) that fails. */
#define STAND_IN(name, args_struct)                                                 \
    brim_status name(const struct args_struct *args, void *stream, brim_error *err) \
    {                                                                               \
        (void)args;                                                                 \
        (void)stream;                                                               \
        return no_kernel(#name, err);                                               \
    }

STAND_IN(brim_cuda_embed, brim_cuda_embed_args)
STAND_IN(brim_cuda_keep, brim_cuda_keep_args)
STAND_IN(brim_cuda_dense, brim_cuda_dense_args)
STAND_IN(brim_cuda_rmsnorm, brim_cuda_rmsnorm_args)
STAND_IN(brim_cuda_rmsnorm_plain, brim_cuda_rmsnorm_args)
STAND_IN(brim_cuda_rope_table, brim_cuda_rope_table_args)
STAND_IN(brim_cuda_rotate, brim_cuda_rotate_args)
STAND_IN(brim_cuda_rotate_plain, brim_cuda_rotate_args)
STAND_IN(brim_cuda_swiglu, brim_cuda_swiglu_args)
STAND_IN(brim_cuda_swiglu_plain, brim_cuda_swiglu_args)
STAND_IN(brim_cuda_add, brim_cuda_add_args)
STAND_IN(brim_cuda_attention_decode, brim_cuda_attention_args)
STAND_IN(brim_cuda_attention_prefill, brim_cuda_attention_args)
STAND_IN(brim_cuda_attention_plain, brim_cuda_attention_args)
STAND_IN(brim_cuda_sample, brim_cuda_sample_args)

size_t brim_cuda_attention_decode_bytes(int n_head, int n_head_kv, int head_dim)
{
    (void)n_head;
    (void)n_head_kv;
    (void)head_dim;
    return 0;
}

size_t brim_cuda_attention_plain_bytes(int64_t n_row, int n_head, int64_t n_key_max)
{
    (void)n_row;
    (void)n_head;
    (void)n_key_max;
    return 0;
}
#endif
