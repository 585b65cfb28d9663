/* SPDX-License-Identifier: Apache-2.0
 * See gemv.h; weight order in pack.h, schedule in plan/w4_gemv.h.
 *
 * Warp w of a CTA has pair w % n_pair (32 outputs, two 16-row fragments) and part w / n_pair of the
 * reduction. Each warp keeps its own ring of `depth` units in shared memory, filled by its own
 * cp.async, no barrier between warps; that starts before the dependency wait. Then the CTA stages
 * its part of x and the sums of its groups, and from there the warps run alone:
 * out += scale sum(q x) + bias sum(x), f32. Join: parts of a CTA in order, then CTAs in order, sent
 * to rank 0 of the cluster, which stores.
 *
 * Codes without conversion: a 16-bit half below 0x0100, read as bf16, is that integer times 2^-133
 * (subnormals and the first binade share one spacing), so a mask is a conversion. Bytes hold the
 * codes of outputs g (low nibble) and g + 8 (high): fragment rows are q_g and 16 q_(g+8) + q_g, and
 * a difference of sums gives q_(g+8). x is scaled by 2^100, exactly, to stay in f32's range; all
 * sums are 2^-33 of the true ones until the end. */
#include "cuda/launch.h"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/w4/dequant.cuh"
#include "cuda/w4/gemv.h"

/* Outside the namespace: the emulator gives it storage by this name. */
extern __shared__ __align__(128) uint8_t smem[];

namespace
{

enum {
    MAX_ROW = BRIM_W4_GEMV_ROWS,
    MAX_WARP = BRIM_W4_GEMV_WARPS,
    MAX_PART = BRIM_W4_GEMV_WARPS * 8, /* of a cluster */
    MAX_DEPTH = 4,
    PAIR_OUT = 32,
    CODE_BYTES = 2048, /* of a pair and one unit */
    SUM_STRIDE = 36,   /* floats between rows of a warp's 32 sums: stores fall in distinct banks */
    X_SCALE_LOG2 = 100,
    /* Two CTAs share a multiprocessor, so that the next kernel's weights travel early. */
    SMEM_SHARED = 114 * 1024 - 1024 - 512,
    SMEM_MOST = 227 * 1024 - 512
};

/* 2^(133 - X_SCALE_LOG2), what the sums lack, and its inverse. */
#define SUM_SCALE 8589934592.0f
#define SUM_UNSCALE 1.1641532182693481e-10f

struct gemv_params {
    const uint16_t *x;
    int64_t x_stride;
    const float *norm_x; /* or NULL: x is given */
    int64_t norm_x_stride;
    const float *norm_weight;
    float norm_eps;
    int depth;
    void *y;
    int64_t y_stride;
    const float *out_bias;
    const uint8_t *codes, *params;
    int n_in, n_out, n_unit, n_row;
    int n_pair, n_part, split_log2, n_pair_all;
    uint32_t pair_recip; /* i / n_pair = i * pair_recip >> 16 for i < 128 */
    enum brim_w4_epilogue epilogue;
    bool pdl;
    /* Offsets in shared memory, bytes; the ring is at 0. */
    uint32_t at_x, at_group, at_join, row_bytes;
    uint16_t unit_at[MAX_PART + 1]; /* first unit of each part of the cluster */
};

/* Sum of a group of one row of x, times SUM_UNSCALE, and what a smaller scale of x asks for. */
struct group_x {
    float sum, factor;
};

template <enum brim_dtype dtype> struct quad; /* {scale g, scale g + 8, bias g, bias g + 8} */
template <> struct quad<BRIM_DTYPE_F32> {
    enum { BYTES = 16 };
    static __device__ float4 load(const uint8_t *at) { return *(const float4 *)at; }
};
template <> struct quad<BRIM_DTYPE_F16> {
    enum { BYTES = 8 };
    static __device__ float4 load(const uint8_t *at)
    {
        uint2 v = *(const uint2 *)at;
        float2 s = __half22float2(*(const __half2 *)&v.x),
               b = __half22float2(*(const __half2 *)&v.y);
        return make_float4(s.x, s.y, b.x, b.y);
    }
};
template <> struct quad<BRIM_DTYPE_BF16> {
    enum { BYTES = 8 };
    static __device__ float4 load(const uint8_t *at)
    {
        uint2 v = *(const uint2 *)at;
        return make_float4(bf16_lo(v.x), bf16_hi(v.x), bf16_lo(v.y), bf16_hi(v.y));
    }
};

/* The four registers of a k-step: rows g and "g + 8" of a fragment, see the head. */
BRIM_DEVICE void unpack(uint32_t word, uint32_t (&frag)[4])
{
    frag[1] = word & 0x00FF00FFu;
    frag[0] = word & 0x000F000Fu;
    frag[3] = __byte_perm(word, 0, 0x4341);
    frag[2] = frag[3] & 0x000F000Fu;
}

/* Until at most depth - 1 of the youngest groups are in flight. */
BRIM_DEVICE void wait_oldest(int depth)
{
    if (depth == 4)
        cp_async_wait<3>();
    else if (depth == 3)
        cp_async_wait<2>();
    else if (depth == 2)
        cp_async_wait<1>();
    else
        cp_async_wait<0>();
}

/* What one warp reads, unit after unit, and the form in which it lies in a slot of the ring: codes
 * [half][fragment 2][lane] of 16 bytes, then parameters [group][fragment 2][g 8] of quads. */
template <enum brim_dtype dtype, int groups> struct weight_stream {
    enum {
        PAIR_BYTES = 16 * quad<dtype>::BYTES, /* parameters of a group of a pair */
        PIECES = PAIR_BYTES / 16,
        SLOT_BYTES = CODE_BYTES + groups * PAIR_BYTES
    };
    const uint8_t *codes, *params; /* this lane's */

    __device__ weight_stream(const gemv_params &p, int pair, int unit, int lane)
    {
        int64_t at = (int64_t)(pair / 2) * p.n_unit + unit;
        codes = p.codes + at * BRIM_W4_UNIT_BYTES + pair % 2 * 1024 + lane * 16;
        params = p.params + at * (groups * 2 * PAIR_BYTES) +
                 (lane / PIECES * 2 + pair % 2) * PAIR_BYTES + lane % PIECES * 16;
    }

    /* The next unit into a slot; `dst` is this lane's first byte of it. */
    __device__ void next(uint32_t dst, int lane)
    {
        cp_async_16(dst, codes, true);
        cp_async_16(dst + 512, codes + 512, true);
        cp_async_16(dst + 1024, codes + 2048, true);
        cp_async_16(dst + 1536, codes + 2560, true);
#pragma unroll
        for (int i = 0; i < groups * PIECES; i += 32)
            if (i + lane < groups * PIECES)
                cp_async_16(dst + CODE_BYTES + i * 16, params + i / PIECES * 2 * PAIR_BYTES, true);
        codes += BRIM_W4_UNIT_BYTES;
        params += groups * 2 * PAIR_BYTES;
    }
};

/* f32 row times rsqrt and weight, rounded to bf16: eight elements. */
BRIM_DEVICE uint4 normed(const float *x, const float4 (&weight)[2], float inv)
{
    float4 a = *(const float4 *)x, b = *(const float4 *)(x + 4), c = weight[0], d = weight[1];
    return make_uint4(bf16x2_pack(a.x * inv * c.x, a.y * inv * c.y),
                      bf16x2_pack(a.z * inv * c.z, a.w * inv * c.w),
                      bf16x2_pack(b.x * inv * d.x, b.y * inv * d.y),
                      bf16x2_pack(b.z * inv * d.z, b.w * inv * d.w));
}

/* Eight elements v of a row of x, times the scale of their unit, to *to; *group gets what the group
 * needs. 16 lanes hold a unit; all lanes of the warp come here. Returns whether the unit has a
 * smaller scale than usual. */
template <int groups>
BRIM_DEVICE bool stage_x(uint4 v, bool inside, int chunk, uint8_t *to, group_x *group)
{
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    uint32_t most = 0;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        most = __vmaxu2(most, words[i] & 0x7FFF7FFFu);
        sum += bf16_lo(words[i]) + bf16_hi(words[i]);
    }
    constexpr int lanes = 16 / groups; /* of a group */
#pragma unroll
    for (int step = 1; step < lanes; step *= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    /* 2^28 and above would leave bf16's range; then the unit gets the scale that reaches its top.
     */
    constexpr uint32_t most_exponent = 254 - X_SCALE_LOG2;
    uint32_t exponent = max(most >> 16, most & 0xFFFFu) >> 7;
    int scale_log2 = X_SCALE_LOG2;
    bool small = __any_sync(0xFFFFFFFFu, exponent > most_exponent);
    if (small) {
#pragma unroll 1
        for (int step = 1; step < 16; step *= 2)
            exponent = max(exponent, __shfl_xor_sync(0xFFFFFFFFu, exponent, step));
        if (exponent > most_exponent) scale_log2 = max(254 - (int)exponent, 0);
    }
    __nv_bfloat162 scale;
    *(uint32_t *)&scale = (uint32_t)(127 + scale_log2) * 0x00800080u;
    uint32_t scaled[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        __nv_bfloat162 product = __hmul2(*(const __nv_bfloat162 *)&words[i], scale);
        scaled[i] = *(uint32_t *)&product;
    }
    if (inside) {
        *(uint4 *)to = make_uint4(scaled[0], scaled[1], scaled[2], scaled[3]);
        if (chunk % lanes == 0) {
            group->sum = sum * SUM_UNSCALE;
            group->factor = __uint_as_float((uint32_t)(127 + X_SCALE_LOG2 - scale_log2) << 23);
        }
    }
    return small;
}

BRIM_DEVICE float sum_squares(float4 v, float sum)
{
    return __fmaf_rn(v.x, v.x, __fmaf_rn(v.y, v.y, __fmaf_rn(v.z, v.z, __fmaf_rn(v.w, v.w, sum))));
}

/* Sums of squares of the warps, of one row; the order depends on the number of warps alone. */
BRIM_DEVICE float row_scale(const gemv_params &p, const float (&part)[MAX_WARP], int n_warp)
{
    float sum = 0;
#pragma unroll
    for (int w = 0; w < MAX_WARP; w++) sum += w < n_warp ? part[w] : 0;
    return rsqrtf(sum / (float)p.n_in + p.norm_eps);
}

/* 1 / sqrt(mean(x^2) + eps): of row 0, and of all rows into s_inv where there may be more. Barriers
 * inside. */
template <int n_row_max>
BRIM_DEVICE float norm_rows(const gemv_params &p, float (*s_part)[MAX_WARP], float *s_inv)
{
    const int t = threadIdx.x, lane = t % 32, n_warp = blockDim.x / 32, n = p.n_in / 4;
    constexpr int batch = n_row_max == 1 ? 1 : 4, reach = n_row_max == 1 ? 3 : 1;
#pragma unroll 1
    for (int row0 = 0; row0 < p.n_row; row0 += batch) {
        float sum[batch] = {};
#pragma unroll 1
        for (int first = t; first < n; first += blockDim.x * reach) {
            float4 v[batch * reach];
#pragma unroll
            for (int k = 0; k < batch * reach; k++) {
                int r = row0 + k / reach, i = first + k % reach * blockDim.x;
                v[k] = make_float4(0, 0, 0, 0);
                if (r < p.n_row && i < n)
                    v[k] = ((const float4 *)(p.norm_x + r * p.norm_x_stride))[i];
            }
#pragma unroll
            for (int k = 0; k < batch * reach; k++)
                sum[k / reach] = sum_squares(v[k], sum[k / reach]);
        }
#pragma unroll
        for (int step = 16; step > 0; step /= 2)
#pragma unroll
            for (int r = 0; r < batch; r++) sum[r] += __shfl_xor_sync(0xFFFFFFFFu, sum[r], step);
        if (lane == 0)
#pragma unroll
            for (int r = 0; r < batch; r++)
                if (row0 + r < p.n_row) s_part[row0 + r][t / 32] = sum[r];
    }
    __syncthreads();
    if (n_row_max > 1) {
        for (int row = t / 32; row < p.n_row; row += n_warp) {
            float inv = row_scale(p, s_part[row], n_warp);
            if (lane == 0) s_inv[row] = inv;
        }
        __syncthreads();
    }
    return row_scale(p, s_part[0], n_warp);
}

/* x of this CTA's units (or the normed residual stream) into shared memory, and what the groups
 * need; ends with a barrier. `weight`: of the norm, for the chunks a thread meets first. Returns
 * whether any unit has a smaller scale than usual. */
template <int groups, int n_row_max>
BRIM_DEVICE bool stage_rows(const gemv_params &p, uint8_t *smem, int in0, int n_chunk,
                            float4 (&weight)[n_row_max == 1 ? 2 : 1][2], float inv,
                            const float *s_inv)
{
    /* Loads in flight: two chunks of one row, or one chunk of four rows. */
    constexpr int batch = n_row_max == 1 ? 2 : 4, chunks = n_row_max == 1 ? 2 : 1;
    const int lane = threadIdx.x % 32;
    bool small = false;
#pragma unroll 1
    for (int first = threadIdx.x - lane; first < n_chunk; first += blockDim.x * chunks) {
        if (p.norm_x && first >= (int)blockDim.x)
#pragma unroll
            for (int k = 0; k < chunks; k++) {
                int in = in0 + (first + lane + k * (int)blockDim.x) * 8;
                if (in >= p.n_in) continue;
                weight[k][0] = __ldg((const float4 *)(p.norm_weight + in));
                weight[k][1] = __ldg((const float4 *)(p.norm_weight + in + 4));
            }
#pragma unroll 1
        for (int row0 = 0; row0 < p.n_row; row0 += batch) {
            uint4 v[batch];
#pragma unroll
            for (int k = 0; k < batch; k++) {
                int row = n_row_max == 1 ? 0 : row0 + k;
                int chunk = first + lane + (n_row_max == 1 ? k * (int)blockDim.x : 0);
                int in = in0 + chunk * 8;
                v[k] = make_uint4(0, 0, 0, 0);
                if (chunk < n_chunk && in < p.n_in && row < p.n_row)
                    v[k] = p.norm_x ? normed(p.norm_x + row * p.norm_x_stride + in,
                                             weight[n_row_max == 1 ? k : 0],
                                             n_row_max == 1 ? inv : s_inv[row])
                                    : *(const uint4 *)(p.x + row * p.x_stride + in);
            }
#pragma unroll
            for (int k = 0; k < batch; k++) {
                int row = n_row_max == 1 ? 0 : row0 + k;
                int chunk = first + lane + (n_row_max == 1 ? k * (int)blockDim.x : 0);
                small |= stage_x<groups>(v[k], chunk < n_chunk && row < p.n_row, chunk,
                                         smem + p.at_x + row * p.row_bytes + chunk * 16,
                                         (group_x *)(smem + p.at_group) +
                                             chunk * groups / 16 * MAX_ROW + row);
            }
        }
    }
    return __syncthreads_or(small);
}

template <enum brim_dtype dtype, int groups, int n_row_max>
__global__ void __launch_bounds__(MAX_WARP * 32, 2) w4_gemv(const __grid_constant__ gemv_params p)
{
    using stream = weight_stream<dtype, groups>;
    __shared__ __align__(16) float s_part[MAX_ROW][MAX_WARP];
    __shared__ float s_inv[MAX_ROW];
    __shared__ __align__(8) uint64_t s_joined;
    const int t = threadIdx.x, warp = t / 32, lane = t % 32, n_warp = blockDim.x / 32;
    const int rank = blockIdx.x & ((1 << p.split_log2) - 1);
    const int pair0 = (int)(blockIdx.x >> p.split_log2) * p.n_pair;

    /* Weights of this warp: units [begin, end) of its pair. */
    const int part = (int)(warp * p.pair_recip >> 16), part0 = rank * p.n_part;
    int pair = min(pair0 + warp - part * p.n_pair, p.n_pair_all - 1); /* past the end: not stored */
    const int begin = p.unit_at[part0 + part], end = p.unit_at[part0 + part + 1];
    uint8_t *ring = smem + warp * p.depth * stream::SLOT_BYTES;
    stream weights(p, pair, begin, lane);
    if (p.split_log2 > 0) {
        if (t == 0) {
            mbarrier_init(smem_u32(&s_joined), ((1 << p.split_log2) - 1) * n_warp);
            fence_mbarrier_init();
        }
        cluster_arrive_relaxed(); /* waited for before the first store to another CTA */
    }
#pragma unroll 1
    for (int d = 0; d < p.depth; d++) {
        if (begin + d < end)
            weights.next(smem_u32(ring) + d * stream::SLOT_BYTES + lane * 16, lane);
        cp_async_commit();
    }
    if (p.pdl) griddepcontrol_launch_dependents(); /* the successor may load its weights as well */

    /* Chunks of eight inputs of this CTA; the norm's weights of a thread's first. */
    const int cta_begin = p.unit_at[part0], cta_end = p.unit_at[part0 + p.n_part];
    const int n_chunk = (cta_end - cta_begin) * 16, in0 = cta_begin * BRIM_W4_UNIT;
    float4 norm_weight[n_row_max == 1 ? 2 : 1][2] = {};
    if (p.norm_x) {
#pragma unroll
        for (int k = 0; k < (n_row_max == 1 ? 2 : 1); k++) {
            int chunk = t + k * (int)blockDim.x, in = in0 + chunk * 8;
            if (chunk >= n_chunk || in >= p.n_in) continue;
            norm_weight[k][0] = __ldg((const float4 *)(p.norm_weight + in));
            norm_weight[k][1] = __ldg((const float4 *)(p.norm_weight + in + 4));
        }
    }
    /* Weights do not depend on the predecessor; x and y do. */
    if (p.pdl) griddepcontrol_wait();

    /* The residual of this warp's first outputs travels while the product is made: item i of a CTA
     * is row i / n_pair of its pair i % n_pair. */
    float residual = 0;
    if (p.epilogue == BRIM_W4_ADD_F32 && rank == 0 && warp < p.n_row * p.n_pair) {
        int row = (int)(warp * p.pair_recip >> 16);
        int out = (pair0 + warp - row * p.n_pair) * PAIR_OUT + lane;
        if (out < p.n_out) residual = ((const float *)p.y)[row * p.y_stride + out];
    }
    float inv = 0;
    if (p.norm_x) inv = norm_rows<n_row_max>(p, s_part, s_inv);
    const bool small =
        stage_rows<groups, n_row_max>(p, smem, in0, n_chunk, norm_weight, inv, s_inv);

    const int g = lane / 4, c = lane % 4;
    /* Row of x whose address this lane gives to ldmatrix; columns beyond n_row repeat the last. */
    const int x_row = n_row_max == 1 ? 0 : min(lane % 8, p.n_row - 1);
    uint32_t x_at =
        smem_u32(smem + p.at_x) + x_row * p.row_bytes + (begin - cta_begin) * 256 + lane / 8 * 16;
    const float4 *group_at = (const float4 *)((const group_x *)(smem + p.at_group) +
                                              (begin - cta_begin) * groups * MAX_ROW + 2 * c);
    float out[2][4] = {};
    const uint8_t *at = ring;
    int slot = 0;
#pragma unroll 1
    for (int unit = begin; unit < end; unit++) {
        wait_oldest(p.depth);
        __syncwarp(); /* parameters come by other lanes' copies */
        float d[2][groups][4] = {};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint4 words[2] = {*(const uint4 *)(at + half * 1024 + lane * 16),
                                    *(const uint4 *)(at + half * 1024 + 512 + lane * 16)};
#pragma unroll
            for (int q = 0; q < 2; q++) { /* two k-steps */
                uint32_t x[4], frag[4];
                ldmatrix_x4(x, x_at + (half * 2 + q) * 64);
#pragma unroll
                for (int f = 0; f < 2; f++) {
                    float(&acc)[4] = d[f][(half * 2 + q) * groups / 4];
                    unpack(q ? words[f].z : words[f].x, frag);
                    mma_bf16_16816(acc, frag, x[0], x[1]);
                    unpack(q ? words[f].w : words[f].y, frag);
                    mma_bf16_16816(acc, frag, x[2], x[3]);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < groups; i++) {
            const float4 gx = group_at[i * (MAX_ROW / 2)]; /* columns 2c, 2c + 1 */
#pragma unroll
            for (int f = 0; f < 2; f++) {
                const float4 w =
                    quad<dtype>::load(at + CODE_BYTES + ((i * 2 + f) * 8 + g) * quad<dtype>::BYTES);
                float lo0 = d[f][i][0], lo1 = d[f][i][1];
                float hi0 = d[f][i][2] - lo0, hi1 = d[f][i][3] - lo1, scale_hi = w.y * 0.0625f;
                if (small) lo0 *= gx.y, hi0 *= gx.y, lo1 *= gx.w, hi1 *= gx.w;
                out[f][0] = __fmaf_rn(w.x, lo0, __fmaf_rn(w.z, gx.x, out[f][0]));
                out[f][1] = __fmaf_rn(w.x, lo1, __fmaf_rn(w.z, gx.z, out[f][1]));
                out[f][2] = __fmaf_rn(scale_hi, hi0, __fmaf_rn(w.w, gx.x, out[f][2]));
                out[f][3] = __fmaf_rn(scale_hi, hi1, __fmaf_rn(w.w, gx.z, out[f][3]));
            }
        }
        __syncwarp(); /* all lanes have read the slot */
        if (unit + p.depth < end) weights.next(smem_u32(at) + lane * 16, lane);
        cp_async_commit();
        x_at += 256;
        group_at += groups * (MAX_ROW / 2);
        at += stream::SLOT_BYTES;
        if (++slot == p.depth) slot = 0, at = ring;
    }

    /* Sums [row][32 outputs] over this warp's own ring, whose copies have all been consumed. */
    float *sums = (float *)ring;
#pragma unroll
    for (int f = 0; f < 2; f++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            if (2 * c + e < p.n_row) {
                sums[(2 * c + e) * SUM_STRIDE + f * 16 + g] = out[f][e];
                sums[(2 * c + e) * SUM_STRIDE + f * 16 + g + 8] = out[f][2 + e];
            }
    __syncthreads();
    const int n_item = p.n_row * p.n_pair, n_elem = n_item * PAIR_OUT;
    float *s_join = (float *)(smem + p.at_join); /* in rank 0: [rank - 1][item][32] */
    uint32_t to = 0;
    if (p.split_log2 > 0) {
        cluster_wait();
        if (rank > 0) to = mapa_u32(smem_u32(s_join + (rank - 1) * n_elem), 0);
    }
#pragma unroll 1
    for (int item = warp; item < n_item; item += n_warp) {
        const int row = n_row_max == 1 ? 0 : (int)(item * p.pair_recip >> 16);
        const int own = item - row * p.n_pair, o = (pair0 + own) * PAIR_OUT + lane;
        const float *from =
            (const float *)(smem + own * p.depth * stream::SLOT_BYTES) + row * SUM_STRIDE + lane;
        const int stride = p.n_pair * p.depth * (stream::SLOT_BYTES / 4);
        float v[MAX_WARP], sum = 0;
#pragma unroll
        for (int s = 0; s < MAX_WARP; s++) v[s] = s < p.n_part ? from[s * stride] : 0;
#pragma unroll
        for (int s = 0; s < MAX_WARP; s++) sum += v[s];
        if (rank > 0) {
            st_shared_cluster_f32(to + (item * PAIR_OUT + lane) * 4, sum);
            continue;
        }
        if (p.split_log2 > 0) {
            while (!mbarrier_try_wait_cluster(smem_u32(&s_joined), 0)) {
            }
            for (int r = 0; r < (1 << p.split_log2) - 1; r++)
                sum += s_join[r * n_elem + item * PAIR_OUT + lane];
        }
        sum *= SUM_SCALE;
        const bool inside = o < p.n_out;
        if (p.out_bias && inside) sum += __ldg(p.out_bias + o);
        int64_t y = row * p.y_stride + o;
        if (p.epilogue == BRIM_W4_SWIGLU) {
            /* Outputs o % 16 < 8 are gates, their ups eight lanes on. */
            float up = __shfl_down_sync(0xFFFFFFFFu, sum, 8);
            if (inside && o % 16 < 8)
                ((__nv_bfloat16 *)p.y)[row * p.y_stride + o / 16 * 8 + o % 8] =
                    __float2bfloat16_rn(__fdividef(sum, 1.0f + __expf(-sum)) * up);
        } else if (inside) {
            if (p.epilogue == BRIM_W4_STORE_BF16)
                ((__nv_bfloat16 *)p.y)[y] = __float2bfloat16_rn(sum);
            else if (p.epilogue == BRIM_W4_STORE_F32)
                ((float *)p.y)[y] = sum;
            else
                ((float *)p.y)[y] = (item == warp ? residual : ((const float *)p.y)[y]) + sum;
        }
    }
    if (rank > 0) {
        __syncwarp();
        if (lane == 0) mbarrier_arrive_cluster(mapa_u32(smem_u32(&s_joined), 0));
    }
}

template <enum brim_dtype dtype, int groups>
brim_status launch_rows(const gemv_params &p, brim_launch_shape shape, cudaStream_t stream,
                        brim_error *err)
{
    if (p.n_row == 1) return BRIM_LAUNCH((w4_gemv<dtype, groups, 1>), shape, stream, p, err);
    return BRIM_LAUNCH((w4_gemv<dtype, groups, MAX_ROW>), shape, stream, p, err);
}

template <enum brim_dtype dtype>
brim_status launch_groups(const gemv_params &p, int group, brim_launch_shape shape,
                          cudaStream_t stream, brim_error *err)
{
    switch (group) {
    case 32:
        return launch_rows<dtype, 4>(p, shape, stream, err);
    case 64:
        return launch_rows<dtype, 2>(p, shape, stream, err);
    default:
        return launch_rows<dtype, 1>(p, shape, stream, err);
    }
}

/* Places of the shared arrays for p->n_row rows and p->depth; returns the bytes. */
int64_t place(gemv_params *p, const brim_cuda_w4_packed *w, int n_unit_cta)
{
    int64_t groups = BRIM_W4_UNIT / w->group;
    int64_t slot_bytes = CODE_BYTES + groups * 64 * (int64_t)brim_dtype_bytes(w->param_dtype);
    int64_t at = (int64_t)p->n_part * p->n_pair * p->depth * slot_bytes;
    p->at_x = (uint32_t)at;
    p->row_bytes = (uint32_t)n_unit_cta * 256 + 16; /* eight rows of ldmatrix: distinct banks */
    at += (int64_t)p->n_row * p->row_bytes;
    p->at_group = (uint32_t)at;
    at += (int64_t)n_unit_cta * groups * MAX_ROW * (int64_t)sizeof(group_x);
    p->at_join = (uint32_t)at;
    at += ((1 << p->split_log2) - 1) * (int64_t)p->n_row * p->n_pair * PAIR_OUT * 4;
    return at;
}

} // namespace

extern "C" brim_status brim_cuda_w4_gemv(const struct brim_cuda_w4 *args,
                                         const struct brim_cuda_w4_packed *w,
                                         const struct brim_cuda_w4_norm *norm,
                                         const struct brim_w4_gemv_plan *plan, int pdl,
                                         void *stream, brim_error *err)
{
    if (args->n_row == 0 || w->n_out == 0) return BRIM_OK;
    BRIM_REQUIRE(err, args->n_row >= 1 && args->n_row <= MAX_ROW, BRIM_E_SHAPE,
                 "n_row %lld: this kernel takes 1 to %d rows", (long long)args->n_row, MAX_ROW);
    BRIM_REQUIRE(
        err, plan->n_cta <= INT32_MAX && w->n_out < INT32_MAX - 1024 && plan->n_unit <= UINT16_MAX,
        BRIM_E_SHAPE, "n_out %lld, n_in %lld: more than one launch takes", (long long)w->n_out,
        (long long)w->n_in);
    BRIM_REQUIRE(err, args->epilogue != BRIM_W4_SWIGLU || w->n_out % 16 == 0, BRIM_E_SHAPE,
                 "n_out %lld: gate and up in pairs are a multiple of 16", (long long)w->n_out);
    gemv_params p = {};
    p.n_in = (int)w->n_in;
    p.n_out = (int)w->n_out;
    p.n_unit = (int)plan->n_unit;
    p.n_pair_all = (int)((w->n_out + PAIR_OUT - 1) / PAIR_OUT);
    p.n_pair = plan->n_pair;
    p.n_part = plan->n_part;
    while (1 << p.split_log2 < plan->split) p.split_log2++;
    p.pair_recip = 65536u / (uint32_t)plan->n_pair + 1;
    p.codes = (const uint8_t *)w->codes;
    p.params = (const uint8_t *)w->params;
    p.out_bias = args->out_bias;
    p.x_stride = args->x_stride;
    p.y_stride = args->y_stride;
    p.epilogue = args->epilogue;
    p.pdl = pdl != 0;
    if (norm) {
        p.norm_x_stride = norm->x_stride;
        p.norm_weight = norm->weight;
        p.norm_eps = norm->eps;
    }
    int warp_units = 0, cta_units = 0;
    for (int i = 0; i <= plan->split * p.n_part; i++) {
        p.unit_at[i] = (uint16_t)brim_w4_gemv_part(plan, i);
        if (i > 0 && p.unit_at[i] - p.unit_at[i - 1] > warp_units)
            warp_units = p.unit_at[i] - p.unit_at[i - 1];
        if (i >= p.n_part && i % p.n_part == 0 &&
            p.unit_at[i] - p.unit_at[i - p.n_part] > cta_units)
            cta_units = p.unit_at[i] - p.unit_at[i - p.n_part];
    }
    /* As many units in flight as a warp has, up to four; fewer where that lets two CTAs share a
     * multiprocessor; the rows of a call in several launches where even that does not fit. */
    int n_row = p.n_row = (int)args->n_row;
    p.depth = warp_units < MAX_DEPTH ? warp_units : MAX_DEPTH;
    while (p.depth > 2 && place(&p, w, cta_units) > SMEM_SHARED) p.depth--;
    while (n_row > 1 && place(&p, w, cta_units) > SMEM_MOST) n_row = p.n_row = (n_row + 1) / 2;
    BRIM_REQUIRE(err, place(&p, w, cta_units) <= SMEM_MOST, BRIM_E_SHAPE,
                 "n_in %lld: a row does not fit into shared memory", (long long)w->n_in);
    brim_launch_shape shape = {};
    shape.grid = dim3((unsigned)plan->n_cta);
    shape.block = dim3((unsigned)(plan->n_pair * plan->n_part * 32));
    shape.cluster = (unsigned)plan->split;
    shape.pdl = pdl != 0;
    size_t y_bytes =
        args->epilogue == BRIM_W4_STORE_F32 || args->epilogue == BRIM_W4_ADD_F32 ? 4 : 2;
    for (int row = 0; row < args->n_row; row += n_row) {
        p.n_row = args->n_row - row < n_row ? (int)args->n_row - row : n_row;
        shape.smem_bytes = (unsigned)place(&p, w, cta_units);
        p.x = (const uint16_t *)args->x + row * args->x_stride;
        p.norm_x = norm ? norm->x + row * norm->x_stride : nullptr;
        p.y = (uint8_t *)args->y + row * args->y_stride * y_bytes;
        cudaStream_t s = (cudaStream_t)stream;
        switch (w->param_dtype) {
        case BRIM_DTYPE_F32:
            BRIM_TRY(launch_groups<BRIM_DTYPE_F32>(p, w->group, shape, s, err));
            break;
        case BRIM_DTYPE_F16:
            BRIM_TRY(launch_groups<BRIM_DTYPE_F16>(p, w->group, shape, s, err));
            break;
        default:
            BRIM_TRY(launch_groups<BRIM_DTYPE_BF16>(p, w->group, shape, s, err));
        }
    }
    return BRIM_OK;
}
