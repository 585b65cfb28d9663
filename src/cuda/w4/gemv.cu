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
#include "cuda/ptx/mma.cuh"
#include "cuda/w4/gemv.cuh"

/* Outside the namespace: the emulator gives it storage by this name. */
extern __shared__ __align__(128) uint8_t smem[];

namespace
{

enum { X_SCALE_LOG2 = 100 };

/* 2^(133 - X_SCALE_LOG2), what the sums lack, and its inverse. */
#define SUM_SCALE 8589934592.0f
#define SUM_UNSCALE 1.1641532182693481e-10f

/* Sum of a group of one row of x, times SUM_UNSCALE, and what a smaller scale of x asks for. */
struct group_x {
    float sum, factor;
};

/* The four registers of a k-step: rows g and "g + 8" of a fragment, see the head. */
BRIM_DEVICE void unpack(uint32_t word, uint32_t (&frag)[4])
{
    frag[1] = word & 0x00FF00FFu;
    frag[0] = word & 0x000F000Fu;
    frag[3] = __byte_perm(word, 0, 0x4341);
    frag[2] = frag[3] & 0x000F000Fu;
}

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

/* Loads in flight: two chunks of one row, or one chunk of four rows. */
template <int n_row_max> struct x_batch {
    enum { N = n_row_max == 1 ? 2 : 4, CHUNKS = n_row_max == 1 ? 2 : 1 };
};

/* Rows from row0 on of the chunks `first` (this thread's) and, of one row, blockDim.x further. */
template <int n_row_max>
BRIM_DEVICE void load_x(uint4 (&v)[x_batch<n_row_max>::N], const gemv_params &p, int in0,
                        int n_chunk, int first, int row0,
                        const float4 (&weight)[x_batch<n_row_max>::CHUNKS][2], float inv,
                        const float *s_inv)
{
#pragma unroll
    for (int k = 0; k < x_batch<n_row_max>::N; k++) {
        int row = n_row_max == 1 ? 0 : row0 + k;
        int chunk = first + (n_row_max == 1 ? k * (int)blockDim.x : 0), in = in0 + chunk * 8;
        v[k] = make_uint4(0, 0, 0, 0);
        if (chunk < n_chunk && in < p.n_in && row < p.n_row)
            v[k] = p.norm_x
                       ? normed(p.norm_x + row * p.norm_x_stride + in,
                                weight[n_row_max == 1 ? k : 0], n_row_max == 1 ? inv : s_inv[row])
                       : *(const uint4 *)(p.x + row * p.x_stride + in);
    }
}

/* x of this CTA's units (or the normed residual stream) into shared memory, and what the groups
 * need; ends with a barrier. `weight`: of the norm, for the chunks a thread meets first; v: those
 * chunks if `loaded`. Returns whether any unit has a smaller scale than usual. */
template <int groups, int n_row_max>
BRIM_DEVICE bool stage_rows(const gemv_params &p, uint8_t *smem, int in0, int n_chunk,
                            uint4 (&v)[x_batch<n_row_max>::N], bool loaded,
                            float4 (&weight)[x_batch<n_row_max>::CHUNKS][2], float inv,
                            const float *s_inv)
{
    constexpr int batch = x_batch<n_row_max>::N, chunks = x_batch<n_row_max>::CHUNKS;
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
            if (!loaded)
                load_x<n_row_max>(v, p, in0, n_chunk, first + lane, row0, weight, inv, s_inv);
            loaded = false;
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

    release_at(p, BRIM_W4_GEMV_AT_ONCE);
    const gemv_share share = share_of(p, warp, rank, pair0);
    const int n_chunk = share.n_chunk, in0 = share.in0;

    /* x first where nothing has to be waited for: it must not queue behind the weights. */
    float4 norm_weight[x_batch<n_row_max>::CHUNKS][2] = {};
    uint4 x_first[x_batch<n_row_max>::N];
    const bool loaded = !p.pdl && !p.norm_x;
    if (loaded) load_x<n_row_max>(x_first, p, in0, n_chunk, t, 0, norm_weight, 0, s_inv);
    uint8_t *ring = smem + warp * p.depth * stream::SLOT_BYTES;
    stream weights(p, share.pair, share.begin, lane);
    begin_join(p, &s_joined, rank);
    weights.fill(ring, p.depth, share.begin, share.end, lane);
    release_at(p, BRIM_W4_GEMV_REQUESTED);

    /* The norm's weights of a thread's first chunks. */
    if (p.norm_x) {
#pragma unroll
        for (int k = 0; k < x_batch<n_row_max>::CHUNKS; k++) {
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
    const bool small = stage_rows<groups, n_row_max>(p, smem, in0, n_chunk, x_first, loaded,
                                                     norm_weight, inv, s_inv);
    release_at(p, BRIM_W4_GEMV_STAGED);

    const int g = lane / 4, c = lane % 4;
    const int unit0 = share.begin - share.cta_begin; /* among the staged */
    /* Row of x whose address this lane gives to ldmatrix; columns beyond n_row repeat the last. */
    const int x_row = n_row_max == 1 ? 0 : min(lane % 8, p.n_row - 1);
    uint32_t x_at = smem_u32(smem + p.at_x) + x_row * p.row_bytes + unit0 * 256 + lane / 8 * 16;
    const float4 *group_at =
        (const float4 *)((const group_x *)(smem + p.at_group) + unit0 * groups * MAX_ROW + 2 * c);
    float out[2][4] = {};
    const uint8_t *at = ring;
    int slot = 0;
#pragma unroll 1
    for (int unit = share.begin; unit < share.end; unit++) {
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
        if (unit + p.depth < share.end) weights.next(smem_u32(at) + lane * 16, lane);
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
    join_and_store<n_row_max, stream::SLOT_BYTES>(p, smem, &s_joined, rank, pair0, warp, lane,
                                                  n_warp, residual, [](int) { return SUM_SCALE; });
}

struct bf16_form {
    static int64_t place_x(gemv_params *p, int64_t at, int64_t groups, int n_unit_cta)
    {
        p->at_x = (uint32_t)at;
        p->row_bytes = (uint32_t)n_unit_cta * 256 + 16; /* eight rows of ldmatrix: distinct banks */
        at += (int64_t)p->n_row * p->row_bytes;
        p->at_group = (uint32_t)at;
        return at + (int64_t)n_unit_cta * groups * MAX_ROW * (int64_t)sizeof(group_x);
    }
    template <enum brim_dtype dtype, int groups>
    static brim_status launch(const gemv_params &p, brim_launch_shape shape, cudaStream_t stream,
                              brim_error *err)
    {
        if (p.n_row == 1) return BRIM_LAUNCH((w4_gemv<dtype, groups, 1>), shape, stream, p, err);
        return BRIM_LAUNCH((w4_gemv<dtype, groups, MAX_ROW>), shape, stream, p, err);
    }
};

} // namespace

extern "C" brim_status brim_cuda_w4_gemv(const struct brim_cuda_w4 *args,
                                         const struct brim_cuda_w4_packed *w,
                                         const struct brim_cuda_w4_norm *norm,
                                         const struct brim_w4_gemv_plan *plan, int pdl,
                                         void *stream, brim_error *err)
{
    if (plan->kernel == BRIM_W4_GEMV_INT8)
        return brim_cuda_w4_gemv_int8(args, w, norm, plan, pdl, stream, err);
    return gemv_run<bf16_form>(args, w, norm, plan, pdl, (cudaStream_t)stream, err);
}
