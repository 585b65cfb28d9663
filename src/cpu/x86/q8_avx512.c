/* SPDX-License-Identifier: Apache-2.0
 * 8-bit panels and int8 activations, AVX-512. */
#include "cpu/cpu_init.h"
#include "cpu/x86/panel_avx512.h"

enum { PREFETCH = 1024, CHAINS = 2 /* as in w4_avx512.c */ };

/* Byte b of every lane as an integer times 2^24, then as float. The factor 2^-24 goes into the
 * scale: 127 * 2^24 and all below are exact in f32. */
ALWAYS_INLINE __m512 byte_f32(__m512i words, int b)
{
    const __m512i high = _mm512_set1_epi32((int)0xFF000000);
    __m512i top = b == 3 ? _mm512_and_si512(words, high)
                         : _mm512_and_si512(_mm512_slli_epi32(words, (unsigned)(24 - 8 * b)), high);
    if (b == 0) top = _mm512_slli_epi32(words, 24);
    return _mm512_cvtepi32_ps(top);
}

ALWAYS_INLINE __m512 block_scale(const struct brim_panel *w, int64_t in)
{
    return load16(BRIM_DTYPE_F16, brim_q8_scales(w, in));
}

/* Input (from 0) that byte b of vector v of a block holds: the inverse of brim_x8_order. */
ALWAYS_INLINE int input_of(int v, int b)
{
    return v / 2 * 8 + 2 * b + v % 2;
}

ALWAYS_INLINE void matvec_rows(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                               const float *x, int64_t x_stride, const int n_row, float *y,
                               int64_t y_stride)
{
    __m512 total[BRIM_MATVEC_ROWS];
#pragma GCC unroll 8
    for (int row = 0; row < n_row; row++) total[row] = _mm512_setzero_ps();
    for (int64_t in = in_begin; in < in_end; in += 32, x += 32) {
        const uint8_t *codes = (const uint8_t *)brim_q8_codes(w, in);
        __m512 part[BRIM_MATVEC_ROWS * CHAINS];
#pragma GCC unroll 16
        for (int i = 0; i < n_row * CHAINS; i++) part[i] = _mm512_setzero_ps();
#pragma GCC unroll 8
        for (int v = 0; v < 8; v++) {
            _mm_prefetch((const char *)codes + 64 * v + PREFETCH, _MM_HINT_T0);
            __m512i words = load_codes(codes + 64 * v);
#pragma GCC unroll 4
            for (int b = 0; b < 4; b++) {
                __m512 q = byte_f32(words, b);
#pragma GCC unroll 8
                for (int row = 0; row < n_row; row++) {
                    __m512 *to = &part[row * CHAINS + b % CHAINS];
                    *to =
                        _mm512_fmadd_ps(q, _mm512_set1_ps(x[row * x_stride + input_of(v, b)]), *to);
                }
            }
        }
        __m512 scale = _mm512_mul_ps(block_scale(w, in), _mm512_set1_ps(0x1p-24f));
#pragma GCC unroll 8
        for (int row = 0; row < n_row; row++) {
            __m512 sum = _mm512_add_ps(part[row * CHAINS], part[row * CHAINS + 1]);
            total[row] = _mm512_fmadd_ps(scale, sum, total[row]);
        }
    }
#pragma GCC unroll 8
    for (int row = 0; row < n_row; row++) _mm512_storeu_ps(y + row * y_stride, total[row]);
}

static void q8_matvec_avx512(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                             const float *x, int64_t x_stride, int n_row, float *y,
                             int64_t y_stride)
{
#define BODY(n) matvec_rows(w, in_begin, in_end, x, x_stride, n, y, y_stride)
    WITH_ROWS_8(n_row, BODY)
#undef BODY
}

static void q8_unpack_avx512(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                             float *out)
{
    for (int64_t in = in_begin; in < in_end; in += 32, out += 32 * BRIM_PANEL) {
        const uint8_t *codes = (const uint8_t *)brim_q8_codes(w, in);
        __m512 scale = _mm512_mul_ps(block_scale(w, in), _mm512_set1_ps(0x1p-24f));
#pragma GCC unroll 8
        for (int v = 0; v < 8; v++) {
            __m512i words = load_codes(codes + 64 * v);
#pragma GCC unroll 4
            for (int b = 0; b < 4; b++)
                _mm512_storeu_ps(out + input_of(v, b) * BRIM_PANEL,
                                 _mm512_mul_ps(scale, byte_f32(words, b)));
        }
    }
}

/* vpdpbusd wants one unsigned factor: w + 128 is, and the sum starts at -128 (q[0] + ... + q[31]).
 */
ALWAYS_INLINE void x8_rows(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                           const uint8_t *tile, const int n_row, float *y, int64_t y_stride)
{
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    __m512 total[BRIM_TILE_ROWS];
#pragma GCC unroll 12
    for (int row = 0; row < n_row; row++) total[row] = _mm512_setzero_ps();
    for (int64_t in = in_begin; in < in_end; in += 32, tile += n_row * BRIM_X8_RECORD) {
        const uint8_t *codes = (const uint8_t *)brim_q8_codes(w, in);
        __m512i q[8];
#pragma GCC unroll 8
        for (int v = 0; v < 8; v++) {
            _mm_prefetch((const char *)codes + 64 * v + PREFETCH, _MM_HINT_T0);
            q[v] = _mm512_xor_si512(load_codes(codes + 64 * v), flip);
        }
        __m512 scale = block_scale(w, in);
        const struct brim_x8_record xr = brim_x8_record_at(tile, n_row, 0);
#pragma GCC unroll 12
        for (int row = 0; row < n_row; row++) {
            __m512i dot = _mm512_set1_epi32(-128 * xr.code_sum[row]);
#pragma GCC unroll 8
            for (int v = 0; v < 8; v++)
                dot = _mm512_dpbusd_epi32(dot, q[v], broadcast4(xr.q + row * 32 + 4 * v));
            __m512 part = _mm512_mul_ps(_mm512_cvtepi32_ps(dot), _mm512_set1_ps(xr.scale[row]));
            total[row] = _mm512_fmadd_ps(scale, part, total[row]);
        }
    }
#pragma GCC unroll 12
    for (int row = 0; row < n_row; row++) _mm512_storeu_ps(y + row * y_stride, total[row]);
}

static void q8_x8_avx512(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                         const uint8_t *tile, int n_row, float *y, int64_t y_stride)
{
#define BODY(n) x8_rows(w, in_begin, in_end, tile, n, y, y_stride)
    WITH_ROWS_12(n_row, BODY)
#undef BODY
}

/* The same integers and scales as x_quantize_c, to the bit. */
static void x_quantize_avx512(const float *x, int64_t x_stride, int n_row, int64_t n_group,
                              uint8_t *tile)
{
    const __m128i even_first = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    for (int64_t g = 0; g < n_group; g++) {
        struct brim_x8_out out = brim_x8_out_at(tile, n_row, g);
        for (int row = 0; row < n_row; row++) {
            const float *at = x + row * x_stride + g * BRIM_X8_GROUP;
            __m512 first = _mm512_loadu_ps(at), second = _mm512_loadu_ps(at + 16);
            __m512i most =
                _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(first), magnitude),
                                 _mm512_and_si512(_mm512_castps_si512(second), magnitude));
            uint32_t max_bits = _mm512_reduce_max_epu32(most);
            float max = brim_f32_from_bits(max_bits), scale = 0, inverse = 0;
            if (max_bits >= 0x7F800000) {
                scale = brim_f32_from_bits(0x7FC00000);
            } else if (max >= 0x1p-100f) {
                scale = max / 127.0f;
                inverse = 127.0f / max;
            }
            __m512i a = _mm512_setzero_si512(), b = a;
            if (inverse > 0) {
                a = _mm512_cvtps_epi32(_mm512_mul_ps(first, _mm512_set1_ps(inverse)));
                b = _mm512_cvtps_epi32(_mm512_mul_ps(second, _mm512_set1_ps(inverse)));
            }
            __m128i *q = (__m128i *)(void *)(out.q + row * BRIM_X8_GROUP);
            _mm_storeu_si128(q, _mm_shuffle_epi8(_mm512_cvtepi32_epi8(a), even_first));
            _mm_storeu_si128(q + 1, _mm_shuffle_epi8(_mm512_cvtepi32_epi8(b), even_first));
            out.scale[row] = scale;
            int32_t sum = _mm512_reduce_add_epi32(_mm512_add_epi32(a, b));
            out.sum[row] = scale * (float)sum;
            out.code_sum[row] = sum;
        }
    }
}

void brim_cpu_init_q8_avx512(struct brim_cpu_ops *ops)
{
    ops->q8_matvec = q8_matvec_avx512;
    ops->q8_unpack = q8_unpack_avx512;
    ops->q8_x8 = q8_x8_avx512;
    ops->x8_rows = 12;
    ops->x_quantize = x_quantize_avx512;
}
