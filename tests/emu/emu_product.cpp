/* SPDX-License-Identifier: Apache-2.0
 * Products of the tensor cores: one warp's share of a wgmma, 16 rows of d[64][n] += a[64][16]
 * b[16][n], and a warp's mma. Products of 16-bit elements are exact in f64, are added there in the
 * order of k and rounded once with the accumulator. */
#include <immintrin.h>

#include "cuda_runtime.h"

#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/wgmma.cuh"

static inline __m256 eight(const void *from, bool f16)
{
    __m128i x = _mm_loadu_si128((const __m128i *)from);
    return f16 ? _mm256_cvtph_ps(x)
               : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

/* d[4][8] += a[4][n_k] b[n_k][8]; rows of a and b lie a_row and b_row elements apart. */
static inline void add_product(__m256d (&d)[4][2], const double *a, int a_row, const float *b,
                               int b_row, int n_k)
{
    for (int k = 0; k < n_k; k++, b += b_row) {
        __m256d b0 = _mm256_cvtps_pd(_mm_loadu_ps(b)), b1 = _mm256_cvtps_pd(_mm_loadu_ps(b + 4));
        for (int row = 0; row < 4; row++) {
            __m256d x = _mm256_broadcast_sd(a + row * a_row + k);
            d[row][0] = _mm256_fmadd_pd(x, b0, d[row][0]);
            d[row][1] = _mm256_fmadd_pd(x, b1, d[row][1]);
        }
    }
}

/* ---- wgmma ---- */

enum { MAX_N = 256 };

/* Eight elements that lie beside each other: of k, or, transposed, of rows. */
static inline __m256 operand(const emu_product *p, uint64_t desc, bool transposed, int row, int k)
{
    uint32_t at = emu_operand_at(desc, transposed, row, k);
    emu_async_reads(at, 16);
    return eight(emu_shared(at, 16, 16), p->f16);
}

static void fetch_a(const emu_product *p, double (&a)[16][16])
{
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 16; k += 8) {
            __m256 x;
            if (p->a_shared) {
                x = operand(p, p->desc_a, false, 16 * p->warp + row, k);
            } else {
                /* a[0], a[1]: rows g, g + 8 at k < 8; a[2], a[3]: the same at k >= 8 */
                uint32_t pairs[4];
                for (int i = 0; i < 4; i++)
                    pairs[i] = p->a[(row & 7) * 4 + i][(row >> 3) + 2 * (k >> 3)];
                x = eight(pairs, p->f16);
            }
            _mm256_storeu_pd(&a[row][k], _mm256_cvtps_pd(_mm256_castps256_ps128(x)));
            _mm256_storeu_pd(&a[row][k + 4], _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)));
        }
}

static void fetch_b(const emu_product *p, float (&b)[16][MAX_N])
{
    if (p->transpose_b) {
        for (int k = 0; k < 16; k++)
            for (int col = 0; col < p->n; col += 8)
                _mm256_storeu_ps(&b[k][col], operand(p, p->desc_b, true, col, k));
        return;
    }
    for (int col = 0; col < p->n; col++)
        for (int k = 0; k < 16; k += 8) {
            float x[8];
            _mm256_storeu_ps(x, operand(p, p->desc_b, false, col, k));
            for (int i = 0; i < 8; i++) b[k + i][col] = x[i];
        }
}

void emu_multiply(emu_product *p)
{
    static thread_local float b[16][MAX_N];
    double a[16][16];
    fetch_a(p, a);
    fetch_b(p, b);
    for (int col = 0; col < p->n; col += 8)
        for (int row = 0; row < 16; row += 4) {
            /* two neighbouring columns of a row are a lane's */
            float *to[4][4], x[8];
            __m256d d[4][2];
            for (int r = 0; r < 4; r++) {
                for (int i = 0; i < 4; i++) {
                    to[r][i] = p->d[((row + r) & 7) * 4 + i] + 4 * (col >> 3) + 2 * (row >> 3);
                    if (!p->fresh) memcpy(x + 2 * i, to[r][i], 8);
                }
                d[r][0] = p->fresh ? _mm256_setzero_pd() : _mm256_cvtps_pd(_mm_loadu_ps(x));
                d[r][1] = p->fresh ? _mm256_setzero_pd() : _mm256_cvtps_pd(_mm_loadu_ps(x + 4));
            }
            add_product(d, a[row], 16, &b[0][col], MAX_N, 16);
            for (int r = 0; r < 4; r++) {
                _mm_storeu_ps(x, _mm256_cvtpd_ps(d[r][0]));
                _mm_storeu_ps(x + 4, _mm256_cvtpd_ps(d[r][1]));
                for (int i = 0; i < 4; i++) memcpy(to[r][i], x + 2 * i, 8);
            }
        }
}

/* ---- mma: registers of lane (g, c) = (lane / 4, lane % 4) hold, in words, a[g + 8 (i & 1)][c + 4
 * (i / 2)], b[c + 4 i][g] and d[g + 8 (i / 2)][2 c + (i & 1)] ---- */

struct mma_part { /* what a lane brings and takes away */
    uint32_t a[4], b[2];
    uint32_t d[4];
};

static void multiply_numbers(mma_part *all, emu_mma_kind kind, int n_word)
{
    uint32_t a_words[16][8], b_words[8][8];
    float elements[8], b[16][8];
    double a[16][16];
    int n_k = kind == EMU_MMA_TF32 ? n_word : 2 * n_word;
    for (int lane = 0; lane < 32; lane++) {
        const mma_part *part = &all[lane];
        int g = lane >> 2, c = lane & 3;
        for (int i = 0; i < n_word / 2; i++)
            a_words[g + 8 * (i & 1)][c + 4 * (i >> 1)] = part->a[i];
        for (int i = 0; i < n_word / 4; i++) b_words[g][c + 4 * i] = part->b[i];
    }
    auto fetch = [&](const uint32_t *words, int k) {
        if (kind == EMU_MMA_TF32)
            memcpy(elements, words + k, sizeof elements);
        else
            _mm256_storeu_ps(elements, eight(words + k / 2, kind == EMU_MMA_F16));
    };
    for (int k = 0; k < n_k; k += 8) {
        for (int row = 0; row < 16; row++) {
            fetch(a_words[row], k);
            for (int i = 0; i < 8; i++) a[row][k + i] = elements[i];
        }
        for (int col = 0; col < 8; col++) {
            fetch(b_words[col], k);
            for (int i = 0; i < 8; i++) b[k + i][col] = elements[i];
        }
    }
    for (int row = 0; row < 16; row += 4) {
        __m256d d[4][2];
        float x[8];
        for (int r = 0; r < 4; r++) {
            for (int i = 0; i < 4; i++)
                memcpy(x + 2 * i, all[((row + r) & 7) * 4 + i].d + 2 * (row >> 3), 8);
            d[r][0] = _mm256_cvtps_pd(_mm_loadu_ps(x));
            d[r][1] = _mm256_cvtps_pd(_mm_loadu_ps(x + 4));
        }
        add_product(d, a[row], 16, b[0], 8, n_k);
        for (int r = 0; r < 4; r++) {
            _mm_storeu_ps(x, _mm256_cvtpd_ps(d[r][0]));
            _mm_storeu_ps(x + 4, _mm256_cvtpd_ps(d[r][1]));
            for (int i = 0; i < 4; i++)
                memcpy(all[((row + r) & 7) * 4 + i].d + 2 * (row >> 3), x + 2 * i, 8);
        }
    }
}

/* a unsigned and b signed bytes, sums wrap */
static void multiply_bytes(mma_part *all)
{
    uint8_t a[16][32];
    int8_t b[8][32];
    for (int lane = 0; lane < 32; lane++) {
        const mma_part *part = &all[lane];
        int g = lane >> 2, c = lane & 3;
        for (int i = 0; i < 4; i++)
            memcpy(&a[g + 8 * (i & 1)][4 * (c + 4 * (i >> 1))], part->a + i, 4);
        for (int i = 0; i < 2; i++) memcpy(&b[g][4 * (c + 4 * i)], part->b + i, 4);
    }
    for (int lane = 0; lane < 32; lane++) {
        uint32_t *d = all[lane].d;
        for (int i = 0; i < 4; i++) {
            const uint8_t *x = a[(lane >> 2) + 8 * (i >> 1)];
            const int8_t *y = b[2 * (lane & 3) + (i & 1)];
            int sum = 0;
            for (int k = 0; k < 32; k++) sum += x[k] * y[k];
            d[i] += (uint32_t)sum;
        }
    }
}

void emu_mma(emu_mma_kind kind, void *d, const void *a, const void *b, int n_word)
{
    mma_part own = {};
    memcpy(own.a, a, (size_t)n_word * 2);
    memcpy(own.b, b, (size_t)n_word);
    memcpy(own.d, d, 16);
    struct which {
        emu_mma_kind kind;
        int n_word;
    } which = {kind, n_word};
    auto work = [](void *context, void *brought) {
        const struct which *w = (const struct which *)context;
        if (w->kind == EMU_MMA_BYTES)
            multiply_bytes((mma_part *)brought);
        else
            multiply_numbers((mma_part *)brought, w->kind, w->n_word);
    };
    const mma_part *all =
        (const mma_part *)emu_warp_bytes(0xFFFFFFFF, &own, sizeof own, "mma", work, &which);
    memcpy(d, all[emu_lane()].d, 16);
}
