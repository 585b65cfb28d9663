/* SPDX-License-Identifier: Apache-2.0
 * A weight as a checkpoint stores it, and the interface by which model code finds one.
 *
 * A matrix computes y[n_row][n_out] = x[n_row][n_in] W^T with W stored [n_out][n_in], n_in
 * innermost. All pointers borrow from the mapping of the file and may have any alignment. */
#ifndef BRIM_TENSOR_WEIGHT_H
#define BRIM_TENSOR_WEIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"
#include "tensor/dtype.h"

enum brim_weight_kind {
    BRIM_WEIGHT_DENSE = 0,   /* data: dtype elements [n_out][n_in] */
    BRIM_WEIGHT_AFFINE4 = 1, /* MLX affine 4-bit: data u32 [n_out][n_in/8], value j of a word in
                                bits 4j..4j+3; scales, biases: dtype [n_out][n_in/group] */
    BRIM_WEIGHT_Q4_0 = 2,    /* GGUF blocks of 32: f16 d, 16 bytes; w = d (q - 8) */
    BRIM_WEIGHT_Q4_1 = 3,    /* GGUF blocks of 32: f16 d, f16 m, 16 bytes; w = d q + m */
    BRIM_WEIGHT_Q8_0 = 4     /* GGUF blocks of 32: f16 d, 32 int8; w = d q */
};

struct brim_weight {
    enum brim_weight_kind kind;
    enum brim_dtype dtype; /* DENSE: of data; AFFINE4: of scales and biases; else F16 */
    int64_t n_out, n_in;   /* a vector (norm weight, bias) has n_out == 1 */
    int group;             /* values that share a scale: 32, 64 or 128; 0 for DENSE */
    const void *data;
    size_t data_bytes;
    const void *scales, *biases; /* AFFINE4 only */
    /* GGUF stores the rows of a Llama q or k projection so that rotary pairs are neighbours. If
     * n_rope_head > 0, row h*d + i of the matrix (h < n_rope_head, d = n_out / n_rope_head) lies in
     * the file at row h*d + (i < d/2 ? 2i : 2(i - d/2) + 1); see brim_weight_file_row. */
    int n_rope_head;
};

/* The row of the file that holds row `row` of the matrix. */
static inline int64_t brim_weight_file_row(const struct brim_weight *w, int64_t row)
{
    if (w->n_rope_head == 0) return row;
    int64_t d = w->n_out / w->n_rope_head, i = row % d;
    return row - i + (i < d / 2 ? 2 * i : 2 * (i - d / 2) + 1);
}

/* Bytes of one stored row of `data` (without scales and biases). */
size_t brim_weight_row_bytes(const struct brim_weight *w);
/* "dense", "affine4", "q4_0", "q4_1", "q8_0". */
const char *brim_weight_kind_name(enum brim_weight_kind kind);
/* Row `row` of the matrix as float: out[n_in]. The plain C meaning of every kind. */
void brim_weight_row_f32(const struct brim_weight *w, int64_t row, float *out);

/* Can this matrix be loaded: known kind and group, enough bytes, nothing null? `name` is for the
 * text. */
brim_status brim_weight_check(const struct brim_weight *w, const char *name, brim_error *err);
/* Are these of one kind, element type, group and width, so that they can lie in one matrix? */
bool brim_weight_can_join(const struct brim_weight *parts, int n_part);
/* Is some -8 d of these Q4_0 blocks too large for f16, so that biases need f32? */
bool brim_weight_q4_0_overflows(const struct brim_weight *w);

/* The low nibbles of eight bytes, first byte lowest. */
static inline uint32_t brim_low_nibbles(uint64_t bytes)
{
    bytes &= 0x0F0F0F0F0F0F0F0F;
    bytes = (bytes | bytes >> 4) & 0x00FF00FF00FF00FF;
    bytes = (bytes | bytes >> 8) & 0x0000FFFF0000FFFF;
    return (uint32_t)(bytes | bytes >> 16);
}

/* Codes of a Q4_0 or Q4_1 block as AFFINE4 stores them: byte i of the block holds inputs i (low
 * nibble) and i + 16. Little-endian. */
static inline void brim_weight_q4_words(const uint8_t *codes, uint32_t *words)
{
    uint64_t first, second;
    memcpy(&first, codes, sizeof first);
    memcpy(&second, codes + 8, sizeof second);
    words[0] = brim_low_nibbles(first), words[1] = brim_low_nibbles(second);
    words[2] = brim_low_nibbles(first >> 4), words[3] = brim_low_nibbles(second >> 4);
}

/* Named weights, implemented by src/load. Names are those of the Hugging Face checkpoint without
 * ".weight" or ".bias" of the quantizer: "model.layers.0.self_attn.q_proj.weight",
 * "model.layers.0.self_attn.q_proj.bias" (an additive bias), "model.norm.weight",
 * "model.embed_tokens.weight", "lm_head.weight"; a loader of another format translates. */
struct brim_weight_source {
    void *ctx;
    /* true and *out filled if the checkpoint holds `name`. */
    bool (*find)(void *ctx, const char *name, struct brim_weight *out);
    /* The caller has copied everything it needs of `w`: its pages may go (brim_map_release). */
    void (*release)(void *ctx, const struct brim_weight *w);
    /* Where the weights came from, for error texts. */
    const char *path;
};

#endif
