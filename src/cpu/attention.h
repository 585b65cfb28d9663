/* SPDX-License-Identifier: Apache-2.0
 * Causal grouped-query attention over the keys and values of one layer, on the pool: the driver of
 * the `attention` kernels. Prefill in one piece, prefill in chunks and token by token give the same
 * bits on one tier, whatever the number of threads (see cpu_ops.h for the reason). */
#ifndef BRIM_CPU_ATTENTION_H
#define BRIM_CPU_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "cpu/cpu_ops.h"

/* Keys and values of one layer, memory borrowed. n_alloc positions, a multiple of
 * BRIM_ATTENTION_BLOCK. k: [n_head_kv][n_alloc / 16][head_dim][16], v:
 * [n_head_kv][n_alloc][head_dim], both 64-byte aligned. Positions not stored yet may hold anything
 * but must be readable. */
struct brim_attention_kv {
    enum brim_dtype dtype; /* F16 or F32 */
    int n_head_kv, head_dim;
    int64_t n_alloc;
    void *k, *v;
};

/* n_position rounded up to whole blocks. */
int64_t brim_attention_kv_round(int64_t n_position);
/* Bytes of k, and as many of v, for n_alloc positions; a multiple of 64. */
size_t brim_attention_kv_bytes(enum brim_dtype dtype, int n_head_kv, int head_dim, int64_t n_alloc);

/* Keys and values of n_tok tokens into positions first_pos...: k[n_tok][k_stride] holds n_head_kv x
 * head_dim values, rotated; v likewise. Narrowed to kv->dtype, nearest even. */
void brim_attention_kv_store(const struct brim_cpu_ops *ops, struct brim_pool *pool,
                             const struct brim_attention_kv *kv, int64_t first_pos, int64_t n_tok,
                             const float *k, int64_t k_stride, const float *v, int64_t v_stride);

/* The exact bits of the first n_position positions as [k, v][n_head_kv][n_position][head_dim]. */
void brim_attention_kv_export(const struct brim_attention_kv *kv, int64_t n_position, void *out);
void brim_attention_kv_import(const struct brim_attention_kv *kv, int64_t n_position,
                              const void *data);

/* What brim_attention_run needs for up to n_tok tokens that see up to n_position keys. */
size_t brim_attention_workspace_bytes(int n_head, int n_head_kv, int head_dim, int64_t n_tok,
                                      int64_t n_position, int n_thread);

/* out[n_tok][out_stride] = attention of q[n_tok][q_stride], n_head x head_dim values per token, at
 * positions first_pos..., over the stored keys. n_head is a multiple of kv->n_head_kv; query head h
 * uses key head h / (n_head / n_head_kv). q and out may be the same memory only if equal strides
 * keep every token's row in its place. workspace: 64-byte aligned. Allocates nothing. */
void brim_attention_run(const struct brim_cpu_ops *ops, struct brim_pool *pool,
                        const struct brim_attention_kv *kv, const float *q, int64_t q_stride,
                        int n_head, int64_t first_pos, int64_t n_tok, float scale, float *out,
                        int64_t out_stride, void *workspace);

#endif
