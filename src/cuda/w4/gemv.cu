/* SPDX-License-Identifier: Apache-2.0
 * See gemv.h; weight order in pack.h, schedule in plan/w4_gemv.h.
 *
 * Warp w of a CTA has tile w % n_tile (16 outputs) and part w / n_tile of the reduction. Each warp
 * keeps its own ring of `depth` units in shared memory, filled by its own cp.async: 1 KB of codes
 * and the parameters of 16 outputs a unit, no barrier between warps. All of that starts before the
 * dependency wait. Then the CTA stages its part of x (bf16, scaled) and sum(x) of every group, and
 * from there the warps run alone: out += scale sum(q x) + bias sum(x), f32. Join: parts of a CTA in
 * order, then CTAs in order, sent to rank 0 of the cluster, which stores.
 *
 * Codes without conversion: a 16-bit half below 0x0100, read as bf16, is that integer times 2^-133
 * (subnormals and the first binade share one spacing), so a mask is a conversion. Bytes hold the
 * codes of outputs g (low nibble) and g + 8 (high): fragment rows are q_g and 16 q_(g+8) + q_g, and
 * a difference of sums gives q_(g+8). x is scaled by 2^100, exactly, to stay in f32's range. */
#include "cuda/launch.h"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/w4/dequant.cuh"
#include "cuda/w4/gemv.h"

namespace
{

enum {
    MAX_ROW = BRIM_W4_GEMV_ROWS,
    MAX_WARP = 16,
    CODE_BYTES = 1024, /* of 16 outputs and one unit */
    SUM_STRIDE = 20,   /* floats between rows of a warp's 16 sums: stores fall in distinct banks */
    X_SCALE_LOG2 = 100,
    X_BATCH = 4, /* rows of x loaded before the first is used */
    /* Two CTAs share a multiprocessor, so that the next kernel's weights travel early. */
    SMEM_SHARED = 113 * 1024 - 1024,
    SMEM_MOST = 227 * 1024
};

struct gemv_params {
    const uint16_t *x;
    int64_t x_stride;
    const float *norm_x; /* or NULL: x is given */
    int64_t norm_x_stride;
    const float *norm_weight;
    float norm_eps;
    void *y;
    int64_t y_stride;
    const float *out_bias;
    const uint8_t *codes, *params;
    int64_t n_out;
    int n_in, n_tile_all;
    int n_row, n_unit, n_part, split, depth;
    int tile_log2, part_log2, split_log2; /* of n_tile, n_part, split */
    enum brim_w4_epilogue epilogue;
    bool pdl;
    int n_unit_cta; /* the most units of one CTA */
    /* Offsets in shared memory, bytes; the ring is at 0. */
    uint32_t at_x, at_group, at_join;
};

/* Sum of a group of one row of x, and what undoes the scales of x and of the codes. */
struct group_x {
    float sum, inv;
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
    if (depth >= 5)
        cp_async_wait<4>();
    else if (depth >= 3)
        cp_async_wait<2>();
    else
        cp_async_wait<1>();
}

/* What one warp reads, unit after unit, and the form in which it lies in a slot of the ring: 512
 * bytes of codes of each half unit, then the parameters of each group. */
template <enum brim_dtype dtype, int groups> struct weight_stream {
    enum {
        GROUP_BYTES = 8 * quad<dtype>::BYTES, /* of 16 outputs */
        PIECES = GROUP_BYTES / 16,
        SLOT_BYTES = CODE_BYTES + groups * GROUP_BYTES
    };
    const uint8_t *codes, *params; /* this lane's */
    bool has_params;

    __device__ weight_stream(const gemv_params &p, int tile, int unit, int lane)
    {
        int64_t at = (int64_t)(tile / 4) * p.n_unit + unit;
        int pack_warp = tile % 4, group = lane / PIECES, piece = lane % PIECES;
        codes = p.codes + at * BRIM_W4_UNIT_BYTES + pack_warp * 512 + lane * 16;
        params = p.params + at * (groups * 4 * GROUP_BYTES) +
                 (group * 4 + pack_warp) * GROUP_BYTES + piece * 16;
        has_params = lane < groups * PIECES;
    }

    /* The next unit into a slot; `dst` is this lane's first byte of it. */
    __device__ void next(uint32_t dst)
    {
        cp_async_16(dst, codes, true);
        cp_async_16(dst + 512, codes + BRIM_W4_UNIT_BYTES / 2, true);
        if (has_params) cp_async_16(dst + CODE_BYTES, params, true);
        codes += BRIM_W4_UNIT_BYTES;
        params += groups * 4 * GROUP_BYTES;
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
 * needs. 16 lanes hold a unit; all lanes of the warp come here. */
template <int groups>
BRIM_DEVICE void stage_x(uint4 v, bool inside, int chunk, uint4 *to, group_x *group)
{
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    uint32_t most = 0;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        most = __vmaxu2(most, words[i] & 0x7FFF7FFFu);
        sum += bf16_lo(words[i]);
        sum += bf16_hi(words[i]);
    }
    constexpr int lanes = 16 / groups; /* of a group */
#pragma unroll
    for (int step = 1; step < lanes; step *= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    /* 2^27 and above would leave bf16's range; then the unit gets a smaller scale. */
    constexpr uint32_t most_exponent = 254 - X_SCALE_LOG2;
    uint32_t exponent = max(most >> 16, most & 0xFFFFu) >> 7;
    int scale_log2 = X_SCALE_LOG2;
    if (__any_sync(0xFFFFFFFFu, exponent > most_exponent)) {
#pragma unroll 1
        for (int step = 1; step < 16; step *= 2)
            exponent = max(exponent, __shfl_xor_sync(0xFFFFFFFFu, exponent, step));
        if (exponent > most_exponent) scale_log2 = max(254 - (int)exponent, 6);
    }
    __nv_bfloat162 scale;
    *(uint32_t *)&scale = (uint32_t)(127 + scale_log2) * 0x00800080u;
    uint32_t scaled[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        __nv_bfloat162 product = __hmul2(*(const __nv_bfloat162 *)&words[i], scale);
        scaled[i] = *(uint32_t *)&product;
    }
    if (!inside) return;
    *to = make_uint4(scaled[0], scaled[1], scaled[2], scaled[3]);
    if (chunk % lanes == 0) {
        group->sum = sum;
        group->inv = __uint_as_float((uint32_t)(127 + 133 - scale_log2) << 23);
    }
}

/* 1 / sqrt(mean(x^2) + eps) of every row into s_inv; the order of the sum depends on n_in and the
 * block. Barriers inside. */
BRIM_DEVICE void norm_rows(const gemv_params &p, float (*s_part)[MAX_WARP], float *s_inv)
{
    const int t = threadIdx.x, lane = t % 32, n_warp = blockDim.x / 32;
    const int n_chunk = p.n_in / 4;
    for (int row0 = 0; row0 < p.n_row; row0 += X_BATCH) {
        float sum[X_BATCH] = {};
        for (int i = t; i < n_chunk; i += blockDim.x) {
            float4 v[X_BATCH];
#pragma unroll
            for (int r = 0; r < X_BATCH; r++)
                if (row0 + r < p.n_row)
                    v[r] = *((const float4 *)(p.norm_x + (row0 + r) * p.norm_x_stride) + i);
#pragma unroll
            for (int r = 0; r < X_BATCH; r++)
                if (row0 + r < p.n_row)
                    sum[r] += v[r].x * v[r].x + v[r].y * v[r].y + v[r].z * v[r].z + v[r].w * v[r].w;
        }
#pragma unroll
        for (int r = 0; r < X_BATCH; r++) {
            if (row0 + r >= p.n_row) break;
#pragma unroll
            for (int step = 16; step > 0; step /= 2)
                sum[r] += __shfl_xor_sync(0xFFFFFFFFu, sum[r], step);
            if (lane == 0) s_part[row0 + r][t / 32] = sum[r];
        }
    }
    __syncthreads();
    for (int row = t / 32; row < p.n_row; row += n_warp) {
        float sum = lane < n_warp ? s_part[row][lane] : 0;
#pragma unroll
        for (int step = MAX_WARP / 2; step > 0; step /= 2)
            sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
        if (lane == 0) s_inv[row] = 1.0f / sqrtf(sum / (float)p.n_in + p.norm_eps);
    }
    __syncthreads();
}

template <enum brim_dtype dtype, int groups>
__global__ void __launch_bounds__(MAX_WARP * 32, 2) w4_gemv(const __grid_constant__ gemv_params p)
{
    using stream = weight_stream<dtype, groups>;
    extern __shared__ __align__(128) uint8_t smem[];
    __shared__ float s_part[MAX_ROW][MAX_WARP], s_inv[MAX_ROW];
    __shared__ __align__(8) uint64_t s_x_full, s_joined;
    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    const int rank = blockIdx.x & ((1 << p.split_log2) - 1);
    const int tile0 = (int)(blockIdx.x >> p.split_log2) << p.tile_log2;

    /* Weights of this warp: units [begin, end) of its tile. */
    int tile = min(tile0 + (warp & ((1 << p.tile_log2) - 1)), p.n_tile_all - 1);
    const int part0 = rank << p.part_log2, part = part0 + (warp >> p.tile_log2);
    const int part_all_log2 = p.split_log2 + p.part_log2;
    const int begin = p.n_unit * part >> part_all_log2;
    const int end = p.n_unit * (part + 1) >> part_all_log2;
    uint8_t *ring = smem + warp * p.depth * stream::SLOT_BYTES;
    stream weights(p, tile, begin, lane);
    if (t == 0) {
        mbarrier_init(smem_u32(&s_x_full), 1);
        mbarrier_init(smem_u32(&s_joined), max(p.split - 1, 1) * (blockDim.x / 32));
        fence_mbarrier_init();
    }
    if (p.split > 1)
        cluster_arrive_relaxed(); /* waited for before the first store to another CTA */
#pragma unroll 1
    for (int d = 0; d < p.depth; d++) {
        if (begin + d < end) weights.next(smem_u32(ring) + d * stream::SLOT_BYTES + lane * 16);
        cp_async_commit();
    }

    /* Chunks of eight inputs of this CTA; the norm's weights of a thread's first. */
    const int cta_begin = p.n_unit * part0 >> part_all_log2;
    const int cta_end = p.n_unit * (part0 + p.n_part) >> part_all_log2;
    const int n_chunk = (cta_end - cta_begin) * 16, in0 = cta_begin * BRIM_W4_UNIT;
    float4 weight[2] = {};
    if (p.norm_x && t < n_chunk && in0 + t * 8 < p.n_in) {
        weight[0] = __ldg((const float4 *)(p.norm_weight + in0 + t * 8));
        weight[1] = __ldg((const float4 *)(p.norm_weight + in0 + t * 8 + 4));
    }
    if (p.pdl) {
        griddepcontrol_launch_dependents(); /* the successor may load its weights as well */
        griddepcontrol_wait(); /* weights do not depend on the predecessor; x and y do */
    }

    const uint32_t row_bytes = (uint32_t)p.n_unit_cta * 256 + 16;
    if (!p.norm_x && t == 0) {
        uint32_t n_bytes = (uint32_t)(min(p.n_in - in0, n_chunk * 8) * 2);
        mbarrier_arrive_expect_tx(smem_u32(&s_x_full), n_bytes * p.n_row);
#pragma unroll 1
        for (int row = 0; row < p.n_row; row++)
            bulk_load(smem_u32(smem + p.at_x) + row * row_bytes, p.x + row * p.x_stride + in0,
                      n_bytes, smem_u32(&s_x_full));
    }
    /* The residual of this thread's first output travels while the product is made. */
    const int tile_out_log2 = p.tile_log2 + 4, out_mask = (1 << tile_out_log2) - 1;
    const int64_t out0 = (int64_t)tile0 * 16;
    float residual = 0;
    if (p.epilogue == BRIM_W4_ADD_F32 && rank == 0) {
        int row = t >> tile_out_log2;
        int64_t out = out0 + (t & out_mask);
        if (row < p.n_row && out < p.n_out) residual = ((const float *)p.y)[row * p.y_stride + out];
    }
    if (p.norm_x) {
        norm_rows(p, s_part, s_inv);
    } else {
        __syncthreads(); /* the barrier is ready */
        mbarrier_wait(smem_u32(&s_x_full), 0);
    }
#pragma unroll 1
    for (int first = warp * 32; first < n_chunk; first += blockDim.x) {
        const int chunk = first + lane, in = in0 + chunk * 8;
        const bool inside = chunk < n_chunk, have = inside && in < p.n_in;
        if (p.norm_x && have && first >= (int)blockDim.x) {
            weight[0] = __ldg((const float4 *)(p.norm_weight + in));
            weight[1] = __ldg((const float4 *)(p.norm_weight + in + 4));
        }
        uint4 *to = (uint4 *)(smem + p.at_x + chunk * 16);
        group_x *group = (group_x *)(smem + p.at_group) + chunk * groups / 16 * MAX_ROW;
#pragma unroll 1
        for (int row = 0; row < p.n_row; row++) {
            uint4 v = make_uint4(0, 0, 0, 0);
            if (have)
                v = p.norm_x ? normed(p.norm_x + row * p.norm_x_stride + in, weight, s_inv[row])
                             : *to;
            stage_x<groups>(v, inside, chunk, to, group + row);
            to = (uint4 *)((uint8_t *)to + row_bytes);
        }
    }
    __syncthreads();

    const int g = lane / 4, c = lane % 4;
    /* Row of x whose address this lane gives to ldmatrix; columns beyond n_row repeat the last. */
    const int x_row = min(lane % 8, p.n_row - 1);
    uint32_t x_at =
        smem_u32(smem + p.at_x) + x_row * row_bytes + (begin - cta_begin) * 256 + lane / 8 * 16;
    const float4 *group_at = (const float4 *)((const group_x *)(smem + p.at_group) +
                                              (begin - cta_begin) * groups * MAX_ROW + 2 * c);
    float out[4] = {};
    const uint8_t *at = ring;
    int slot = 0;
    for (int unit = begin; unit < end; unit++) {
        wait_oldest(p.depth);
        __syncwarp(); /* parameters come by other lanes' copies */
        const uint4 codes[2] = {*(const uint4 *)(at + lane * 16),
                                *(const uint4 *)(at + CODE_BYTES / 2 + lane * 16)};
        float4 param[groups];
#pragma unroll
        for (int i = 0; i < groups; i++)
            param[i] = quad<dtype>::load(at + CODE_BYTES + (i * 8 + g) * quad<dtype>::BYTES);
        float d[4][4] = {};
#pragma unroll
        for (int q = 0; q < 4; q++) { /* two k-steps */
            const uint4 &v = codes[q / 2];
            uint32_t x[4], frag[4];
            ldmatrix_x4(x, x_at + q * 64);
            float(&acc)[4] = d[groups == 4 ? q : q / 2];
            unpack(q % 2 ? v.z : v.x, frag);
            mma_bf16_16816(acc, frag, x[0], x[1]);
            unpack(q % 2 ? v.w : v.y, frag);
            mma_bf16_16816(acc, frag, x[2], x[3]);
        }
        if (groups == 1)
#pragma unroll
            for (int i = 0; i < 4; i++) d[0][i] += d[1][i];
#pragma unroll
        for (int i = 0; i < groups; i++) {
            const float4 gx = group_at[i * (MAX_ROW / 2)]; /* columns 2c, 2c + 1 */
            const float scale_hi = param[i].y * 0.0625f;
            out[0] = __fmaf_rn(param[i].x, d[i][0] * gx.y, __fmaf_rn(param[i].z, gx.x, out[0]));
            out[1] = __fmaf_rn(param[i].x, d[i][1] * gx.w, __fmaf_rn(param[i].z, gx.z, out[1]));
            out[2] = __fmaf_rn(scale_hi, (d[i][2] - d[i][0]) * gx.y,
                               __fmaf_rn(param[i].w, gx.x, out[2]));
            out[3] = __fmaf_rn(scale_hi, (d[i][3] - d[i][1]) * gx.w,
                               __fmaf_rn(param[i].w, gx.z, out[3]));
        }
        __syncwarp(); /* all lanes have read the slot */
        if (unit + p.depth < end) weights.next(smem_u32(at) + lane * 16);
        cp_async_commit();
        x_at += 256;
        group_at += groups * (MAX_ROW / 2);
        at += stream::SLOT_BYTES;
        if (++slot == p.depth) slot = 0, at = ring;
    }

    /* Sums [row][16 outputs] over this warp's own ring, whose copies have all been consumed. */
    float *sums = (float *)ring;
    if (2 * c < p.n_row) {
        sums[2 * c * SUM_STRIDE + g] = out[0];
        sums[2 * c * SUM_STRIDE + g + 8] = out[2];
    }
    if (2 * c + 1 < p.n_row) {
        sums[(2 * c + 1) * SUM_STRIDE + g] = out[1];
        sums[(2 * c + 1) * SUM_STRIDE + g + 8] = out[3];
    }
    __syncthreads();
    const int n_elem = p.n_row << tile_out_log2;
    float *s_join = (float *)(smem + p.at_join); /* in rank 0: [rank - 1][row][output] */
    uint32_t to = 0;
    if (p.split > 1) {
        cluster_wait();
        if (rank > 0) to = mapa_u32(smem_u32(s_join + (rank - 1) * n_elem), 0);
    }
#pragma unroll 1
    for (int first = warp * 32; first < n_elem; first += blockDim.x) {
        const int e = first + lane, row = e >> tile_out_log2, o = e & out_mask;
        const bool inside = e < n_elem && out0 + o < p.n_out;
        float sum = 0;
        if (inside) {
            const uint8_t *from = smem + o / 16 * p.depth * stream::SLOT_BYTES +
                                  (row * SUM_STRIDE + o % 16) * sizeof(float);
#pragma unroll 4
            for (int s = 0; s < p.n_part; s++)
                sum += *(const float *)(from + (s << p.tile_log2) * p.depth * stream::SLOT_BYTES);
            if (rank > 0) st_shared_cluster_f32(to + e * 4, sum);
        }
        if (rank > 0) continue;
        if (p.split > 1) {
            while (!mbarrier_try_wait_cluster(smem_u32(&s_joined), 0)) {
            }
            if (inside)
                for (int r = 1; r < p.split; r++) sum += s_join[(r - 1) * n_elem + e];
        }
        if (inside && p.out_bias) sum += p.out_bias[out0 + o];
        int64_t y = row * p.y_stride + out0 + o;
        if (p.epilogue == BRIM_W4_SWIGLU) {
            /* Outputs o % 16 < 8 are gates, their ups eight lanes on. */
            float up = __shfl_down_sync(0xFFFFFFFFu, sum, 8);
            if (inside && o % 16 < 8)
                ((__nv_bfloat16 *)p.y)[row * p.y_stride + (out0 + o) / 16 * 8 + o % 8] =
                    __float2bfloat16_rn(__fdividef(sum, 1.0f + __expf(-sum)) * up);
        } else if (inside) {
            if (p.epilogue == BRIM_W4_STORE_BF16)
                ((__nv_bfloat16 *)p.y)[y] = __float2bfloat16_rn(sum);
            else if (p.epilogue == BRIM_W4_STORE_F32)
                ((float *)p.y)[y] = sum;
            else
                ((float *)p.y)[y] = (e == t ? residual : ((const float *)p.y)[y]) + sum;
        }
    }
    if (rank > 0) {
        __syncwarp();
        if (lane == 0) mbarrier_arrive_cluster(mapa_u32(smem_u32(&s_joined), 0));
    }
}

template <enum brim_dtype dtype>
brim_status launch_groups(const gemv_params &p, int group, brim_launch_shape shape,
                          cudaStream_t stream, brim_error *err)
{
    switch (group) {
    case 32:
        return BRIM_LAUNCH((w4_gemv<dtype, 4>), shape, stream, p, err);
    case 64:
        return BRIM_LAUNCH((w4_gemv<dtype, 2>), shape, stream, p, err);
    default:
        return BRIM_LAUNCH((w4_gemv<dtype, 1>), shape, stream, p, err);
    }
}

/* Places of the shared arrays for p->n_row rows and p->depth; returns the bytes. */
int64_t place(gemv_params *p, const brim_cuda_w4_packed *w)
{
    int64_t groups = BRIM_W4_UNIT / w->group;
    int64_t stage_bytes = CODE_BYTES + groups * 32 * (int64_t)brim_dtype_bytes(w->param_dtype);
    int64_t at = ((int64_t)p->n_part << p->tile_log2) * p->depth * stage_bytes;
    p->at_x = (uint32_t)at;
    at += (int64_t)p->n_row * (p->n_unit_cta * 256 + 16);
    p->at_group = (uint32_t)at;
    at += (int64_t)p->n_unit_cta * groups * MAX_ROW * (int64_t)sizeof(group_x);
    p->at_join = (uint32_t)at;
    at += (int64_t)(p->split - 1) * p->n_row * (64 << p->tile_log2);
    return at;
}

int log2_of(int power)
{
    int n = 0;
    while (1 << n < power) n++;
    return n;
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
    BRIM_REQUIRE(err, plan->n_cta <= INT32_MAX && plan->n_unit <= 1 << 20, BRIM_E_SHAPE,
                 "n_out %lld, n_in %lld: more than one launch takes", (long long)w->n_out,
                 (long long)w->n_in);
    BRIM_REQUIRE(err, args->epilogue != BRIM_W4_SWIGLU || w->n_out % 16 == 0, BRIM_E_SHAPE,
                 "n_out %lld: gate and up in pairs are a multiple of 16", (long long)w->n_out);
    gemv_params p = {};
    p.n_in = (int)w->n_in;
    p.n_out = w->n_out;
    p.n_tile_all = (int)((w->n_out + 15) / 16);
    p.n_unit = (int)plan->n_unit;
    p.tile_log2 = log2_of(plan->n_tile);
    p.part_log2 = log2_of(plan->n_part);
    p.split_log2 = log2_of(plan->split);
    p.n_part = plan->n_part;
    p.split = plan->split;
    p.codes = (const uint8_t *)w->codes;
    p.params = (const uint8_t *)w->params;
    p.out_bias = args->out_bias;
    p.x_stride = args->x_stride;
    p.y_stride = args->y_stride;
    p.epilogue = args->epilogue;
    p.pdl = pdl != 0;
    if (norm) {
        p.norm_x = norm->x;
        p.norm_x_stride = norm->x_stride;
        p.norm_weight = norm->weight;
        p.norm_eps = norm->eps;
    }
    int64_t warp_units = 0;
    for (int64_t i = 0; i < (int64_t)p.split * p.n_part; i++) {
        int64_t n = brim_w4_gemv_part(plan, i + 1) - brim_w4_gemv_part(plan, i);
        if (n > warp_units) warp_units = n;
    }
    for (int r = 0; r < p.split; r++) {
        int64_t n = brim_w4_gemv_part(plan, (int64_t)(r + 1) * p.n_part) -
                    brim_w4_gemv_part(plan, (int64_t)r * p.n_part);
        if (n > p.n_unit_cta) p.n_unit_cta = (int)n;
    }
    /* As many units in flight as a warp has, up to five; fewer where that lets two CTAs share a
     * multiprocessor; the rows of a call in several launches where even that does not fit. */
    static const int depths[] = {5, 3, 2};
    int64_t bytes = 0;
    int n_row = (int)args->n_row;
    p.depth = 0;
    for (int i = 0; i < 3 && !p.depth; i++) {
        if (i < 2 && depths[i + 1] >= warp_units) continue;
        p.n_row = n_row, p.depth = depths[i];
        bytes = place(&p, w);
        if (bytes > SMEM_SHARED) p.depth = 0;
    }
    for (; !p.depth && n_row > 0; n_row = n_row > 1 ? (n_row + 1) / 2 : 0) {
        p.n_row = n_row, p.depth = depths[2];
        bytes = place(&p, w);
        if (bytes > SMEM_MOST - 2048)
            p.depth = 0;
        else
            break;
    }
    BRIM_REQUIRE(err, p.depth, BRIM_E_SHAPE, "n_in %lld: a row does not fit into shared memory",
                 (long long)w->n_in);
    brim_launch_shape shape = {};
    shape.grid = dim3((unsigned)plan->n_cta);
    shape.block = dim3((unsigned)(plan->n_tile * plan->n_part * 32));
    shape.cluster = (unsigned)plan->split;
    shape.pdl = pdl != 0;
    size_t y_bytes =
        args->epilogue == BRIM_W4_STORE_F32 || args->epilogue == BRIM_W4_ADD_F32 ? 4 : 2;
    for (int row = 0; row < args->n_row; row += n_row) {
        p.n_row = args->n_row - row < n_row ? (int)args->n_row - row : n_row;
        shape.smem_bytes = (unsigned)place(&p, w);
        p.x = (const uint16_t *)args->x + row * args->x_stride;
        if (norm) p.norm_x = norm->x + row * norm->x_stride;
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
