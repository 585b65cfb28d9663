/* SPDX-License-Identifier: Apache-2.0
 * KDA on the CPU, whole calls: the tasks of a call, or groups' shares of them (plan/kda_cpu.h),
 * over the threads it asks for. */
#include "base/mem.h"
#include "base/pool.h"
#include "cpu/cpu_ops.h"
#include "cpu/kda.h"
#include "cpu/kda_share.h"
#include "plan/kda_cpu.h"

void brim_kda_chunk_task_ops(const struct brim_cpu_ops *ops, const brim_kda_args *args,
                             const struct brim_kda_task *task, void *scratch)
{
    struct brim_kda_state *state = scratch;
    struct brim_kda_packet *packet = (struct brim_kda_packet *)(state + 1);
    int64_t n_chunk = brim_kda_n_chunk(task);

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
    struct brim_kda_cpu_plan plan;
    struct brim_kda_ring **rings; /* of the tasks that are shared, n_ring each */
    int64_t n_ring;               /* of all */
    char *scratch;                /* one piece a worker */
    size_t piece;
};

/* The whole tasks come first, then every ring's first thread, every ring's second, ... */
static void run_item(void *arg, int64_t item, int worker)
{
    const struct job *job = arg;
    struct brim_kda_task task;
    void *scratch = job->scratch + (size_t)worker * job->piece;
    if (item >= job->plan.n_whole) {
        brim_kda_ring_join(job->rings[(item - job->plan.n_whole) % job->n_ring], scratch);
        return;
    }
    brim_kda_task_make(job->args, item / job->args->n_value_head, item % job->args->n_value_head,
                       &task);
    if (job->rounding == BRIM_KDA_FP32)
        brim_kda_chunk_task_ops(job->ops, job->args, &task, scratch);
    else
        brim_kda_chunk_task(job->args, &task, job->rounding, scratch);
}

/* One block: the workers' scratch, the rings, the list of them. */
static void *make_memory(struct job *job, int n_worker)
{
    const struct brim_kda_cpu_plan *plan = &job->plan;
    int64_t n_head = job->args->n_value_head;
    job->n_ring = (plan->n_task - plan->n_whole) * plan->n_ring;
    job->piece = brim_mem_round(brim_kda_chunk_scratch_bytes());
    size_t ring_bytes = brim_mem_round(brim_kda_ring_bytes(plan->depth));
    size_t front = (size_t)n_worker * job->piece, rings = (size_t)job->n_ring * ring_bytes;
    job->scratch = brim_alloc(front + rings + (size_t)job->n_ring * sizeof *job->rings);
    if (!job->scratch) return NULL;
    job->rings = (struct brim_kda_ring **)(void *)(job->scratch + front + rings);
    for (int64_t i = 0; i < job->n_ring; i++) {
        int64_t task = plan->n_whole + i / plan->n_ring;
        int width = 128 / plan->n_ring, begin = (int)(i % plan->n_ring) * width;
        job->rings[i] = brim_kda_ring_make(job->scratch + front + (size_t)i * ring_bytes, job->ops,
                                           job->args, task / n_head, task % n_head, begin,
                                           begin + width, plan->n_owner, plan->depth);
    }
    return job->scratch;
}

static brim_status run(struct job *job, int n_thread, brim_error *err)
{
    const struct brim_kda_cpu_plan *plan = &job->plan;
    int64_t team = plan->n_owner + plan->n_helper, n_task = plan->n_task;
    int64_t n_item = plan->n_whole + (n_task - plan->n_whole) * plan->n_ring * team;
    struct brim_pool *pool = NULL;

    if (n_thread > n_item) n_thread = (int)n_item;
    if (n_thread > 1) BRIM_TRY(brim_pool_create(&pool, n_thread, err));
    if (!make_memory(job, brim_pool_size(pool))) {
        brim_pool_free(&pool);
        return brim_fail(err, BRIM_E_NO_MEMORY, "kda: no memory for one chunk a thread");
    }
    brim_pool_run(pool, run_item, job, n_item);
    brim_kda_zero_tail(job->args);
    brim_free(job->scratch);
    brim_pool_free(&pool);
    return BRIM_OK;
}

static struct job job_of(const brim_kda_args *args, enum brim_kda_rounding rounding)
{
    struct brim_cpu_info info = brim_cpu_detect();
    return (struct job){
        .args = args, .rounding = rounding, .ops = brim_cpu_ops_get(info.tier, &info)};
}

brim_status brim_kda_cpu(const brim_kda_args *args, enum brim_kda_rounding rounding,
                         brim_error *err)
{
    struct job job = job_of(args, rounding);
    int64_t n_task = args->n_seq * args->n_value_head;
    job.plan = brim_kda_cpu_plan_make(n_task, args->cu_seqlens ? args->max_tok : args->n_tok,
                                      rounding == BRIM_KDA_FP32 ? args->n_thread : 1);
    return run(&job, args->n_thread, err);
}

brim_status brim_kda_cpu_planned(const brim_kda_args *args, const struct brim_kda_cpu_plan *plan,
                                 brim_error *err)
{
    struct job job = job_of(args, BRIM_KDA_FP32);
    BRIM_REQUIRE(err,
                 brim_kda_cpu_plan_ok(plan) && plan->n_task == args->n_seq * args->n_value_head,
                 BRIM_E_ARGUMENT, "kda: the plan does not fit the call");
    job.plan = *plan;
    return run(&job, args->n_thread, err);
}
