/* SPDX-License-Identifier: Apache-2.0
 * KDA on the GPU over distances of more than 2^31 elements, for every route named: one operand at a
 * time lies with its sequences, heads or tokens so far apart in one block of 8.6 GB, then states
 * and the slots of a pool. Bits are those of the operand where it lay.
 *     check_kda_far [route[,route...]] [short]     short: the same over distances of 2^20
 * Exit status 1 on any failure. */
#include "cuda/kda_judge.h"

enum { N_HEAD = 2, STATES = N_HEAD * 16384 };
enum where { BATCH, TOKEN, HEAD, N_WHERE };
enum { Q, K, V, G, BETA, OUT, N_OPERAND };

static int64_t far; /* elements */
static char *block;
static size_t block_bytes;

struct operand {
    char *near;
    brim_kda_stride stride;
    int64_t width; /* of a head's row */
};

static char *at(char *base, brim_kda_stride s, int64_t n, int64_t t, int64_t h)
{
    return base + 2 * (n * s.batch + t * s.token + h * s.head);
}

/* Rows of an operand between where they lie and the block; all of it is bf16. */
static void move(const struct operand *o, brim_kda_stride there, const brim_kda_args *a, bool back)
{
    for (int64_t n = 0; n < a->n_seq; n++)
        for (int64_t t = 0; t < a->n_tok; t++)
            for (int64_t h = 0; h < N_HEAD; h++) {
                char *near = at(o->near, o->stride, n, t, h), *away = at(block, there, n, t, h);
                CUDA_OK(cudaMemcpy(back ? near : away, back ? away : near, (size_t)o->width * 2,
                                   cudaMemcpyDeviceToDevice));
            }
}

static void check_rows(enum where where, int which)
{
    static const char *const names[] = {"q", "k", "v", "g", "beta", "out"}, *const places[] = {
                                                                                "sequences",
                                                                                "tokens", "heads"};
    struct kda_spec spec = kda_plain(where == TOKEN ? 2 : 97, N_HEAD, KDA_TYPICAL);
    struct kda_case c;
    struct kda_device d;
    char what[80];
    spec.n_seq = where == BATCH ? 2 : 1, spec.seed = 7 + (uint64_t)where;
    snprintf(what, sizeof what, "%s: %s of %s far apart", route, places[where], names[which]);
    kda_case_make(&c, &spec);
    kda_device_make(&d, &c, route);
    run_and_fetch(&d, what);
    struct outputs want = outputs_keep(&c);
    brim_kda_args near = d.args;
    const void **pointers[] = {&d.args.q, &d.args.k,    &d.args.v,
                               &d.args.g, &d.args.beta, (const void **)&d.args.out};
    brim_kda_stride *strides[] = {&d.args.q_stride, &d.args.k_stride,    &d.args.v_stride,
                                  &d.args.g_stride, &d.args.beta_stride, &d.args.out_stride};
    struct operand o = {(char *)(uintptr_t)*pointers[which], *strides[which],
                        which == BETA ? 1 : 128};
    brim_kda_stride there = o.stride;
    *(where == BATCH ? &there.batch : where == TOKEN ? &there.token : &there.head) = far;
    outputs_poison(&d);
    CUDA_OK(cudaMemset(block, 0xFF, block_bytes));
    if (which != OUT) move(&o, there, &near, false);
    *pointers[which] = block, *strides[which] = there;
    brim_error err = {0};
    verdict(brim_kda_prefill(&d.args, &err) == BRIM_OK, what, err.text);
    CUDA_OK(cudaDeviceSynchronize());
    if (which == OUT) move(&o, there, &near, true);
    d.args = near;
    verdict(kda_device_fetch(&d), what, "a byte outside a buffer changed");
    verdict(outputs_same(&want, &c), what, "bits differ");
    outputs_drop(&want);
    kda_device_free(&d);
    kda_case_free(&c);
}

/* In place: two sequences' states, or two slots of a pool taken in reverse. */
static void check_states(bool pooled)
{
    static const int32_t slots[] = {1, 0};
    struct kda_spec spec = kda_plain(97, N_HEAD, KDA_TYPICAL);
    struct kda_case c;
    struct kda_device d;
    brim_error err = {0};
    char what[64];
    spec.n_seq = 2, spec.seed = 12;
    snprintf(what, sizeof what, "%s: %s far apart", route, pooled ? "slots" : "states");
    kda_case_make(&c, &spec);
    kda_device_make(&d, &c, route);
    run_and_fetch(&d, what);
    struct outputs want = outputs_keep(&c);
    brim_kda_args a = d.args;
    CUDA_OK(cudaMemset(block, 0xFF, block_bytes));
    for (int n = 0; n < 2; n++)
        CUDA_OK(cudaMemcpy(block + 4 * far * (pooled ? slots[n] : n),
                           (char *)c.initial + n * STATES * 4, STATES * 4, cudaMemcpyHostToDevice));
    a.initial_state = a.final_state = block, a.state_stride = far;
    if (pooled) a.state_index = kda_upload_input(&d, slots, sizeof slots), a.n_slot = 2;
    outputs_poison(&d);
    verdict(brim_kda_prefill(&a, &err) == BRIM_OK, what, err.text);
    verdict(kda_device_fetch(&d), what, "a byte outside a buffer changed");
    for (int n = 0; n < 2; n++)
        CUDA_OK(cudaMemcpy((char *)c.final + n * STATES * 4,
                           block + 4 * far * (pooled ? slots[n] : n), STATES * 4,
                           cudaMemcpyDeviceToHost));
    verdict(outputs_same(&want, &c), what, "bits differ");
    outputs_drop(&want);
    kda_device_free(&d);
    kda_case_free(&c);
}

int main(int argc, char **argv)
{
    int status =
        kda_begin(argc, argv, "m128,m64,pair,queue,c4-m128,c4-m64,c5-m64,c6-m64,split,split-join");
    if (status) return status;
    far = brief ? 1 << 20 : ((int64_t)1 << 31) + 64;
    block_bytes = (size_t)(far + STATES) * 4;
    if (cudaMalloc((void **)&block, block_bytes) != cudaSuccess) {
        printf("SKIP: no %zu bytes of device memory\n", block_bytes);
        return 77;
    }
    for (int i = 0; i < n_route; i++) {
        route = routes[i];
        bool whole = !brief || i == 0 || kda_cuts(route);
        for (int where = BATCH; where < N_WHERE && whole; where++)
            for (int which = Q; which < N_OPERAND; which++) check_rows((enum where)where, which);
        check_states(false);
        check_states(true);
    }
    CUDA_OK(cudaFree(block));
    return kda_end("far apart");
}
