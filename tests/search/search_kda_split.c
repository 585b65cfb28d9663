/* SPDX-License-Identifier: Apache-2.0
 * Search for inputs on which a split KDA sequence is worse than the serial one, on the CPU's model
 * with the GPU's roundings.
 *     search_kda_split SECONDS [FIRST_SEED [join|bound]]
 * Prints the seeds of the worst quotients among cases in which a cut was skipped, or with `join`
 * among all, their segments joined exactly; fails above 1.2. With `bound` the quotients are those
 * of what windows leave of a state and of the bound on it; fails above 1.01.
 */
#include <stdio.h>
#include <time.h>

#include "check/kda_adversary.h"

enum { N_KEPT = 12 };

struct found {
    uint64_t seed;
    double quotient;
    int skipped;
};

static double try_seed(uint64_t seed, void *scratch, struct brim_kda_split_report *report)
{
    struct kda_adversary a;
    struct brim_kda_task task;
    brim_error err;
    kda_adversary_make(&a, seed);
    struct brim_kda_split split = {a.length, a.window, 0};
    brim_kda_task_make(&a.c.args, 0, 0, &task);
    double quotient = 0;
    if (brim_kda_split_task(&a.c.args, &task, BRIM_KDA_GPU, &split, report, &err) != BRIM_OK)
        exit(2);
    if (report->n_skipped && !report->n_far && !report->n_small) {
        struct kda_error e = kda_measure(&a.c.args, 0, 0);
        brim_kda_chunk_task(&a.c.args, &task, BRIM_KDA_GPU, scratch);
        struct kda_error serial = kda_measure(&a.c.args, 0, 0);
        quotient = kda_adversary_quotient(&e, &serial, kda_adversary_faded(&a, &task, scratch));
    }
    kda_case_free(&a.c);
    return quotient;
}

static double try_join(uint64_t seed, void *scratch)
{
    struct kda_adversary a;
    struct brim_kda_task task;
    brim_error err;
    kda_adversary_make(&a, seed);
    brim_kda_task_make(&a.c.args, 0, 0, &task);
    if (brim_kda_join_task(&a.c.args, &task, BRIM_KDA_GPU, a.length, &err) != BRIM_OK) exit(2);
    struct kda_error e = kda_measure(&a.c.args, 0, 0);
    brim_kda_chunk_task(&a.c.args, &task, BRIM_KDA_GPU, scratch);
    struct kda_error serial = kda_measure(&a.c.args, 0, 0);
    kda_case_free(&a.c);
    return kda_adversary_join_quotient(&e, &serial);
}

static double try_bound(uint64_t seed, void *scratch)
{
    struct kda_adversary a;
    struct brim_kda_task task;
    kda_adversary_make(&a, seed);
    brim_kda_task_make(&a.c.args, 0, 0, &task);
    double share = kda_adversary_share(&a, &task, scratch);
    kda_case_free(&a.c);
    return share;
}

int main(int argc, char **argv)
{
    double limit = argc > 1 ? atof(argv[1]) : 10;
    uint64_t seed = argc > 2 ? (uint64_t)atoll(argv[2]) : 1;
    bool join = argc > 3 && !strcmp(argv[3], "join"), bound = argc > 3 && !strcmp(argv[3], "bound");
    struct found worst[N_KEPT + 1] = {{0, 0, 0}};
    void *scratch = aligned_alloc(64, (brim_kda_chunk_scratch_bytes() + 63) / 64 * 64);
    time_t end = time(NULL) + (time_t)limit;
    long n_tried = 0, n_cut = 0;
    for (; time(NULL) < end; seed++, n_tried++) {
        struct brim_kda_split_report report = {0};
        double quotient = join    ? try_join(seed, scratch)
                          : bound ? try_bound(seed, scratch)
                                  : try_seed(seed, scratch, &report);
        n_cut += quotient > 0;
        int at = N_KEPT;
        worst[at] = (struct found){seed, quotient, (int)report.n_skipped};
        for (; at > 0 && worst[at - 1].quotient < worst[at].quotient; at--) {
            struct found swap = worst[at];
            worst[at] = worst[at - 1];
            worst[at - 1] = swap;
        }
    }
    printf("# %ld seeds tried, %ld cut; seed, quotient, cuts skipped\n", n_tried, n_cut);
    for (int i = 0; i < N_KEPT && worst[i].quotient > 0; i++)
        printf("%llu %.6f %d\n", (unsigned long long)worst[i].seed, worst[i].quotient,
               worst[i].skipped);
    free(scratch);
    return n_tried == 0 || !(worst[0].quotient <= (bound ? 1.01 : 1.2));
}
