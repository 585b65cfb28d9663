/* SPDX-License-Identifier: Apache-2.0
 * Route m128, the yardstick: one CTA of 512 threads per (sequence, value head).
 *
 * Warps 0-7: two consumer warpgroups of 64 value rows. Warps 8-15: two preparation instances, which
 * prepare alternate chunks into three packet stages. Barriers: full[stage] counts the 128 threads
 * of the instance, empty[stage] the 8 consumer warps; named barriers 1 and 2 belong to the
 * instances. Registers: 2 x 160 + 2 x 96 = 512 a lane. Shared memory: 3 stages x 37 KB, 2
 * instances, 8 KB of output staging. */
#include "cuda/kda/advance.cuh"
#include "cuda/kda/finish.cuh"
#include "cuda/kda/launch.cuh"
#include "cuda/kda/prepare.cuh"

enum { N_STAGE = 3, N_INSTANCE = 2, N_THREAD = 512 };
enum {
    AT_WORK = N_STAGE * KDA_PACKET_BYTES,
    AT_BARRIER = AT_WORK + N_INSTANCE * KDA_FULL_BYTES,
    SMEM_BYTES = AT_BARRIER + 2 * N_STAGE * 8 + 1024 /* the stages are aligned by hand */
};
static_assert(SMEM_BYTES <= 232448, "more shared memory than a block can have");

template <bool bounded, bool behind>
static __global__ void __launch_bounds__(N_THREAD, 1)
    brim_kda_m128_sm90(const __grid_constant__ kda_params p)
{
    extern __shared__ char raw[];
    uint32_t base = (smem_u32(raw) + 1023) & ~1023u;
    uint32_t full = base + AT_BARRIER, empty = full + 8 * N_STAGE;
    int tid = threadIdx.x;
    if (tid == 0) {
        for (int i = 0; i < N_STAGE; i++) {
            mbarrier_init(full + 8 * i, 128);
            mbarrier_init(empty + 8 * i, 8);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    kda_task t;
    typename kda_span_of<behind>::type range;
    if (!kda_task_start(p, t, range, blockIdx.x, true, tid, [] { __syncthreads(); })) return;

    if (tid < 256) {
        setmaxnreg_inc<160>();
        kda_advance<N_STAGE, false, false>(p, t, range, base, full, empty, kda_panels(), tid >> 7,
                                           tid & 127);
    } else {
        setmaxnreg_dec<96>();
        int instance = (tid - 256) >> 7, within = tid & 127;
        if (instance < t.n_chunk) {
            typedef kda_full_of<bounded> layout;
            kda_prep s;
            kda_prep_init<layout>(p, t, s, base + AT_WORK + instance * KDA_FULL_BYTES, 1 + instance,
                                  within, instance);
            for (int c = instance; c < t.n_chunk; c += N_INSTANCE) {
                int stage = c % N_STAGE, use = c / N_STAGE;
                kda_prepare<layout>(p, t, s, c, c + N_INSTANCE, base + stage * KDA_PACKET_BYTES,
                                    [&] {
                                        if (use > 0)
                                            mbarrier_wait(empty + 8 * stage, (use - 1) & 1);
                                    });
                KDA_HOOK(p, KDA_AT_PACKET, c);
                /* the packet was written by ordinary stores and is read by wgmma */
                fence_proxy_async_shared();
                mbarrier_arrive(full + 8 * stage);
            }
        }
        kda_zero_tail(p, t.seq, t.head, tid - 256, 256);
    }
}

brim_status brim_kda_launch_m128(const kda_params &p, cudaStream_t stream, brim_error *err)
{
    return KDA_LAUNCH_SERIAL(brim_kda_m128_sm90, kda_task_shape(p, 1, N_THREAD, SMEM_BYTES));
}
