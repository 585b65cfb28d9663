/* SPDX-License-Identifier: Apache-2.0
 * KDA on the CPU, whole calls: the tasks of a call over the threads it asks for. */
#include "base/mem.h"
#include "base/pool.h"
#include "cpu/cpu_ops.h"
#include "cpu/kda.h"

void brim_kda_chunk_task_ops(const struct brim_cpu_ops *ops, const brim_kda_args *args,
                             const struct brim_kda_task *task, void *scratch)
{
    struct brim_kda_state *state = scratch;
    struct brim_kda_packet *packet = (struct brim_kda_packet *)(state + 1);
    int64_t n_chunk = (task->n_tok + BRIM_KDA_CHUNK - 1) / BRIM_KDA_CHUNK;

    brim_kda_strips_load(args, task->initial, 0, 128, state);
    for (int64_t i = 0; i < n_chunk; i++) {
        ops->kda_prepare(args, task, i, 0, 128, packet + 1, packet);
        ops->kda_advance(task, i, packet, 0, 128, state);
        brim_kda_strips_checkpoint(args, task, i, state, 0, 128);
    }
    brim_kda_strips_store(args, state, 0, 128, task->final);
}

struct job {
    const brim_kda_args *args;
    enum brim_kda_rounding rounding;
    const struct brim_cpu_ops *ops;
    char *scratch; /* one piece a worker */
    size_t piece;
};

static void run_task(void *arg, int64_t item, int worker)
{
    const struct job *job = arg;
    struct brim_kda_task task;
    void *scratch = job->scratch + (size_t)worker * job->piece;
    brim_kda_task_make(job->args, item / job->args->n_value_head, item % job->args->n_value_head,
                       &task);
    if (job->rounding == BRIM_KDA_FP32)
        brim_kda_chunk_task_ops(job->ops, job->args, &task, scratch);
    else
        brim_kda_chunk_task(job->args, &task, job->rounding, scratch);
}

brim_status brim_kda_cpu(const brim_kda_args *args, enum brim_kda_rounding rounding,
                         brim_error *err)
{
    int64_t n_task = args->n_seq * args->n_value_head;
    int n_thread = args->n_thread > n_task ? (int)n_task : args->n_thread;
    struct brim_pool *pool = NULL;
    struct brim_cpu_info info = brim_cpu_detect();
    struct job job = {args, rounding, brim_cpu_ops_get(info.tier, &info), NULL, 0};

    if (n_thread > 1) BRIM_TRY(brim_pool_create(&pool, n_thread, err));
    job.piece =
        (brim_kda_chunk_scratch_bytes() + BRIM_MEM_ALIGN - 1) / BRIM_MEM_ALIGN * BRIM_MEM_ALIGN;
    job.scratch = brim_alloc((size_t)(n_thread > 1 ? n_thread : 1) * job.piece);
    if (!job.scratch) {
        brim_pool_free(&pool);
        return brim_fail(err, BRIM_E_NO_MEMORY, "kda: no memory for one chunk a thread");
    }
    brim_pool_run(pool, run_task, &job, n_task);
    brim_kda_zero_tail(args);
    brim_free(job.scratch);
    brim_pool_free(&pool);
    return BRIM_OK;
}
