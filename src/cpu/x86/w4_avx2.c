/* SPDX-License-Identifier: Apache-2.0
 * 4-bit panels, AVX2. A ymm of code words holds eight inputs of eight output rows. A code becomes a
 * float by shift, mask and conversion; four rows at most share it, which is what sixteen registers
 * hold. */
#include "cpu/cpu_init.h"
#include "cpu/x86/panel_avx2.h"

enum { PREFETCH = 1024, ROWS = 4, CHAINS = 2 /* as in w4_avx512.c */ };

ALWAYS_INLINE __m256 code_f32(__m256i words, int j)
{
    const __m256i low = _mm256_set1_epi32(15);
    __m256i code = j == 7 ? _mm256_srli_epi32(words, 28)
                          : _mm256_and_si256(_mm256_srli_epi32(words, 4 * j), low);
    return _mm256_cvtepi32_ps(code);
}

struct w4_stream {
    const uint8_t *at;
    size_t element, group_bytes;
};

ALWAYS_INLINE struct w4_stream w4_stream(const struct brim_panel *w, int64_t in_begin)
{
    struct w4_stream s = {.element = brim_dtype_bytes(w->dtype),
                          .group_bytes = brim_w4_group_bytes(w->dtype, w->group)};
    s.at = w->data + (size_t)(in_begin / w->group) * s.group_bytes;
    return s;
}

ALWAYS_INLINE __m256 scale_of(const struct brim_panel *w, const struct w4_stream *s, int half)
{
    return load8(w->dtype, s->at + (size_t)(HALF * half) * s->element);
}

ALWAYS_INLINE __m256 bias_of(const struct brim_panel *w, const struct w4_stream *s, int half)
{
    return load8(w->dtype, s->at + (size_t)(BRIM_PANEL + HALF * half) * s->element);
}

ALWAYS_INLINE const uint8_t *codes_of(const struct w4_stream *s, int half)
{
    return s->at + 2 * BRIM_PANEL * s->element + 32 * half;
}

/* Affine identity per group, see w4_ref.c. */
ALWAYS_INLINE void matvec_rows(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                               const float *x, int64_t x_stride, const float *x_sum,
                               int64_t sum_stride, const int n_row, float *y, int64_t y_stride)
{
    struct w4_stream s = w4_stream(w, in_begin);
    __m256 total[2][ROWS];
#pragma GCC unroll 4
    for (int row = 0; row < n_row; row++) total[0][row] = total[1][row] = _mm256_setzero_ps();
    for (int64_t in = in_begin; in < in_end; in += w->group, s.at += s.group_bytes, x_sum++) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++) {
            const uint8_t *codes = codes_of(&s, half);
            const float *xg = x;
            __m256 part[ROWS * CHAINS];
#pragma GCC unroll 8
            for (int i = 0; i < n_row * CHAINS; i++) part[i] = _mm256_setzero_ps();
            for (int v = 0; v < w->group / 8; v++, codes += 64, xg += 8) {
                if (half == 0) _mm_prefetch((const char *)codes + PREFETCH, _MM_HINT_T0);
                __m256i words = load_codes(codes);
#pragma GCC unroll 8
                for (int j = 0; j < 8; j++) {
                    __m256 q = code_f32(words, j);
#pragma GCC unroll 4
                    for (int row = 0; row < n_row; row++) {
                        __m256 *to = &part[row * CHAINS + j % CHAINS];
                        *to = _mm256_fmadd_ps(q, _mm256_set1_ps(xg[row * x_stride + j]), *to);
                    }
                }
            }
            __m256 scale = scale_of(w, &s, half), bias = bias_of(w, &s, half);
#pragma GCC unroll 4
            for (int row = 0; row < n_row; row++) {
                __m256 sum = _mm256_add_ps(part[row * CHAINS], part[row * CHAINS + 1]);
                __m256 *to = &total[half][row];
                *to = _mm256_fmadd_ps(scale, sum, *to);
                *to = _mm256_fmadd_ps(bias, _mm256_set1_ps(x_sum[row * sum_stride]), *to);
            }
        }
        x += w->group;
    }
#pragma GCC unroll 4
    for (int row = 0; row < n_row; row++) {
        _mm256_storeu_ps(y + row * y_stride, total[0][row]);
        _mm256_storeu_ps(y + row * y_stride + HALF, total[1][row]);
    }
}

static void w4_matvec_avx2(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                           const float *x, int64_t x_stride, const float *x_sum, int64_t sum_stride,
                           int n_row, float *y, int64_t y_stride)
{
    /* evenly: five rows are three and two */
    int batch = n_row <= ROWS ? n_row : (n_row + 1) / 2;
    for (int row = 0; row < n_row; row += batch) {
        int n = n_row - row < batch ? n_row - row : batch;
#define BODY(n_const)                                                                        \
    matvec_rows(w, in_begin, in_end, x + row * x_stride, x_stride, x_sum + row * sum_stride, \
                sum_stride, n_const, y + row * y_stride, y_stride)
        WITH_ROWS_4(n, BODY)
#undef BODY
    }
}

static void w4_unpack_avx2(const struct brim_panel *w, int64_t in_begin, int64_t in_end, float *out)
{
    struct w4_stream s = w4_stream(w, in_begin);
    for (int64_t in = in_begin; in < in_end; in += w->group, s.at += s.group_bytes) {
        for (int half = 0; half < 2; half++) {
            __m256 scale = scale_of(w, &s, half), bias = bias_of(w, &s, half);
            const uint8_t *codes = codes_of(&s, half);
            float *to = out + half * HALF;
            for (int v = 0; v < w->group / 8; v++, codes += 64, to += 8 * BRIM_PANEL) {
                __m256i words = load_codes(codes);
#pragma GCC unroll 8
                for (int j = 0; j < 8; j++)
                    _mm256_storeu_ps(to + j * BRIM_PANEL,
                                     _mm256_fmadd_ps(scale, code_f32(words, j), bias));
            }
        }
        out += w->group * BRIM_PANEL;
    }
}

/* Products of codes and int8 by vpmaddubsw. Its 16-bit sums of two inputs may be added through the
 * eight vectors of a group: at most 16 * 15 * 127 = 30480. */
ALWAYS_INLINE void x8_rows(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                           const uint8_t *tile, const int n_row, const int half, float *y,
                           int64_t y_stride)
{
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    struct w4_stream s = w4_stream(w, in_begin);
    __m256 total[ROWS];
#pragma GCC unroll 4
    for (int row = 0; row < n_row; row++) total[row] = _mm256_setzero_ps();
    for (int64_t in = in_begin; in < in_end; in += w->group, s.at += s.group_bytes) {
        __m256 scale = scale_of(w, &s, half), bias = bias_of(w, &s, half);
        const uint8_t *codes = codes_of(&s, half);
        for (int part = 0; part < w->group; part += 32, codes += 256) {
            __m256i q[8];
#pragma GCC unroll 4
            for (int v = 0; v < 4; v++) {
                if (half == 0) _mm_prefetch((const char *)codes + 64 * v + PREFETCH, _MM_HINT_T0);
                __m256i words = load_codes(codes + 64 * v);
                q[2 * v] = _mm256_and_si256(words, low);
                q[2 * v + 1] = _mm256_and_si256(_mm256_srli_epi16(words, 4), low);
            }
            const struct brim_x8_record xr = brim_x8_record_at(tile, n_row, 0);
#pragma GCC unroll 4
            for (int row = 0; row < n_row; row++) {
                __m256i sum = _mm256_maddubs_epi16(q[0], broadcast4(xr.q + row * 32));
#pragma GCC unroll 7
                for (int v = 1; v < 8; v++)
                    sum = _mm256_add_epi16(
                        sum, _mm256_maddubs_epi16(q[v], broadcast4(xr.q + row * 32 + 4 * v)));
                __m256 dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(sum, ones));
                __m256 scaled = _mm256_mul_ps(dot, _mm256_set1_ps(xr.scale[row]));
                total[row] = _mm256_fmadd_ps(scale, scaled, total[row]);
                total[row] = _mm256_fmadd_ps(bias, _mm256_set1_ps(xr.sum[row]), total[row]);
            }
            tile += n_row * BRIM_X8_RECORD;
        }
    }
#pragma GCC unroll 4
    for (int row = 0; row < n_row; row++)
        _mm256_storeu_ps(y + row * y_stride + half * HALF, total[row]);
}

static void w4_x8_avx2(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                       const uint8_t *tile, int n_row, float *y, int64_t y_stride)
{
#define BODY(n)                                            \
    x8_rows(w, in_begin, in_end, tile, n, 0, y, y_stride); \
    x8_rows(w, in_begin, in_end, tile, n, 1, y, y_stride)
    WITH_ROWS_4(n_row, BODY)
#undef BODY
}

void brim_cpu_init_w4_avx2(struct brim_cpu_ops *ops)
{
    ops->w4_matvec = w4_matvec_avx2;
    ops->w4_unpack = w4_unpack_avx2;
    ops->w4_x8 = w4_x8_avx2;
}
