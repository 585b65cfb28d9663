/* SPDX-License-Identifier: Apache-2.0
 * The likeliest token of a row of logits (ops.h, brim_cuda_sample at temperature 0 without a
 * penalty). Blocks of 256 threads look at stretches of the row; each writes its best key, the
 * largest logit and of equals the lowest id, and the block that arrives last takes the best of the
 * keys: a maximum, so any order gives the same. Workspace: a count of arrivals, left at zero, and
 * the keys. */
#include <math_constants.h>

#include "cuda/model/sample.cuh"

namespace
{

enum {
    N_THREAD = 256,
    N_WARP = N_THREAD / 32,
    MAX_BLOCK = 128,
    STRETCH = 2 * 4 * N_THREAD /* logits of a block at once: two loads of 4 a thread */
};

struct likeliest_work {
    uint32_t n_arrived, unused[3];
    unsigned long long keys[MAX_BLOCK];
};
static_assert(sizeof(likeliest_work) == BRIM_CUDA_SAMPLE_BYTES, "workspace");

/* Largest of the block, in the first warp. */
BRIM_DEVICE unsigned long long block_best(unsigned long long key, unsigned long long *part)
{
    key = warp_best(key);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = key;
    __syncthreads();
    return threadIdx.x < 32 ? warp_best(threadIdx.x < N_WARP ? part[threadIdx.x] : 0) : 0;
}

__global__ void __launch_bounds__(N_THREAD) likeliest(brim_cuda_sample_args a)
{
    __shared__ int32_t s_ranges[2 * MAX_RANGES];
    __shared__ unsigned long long s_part[N_WARP];
    __shared__ bool s_last;
    likeliest_work *work = (likeliest_work *)a.workspace;
    const bool small = a.n_range <= MAX_RANGES;
    griddepcontrol_launch_dependents();
    if (small && (int)threadIdx.x < 2 * a.n_range) s_ranges[threadIdx.x] = a.ranges[threadIdx.x];
    __syncthreads();
    const int32_t *ranges = small ? s_ranges : a.ranges;
    const int n = (int)a.n_vocab;
    const int64_t step = (int64_t)gridDim.x * STRETCH;
    griddepcontrol_wait();

    /* Ids rise: the first of equals stays. `odd`: NaN or +infinity. */
    float best = -CUDART_INF_F;
    int best_id = -1;
    bool odd = false;
    for (int64_t base = (int64_t)blockIdx.x * STRETCH; base < n; base += step) {
        float v[2][4];
#pragma unroll
        for (int b = 0; b < 2; b++) {
            const int64_t i = base + b * 4 * N_THREAD + 4 * threadIdx.x;
            if (i + 3 < n) {
                *(float4 *)v[b] = *(const float4 *)(a.logits + i);
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++) v[b][j] = i + j < n ? a.logits[i + j] : -CUDART_INF_F;
            }
        }
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int id = (int)(base + b * 4 * N_THREAD + 4 * threadIdx.x + j);
                /* Few are larger than all before, so few look up where they lie. */
                if (v[b][j] <= best || !may_choose(ranges, a.n_range, id)) continue;
                odd |= !(v[b][j] < CUDART_INF_F);
                best = v[b][j], best_id = id;
            }
    }
    unsigned long long key = odd ? ~0ull : best_id < 0 ? 0 : key_of(best, best_id);
    key = block_best(key, s_part);
    if (threadIdx.x == 0) {
        work->keys[blockIdx.x] = key;
        s_last = atom_add_acq_rel_gpu(&work->n_arrived, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!s_last) return;
    key = block_best(threadIdx.x < gridDim.x ? __ldcg(&work->keys[threadIdx.x]) : 0, s_part);
    if (threadIdx.x > 0) return;
    work->n_arrived = 0;
    *a.id = key == 0 || key == ~0ull ? -1 : key_id(key);
    if (a.advance) *a.advance += 1;
}

} // namespace

brim_status brim_cuda_likeliest(const struct brim_cuda_sample_args *args, void *stream,
                                brim_error *err)
{
    const int64_t n_stretch = (args->n_vocab + STRETCH - 1) / STRETCH;
    brim_launch_shape shape = {};
    shape.grid = dim3((unsigned)(n_stretch < MAX_BLOCK ? n_stretch : (int64_t)MAX_BLOCK));
    shape.block = dim3(N_THREAD);
    shape.pdl = args->pdl;
    return BRIM_LAUNCH(likeliest, shape, (cudaStream_t)stream, *args, err);
}
