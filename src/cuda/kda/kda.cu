/* SPDX-License-Identifier: Apache-2.0
 * Host side of the KDA kernels: what they take, how they are launched. */
#include "cuda/kda/kda.h"

#include <math.h>

#include <atomic>

#include "cuda/kda/launch.cuh"

brim_status brim_kda_cuda_processors(int64_t *n_processor, brim_error *err)
{
    int device, n_sm, major, minor;
    BRIM_TRY(brim_cuda_check(cudaGetDevice(&device), "kda: current device", err));
    BRIM_TRY(brim_cuda_check(cudaDeviceGetAttribute(&n_sm, cudaDevAttrMultiProcessorCount, device),
                             "kda: processors", err));
    BRIM_TRY(
        brim_cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                        "kda: architecture", err));
    BRIM_TRY(
        brim_cuda_check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
                        "kda: architecture", err));
    BRIM_REQUIRE(
        err, major == 9 && minor == 0, BRIM_E_ARCH,
        "kda: CUDA device %d has compute capability %d.%d; this build holds machine code for 9.0 "
        "(sm_90a) only",
        device, major, minor);
    *n_processor = n_sm;
    return BRIM_OK;
}

brim_status brim_kda_cuda_supported(const brim_kda_args *args, enum brim_kda_route route,
                                    brim_error *err)
{
    BRIM_REQUIRE(err, args->n_tok <= INT32_MAX, BRIM_E_SHAPE,
                 "kda: n_tok %lld does not fit 31 bits", (long long)args->n_tok);
    (void)route;
    return BRIM_OK;
}

static kda_launcher *const launchers[BRIM_KDA_ROUTE_N] = {
    brim_kda_launch_m128,   brim_kda_launch_m64,     brim_kda_launch_pair,
    brim_kda_launch_queue,  brim_kda_launch_c4_m128, brim_kda_launch_c4_m64,
    brim_kda_launch_c5_m64, brim_kda_launch_c6_m64,  brim_kda_launch_c8_m128,
};

static kda_params params_of(const brim_kda_args *args)
{
    kda_params p = {};
    p.q = (const __nv_bfloat16 *)args->q;
    p.k = (const __nv_bfloat16 *)args->k;
    p.v = (const __nv_bfloat16 *)args->v;
    p.g = args->g;
    p.beta = args->beta;
    p.out = (__nv_bfloat16 *)args->out;
    p.q_stride = args->q_stride;
    p.k_stride = args->k_stride;
    p.v_stride = args->v_stride;
    p.g_stride = args->g_stride;
    p.out_stride = args->out_stride;
    p.beta_stride = args->beta_stride;
    p.n_seq = args->n_seq;
    p.n_tok = args->n_tok;
    p.n_value_head = (int)args->n_value_head;
    p.head_group = (int)(args->n_value_head / args->n_head);
    p.cu_seqlens = args->cu_seqlens;
    p.offset_bytes = args->offset_bytes;
    p.gate = args->gate;
    p.g_f32 = args->g_dtype == BRIM_KERNEL_F32;
    p.beta_f32 = args->beta_dtype == BRIM_KERNEL_F32;
    p.beta_logit = (args->flags & BRIM_KDA_BETA_LOGIT) != 0;
    p.l2norm = (args->flags & BRIM_KDA_L2NORM) != 0;
    p.lower_bound = args->lower_bound;
    p.inverse_bound =
        args->lower_bound < 0 ? (float)(1 / (args->lower_bound * 1.4426950408889634)) : 0;
    p.scale = args->scale;
    p.mid = (int)lrint(-8.0 * args->lower_bound * 1.4426950408889634);
    p.a_log = args->a_log;
    p.dt_bias = args->dt_bias;
    p.initial = args->initial_state;
    p.final = args->final_state;
    p.checkpoints = (char *)args->checkpoints;
    p.state_stride = args->state_stride;
    p.state_f32 = args->state_dtype == BRIM_KERNEL_F32;
    p.k_first = (args->flags & BRIM_KDA_STATE_K_FIRST) != 0;
    p.state_index = args->state_index;
    p.n_slot = args->n_slot;
    p.fresh = args->fresh;
    return p;
}

/* The launches of a call, one behind the other. Of no sequence and no slot: their kernels are
 * loaded. */
static brim_status enqueue(const kda_params &p, enum brim_kda_route route, bool join,
                           int64_t n_slot, cudaStream_t stream, brim_error *err)
{
    if (p.cuts.record && !p.cuts.exact) BRIM_TRY(brim_kda_launch_split(p, n_slot, stream, err));
    if (!join) return launchers[route](p, stream, err);
    BRIM_TRY(brim_kda_launch_map(p, n_slot, stream, err));
    BRIM_TRY(brim_kda_launch_join(p, stream, err));
    return brim_kda_launch_out(p, n_slot, stream, err);
}

/* Without tokens a fixed batch has no segments, and final states to write. */
static const struct brim_kda_split_plan *split_of(const brim_kda_args *args,
                                                  const struct brim_kda_split_plan *split)
{
    return args->cu_seqlens || args->n_tok > 0 ? split : NULL;
}

/* Which kernels a plan takes beside its route's and its gate's. */
enum loads { LOADS_WHOLE, LOADS_SPLIT, LOADS_SPLIT_JOIN, LOADS_EXACT, N_LOADS };

static enum loads loads_of(const struct brim_kda_split_plan *split)
{
    if (!split) return LOADS_WHOLE;
    if (!split->join) return LOADS_SPLIT;
    return split->window == 0 ? LOADS_EXACT : LOADS_SPLIT_JOIN;
}

brim_status brim_kda_cuda_load(const brim_kda_args *args, enum brim_kda_route route,
                               const struct brim_kda_split_plan *split, brim_error *err)
{
    /* Of each choice of kernels a bit for each device that has had them loaded, so that plans in a
     * loop ask the driver once. A device that is reset afterwards loads at its next launch. */
    enum { UNBOUNDED, BOUNDED, N_GATE };
    static std::atomic<uint64_t> loaded[BRIM_KDA_ROUTE_N][N_GATE][N_LOADS];
    int device;
    BRIM_TRY(brim_cuda_check(cudaGetDevice(&device), "kda: current device", err));
    enum loads loads = loads_of(split_of(args, split));
    kda_params p = {};
    p.lower_bound = args->lower_bound; /* what the launchers tell the instances of a kernel by */
    float record;                      /* and by whether there are records, which nothing reads */
    if (loads != LOADS_WHOLE) p.cuts.record = &record;
    p.cuts.exact = loads == LOADS_EXACT;
    std::atomic<uint64_t> &on = loaded[route][p.lower_bound < 0 ? BOUNDED : UNBOUNDED][loads];
    uint64_t bit = device < 64 ? (uint64_t)1 << device : 0;
    if (on.load(std::memory_order_relaxed) & bit) return BRIM_OK;
    BRIM_TRY(enqueue(p, route, loads > LOADS_SPLIT, 0, NULL, err));
    on.fetch_or(bit, std::memory_order_relaxed);
    return BRIM_OK;
}

brim_status brim_kda_cuda_launch(const brim_kda_args *args, enum brim_kda_route route,
                                 const struct brim_kda_split_plan *split, brim_error *err)
{
    cudaStream_t stream = (cudaStream_t)args->stream;
    if (args->n_seq == 0) { /* packed rows, that no task writes, all lie behind the last offset */
        bool rows = args->cu_seqlens && args->n_tok > 0;
        for (int64_t h = 0; h < args->n_value_head && rows; h++)
            BRIM_TRY(brim_cuda_check(
                cudaMemset2DAsync((__nv_bfloat16 *)args->out + h * args->out_stride.head,
                                  (size_t)args->out_stride.token * 2, 0, 256, (size_t)args->n_tok,
                                  stream),
                "kda: clearing rows", err));
        return BRIM_OK;
    }
    BRIM_REQUIRE(err, !split || split->join || brim_kda_routes[route].behind, BRIM_E_UNSUPPORTED,
                 "kda: route %s has no kernel that finishes what segments have left",
                 brim_kda_routes[route].name);
    kda_params p = params_of(args);
    split = split_of(args, split);
    if (split || brim_kda_routes[route].depth || route == BRIM_KDA_ROUTE_QUEUE) {
        p.control = (uint32_t *)args->workspace;
        p.ring = (char *)args->workspace + (size_t)BRIM_KDA_MAX_TASK * KDA_CONTROL_BYTES;
    }
    if (split) {
        int64_t n_task = args->n_seq * args->n_value_head;
        char *own = (char *)args->workspace +
                    brim_kda_route_workspace_front(brim_kda_route_workspace(route, n_task));
        p.cuts.record = (float *)own;
        /* written in place it would be lost to what computes a task anew */
        if (args->final_state == args->initial_state)
            p.cuts.state = (float *)(own + split->state_at);
        p.cuts.length = split->length;
        p.cuts.window = split->window;
        p.cuts.lead = split->first - split->length;
        if (split->join) {
            /* a task is either kept, its final state waiting in `state`, or joined from `start` */
            p.cuts.start = (float *)(own + split->state_at);
            p.cuts.map = (float *)(own + split->map_at);
            p.cuts.written = (float *)(own + split->written_at);
            p.cuts.exact = split->window == 0;
        }
    }
    return enqueue(p, route, split && split->join, split ? split->n_slot : 0, stream, err);
}

brim_status brim_kda_cuda_workspace_init(void *workspace, size_t n_bytes, void *stream,
                                         brim_error *err)
{
    /* only the control words need a value; packets are written before they are read */
    size_t control = (size_t)BRIM_KDA_MAX_TASK * KDA_CONTROL_BYTES;
    return brim_cuda_check(
        cudaMemsetAsync(workspace, 0, n_bytes < control ? n_bytes : control, (cudaStream_t)stream),
        "kda: preparing the workspace", err);
}
