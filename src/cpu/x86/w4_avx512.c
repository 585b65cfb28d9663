/* SPDX-License-Identifier: Apache-2.0
 * 4-bit panels, AVX-512. A zmm of code words holds eight inputs of sixteen output rows. vpermps
 * with a table of 0.0f..15.0f turns the low four bits of every lane into a float and ignores the
 * bits above, so a code costs one shift and one permute. */
#include "cpu/cpu_init.h"
#include "cpu/x86/panel_avx512.h"

enum { PREFETCH = 1024 }; /* bytes ahead of the panel's stream: about three groups of 32 */

ALWAYS_INLINE __m512 code_table(void)
{
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/* Code j of every word, as float. j is a constant once the loop around is unrolled. */
ALWAYS_INLINE __m512 code_f32(__m512i words, int j, __m512 table)
{
    return _mm512_permutexvar_ps(_mm512_srli_epi32(words, (unsigned)(4 * j)), table);
}

struct w4_stream {
    const uint8_t *at;
    size_t param_bytes; /* of scales, and again of biases */
    size_t group_bytes;
};

ALWAYS_INLINE struct w4_stream w4_stream(const struct brim_panel *w, int64_t in_begin)
{
    struct w4_stream s = {.param_bytes = BRIM_PANEL * brim_dtype_bytes(w->dtype),
                          .group_bytes = brim_w4_group_bytes(w->dtype, w->group)};
    s.at = w->data + (size_t)(in_begin / w->group) * s.group_bytes;
    return s;
}

enum { CHAINS = 2 };

/* Affine identity per group, see w4_ref.c. Two sums, of even and odd inputs, so that the latency of
 * the fused multiply-add does not bound one or two rows; for more rows too, so that a row has the
 * same bits whatever rows come with it. */
ALWAYS_INLINE void matvec_rows(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                               const float *x, int64_t x_stride, const float *x_sum,
                               int64_t sum_stride, const int n_row, float *y, int64_t y_stride)
{
    const __m512 table = code_table();
    struct w4_stream s = w4_stream(w, in_begin);
    __m512 total[BRIM_MATVEC_ROWS];
#pragma GCC unroll 8
    for (int row = 0; row < n_row; row++) total[row] = _mm512_setzero_ps();
    for (int64_t in = in_begin; in < in_end; in += w->group, s.at += s.group_bytes, x_sum++) {
        const uint8_t *codes = s.at + 2 * s.param_bytes;
        __m512 part[BRIM_MATVEC_ROWS * CHAINS];
#pragma GCC unroll 16
        for (int i = 0; i < n_row * CHAINS; i++) part[i] = _mm512_setzero_ps();
        for (int v = 0; v < w->group / 8; v++, codes += 64, x += 8) {
            _mm_prefetch((const char *)codes + PREFETCH, _MM_HINT_T0);
            __m512i words = load_codes(codes);
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) {
                __m512 q = code_f32(words, j, table);
#pragma GCC unroll 8
                for (int row = 0; row < n_row; row++) {
                    __m512 *to = &part[row * CHAINS + j % CHAINS];
                    *to = _mm512_fmadd_ps(q, _mm512_set1_ps(x[row * x_stride + j]), *to);
                }
            }
        }
        __m512 scale = load16(w->dtype, s.at), bias = load16(w->dtype, s.at + s.param_bytes);
#pragma GCC unroll 8
        for (int row = 0; row < n_row; row++) {
            __m512 sum = _mm512_add_ps(part[row * CHAINS], part[row * CHAINS + 1]);
            total[row] = _mm512_fmadd_ps(scale, sum, total[row]);
            total[row] = _mm512_fmadd_ps(bias, _mm512_set1_ps(x_sum[row * sum_stride]), total[row]);
        }
    }
#pragma GCC unroll 8
    for (int row = 0; row < n_row; row++) _mm512_storeu_ps(y + row * y_stride, total[row]);
}

static void w4_matvec_avx512(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                             const float *x, int64_t x_stride, const float *x_sum,
                             int64_t sum_stride, int n_row, float *y, int64_t y_stride)
{
#define BODY(n) matvec_rows(w, in_begin, in_end, x, x_stride, x_sum, sum_stride, n, y, y_stride)
    WITH_ROWS_8(n_row, BODY)
#undef BODY
}

static void w4_unpack_avx512(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                             float *out)
{
    const __m512 table = code_table();
    struct w4_stream s = w4_stream(w, in_begin);
    for (int64_t in = in_begin; in < in_end; in += w->group, s.at += s.group_bytes) {
        __m512 scale = load16(w->dtype, s.at), bias = load16(w->dtype, s.at + s.param_bytes);
        const uint8_t *codes = s.at + 2 * s.param_bytes;
        for (int v = 0; v < w->group / 8; v++, codes += 64, out += 8 * BRIM_PANEL) {
            _mm_prefetch((const char *)codes + PREFETCH, _MM_HINT_T0);
            __m512i words = load_codes(codes);
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++)
                _mm512_storeu_ps(out + j * BRIM_PANEL,
                                 _mm512_fmadd_ps(scale, code_f32(words, j, table), bias));
        }
    }
}

/* The weights of w4_unpack_avx512 and the sums of gemm_avx512 without the store in between. */
ALWAYS_INLINE void gemm_rows(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                             const float *x, const int n_row, float *y, int64_t y_stride)
{
    const __m512 table = code_table();
    struct w4_stream s = w4_stream(w, in_begin);
    __m512 total[BRIM_TILE_ROWS];
#pragma GCC unroll 12
    for (int row = 0; row < n_row; row++) total[row] = _mm512_setzero_ps();
    for (int64_t in = in_begin; in < in_end; in += w->group, s.at += s.group_bytes) {
        __m512 scale = load16(w->dtype, s.at), bias = load16(w->dtype, s.at + s.param_bytes);
        const uint8_t *codes = s.at + 2 * s.param_bytes;
        for (int v = 0; v < w->group / 8; v++, codes += 64) {
            _mm_prefetch((const char *)codes + PREFETCH, _MM_HINT_T0);
            __m512i words = load_codes(codes);
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++, x += n_row) {
                __m512 weight = _mm512_fmadd_ps(scale, code_f32(words, j, table), bias);
#pragma GCC unroll 12
                for (int row = 0; row < n_row; row++)
                    total[row] = _mm512_fmadd_ps(weight, _mm512_set1_ps(x[row]), total[row]);
            }
        }
    }
#pragma GCC unroll 12
    for (int row = 0; row < n_row; row++) _mm512_storeu_ps(y + row * y_stride, total[row]);
}

static void w4_gemm_avx512(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                           const float *x, int n_row, float *y, int64_t y_stride){
#define BODY(n) gemm_rows(w, in_begin, in_end, x, n, y, y_stride)
    WITH_ROWS_12(n_row, BODY)
#undef BODY
}

/* Codes times int8 by vpdpbusd: 8 unpacked vectors of a group of 32 serve all rows of the tile. */
ALWAYS_INLINE void x8_rows(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                           const uint8_t *tile, const int n_row, float *y, int64_t y_stride)
{
    const __m512i low = _mm512_set1_epi8(15);
    struct w4_stream s = w4_stream(w, in_begin);
    __m512 total[BRIM_TILE_ROWS];
#pragma GCC unroll 12
    for (int row = 0; row < n_row; row++) total[row] = _mm512_setzero_ps();
    for (int64_t in = in_begin; in < in_end; in += w->group, s.at += s.group_bytes) {
        __m512 scale = load16(w->dtype, s.at), bias = load16(w->dtype, s.at + s.param_bytes);
        const uint8_t *codes = s.at + 2 * s.param_bytes;
        for (int part = 0; part < w->group; part += 32, codes += 256) {
            __m512i q[8];
#pragma GCC unroll 4
            for (int v = 0; v < 4; v++) {
                _mm_prefetch((const char *)codes + 64 * v + PREFETCH, _MM_HINT_T0);
                __m512i words = load_codes(codes + 64 * v);
                q[2 * v] = _mm512_and_si512(words, low);
                q[2 * v + 1] = _mm512_and_si512(_mm512_srli_epi16(words, 4), low);
            }
            const struct brim_x8_record xr = brim_x8_record_at(tile, n_row, 0);
#pragma GCC unroll 12
            for (int row = 0; row < n_row; row++) {
                __m512i dot = _mm512_setzero_si512();
#pragma GCC unroll 8
                for (int v = 0; v < 8; v++)
                    dot = _mm512_dpbusd_epi32(dot, q[v], broadcast4(xr.q + row * 32 + 4 * v));
                __m512 part_sum =
                    _mm512_mul_ps(_mm512_cvtepi32_ps(dot), _mm512_set1_ps(xr.scale[row]));
                total[row] = _mm512_fmadd_ps(scale, part_sum, total[row]);
                total[row] = _mm512_fmadd_ps(bias, _mm512_set1_ps(xr.sum[row]), total[row]);
            }
            tile += n_row * BRIM_X8_RECORD;
        }
    }
#pragma GCC unroll 12
    for (int row = 0; row < n_row; row++) _mm512_storeu_ps(y + row * y_stride, total[row]);
}

static void w4_x8_avx512(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                         const uint8_t *tile, int n_row, float *y, int64_t y_stride)
{
#define BODY(n) x8_rows(w, in_begin, in_end, tile, n, y, y_stride)
    WITH_ROWS_12(n_row, BODY)
#undef BODY
}

void brim_cpu_init_w4_avx512(struct brim_cpu_ops *ops)
{
    ops->w4_matvec = w4_matvec_avx512;
    ops->w4_unpack = w4_unpack_avx512;
    ops->w4_gemm = w4_gemm_avx512;
    ops->w4_x8 = w4_x8_avx512;
}
