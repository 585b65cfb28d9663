/* SPDX-License-Identifier: Apache-2.0
 * See gemv.h; the shared parts and the ring of a warp in gemv.cuh, weight order in pack.h.
 *
 * Codes times x on mma.sync m16n8k32, u8 x s8, exact. A byte of a packed word holds the codes of
 * outputs g (low nibble) and g + 8: one mask gives q_g, another 16 q_(g+8), the word itself their
 * sum. x of a row and group is rint(x 2^k) in three signed digits of base 256, largest first; 2^k
 * takes the group's largest |x| just below 2^23. Columns 2 i and 2 i + 1 of a tile are digit i of
 * two rows, or of two sets of inputs of one; 6 and 7 are unused, so lane c of a quad has digit c
 * and lane 3 takes the bias. A sum s, |s| < 2^22, is kept as the float 1.5 2^23 + s, and
 * fma(that, F, -1.5 2^23 F) is s F exactly, F = 2^(-k + 16 - 8 c - 24): all is 2^-24 of the truth
 * until the end. out += scale (s F), or bias sum(x), f32, groups in order; digits and bias meet
 * when a warp ends. A norm in front: x times its weight in f32 takes x's place, not rounded to
 * bf16, and sums meet 1 / rms where they are stored. */
#include <float.h>

#include "cuda/ptx/mma.cuh"
#include "cuda/w4/gemv.cuh"

/* Outside the namespace: the emulator gives it storage by this name. */
extern __shared__ __align__(128) uint8_t smem[];

namespace
{

enum {
    MAGIC = 0x4B400000, /* 2^23 + 2^22 as float: integers of 23 bits are exact beside it */
    DIGITS = 3,
    DIGIT_BYTES = 64, /* of a row, a digit and half a unit: [c][k-step of four] words */
    X_BYTES = 2 * DIGITS * DIGIT_BYTES, /* of a row and unit */
    FACTOR_BYTES = 64                   /* of a row and group: four of struct factors */
};
#define MAGIC_FLOAT 12582912.0f
#define SUM_SCALE 16777216.0f
#define SUM_UNSCALE 5.9604644775390625e-8f

/* What lane c does with a sum d, read as float: d lo + lo_base for output g, d hi + hi_base for g +
 * 8, whose sum is 16 times the true one. */
struct factors {
    float lo, lo_base, hi, hi_base;
};

/* {scale g, scale g + 8}, or the biases: half of a quad. */
template <enum brim_dtype dtype> BRIM_DEVICE float2 half_quad(const uint8_t *at)
{
    if (dtype == BRIM_DTYPE_F32) return *(const float2 *)at;
    uint32_t v = *(const uint32_t *)at;
    if (dtype == BRIM_DTYPE_F16) return __half22float2(*(const __half2 *)&v);
    return make_float2(bf16_lo(v), bf16_hi(v));
}

/* The tiles of a kernel for n_row_max rows. */
template <int groups, int n_row_max> struct tiling {
    enum {
        TILES = n_row_max == 1 ? 1 : n_row_max / 2,
        ROWS = n_row_max == 1 ? 1 : 2, /* of a tile */
        /* One row: two columns a digit are free for two words of one output, see whole_words. */
        WHOLE = n_row_max == 1 && groups <= 2,
        /* Row g + 8 as 16 q_(g+8) + q_g, if that costs fewer differences of sums than masks. */
        RAW = groups * TILES * ROWS < 8
    };
    /* Where the bytes of k-step `step` of four lie in a lane's four words of x. */
    static __device__ int word(int step) { return WHOLE ? step % 2 * 2 + step / 2 : step; }
};

/* Where chunk `chunk` of a CTA's x lies: four inputs from `in` and four from `in` + 8. Sixteen
 * chunks are a unit, two a k-step. */
BRIM_DEVICE int chunk_input(int in0, int chunk)
{
    return in0 + chunk / 2 * 16 + chunk % 2 * 4;
}

/* The norm's weights of a chunk. */
BRIM_DEVICE void load_weight(const gemv_params &p, float4 (&weight)[2], int in)
{
    weight[0] = __ldg((const float4 *)(p.norm_weight + in));
    weight[1] = __ldg((const float4 *)(p.norm_weight + in + 8));
}

/* Low, middle and high bytes of four words, one word each. */
BRIM_DEVICE void bytes_of(const uint32_t (&u)[4], uint32_t (&digit)[DIGITS])
{
    uint32_t a = __byte_perm(u[0], u[1], 0x5140), b = __byte_perm(u[2], u[3], 0x5140);
    digit[2] = __byte_perm(a, b, 0x5410);
    digit[1] = __byte_perm(a, b, 0x7632);
    a = __byte_perm(u[0], u[1], 0x0062), b = __byte_perm(u[2], u[3], 0x0062);
    digit[0] = __byte_perm(a, b, 0x5410);
}

/* A chunk v of a row of x: its digits to *to, digits `digit_bytes` apart, and what its group needs
 * to *factor; squares becomes the warp's sum of its lanes' where `norm`. 16 lanes hold a unit; all
 * lanes of the warp come here. */
template <int groups, bool norm>
BRIM_DEVICE void stage_chunk(const float (&v)[8], float &squares, bool inside, int chunk,
                             uint8_t *to, int digit_bytes, factors *factor)
{
    float most = 0, sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) most = fmaxf(most, fabsf(v[i]));
#pragma unroll
    for (int i = 0; i < 8; i += 2) sum += v[i] + v[i + 1];
    constexpr int lanes = 16 / groups; /* of a group */
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        if (norm) squares += __shfl_xor_sync(0xFFFFFFFFu, squares, step);
        if (step >= lanes) continue;
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, step));
    }
    /* Biased exponent of the power of two that no |x| reaches by more than 127.5 / 128 times twice:
     * k = 149 - exponent. Not below 28, where factors would leave f32. */
    const uint32_t exponent = min(max((__float_as_uint(most) + 0x10200u) >> 23, 28u), 255u);
    const float scale = __uint_as_float((276 - exponent) << 23);
#pragma unroll
    for (int e = 0; e < 2; e++) { /* c = 2 (chunk % 2) + e */
        uint32_t u[4], digit[DIGITS];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float x = v[i % 2 * 4 + e * 2 + i / 2];
            u[i] = (uint32_t)__float2int_rn(x * scale) + 0x00808080u;
        }
        bytes_of(u, digit);
        if (inside)
#pragma unroll
            for (int i = 0; i < DIGITS; i++)
                *(uint32_t *)(to + i * digit_bytes + e * 16) = digit[i] ^ 0x80808080u;
    }
    const int c = chunk % lanes;
    if (inside && c < 4) {
        const float lo = __uint_as_float((exponent - 6 - 8 * c) << 23) * SUM_UNSCALE;
        const float hi = lo * 0.0625f;
        /* A NaN is in the sum already. */
        const float base = most > FLT_MAX ? __uint_as_float(0x7FFFFFFFu) : sum * SUM_UNSCALE;
        *(float4 *)(factor + c) = c < 3 ? make_float4(lo, -MAGIC_FLOAT * lo, hi, -MAGIC_FLOAT * hi)
                                        : make_float4(0, base, 0, base);
    }
}

/* Two chunks in flight: of one row, or of two rows. */
template <int n_row_max> struct staging {
    enum { ROWS = n_row_max == 1 ? 1 : 2, CHUNKS = 2 / ROWS };
    float4 v[2][2]; /* f32 in front of a norm; else the first holds eight bf16 */
    float4 weight[CHUNKS][2];

    __device__ void load_weights(const gemv_params &p, int in0, int first, int n_chunk)
    {
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            int chunk = first + k * (int)blockDim.x, in = chunk_input(in0, chunk);
            weight[k][0] = weight[k][1] = make_float4(0, 0, 0, 0);
            if (chunk < n_chunk && in < p.n_in) load_weight(p, weight[k], in);
        }
    }
    template <bool norm>
    __device__ void load(const gemv_params &p, int in0, int first, int n_chunk, int row0)
    {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            int row = ROWS == 1 ? 0 : row0 + k;
            int chunk = first + k / ROWS * (int)blockDim.x, in = chunk_input(in0, chunk);
            v[k][0] = v[k][1] = make_float4(0, 0, 0, 0);
            if (chunk >= n_chunk || in >= p.n_in || row >= p.n_row) continue;
            if (norm) {
                const float *x = p.norm_x + row * p.norm_x_stride + in;
                v[k][0] = *(const float4 *)x, v[k][1] = *(const float4 *)(x + 8);
            } else {
                const uint16_t *x = p.x + row * p.x_stride + in;
                float2 a = *(const float2 *)x, b = *(const float2 *)(x + 8);
                v[k][0] = make_float4(a.x, a.y, b.x, b.y);
            }
        }
    }
    /* The eight numbers of the first chunk: x, or x times the norm's weight. */
    template <bool norm> __device__ void numbers(float (&x)[8]) const
    {
        const float4 a = v[0][0], b = v[0][1], c = weight[0][0], d = weight[0][1];
        if (norm) {
            x[0] = a.x * c.x, x[1] = a.y * c.y, x[2] = a.z * c.z, x[3] = a.w * c.w;
            x[4] = b.x * d.x, x[5] = b.y * d.y, x[6] = b.z * d.z, x[7] = b.w * d.w;
        } else {
            const float words[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                x[2 * i] = bf16_lo(__float_as_uint(words[i]));
                x[2 * i + 1] = bf16_hi(__float_as_uint(words[i]));
            }
        }
    }
    /* Both chunks, by one piece of code: a first launch fetches it from memory. s_part: sums of
     * squares of the rows by warps, added to. */
    template <int groups, bool norm>
    __device__ void store(const gemv_params &p, uint8_t *smem, int first, int n_chunk, int row0,
                          float (*s_part)[MAX_WARP])
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
        for (int k = 0; k < 2; k++) {
            int row = ROWS == 1 ? 0 : row0 + k;
            int chunk = first + k / ROWS * (int)blockDim.x;
            int step = chunk % 16 / 2;
            if (chunk - lane >= n_chunk || row >= p.n_row) break; /* the whole warp */
            float x[8], squares = norm ? sum_squares(v[0][1], sum_squares(v[0][0], 0)) : 0;
            numbers<norm>(x);
            stage_chunk<groups, norm>(
                x, squares, chunk < n_chunk, chunk,
                smem + p.at_x + (chunk / 16 * 2 * DIGITS + step / 4) * n_row_max * DIGIT_BYTES +
                    row * DIGIT_BYTES + chunk % 2 * 32 +
                    tiling<groups, n_row_max>::word(step % 4) * 4,
                2 * n_row_max * DIGIT_BYTES,
                (factors *)(smem + p.at_group) + (chunk * groups / 16 * n_row_max + row) * 4);
            if (norm && lane == 0) s_part[row][warp] += squares;
            v[0][0] = v[1][0], v[0][1] = v[1][1];
            if (norm && CHUNKS == 2)
                weight[0][0] = weight[CHUNKS - 1][0], weight[0][1] = weight[CHUNKS - 1][1];
        }
    }
    /* x of this CTA. loaded: its first chunks are here; a norm's first weights always are. */
    template <int groups, bool norm>
    __device__ void all(const gemv_params &p, uint8_t *smem, int in0, int n_chunk, bool loaded,
                        float (*s_part)[MAX_WARP])
    {
        const int t = threadIdx.x, lane = t % 32;
#pragma unroll 1
        for (int first = t; first - lane < n_chunk; first += blockDim.x * CHUNKS) {
            if (norm && first != t) load_weights(p, in0, first, n_chunk);
#pragma unroll 1
            for (int row0 = 0; row0 < p.n_row; row0 += ROWS) {
                if (!loaded) load<norm>(p, in0, first, n_chunk, row0);
                loaded = false;
                store<groups, norm>(p, smem, first, n_chunk, row0, s_part);
            }
        }
    }
};

/* Squares of the chunks that rank 0 of a cluster does not stage, added to s_part. */
BRIM_DEVICE void squares_beyond(const gemv_params &p, int n_chunk, float (*s_part)[MAX_WARP])
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll 1
    for (int row = 0; row < p.n_row; row++) {
        const float4 *x = (const float4 *)(p.norm_x + row * p.norm_x_stride);
        float sum = 0;
#pragma unroll 4
        for (int i = n_chunk * 2 + (int)threadIdx.x; i < p.n_in / 4; i += blockDim.x)
            sum = sum_squares(x[i], sum);
        sum = warp_sum(sum);
        if (lane == 0) s_part[row][warp] += sum;
    }
}

/* Sums of codes and digits over group i of a unit, as bits of floats: 1.5 2^23 and the sum. lo: of
 * output g, hi: of g + 8, times 16. `codes`: this lane's of the fragment; `x`: its digits. */
template <int groups, int n_row_max> struct group_sums {
    using T = tiling<groups, n_row_max>;
    uint32_t lo[T::TILES][T::ROWS], hi[T::TILES][T::ROWS];

    /* Two words are the inputs of a product, one of each k-half; rows g and g + 8 are the outputs.
     */
    __device__ void by_output(const uint8_t *codes, const uint8_t *x, int i)
    {
        uint32_t d[T::TILES][4];
#pragma unroll
        for (int q = i * 4 / groups; q < (i + 1) * 4 / groups; q++) { /* of 32 inputs */
            const uint4 w = *(const uint4 *)(codes + q / 2 * 1024);
            const uint32_t w0 = q % 2 ? w.z : w.x, w1 = q % 2 ? w.w : w.y;
            const uint32_t frag[4] = {w0 & 0x0F0F0F0Fu, T::RAW ? w0 : w0 & 0xF0F0F0F0u,
                                      w1 & 0x0F0F0F0Fu, T::RAW ? w1 : w1 & 0xF0F0F0F0u};
#pragma unroll
            for (int k = 0; k < T::TILES; k++) {
                const uint4 b = *(const uint4 *)(x + (q / 2 * n_row_max + 2 * k) * DIGIT_BYTES);
                const uint32_t b0 = q % 2 ? b.z : b.x, b1 = q % 2 ? b.w : b.y;
                if (q == i * 4 / groups)
                    mma_u8s8_16832(d[k], frag, b0, b1, MAGIC);
                else
                    mma_u8s8_16832(d[k], frag, b0, b1);
            }
        }
#pragma unroll
        for (int k = 0; k < T::TILES; k++)
#pragma unroll
            for (int e = 0; e < T::ROWS; e++) {
                lo[k][e] = d[k][e];
                hi[k][e] = T::RAW ? d[k][2 + e] - d[k][e] + MAGIC : d[k][2 + e];
            }
    }

    /* Four words as they were loaded are a fragment, both rows of it one output: words 0 and 2 meet
     * their inputs in even columns, 1 and 3 in odd ones, and the sum over all four is d[0] + d[3].
     * One product for the masked words, one for the raw; no register is moved. */
    __device__ void whole_words(const uint8_t *codes, const uint8_t *x, int i)
    {
        uint32_t d[2][4];
#pragma unroll
        for (int half = i * 2 / groups; half < (i + 1) * 2 / groups; half++) { /* of 64 inputs */
            const uint4 w = *(const uint4 *)(codes + half * 1024);
            const uint2 b = *(const uint2 *)(x + half * DIGIT_BYTES);
            const uint32_t raw[4] = {w.x, w.y, w.z, w.w};
            const uint32_t low[4] = {w.x & 0x0F0F0F0Fu, w.y & 0x0F0F0F0Fu, w.z & 0x0F0F0F0Fu,
                                     w.w & 0x0F0F0F0Fu};
            if (half == i * 2 / groups) {
                mma_u8s8_16832(d[0], low, b.x, b.y, 0);
                mma_u8s8_16832(d[1], raw, b.x, b.y, 0);
            } else {
                mma_u8s8_16832(d[0], low, b.x, b.y);
                mma_u8s8_16832(d[1], raw, b.x, b.y);
            }
        }
        lo[0][0] = d[0][0] + d[0][3] + MAGIC;
        hi[0][0] = d[1][0] + d[1][3] - lo[0][0] + 2u * MAGIC;
    }
};

/* n_row_max 1, 2, 4 or 8: tiles of two rows, or one of one. */
template <enum brim_dtype dtype, int groups, int n_row_max>
__global__ void __launch_bounds__(MAX_WARP * 32, n_row_max == 8 ? 1 : 2)
    w4_gemv_int8(const __grid_constant__ gemv_params p)
{
    using stream = weight_stream<dtype, groups>;
    using T = tiling<groups, n_row_max>;
    __shared__ __align__(16) float s_part[MAX_ROW][MAX_WARP];
    __shared__ __align__(8) uint64_t s_joined;
    const int t = threadIdx.x, warp = t / 32, lane = t % 32, n_warp = blockDim.x / 32;
    const int rank = blockIdx.x & ((1 << p.split_log2) - 1);
    const int pair0 = (int)(blockIdx.x >> p.split_log2) * p.n_pair;

    release_at(p, BRIM_W4_GEMV_AT_ONCE);
    const gemv_share share = share_of(p, warp, rank, pair0);
    const int n_chunk = share.n_chunk, in0 = share.in0;

    /* x first where nothing has to be waited for: it must not queue behind the weights. */
    staging<n_row_max> x = {};
    if (!p.pdl && !p.norm_x) x.template load<false>(p, in0, t, n_chunk, 0);

    uint8_t *ring = smem + warp * p.depth * stream::SLOT_BYTES;
    stream weights(p, share.pair, share.begin, lane);
    begin_join(p, &s_joined, rank);
    weights.fill(ring, p.depth, share.begin, share.end, lane);
    release_at(p, BRIM_W4_GEMV_REQUESTED);
    if (p.norm_x) x.load_weights(p, in0, t, n_chunk);
    /* Weights do not depend on the predecessor; x and y do. */
    if (p.pdl) griddepcontrol_wait();

    /* The residual of this warp's first outputs travels while the product is made: item i of a CTA
     * is row i / n_pair of its pair i % n_pair. */
    float residual = 0;
    if (p.epilogue == BRIM_W4_ADD_F32 && rank == 0 && warp < p.n_row * p.n_pair) {
        int row = (int)(warp * p.pair_recip >> 16);
        int o = (pair0 + warp - row * p.n_pair) * PAIR_OUT + lane;
        if (o < p.n_out) residual = ((const float *)p.y)[row * p.y_stride + o];
    }
    if (p.norm_x) {
        if (lane < n_row_max) s_part[lane][warp] = 0;
        __syncwarp();
        x.template all<groups, true>(p, smem, in0, n_chunk, false, s_part);
        if (p.split_log2 > 0 && rank == 0) squares_beyond(p, n_chunk, s_part);
    } else {
        x.template all<groups, false>(p, smem, in0, n_chunk, !p.pdl, s_part);
    }
    __syncthreads();
    release_at(p, BRIM_W4_GEMV_STAGED);

    const int g = lane / 4, c = lane % 4;
    const int unit0 = share.begin - share.cta_begin; /* among the staged */
    /* Columns 6 and 7 repeat 4 and 5: any bytes will do there. */
    const uint8_t *x_at = smem + p.at_x + unit0 * X_BYTES * n_row_max +
                          min(g / 2, DIGITS - 1) * 2 * n_row_max * DIGIT_BYTES +
                          (T::WHOLE       ? g % 2 * 8
                           : T::ROWS == 1 ? 0
                                          : g % 2 * DIGIT_BYTES) +
                          c * 16;
    const factors *factor_at =
        (const factors *)(smem + p.at_group) + unit0 * groups * n_row_max * 4 + c;
    float out[T::TILES][T::ROWS][2][2] = {}; /* [fragment][output g or g + 8] */
    /* One offset into the ring for all that is read there and for what is copied to it. Lanes 3 of
     * a quad read biases, the others scales. */
    const uint8_t *code_at = ring + lane * 16, *param_at = ring + CODE_BYTES +
                                                           g * quad<dtype>::BYTES +
                                                           (c == 3 ? quad<dtype>::BYTES / 2 : 0);
    const uint32_t to = smem_u32(ring) + lane * 16, ring_bytes = p.depth * stream::SLOT_BYTES;
    uint32_t at = 0;
#pragma unroll 1
    for (int left = share.end - share.begin; left > 0; left--) {
        wait_oldest(p.depth);
        __syncwarp(); /* parameters come by other lanes' copies */
#pragma unroll
        for (int i = 0; i < groups; i++) {
#pragma unroll
            for (int f = 0; f < 2; f++) {
                group_sums<groups, n_row_max> d;
                if (T::WHOLE)
                    d.whole_words(code_at + at + f * 512, x_at, i);
                else
                    d.by_output(code_at + at + f * 512, x_at, i);
                const float2 w =
                    half_quad<dtype>(param_at + at + (i * 2 + f) * 8 * quad<dtype>::BYTES);
#pragma unroll
                for (int k = 0; k < T::TILES; k++)
#pragma unroll
                    for (int e = 0; e < T::ROWS; e++) {
                        const float4 by =
                            *(const float4 *)(factor_at + (i * n_row_max + 2 * k + e) * 4);
                        const float lo = __fmaf_rn(__uint_as_float(d.lo[k][e]), by.x, by.y);
                        const float hi = __fmaf_rn(__uint_as_float(d.hi[k][e]), by.z, by.w);
                        out[k][e][f][0] = __fmaf_rn(w.x, lo, out[k][e][f][0]);
                        out[k][e][f][1] = __fmaf_rn(w.y, hi, out[k][e][f][1]);
                    }
            }
        }
        __syncwarp(); /* all lanes have read the slot */
        if (left > p.depth) weights.next(to + at, lane);
        cp_async_commit();
        x_at += X_BYTES * n_row_max;
        factor_at += groups * n_row_max * 4;
        at += stream::SLOT_BYTES;
        if (at == ring_bytes) at = 0;
    }

    /* Digits and bias of a quad, (0 + 1) + (2 + 3), each lane left with one of four outputs: f is
     * its bit 0, g or g + 8 its bit 1. Then sums [row][32 outputs] over this warp's own ring, whose
     * copies have all been consumed. */
    float *sums = (float *)ring;
#pragma unroll
    for (int k = 0; k < T::TILES; k++)
#pragma unroll
        for (int e = 0; e < T::ROWS; e++) {
            const bool f1 = c & 1, h1 = c & 2;
            float mine[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float a = out[k][e][0][h], b = out[k][e][1][h];
                mine[h] = (f1 ? b : a) + __shfl_xor_sync(0xFFFFFFFFu, f1 ? a : b, 1);
            }
            const float sum =
                (h1 ? mine[1] : mine[0]) + __shfl_xor_sync(0xFFFFFFFFu, h1 ? mine[0] : mine[1], 2);
            if (2 * k + e < (n_row_max == 1 ? 1 : p.n_row))
                sums[(2 * k + e) * SUM_STRIDE + (c & 1) * 16 + (c >> 1) * 8 + g] = sum;
        }
    /* 1 / rms of the one row before the barrier: who stores has the time. */
    float scale = SUM_SCALE;
    if (n_row_max == 1 && p.norm_x && rank == 0 && warp < p.n_pair)
        scale *= row_scale(p, s_part[0], n_warp);
    join_and_store<n_row_max == 1 ? 1 : MAX_ROW, stream::SLOT_BYTES>(
        p, smem, &s_joined, rank, pair0, warp, lane, n_warp, residual, [&](int row) {
            return n_row_max > 1 && p.norm_x ? SUM_SCALE * row_scale(p, s_part[row], n_warp)
                                             : scale;
        });
}

struct int8_form {
    static int64_t place_x(gemv_params *p, int64_t at, int64_t groups, int n_unit_cta)
    {
        const int n_row = p->n_row <= 2 ? p->n_row : p->n_row <= 4 ? 4 : MAX_ROW;
        p->at_x = (uint32_t)at;
        at += (int64_t)n_unit_cta * X_BYTES * n_row;
        p->at_group = (uint32_t)at;
        return at + (int64_t)n_unit_cta * groups * FACTOR_BYTES * n_row;
    }
    template <enum brim_dtype dtype, int groups>
    static brim_status launch(const gemv_params &p, brim_launch_shape shape, cudaStream_t stream,
                              brim_error *err)
    {
        if (p.n_row == 1)
            return BRIM_LAUNCH((w4_gemv_int8<dtype, groups, 1>), shape, stream, p, err);
        if (p.n_row == 2)
            return BRIM_LAUNCH((w4_gemv_int8<dtype, groups, 2>), shape, stream, p, err);
        if (p.n_row <= 4)
            return BRIM_LAUNCH((w4_gemv_int8<dtype, groups, 4>), shape, stream, p, err);
        return BRIM_LAUNCH((w4_gemv_int8<dtype, groups, 8>), shape, stream, p, err);
    }
};

} // namespace

extern "C" brim_status brim_cuda_w4_gemv_int8(const struct brim_cuda_w4 *args,
                                              const struct brim_cuda_w4_packed *w,
                                              const struct brim_cuda_w4_norm *norm,
                                              const struct brim_w4_gemv_plan *plan, int pdl,
                                              void *stream, brim_error *err)
{
    return gemv_run<int8_form>(args, w, norm, plan, pdl, (cudaStream_t)stream, err);
}
