/* SPDX-License-Identifier: Apache-2.0
 * KDA over distances of more than 2^31 elements: the operands of a small call are spread over
 * sparse mappings by one stride at a time, and the results must be those of the small call. */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "check/kda_case.h"

enum { N_SEQ = 2, N_TOK = 3, N_HEAD = 2, STATE = 16384 };
static const int64_t far = ((int64_t)1 << 31) + 64;

struct mapping {
    char *at;
    size_t n_bytes;
};

static struct mapping map(int64_t n_element, size_t element)
{
    struct mapping m = {NULL, (size_t)n_element * element};
    m.at = mmap(NULL, m.n_bytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m.at == MAP_FAILED) {
        print_message("SKIP: no address space for %zu sparse bytes\n", m.n_bytes);
        skip();
    }
    return m;
}

static struct kda_spec spec_of(bool packed)
{
    static const int64_t lengths[N_SEQ] = {1, N_TOK - 1};
    struct kda_spec spec = kda_plain(N_TOK, N_HEAD, KDA_TYPICAL);
    spec.n_seq = N_SEQ, spec.lengths = packed ? lengths : NULL, spec.seed = 3;
    return spec;
}

static void run(const brim_kda_args *args)
{
    brim_error err = {0};
    if (brim_kda_prefill(args, &err) != BRIM_OK) fail_msg("%s", err.text);
}

/* One [..][N_TOK][N_HEAD][width] operand: bf16 all of them. */
struct operand {
    const char *near;
    brim_kda_stride near_stride, far_stride;
    int64_t width;
    struct mapping there;
};

enum { OUT = 5, N_OPERAND };

static char *at(const char *base, const brim_kda_stride *s, int64_t n, int64_t t, int64_t h)
{
    return (char *)(uintptr_t)base + 2 * (n * s->batch + t * s->token + h * s->head);
}

/* which: 0 batch, 1 token, 2 head, 3 token of packed rows */
static void spread(int which)
{
    struct kda_spec spec = spec_of(which == 3);
    struct kda_case c;
    kda_case_make(&c, &spec);
    run(&c.args);
    brim_kda_args a = c.args;
    float *final = kda_alloc(c.state_bytes);
    memset(final, 0xFF, c.state_bytes);
    struct operand operands[N_OPERAND] = {{.near = a.q, .near_stride = a.q_stride},
                                          {.near = a.k, .near_stride = a.k_stride},
                                          {.near = a.v, .near_stride = a.v_stride},
                                          {.near = a.g, .near_stride = a.g_stride},
                                          {.near = a.beta, .near_stride = a.beta_stride},
                                          {.near = a.out, .near_stride = a.out_stride}};
    int64_t n_seq = which == 3 ? 1 : N_SEQ;
    for (int i = 0; i < N_OPERAND; i++) {
        struct operand *o = &operands[i];
        brim_kda_stride *s = &o->far_stride;
        o->width = i == 4 ? 1 : 128;
        *s = o->near_stride;
        *(which == 0 ? &s->batch : which == 2 ? &s->head : &s->token) = far;
        o->there = map(
            (n_seq - 1) * s->batch + (N_TOK - 1) * s->token + (N_HEAD - 1) * s->head + o->width, 2);
        for (int64_t n = 0; n < n_seq && i != OUT; n++)
            for (int64_t t = 0; t < N_TOK; t++)
                for (int64_t h = 0; h < N_HEAD; h++)
                    memcpy(at(o->there.at, s, n, t, h), at(o->near, &o->near_stride, n, t, h),
                           (size_t)o->width * 2);
    }
    a.q = operands[0].there.at, a.q_stride = operands[0].far_stride;
    a.k = operands[1].there.at, a.k_stride = operands[1].far_stride;
    a.v = operands[2].there.at, a.v_stride = operands[2].far_stride;
    a.g = operands[3].there.at, a.g_stride = operands[3].far_stride;
    a.beta = operands[4].there.at, a.beta_stride = operands[4].far_stride;
    a.out = operands[OUT].there.at, a.out_stride = operands[OUT].far_stride;
    a.final_state = final;
    for (int n_thread = 1; n_thread <= 2; n_thread++) {
        a.n_thread = n_thread;
        run(&a);
        for (int64_t n = 0; n < n_seq; n++)
            for (int64_t t = 0; t < N_TOK; t++)
                for (int64_t h = 0; h < N_HEAD; h++) {
                    char *got = at(a.out, &a.out_stride, n, t, h);
                    assert_memory_equal(got, at(c.args.out, &c.args.out_stride, n, t, h), 256);
                    memset(got, 0xFF, 256);
                }
        assert_memory_equal(final, c.final, c.state_bytes);
        memset(final, 0xFF, c.state_bytes);
    }
    for (int i = 0; i < N_OPERAND; i++) munmap(operands[i].there.at, operands[i].there.n_bytes);
    free(final);
    kda_case_free(&c);
}

static void strides_of_rows(void **state)
{
    (void)state;
    for (int which = 0; which < 4; which++) spread(which);
}

/* States of sequences 2^31 elements apart, then a pool whose far slots are taken in reverse. */
static void strides_of_states_and_the_pool(void **state)
{
    (void)state;
    static const int32_t index[N_SEQ] = {1, 0};
    for (int pool = 0; pool < 2; pool++) {
        struct kda_spec spec = spec_of(false);
        struct kda_case c;
        enum { HEADS = N_HEAD * STATE };
        kda_case_make(&c, &spec);
        run(&c.args);
        brim_kda_args a = c.args;
        struct mapping initial = map(far + HEADS, 4), final = map(far + HEADS, 4);
        for (int n = 0; n < N_SEQ; n++)
            memcpy(initial.at + 4 * far * (pool ? index[n] : n), (float *)c.initial + n * HEADS,
                   HEADS * 4);
        a.initial_state = initial.at, a.final_state = final.at, a.state_stride = far;
        if (pool) a.state_index = index, a.n_slot = N_SEQ;
        memset(c.out, 0xFF, c.v_bytes);
        run(&a);
        for (int n = 0; n < N_SEQ; n++)
            assert_memory_equal(final.at + 4 * far * (pool ? index[n] : n),
                                (float *)c.final + n * HEADS, HEADS * 4);
        for (int i = 0; i < 2; i++) {
            struct kda_error e = kda_measure(&c.args, i, 0);
            assert_true(kda_within(&e, KDA_TYPICAL, N_TOK));
        }
        a.final_state = initial.at;
        run(&a);
        for (int n = 0; n < N_SEQ; n++)
            assert_memory_equal(initial.at + 4 * far * (pool ? index[n] : n),
                                (float *)c.final + n * HEADS, HEADS * 4);
        munmap(initial.at, initial.n_bytes), munmap(final.at, final.n_bytes);
        kda_case_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strides_of_rows),
        cmocka_unit_test(strides_of_states_and_the_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
