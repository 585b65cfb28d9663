/* SPDX-License-Identifier: Apache-2.0
 * brim_check [--bench] [--tier NAME] [GROUP...]: runs the groups for every tier this processor has.
 * Prints each failure with its parameters, then "N passed, N failed, N skipped". */
#define _GNU_SOURCE
#include "check/check.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"

typedef void group_fn(struct check *c);

static const struct {
    const char *name;
    group_fn *run;
} groups[] = {
    {"elem", check_elem},
    {"attn", check_attn},
    {"linear", check_linear},
    {"kda", check_kda},
};
enum { N_GROUP = sizeof groups / sizeof *groups, MAX_BUFFER = 256 };

struct buffer {
    uint8_t *map, *data;
    size_t map_bytes, n_bytes, gap_bytes; /* gap: canary bytes between data and the guard page */
};

/* The case at hand; a checker has one thread that reports. */
static struct {
    char name[200];
    bool failed;
    struct buffer buffers[MAX_BUFFER];
    int n_buffer;
    sigjmp_buf trap;
    volatile sig_atomic_t armed;
} now;
static int n_passed, n_failed;

enum { CANARY = 0xA5 };

static void on_fault(int signal_number)
{
    if (!now.armed) _exit(128 + signal_number);
    siglongjmp(now.trap, signal_number);
}

void check_fail(struct check *c, const char *fmt, ...)
{
    if (now.failed) return;
    now.failed = true;
    va_list args;
    va_start(args, fmt);
    printf("FAILED %s %s: ", brim_cpu_tier_name(c->ops->tier), now.name);
    vprintf(fmt, args);
    printf("\n");
    va_end(args);
}

static bool all_canary(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] != CANARY) return false;
    }
    return true;
}

static void release_buffers(struct check *c)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < now.n_buffer; i++) {
        struct buffer *b = &now.buffers[i];
        if (!all_canary(b->data + b->n_bytes, b->gap_bytes))
            check_fail(c, "wrote behind the end of a buffer of %zu bytes", b->n_bytes);
        if (!all_canary(b->map + page, (size_t)(b->data - b->map) - page))
            check_fail(c, "wrote before a buffer of %zu bytes", b->n_bytes);
        munmap(b->map, b->map_bytes);
    }
    now.n_buffer = 0;
}

void check_case(struct check *c, check_fn *fn, const void *param, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(now.name, sizeof now.name, fmt, args);
    va_end(args);
    uint64_t seed = 14695981039346656037u; /* FNV-1a of the name */
    for (const char *p = now.name; *p; p++) seed = (seed ^ (uint8_t)*p) * 1099511628211u;
    brim_rng_seed(&c->rng, seed);
    now.failed = false;
    int fault = sigsetjmp(now.trap, 1);
    if (fault == 0) {
        now.armed = 1;
        fn(c, param);
    } else {
        check_fail(c, "signal %d (%s)", fault, strsignal(fault));
    }
    now.armed = 0;
    release_buffers(c);
    if (now.failed)
        n_failed++;
    else
        n_passed++;
}

void *check_alloc(struct check *c, size_t n_bytes, size_t align)
{
    (void)c;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t rounded = (n_bytes + align - 1) / align * align;
    size_t body = (rounded + page - 1) / page * page;
    struct buffer b = {.map_bytes = body + 2 * page, .n_bytes = n_bytes};
    if (now.n_buffer == MAX_BUFFER) {
        fprintf(stderr, "check: too many buffers in one case\n");
        exit(2);
    }
    b.map = mmap(NULL, b.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b.map == MAP_FAILED) {
        fprintf(stderr, "check: out of memory\n");
        exit(2);
    }
    mprotect(b.map, page, PROT_NONE);
    mprotect(b.map + page + body, page, PROT_NONE);
    b.data = b.map + page + body - rounded;
    b.gap_bytes = rounded - n_bytes;
    memset(b.map + page, CANARY, body);
    memset(b.data, 0xFF, n_bytes);
    now.buffers[now.n_buffer++] = b;
    return b.data;
}

float *check_floats(struct check *c, int64_t n, float low, float high)
{
    float *x = check_alloc(c, (size_t)n * sizeof *x, sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = low + brim_rng_uniform(&c->rng) * (high - low);
    return x;
}

float *check_poison(struct check *c, int64_t n)
{
    return check_alloc(c, (size_t)n * sizeof(float), sizeof(float));
}

float *check_copy(struct check *c, const float *x, int64_t n)
{
    float *copy = check_poison(c, n);
    memcpy(copy, x, (size_t)n * sizeof *x);
    return copy;
}

void check_near(struct check *c, const char *what, const float *expected, const float *got,
                int64_t n, double absolute, double relative)
{
    int64_t worst = -1;
    double worst_excess = 0;
    for (int64_t i = 0; i < n; i++) {
        double e = (double)expected[i], g = (double)got[i];
        if ((isnan(e) && isnan(g)) || e == g) continue;
        double excess = fabs(g - e) - absolute - relative * fabs(e);
        if (isnan(excess) || isinf(g) || isinf(e)) excess = INFINITY;
        if (excess > worst_excess) {
            worst_excess = excess;
            worst = i;
        }
    }
    if (worst >= 0)
        check_fail(c, "%s[%lld] of %lld is %.9g, plain C says %.9g (allowed: %.3g + %.3g relative)",
                   what, (long long)worst, (long long)n, (double)got[worst],
                   (double)expected[worst], absolute, relative);
}

void check_equal(struct check *c, const char *what, const void *expected, const void *got,
                 size_t n_bytes)
{
    const uint8_t *e = expected, *g = got;
    for (size_t i = 0; i < n_bytes; i++) {
        if (e[i] == g[i]) continue;
        check_fail(c, "%s: byte %zu of %zu is %02x, expected %02x", what, i, n_bytes, g[i], e[i]);
        return;
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void check_bench(struct check *c, const char *name, double work, const char *unit, check_call *call,
                 void *arg)
{
    if (!c->bench) return;
    enum { N_SAMPLE = 9 };
    const struct brim_cpu_ops *ops[2] = {c->ref, c->ops};
    double ns[2][N_SAMPLE];
    int64_t n_call[2] = {1, 1};
    for (int which = 0; which < 2; which++) { /* calls that fill about a millisecond */
        for (;;) {
            int64_t begin = brim_clock_ns();
            for (int64_t i = 0; i < n_call[which]; i++) call(ops[which], arg);
            if (brim_clock_ns() - begin > 1000000 || n_call[which] > 1000000) break;
            n_call[which] *= 2;
        }
    }
    for (int sample = 0; sample < N_SAMPLE; sample++) {
        for (int which = 0; which < 2; which++) {
            int64_t begin = brim_clock_ns();
            for (int64_t i = 0; i < n_call[which]; i++) call(ops[which], arg);
            ns[which][sample] = (double)(brim_clock_ns() - begin) / (double)n_call[which];
        }
    }
    for (int which = 0; which < 2; which++) qsort(ns[which], N_SAMPLE, sizeof(double), by_value);
    double c_ns = ns[0][0], tier_ns = ns[1][0];
    printf("%-44s c %11.1f ns   %s %11.1f ns   %6.2fx   %8.2f G%s/s\n", name, c_ns,
           brim_cpu_tier_name(c->ops->tier), tier_ns, c_ns / tier_ns, work / tier_ns, unit);
}

static void usage(FILE *to)
{
    fprintf(to, "usage: brim_check [--bench] [--tier c|avx2|avx512|neon] [GROUP...]\ngroups:");
    for (int i = 0; i < N_GROUP; i++) fprintf(to, " %s", groups[i].name);
    fprintf(to, "\n");
}

int main(int argc, char **argv)
{
    struct check c = {0};
    struct brim_cpu_info info = brim_cpu_detect();
    enum brim_cpu_tier only = BRIM_CPU_TIER_C;
    bool has_only = false, wanted[N_GROUP] = {false}, has_wanted = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            usage(stdout);
            return 0;
        }
        if (strcmp(argv[i], "--bench") == 0) {
            c.bench = true;
            continue;
        }
        if (strcmp(argv[i], "--tier") == 0 && i + 1 < argc) {
            has_only = brim_cpu_tier_parse(argv[++i], &only);
            if (has_only) continue;
        }
        bool found = false;
        for (int g = 0; g < N_GROUP; g++) {
            if (strcmp(argv[i], groups[g].name) == 0) found = has_wanted = wanted[g] = true;
        }
        if (!found) {
            usage(stderr);
            return 2;
        }
    }
    struct sigaction action = {.sa_handler = on_fault};
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigaction(faults[i], &action, NULL);

    c.ref = brim_cpu_ops_get(BRIM_CPU_TIER_C, &info);
    int n_tier = 0;
    for (int tier = BRIM_CPU_TIER_C; tier <= BRIM_CPU_TIER_NEON; tier++) {
        if (!brim_cpu_tier_ok(&info, (enum brim_cpu_tier)tier)) continue;
        if (has_only && tier != (int)only) continue;
        n_tier++;
        c.ops = brim_cpu_ops_get((enum brim_cpu_tier)tier, &info);
        for (int g = 0; g < N_GROUP; g++) {
            if (has_wanted && !wanted[g]) continue;
            int before = n_passed + n_failed;
            groups[g].run(&c);
            printf("%s %s: %d cases\n", brim_cpu_tier_name(c.ops->tier), groups[g].name,
                   n_passed + n_failed - before);
        }
    }
    if (n_tier == 0) printf("SKIP: this processor has no tier %s\n", brim_cpu_tier_name(only));
    printf("%d passed, %d failed, %d skipped\n", n_passed, n_failed, n_tier == 0);
    return n_failed ? 1 : n_tier == 0 ? 77 : 0;
}
