/* SPDX-License-Identifier: Apache-2.0
 * 8-bit panels and int8 activations, AVX2. */
#include "cpu/cpu_init.h"
#include "cpu/x86/panel_avx2.h"

enum { PREFETCH = 1024, ROWS = 4, CHAINS = 2 /* as in w4_avx512.c */ };

/* Byte b of every lane as an integer times 2^24, then as float; 2^-24 goes into the scale. */
ALWAYS_INLINE __m256 byte_f32(__m256i words, int b)
{
    const __m256i high = _mm256_set1_epi32((int)0xFF000000);
    __m256i top = b == 0 ? _mm256_slli_epi32(words, 24)
                         : _mm256_and_si256(_mm256_slli_epi32(words, 24 - 8 * b), high);
    return _mm256_cvtepi32_ps(top);
}

ALWAYS_INLINE __m256 block_scale(const struct brim_panel *w, int64_t in, int half)
{
    return load8(BRIM_DTYPE_F16, brim_q8_scales(w, in) + half * HALF * 2);
}

/* Input (from 0) that byte b of vector v of a block holds: the inverse of brim_x8_order. */
ALWAYS_INLINE int input_of(int v, int b)
{
    return v / 2 * 8 + 2 * b + v % 2;
}

ALWAYS_INLINE void matvec_rows(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                               const float *x, int64_t x_stride, const int n_row, const int half,
                               float *y, int64_t y_stride)
{
    __m256 total[ROWS];
#pragma GCC unroll 4
    for (int row = 0; row < n_row; row++) total[row] = _mm256_setzero_ps();
    for (int64_t in = in_begin; in < in_end; in += 32, x += 32) {
        const uint8_t *codes = (const uint8_t *)brim_q8_codes(w, in) + 32 * half;
        __m256 part[ROWS * CHAINS];
#pragma GCC unroll 8
        for (int i = 0; i < n_row * CHAINS; i++) part[i] = _mm256_setzero_ps();
#pragma GCC unroll 8
        for (int v = 0; v < 8; v++) {
            if (half == 0) _mm_prefetch((const char *)codes + 64 * v + PREFETCH, _MM_HINT_T0);
            __m256i words = load_codes(codes + 64 * v);
#pragma GCC unroll 4
            for (int b = 0; b < 4; b++) {
                __m256 q = byte_f32(words, b);
#pragma GCC unroll 4
                for (int row = 0; row < n_row; row++) {
                    __m256 *to = &part[row * CHAINS + b % CHAINS];
                    *to =
                        _mm256_fmadd_ps(q, _mm256_set1_ps(x[row * x_stride + input_of(v, b)]), *to);
                }
            }
        }
        __m256 scale = _mm256_mul_ps(block_scale(w, in, half), _mm256_set1_ps(0x1p-24f));
#pragma GCC unroll 4
        for (int row = 0; row < n_row; row++) {
            __m256 sum = _mm256_add_ps(part[row * CHAINS], part[row * CHAINS + 1]);
            total[row] = _mm256_fmadd_ps(scale, sum, total[row]);
        }
    }
#pragma GCC unroll 4
    for (int row = 0; row < n_row; row++)
        _mm256_storeu_ps(y + row * y_stride + half * HALF, total[row]);
}

static void q8_matvec_avx2(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                           const float *x, int64_t x_stride, int n_row, float *y, int64_t y_stride)
{
    for (int row = 0; row < n_row; row += ROWS) {
        int n = n_row - row < ROWS ? n_row - row : ROWS;
        const float *xr = x + row * x_stride;
        float *yr = y + row * y_stride;
#define BODY(n_const)                                                         \
    matvec_rows(w, in_begin, in_end, xr, x_stride, n_const, 0, yr, y_stride); \
    matvec_rows(w, in_begin, in_end, xr, x_stride, n_const, 1, yr, y_stride)
        WITH_ROWS_4(n, BODY)
#undef BODY
    }
}

static void q8_unpack_avx2(const struct brim_panel *w, int64_t in_begin, int64_t in_end, float *out)
{
    for (int64_t in = in_begin; in < in_end; in += 32, out += 32 * BRIM_PANEL) {
        for (int half = 0; half < 2; half++) {
            const uint8_t *codes = (const uint8_t *)brim_q8_codes(w, in) + 32 * half;
            __m256 scale = _mm256_mul_ps(block_scale(w, in, half), _mm256_set1_ps(0x1p-24f));
#pragma GCC unroll 8
            for (int v = 0; v < 8; v++) {
                __m256i words = load_codes(codes + 64 * v);
#pragma GCC unroll 4
                for (int b = 0; b < 4; b++)
                    _mm256_storeu_ps(out + input_of(v, b) * BRIM_PANEL + half * HALF,
                                     _mm256_mul_ps(scale, byte_f32(words, b)));
            }
        }
    }
}

/* vpmaddubsw takes |w| as unsigned and x with the sign of w; x is in -127..127, so its sums of two
 * are at most 2 * 128 * 127 = 32512. */
ALWAYS_INLINE void x8_rows(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                           const uint8_t *tile, const int n_row, const int half, float *y,
                           int64_t y_stride)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256 total[ROWS];
#pragma GCC unroll 4
    for (int row = 0; row < n_row; row++) total[row] = _mm256_setzero_ps();
    for (int64_t in = in_begin; in < in_end; in += 32, tile += n_row * BRIM_X8_RECORD) {
        const uint8_t *codes = (const uint8_t *)brim_q8_codes(w, in) + 32 * half;
        const struct brim_x8_record xr = brim_x8_record_at(tile, n_row, 0);
        __m256i dot[ROWS];
#pragma GCC unroll 4
        for (int row = 0; row < n_row; row++) dot[row] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int v = 0; v < 8; v++) {
            if (half == 0) _mm_prefetch((const char *)codes + 64 * v + PREFETCH, _MM_HINT_T0);
            __m256i q = load_codes(codes + 64 * v), size = _mm256_abs_epi8(q);
#pragma GCC unroll 4
            for (int row = 0; row < n_row; row++) {
                __m256i signed_x = _mm256_sign_epi8(broadcast4(xr.q + row * 32 + 4 * v), q);
                __m256i pairs = _mm256_maddubs_epi16(size, signed_x);
                dot[row] = _mm256_add_epi32(dot[row], _mm256_madd_epi16(pairs, ones));
            }
        }
        __m256 scale = block_scale(w, in, half);
#pragma GCC unroll 4
        for (int row = 0; row < n_row; row++) {
            __m256 scaled =
                _mm256_mul_ps(_mm256_cvtepi32_ps(dot[row]), _mm256_set1_ps(xr.scale[row]));
            total[row] = _mm256_fmadd_ps(scale, scaled, total[row]);
        }
    }
#pragma GCC unroll 4
    for (int row = 0; row < n_row; row++)
        _mm256_storeu_ps(y + row * y_stride + half * HALF, total[row]);
}

static void q8_x8_avx2(const struct brim_panel *w, int64_t in_begin, int64_t in_end,
                       const uint8_t *tile, int n_row, float *y, int64_t y_stride)
{
#define BODY(n)                                            \
    x8_rows(w, in_begin, in_end, tile, n, 0, y, y_stride); \
    x8_rows(w, in_begin, in_end, tile, n, 1, y, y_stride)
    WITH_ROWS_4(n_row, BODY)
#undef BODY
}

/* The largest of eight unsigned lanes below 2^31. */
static uint32_t reduce_max(__m256i v)
{
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

static int32_t reduce_add(__m256i v)
{
    __m128i m = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0x4E));
    m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0xB1));
    return _mm_cvtsi128_si32(m);
}

/* The same integers and scales as x_quantize_c, to the bit. */
static void x_quantize_avx2(const float *x, int64_t x_stride, int n_row, int64_t n_group,
                            uint8_t *tile)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
    /* within 16 bytes of input order: even inputs of eight first */
    const __m256i even_first = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
    const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (int64_t g = 0; g < n_group; g++) {
        struct brim_x8_out out = brim_x8_out_at(tile, n_row, g);
        for (int row = 0; row < n_row; row++) {
            const float *at = x + row * x_stride + g * BRIM_X8_GROUP;
            __m256 v[4];
            __m256i q[4], most = _mm256_setzero_si256(), sum = most;
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                v[i] = _mm256_loadu_ps(at + 8 * i);
                most =
                    _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
            }
            uint32_t max_bits = reduce_max(most);
            float max = brim_f32_from_bits(max_bits), scale = 0, inverse = 0;
            if (max_bits >= 0x7F800000) {
                scale = brim_f32_from_bits(0x7FC00000);
            } else if (max >= 0x1p-100f) {
                scale = max / 127.0f;
                inverse = 127.0f / max;
            }
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                q[i] = inverse > 0
                           ? _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)))
                           : _mm256_setzero_si256();
                sum = _mm256_add_epi32(sum, q[i]);
            }
            /* packs work within 128-bit halves: the dwords come out as 0 4 8 12 16 .. of 32 */
            __m256i bytes =
                _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
            bytes = _mm256_permutevar8x32_epi32(bytes, in_order);
            _mm256_storeu_si256((__m256i *)(void *)(out.q + row * BRIM_X8_GROUP),
                                _mm256_shuffle_epi8(bytes, even_first));
            int32_t code_sum = reduce_add(sum);
            out.scale[row] = scale;
            out.sum[row] = scale * (float)code_sum;
            out.code_sum[row] = code_sum;
        }
    }
}

void brim_cpu_init_q8_avx2(struct brim_cpu_ops *ops)
{
    ops->q8_matvec = q8_matvec_avx2;
    ops->q8_unpack = q8_unpack_avx2;
    ops->q8_x8 = q8_x8_avx2;
    ops->x8_rows = ROWS;
    ops->x_quantize = x_quantize_avx2;
}
