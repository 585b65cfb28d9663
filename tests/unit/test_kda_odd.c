/* SPDX-License-Identifier: Apache-2.0
 * KDA on the CPU, in fp32 and with the GPU's roundings, on the inputs of check/kda_odd.h; and
 * packed mixes of very unequal lengths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "check/kda_odd.h"

/* fp32 by the library's call, which takes this processor's kernel. */
static void run(struct kda_case *c, bool gpu)
{
    brim_error err = {0};
    memset(c->out, 0xFF, c->v_bytes);
    memset(c->final, 0xFF, c->state_bytes);
    if ((gpu ? brim_kda_cpu(&c->args, BRIM_KDA_GPU, &err) : brim_kda_prefill(&c->args, &err)) !=
        BRIM_OK)
        fail_msg("%s", err.text);
}

static void hold(struct kda_case *c, enum kda_regime bars, const char *what)
{
    for (int gpu = 0; gpu < 2; gpu++) {
        run(c, gpu);
        for (int64_t n = 0; n < c->args.n_seq; n++)
            for (int64_t h = 0; h < c->args.n_value_head; h++) {
                struct brim_kda_task task;
                brim_kda_task_make(&c->args, n, h, &task);
                struct kda_error e = kda_measure(&c->args, n, h);
                if (!kda_within(&e, bars, task.n_tok) || (!gpu && e.state > 3e-5))
                    fail_msg("%s, gpu %d, sequence %d: out %.2e window %.2e peak %.2e state %.2e",
                             what, gpu, (int)n, e.out, e.window, e.peak, e.state);
            }
    }
}

static void odd_inputs_meet_the_bars(void **state)
{
    (void)state;
    static struct kda_odd o;
    for (int i = 0; i < KDA_N_ODD; i++) {
        kda_odd_make(&o, i, false);
        hold(&o.c, o.bars, o.what);
        kda_case_free(&o.c);
    }
}

static void what_is_not_finite_stays_where_it_belongs(void **state)
{
    (void)state;
    for (int where = 0; where < KDA_N_POISON; where++)
        for (int x = 0; x < 3; x++)
            for (int gpu = 0; gpu < 2; gpu++) {
                struct kda_case c, clean;
                char what[48];
                kda_poison_make(&c, &clean, (enum kda_poison)where, x, what);
                run(&c, gpu);
                run(&clean, gpu);
                const char *fault = kda_poison_fault(&c, &clean, (enum kda_poison)where);
                if (fault) fail_msg("%s, gpu %d: %s", what, gpu, fault);
                kda_case_free(&c);
                kda_case_free(&clean);
            }
}

/* Each sequence has the bits that it has alone; rows behind the last are zero. */
static void packed_mixes(void **state)
{
    (void)state;
    static const int64_t uneven[] = {1300, 547, 2048, 963, 271, 3063}, small[] = {64, 1, 33},
                         edges[] = {0, 0, 31, 32, 0, 33, 96, 95, 97, 0};
    int64_t ones[257];
    for (int i = 0; i < 257; i++) ones[i] = 1;
    const struct {
        const int64_t *lengths;
        int64_t n_seq, tail;
    } mixes[] = {{uneven, 6, 0}, {small, 3, 2}, {edges, 10, 7}, {ones, 257, 1}};
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++) {
        struct kda_spec spec = kda_odd_spec(mixes[i].tail, KDA_TYPICAL);
        struct kda_case c;
        spec.n_seq = mixes[i].n_seq, spec.lengths = mixes[i].lengths, spec.checkpoints = 0;
        for (int64_t n = 0; n < spec.n_seq; n++) spec.n_tok += spec.lengths[n];
        kda_case_make(&c, &spec);
        if (i != 0) hold(&c, KDA_TYPICAL, "packed");
        run(&c, false);
        uint16_t *out = kda_alloc(c.v_bytes);
        float *final = kda_alloc(65536);
        int64_t row = 0;
        for (int64_t n = 0; n < spec.n_seq; row += spec.lengths[n++]) {
            brim_kda_args one = c.args;
            one.cu_seqlens = NULL, one.offset_bytes = 0, one.n_seq = 1, one.n_tok = spec.lengths[n];
            one.q = c.q + row * 128, one.k = c.k + row * 128, one.v = c.v + row * 128;
            one.g = (uint16_t *)c.g + row * 128, one.beta = (uint16_t *)c.beta + row;
            one.initial_state = (float *)c.initial + n * 16384, one.final_state = final;
            one.out = out;
            assert_int_equal(brim_kda_prefill(&one, NULL), BRIM_OK);
            assert_memory_equal(out, c.out + row * 128, (size_t)spec.lengths[n] * 256);
            assert_memory_equal(final, (float *)c.final + n * 16384, 65536);
        }
        for (int64_t j = row * 128; j < c.n_row * 128; j++) assert_int_equal(c.out[j], 0);
        free(out), free(final);
        kda_case_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_inputs_meet_the_bars),
        cmocka_unit_test(what_is_not_finite_stays_where_it_belongs),
        cmocka_unit_test(packed_mixes),
    };
    return cmocka_run_group_tests_name("kda_odd", tests, NULL, NULL);
}
