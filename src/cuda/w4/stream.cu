/* SPDX-License-Identifier: Apache-2.0
 * See stream.h; weight order in pack.h.
 *
 * Grid: n_cta persistent CTAs of n_wg warpgroups. A tile is 64 n_wg outputs x n_tok tokens; its
 * work is n_unit units of 128 inputs. All units of all tiles form one line, cut into n_cta equal
 * pieces: a CTA walks its piece, warpgroup w multiplying slab w of the tile. Weights: global ->
 * registers, DEPTH units ahead (8 registers each), dequantized to bf16 exactly as f32 fma + one
 * rounding. Activations: cp.async into a ring of STAGES panels, 128-byte swizzle, masked with zeros
 * beyond n_row and n_in; shared by the warpgroups. Join: a tile cut between CTAs leaves f32 partial
 * sums in the workspace; the CTA that arrives last (one counter a cut tile, that of the first CTA
 * to work on it) adds them in order of position along the reduction, so the sum does not depend on
 * who was last. It also sets the counter back to zero. Shared memory: STAGES * n_tok * 256 bytes.
 */
#include "cuda/launch.h"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/w4/unpack.cuh"
#include "cuda/w4/stream.h"

namespace
{

enum { STAGES = 4, DEPTH = 2 /* units of weights in flight in registers */ };

struct stream_params {
    const uint16_t *x;
    uint16_t *y;
    int64_t x_stride, y_stride, n_row, n_out;
    const uint8_t *codes;
    const void *params;
    int n_in, n_slab;
    int n_unit, n_tile_token, n_total; /* units of a tile; of everything */
    int n_cta;
    float *partials;    /* [n_cta][2][n_wg * 64 * n_tok] */
    uint32_t *counters; /* [n_cta]: a CTA is the first of at most one cut tile */
    bool pdl;
};

/* First unit of CTA c, and the CTA that owns a unit: inverse of each other. */
__host__ __device__ inline int cta_begin(int n_total, int n_cta, int c)
{
    return (int)((int64_t)n_total * c / n_cta);
}
__host__ __device__ inline int cta_of(int n_total, int n_cta, int unit)
{
    return (int)((((int64_t)unit + 1) * n_cta - 1) / n_total);
}

/* A place on the line of units: the tile (token tile the faster index, so that CTAs sharing weights
 * are neighbours in time) and the unit inside it. */
struct place {
    int tile_out, tile_token, unit;
    __device__ place(const stream_params &p, int at)
    {
        int tile = at / p.n_unit;
        unit = at % p.n_unit;
        tile_out = tile / p.n_tile_token;
        tile_token = tile % p.n_tile_token;
    }
    __device__ void advance(const stream_params &p)
    {
        if (++unit < p.n_unit) return;
        unit = 0;
        if (++tile_token < p.n_tile_token) return;
        tile_token = 0;
        tile_out++;
    }
};

/* Store one tile, or this CTA's share of it: see the file head. */
template <int n_tok, int n_wg>
BRIM_DEVICE void finish_tile(const stream_params &p, float (&acc)[n_tok / 2], int tile, int begin,
                             uint32_t *s_last)
{
    const int slot_floats = n_wg * 64 * n_tok, n_thread = n_wg * 128;
    int t = threadIdx.x;
    int first_cta = cta_of(p.n_total, p.n_cta, tile * p.n_unit);
    int last_cta = cta_of(p.n_total, p.n_cta, (tile + 1) * p.n_unit - 1);
    if (first_cta != last_cta) {
        /* Slot 0 of a CTA is for the tile it starts in, slot 1 for the one it ends in. */
        int which = begin / p.n_unit == tile ? 0 : 1;
        float *slot = p.partials + ((int64_t)blockIdx.x * 2 + which) * slot_floats;
#pragma unroll
        for (int i = 0; i < n_tok / 2; i++) slot[i * n_thread + t] = acc[i];
        __threadfence(); /* the partial sums before the count that announces them */
        __syncthreads();
        if (t == 0) {
            uint32_t old = atomicAdd(&p.counters[first_cta], 1);
            *s_last = old == (uint32_t)(last_cta - first_cta);
            if (*s_last) p.counters[first_cta] = 0;
        }
        __syncthreads();
        if (!*s_last) return;
        __threadfence(); /* the count before the partial sums of the others */
#pragma unroll
        for (int i = 0; i < n_tok / 2; i++) acc[i] = 0;
        for (int c = first_cta; c <= last_cta; c++) {
            int slot_of_c = cta_begin(p.n_total, p.n_cta, c) / p.n_unit == tile ? 0 : 1;
            const float *part = p.partials + ((int64_t)c * 2 + slot_of_c) * slot_floats;
#pragma unroll
            for (int i = 0; i < n_tok / 2; i++) acc[i] += __ldcg(part + i * n_thread + t);
        }
    }
    int64_t out =
        (int64_t)(tile / p.n_tile_token * n_wg + t / 128) * 64 + t / 32 % 4 * 16 + t % 32 / 4;
    int64_t row0 = (int64_t)(tile % p.n_tile_token) * n_tok + t % 4 * 2;
#pragma unroll
    for (int i = 0; i < n_tok / 2; i++) {
        int64_t row = row0 + i / 4 * 8 + i % 2, o = out + i / 2 % 2 * 8;
        if (row < p.n_row && o < p.n_out)
            p.y[row * p.y_stride + o] = __bfloat16_as_ushort(__float2bfloat16_rn(acc[i]));
    }
}

template <int n_tok, int n_wg, enum brim_dtype dtype, int groups>
__global__ void __launch_bounds__(n_wg * 128, 1) w4_stream(stream_params p)
{
    extern __shared__ __align__(1024) uint8_t s_x[];
    __shared__ uint32_t s_last;
    const uint32_t stage_bytes = n_tok * 256, panel_bytes = n_tok * 128;
    const uint32_t smem = smem_u32(s_x);
    int t = threadIdx.x, warp = t / 32 % 4, lane = t % 32;
    int begin = cta_begin(p.n_total, p.n_cta, blockIdx.x);
    int end = cta_begin(p.n_total, p.n_cta, blockIdx.x + 1);
    if (begin >= end) return;

    packed_unit<dtype, groups> weights[DEPTH];
    place w_at(p, begin), x_at(p, begin);
    auto load_weights = [&](int d) {
        int slab = w_at.tile_out * n_wg + t / 128;
        if (slab >= p.n_slab) slab = p.n_slab - 1; /* computed, never stored */
        int64_t unit = (int64_t)slab * p.n_unit + w_at.unit;
        weights[d].load(p.codes, p.params, unit, warp, lane);
        w_at.advance(p);
    };
    auto load_x = [&](int stage) {
        int64_t row0 = (int64_t)x_at.tile_token * n_tok;
        int in0 = x_at.unit * BRIM_W4_UNIT;
        uint32_t dst = smem + stage * stage_bytes;
#pragma unroll
        for (int i = t; i < n_tok * 16; i += n_wg * 128) {
            int row = i / 16, piece = i % 16, in = in0 + piece * 8;
            bool ok = row0 + row < p.n_row && in < p.n_in;
            const uint16_t *src = ok ? p.x + (row0 + row) * p.x_stride + in : p.x;
            cp_async_16(dst + piece / 8 * panel_bytes + swizzle_128b(row, piece % 8), src, ok);
        }
        x_at.advance(p);
    };

#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        if (begin + d < end) load_weights(d);
    if (p.pdl) {
        griddepcontrol_launch_dependents(); /* the successor may load its weights as well */
        griddepcontrol_wait(); /* weights do not depend on the predecessor; x, y, workspace do */
    }
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (begin + s < end) load_x(s);
        cp_async_commit();
    }

    float acc[n_tok / 2];
#pragma unroll
    for (int i = 0; i < n_tok / 2; i++) acc[i] = 0;
    int unit = begin % p.n_unit, tile = begin / p.n_unit, stage = 0;

    for (int base = begin; base < end; base += DEPTH) {
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            int at = base + d;
            if (at >= end) break;
            uint32_t frag[2][4][4];
            /* Two halves of four k-steps: the second is unpacked while the first multiplies. */
#pragma unroll
            for (int half = 0; half < 2; half++) {
                weights[d].unpack(half, frag[half]);
                if (half == 0) {
                    cp_async_wait<STAGES - 2>();
                    fence_proxy_async_shared(); /* cp.async wrote the panel, wgmma reads it */
                    __syncthreads(); /* the panel is whole, and none reads the one before it */
                    if (at + STAGES - 1 < end) load_x((stage + STAGES - 1) % STAGES);
                    cp_async_commit();
                }
                wgmma_fence();
#pragma unroll
                for (int k = 0; k < 4; k++)
                    wgmma_m64k16<n_tok>::template rs<1, 0>(
                        acc, frag[half][k],
                        wgmma_desc_128b(smem + stage * stage_bytes + half * panel_bytes + k * 32,
                                        16, 1024));
                wgmma_commit();
            }
            if (at + DEPTH < end) load_weights(d);
            wgmma_wait<0>();
            stage = (stage + 1) % STAGES;
            if (++unit == p.n_unit || at + 1 == end) {
                finish_tile<n_tok, n_wg>(p, acc, tile, begin, &s_last);
#pragma unroll
                for (int i = 0; i < n_tok / 2; i++) acc[i] = 0;
                unit = 0;
                tile++;
            }
        }
    }
}

template <int n_tok, int n_wg, enum brim_dtype dtype>
brim_status launch_groups(const stream_params &p, int group, brim_launch_shape shape,
                          cudaStream_t stream, brim_error *err)
{
    switch (group) {
    case 32:
        return BRIM_LAUNCH((w4_stream<n_tok, n_wg, dtype, 4>), shape, stream, p, err);
    case 64:
        return BRIM_LAUNCH((w4_stream<n_tok, n_wg, dtype, 2>), shape, stream, p, err);
    default:
        return BRIM_LAUNCH((w4_stream<n_tok, n_wg, dtype, 1>), shape, stream, p, err);
    }
}

template <int n_tok, int n_wg>
brim_status launch_dtype(const stream_params &p, const brim_cuda_w4_packed *w,
                         brim_launch_shape shape, cudaStream_t stream, brim_error *err)
{
    switch (w->param_dtype) {
    case BRIM_DTYPE_F32:
        return launch_groups<n_tok, n_wg, BRIM_DTYPE_F32>(p, w->group, shape, stream, err);
    case BRIM_DTYPE_F16:
        return launch_groups<n_tok, n_wg, BRIM_DTYPE_F16>(p, w->group, shape, stream, err);
    default:
        return launch_groups<n_tok, n_wg, BRIM_DTYPE_BF16>(p, w->group, shape, stream, err);
    }
}

int64_t slot_floats(const brim_w4_stream_plan *plan)
{
    return (int64_t)plan->n_warpgroup * 64 * plan->n_token;
}

} // namespace

extern "C" size_t brim_cuda_w4_stream_workspace_bytes(const struct brim_w4_stream_plan *plan)
{
    return BRIM_W4_STREAM_COUNTER_BYTES + (size_t)plan->n_cta * 2 * (size_t)slot_floats(plan) * 4;
}

extern "C" brim_status brim_cuda_w4_stream(const struct brim_cuda_w4 *args,
                                           const struct brim_cuda_w4_packed *w,
                                           const struct brim_w4_stream_plan *plan, void *workspace,
                                           int pdl, void *stream, brim_error *err)
{
    if (args->n_row == 0 || w->n_out == 0) return BRIM_OK;
    stream_params p = {};
    p.x = (const uint16_t *)args->x;
    p.y = (uint16_t *)args->y;
    p.x_stride = args->x_stride;
    p.y_stride = args->y_stride;
    p.n_row = args->n_row;
    p.n_in = (int)w->n_in;
    p.n_out = w->n_out;
    p.codes = (const uint8_t *)w->codes;
    p.params = w->params;
    int64_t n_total = plan->n_tile_out * plan->n_tile_token * plan->n_unit;
    BRIM_REQUIRE(err, n_total + 1024 <= INT32_MAX && w->n_in <= INT32_MAX, BRIM_E_SHAPE,
                 "n_row %lld, n_out %lld, n_in %lld: more units than one launch takes",
                 (long long)args->n_row, (long long)w->n_out, (long long)w->n_in);
    BRIM_REQUIRE(err, plan->n_cta <= BRIM_W4_STREAM_COUNTER_BYTES / 4, BRIM_E_ARGUMENT,
                 "plan: %lld CTAs have no counter each", (long long)plan->n_cta);
    p.n_unit = (int)plan->n_unit;
    p.n_tile_token = (int)plan->n_tile_token;
    p.n_total = (int)n_total;
    p.n_slab = (int)w->n_slab;
    p.n_cta = (int)plan->n_cta;
    p.counters = (uint32_t *)workspace;
    p.partials = (float *)((uint8_t *)workspace + BRIM_W4_STREAM_COUNTER_BYTES);
    p.pdl = pdl != 0;
    brim_launch_shape shape = {};
    shape.grid = dim3((unsigned)plan->n_cta);
    shape.block = dim3((unsigned)plan->n_warpgroup * 128);
    shape.smem_bytes = (unsigned)(STAGES * plan->n_token * 256);
    shape.pdl = pdl != 0;
    if (plan->n_token == 128 && plan->n_warpgroup == 2)
        return launch_dtype<128, 2>(p, w, shape, (cudaStream_t)stream, err);
    return brim_fail(err, BRIM_E_ARGUMENT, "plan: no kernel for tiles of %d tokens", plan->n_token);
}
