/* SPDX-License-Identifier: Apache-2.0
 * KDA on the CPU: refusals beyond those of test_kda.c, each with its sentence, and shapes and
 * inputs on which other implementations have failed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "check/kda_case.h"

static struct kda_spec plain(int64_t n_tok)
{
    struct kda_spec spec = kda_plain(n_tok, 1, KDA_TYPICAL);
    spec.seed = 3;
    return spec;
}

static void run(const brim_kda_args *args)
{
    brim_error err = {0};
    if (brim_kda_prefill(args, &err) != BRIM_OK) fail_msg("%s", err.text);
}

/* Output and final state still hold what kda_case_make put there. */
static void assert_untouched(const struct kda_case *c)
{
    for (size_t i = 0; i < c->v_bytes / 2; i++) assert_int_equal(c->out[i], 0xFFFF);
    for (size_t i = 0; i < c->state_bytes; i++)
        assert_int_equal(((const uint8_t *)c->final)[i], 0xFF);
}

/* The call and its query give this answer; then `a` is the whole case again. */
static void refused(const struct kda_case *c, brim_kda_args *a, brim_status status,
                    const char *words, int line)
{
    brim_error err = {0};
    brim_status got = brim_kda_prefill(a, &err);
    if (got != status || !strstr(err.text, words))
        fail_msg("line %d: %s: %s", line, brim_status_name(got), err.text);
    assert_int_equal(brim_kda_supported(a, NULL), status);
    *a = c->args;
}
#define REFUSED(status, words) refused(&c, &a, status, words, __LINE__)

static void every_pointer_and_stride(void **state)
{
    (void)state;
    struct kda_spec spec = plain(40);
    spec.n_seq = 2, spec.n_head = 2, spec.n_value_head = 4, spec.pad = 8;
    struct kda_case c;
    kda_case_make(&c, &spec);
    brim_kda_args a = c.args;
    struct {
        const char *name;
        const void **at;
        brim_kda_stride *stride;
    } rows[] = {{"q", &a.q, &a.q_stride},
                {"k", &a.k, &a.k_stride},
                {"v", &a.v, &a.v_stride},
                {"g", &a.g, &a.g_stride},
                {"out", (const void **)&a.out, &a.out_stride}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char words[64];
        snprintf(words, sizeof words, "kda: %s is null", rows[i].name);
        *rows[i].at = NULL, REFUSED(BRIM_E_ARGUMENT, words);
        snprintf(words, sizeof words, "kda: %s is not 16-byte aligned", rows[i].name);
        *rows[i].at = (const char *)*rows[i].at + 8, REFUSED(BRIM_E_ALIGNMENT, words);
        static const int64_t bad[] = {0, -512, 127, 516};
        int64_t *const parts[] = {&rows[i].stride->token, &rows[i].stride->head,
                                  &rows[i].stride->batch};
        static const char *const names[] = {"token", "head", "batch"};
        for (int part = 0; part < 3; part++) {
            snprintf(words, sizeof words, "kda: the %s stride of %s is", names[part], rows[i].name);
            for (int j = 0; j < 4; j++) *parts[part] = bad[j], REFUSED(BRIM_E_STRIDE, words);
        }
    }
    a.beta = NULL, REFUSED(BRIM_E_ARGUMENT, "kda: beta is null");
    a.beta = (char *)c.beta + 1, REFUSED(BRIM_E_ALIGNMENT, "kda: beta is not aligned");
    a.beta_stride.head = -1, REFUSED(BRIM_E_STRIDE, "a stride of beta is negative");
    a.beta_stride.batch = -1, REFUSED(BRIM_E_STRIDE, "a stride of beta is negative");
    a.a_log = (float *)((char *)c.a_log + 2), REFUSED(BRIM_E_ALIGNMENT, "a_log");
    a.dt_bias = c.dt_bias + 1, REFUSED(BRIM_E_ALIGNMENT, "dt_bias");
    a.initial_state = (float *)c.initial + 2, REFUSED(BRIM_E_ALIGNMENT, "a state is not 16-byte");
    a.final_state = (float *)c.final + 2, REFUSED(BRIM_E_ALIGNMENT, "a state is not 16-byte");
    a.checkpoints = (float *)c.final + 2, REFUSED(BRIM_E_ALIGNMENT, "a state is not 16-byte");
    a.state_stride += 4, REFUSED(BRIM_E_STRIDE, "state_stride 65540");
    a.state_dtype = (brim_kernel_dtype)0, REFUSED(BRIM_E_DTYPE, "state_dtype");
    assert_untouched(&c);
    run(&c.args);
    kda_case_free(&c);
}

static void shapes_gates_and_pools(void **state)
{
    (void)state;
    struct kda_spec spec = plain(40);
    struct kda_case c;
    kda_case_make(&c, &spec);
    brim_kda_args a = c.args;
    assert_int_equal(brim_kda_prefill(NULL, NULL), BRIM_E_ARGUMENT);
    a.device = (brim_kernel_device)0, REFUSED(BRIM_E_ARGUMENT, "device 0 is neither");
    a.device = (brim_kernel_device)3, REFUSED(BRIM_E_ARGUMENT, "device 3 is neither");
    static const int64_t dims[] = {0, 64, 127, 256, -128};
    for (int i = 0; i < 5; i++) a.head_dim = dims[i], REFUSED(BRIM_E_SHAPE, "only 128 is taken");
    a.n_value_head = 0, REFUSED(BRIM_E_SHAPE, "n_value_head 0");
    a.n_head = -1, REFUSED(BRIM_E_SHAPE, "n_head -1");
    a.n_seq = -1, REFUSED(BRIM_E_SHAPE, "n_seq -1");
    a.n_tok = -1, REFUSED(BRIM_E_SHAPE, "n_tok -1");
    a.n_seq = (int64_t)1 << 31, REFUSED(BRIM_E_SHAPE, "does not fit 31 bits");
    a.n_seq = INT64_MAX, a.n_value_head = 4, REFUSED(BRIM_E_SHAPE, "does not fit 31 bits");
    a.qkv_dtype = (brim_kernel_dtype)0, REFUSED(BRIM_E_DTYPE, "must be bf16");
    a.qkv_dtype = BRIM_KERNEL_F32, REFUSED(BRIM_E_DTYPE, "must be bf16");
    a.g_dtype = BRIM_KERNEL_F16, REFUSED(BRIM_E_DTYPE, "g must be bf16");
    a.beta_dtype = BRIM_KERNEL_F16, REFUSED(BRIM_E_DTYPE, "beta must be bf16 or f32");
    static const float bounds[] = {0, 1, -5.0001f, -20, -INFINITY, INFINITY, NAN};
    for (int i = 0; i < 7; i++)
        a.lower_bound = bounds[i], REFUSED(BRIM_E_RANGE, "lower_bound"); /* no default: 0 is none */
    for (int i = 0; i < 7; i++) {
        a.gate = BRIM_KDA_GATE_SOFTPLUS, a.lower_bound = bounds[i];
        if (i > 0) REFUSED(BRIM_E_RANGE, "softplus");
        a = c.args;
        a.gate = BRIM_KDA_GATE_GIVEN, a.a_log = NULL, a.dt_bias = NULL, a.lower_bound = bounds[i];
        if (i > 0) REFUSED(BRIM_E_RANGE, "of a given decay");
        a = c.args;
    }
    a.gate = BRIM_KDA_GATE_GIVEN, a.a_log = NULL, REFUSED(BRIM_E_ARGUMENT, "do not belong");
    a.gate = BRIM_KDA_GATE_GIVEN, a.dt_bias = NULL, REFUSED(BRIM_E_ARGUMENT, "do not belong");
    a.gate = (brim_kda_gate)4, REFUSED(BRIM_E_ARGUMENT, "gate 4");
    a.scale = NAN, REFUSED(BRIM_E_RANGE, "scale is not finite");
    a.n_thread = 4097, REFUSED(BRIM_E_RANGE, "n_thread 4097");
    a.offset_bytes = 8, REFUSED(BRIM_E_ARGUMENT, "offset_bytes without cu_seqlens");
    static const int32_t index[] = {0, 0};
    a.state_index = index, REFUSED(BRIM_E_ARGUMENT, "n_slot of at least 1");
    a.state_index = index, a.n_slot = 1, a.initial_state = NULL, a.final_state = NULL;
    REFUSED(BRIM_E_ARGUMENT, "without an initial or final state");
    a.state_index = (const int32_t *)((const char *)index + 2), a.n_slot = 1;
    REFUSED(BRIM_E_ALIGNMENT, "state_index");
    static const int32_t minus_two[] = {-2}, one[] = {1};
    a.state_index = minus_two, a.n_slot = 1, REFUSED(BRIM_E_RANGE, "state_index[0] is -2");
    a.state_index = one, a.n_slot = 1, REFUSED(BRIM_E_RANGE, "state_index[0] is 1 in a pool of 1");
    assert_int_equal(brim_kda_workspace_init((brim_kernel_device)0, NULL, 0, NULL, NULL),
                     BRIM_E_ARGUMENT);
    assert_int_equal(brim_kda_workspace_init(BRIM_KERNEL_CUDA, NULL, 128, NULL, NULL),
                     BRIM_E_WORKSPACE);
    assert_int_equal(brim_kda_workspace_init(BRIM_KERNEL_CPU, NULL, 128, NULL, NULL), BRIM_OK);
    assert_untouched(&c);
    run(&c.args);
    kda_case_free(&c);
}

static void offsets_of_packed_sequences(void **state)
{
    (void)state;
    static const int64_t lengths[] = {12, 4};
    struct kda_spec spec = plain(16);
    spec.n_seq = 2, spec.lengths = lengths;
    for (int bytes = 4; bytes <= 8; bytes += 4) {
        struct kda_case c;
        spec.offset_bytes = bytes;
        kda_case_make(&c, &spec);
        brim_kda_args a = c.args;
        static const struct {
            int64_t at[3];
            const char *words;
        } rows[] = {{{0, 12, 8}, "cu_seqlens[2] is 8 after 12"},
                    {{0, -1, 16}, "cu_seqlens[1] is -1 after 0"},
                    {{1, 12, 16}, "cu_seqlens[0] is 1, not 0"},
                    {{0, 12, 17}, "cu_seqlens[2] is 17 after 12 of 16 rows"},
                    {{0, 2, 16}, "sequence 1 has 14 tokens, more than max_tok 12"}};
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            int64_t wide[3];
            int32_t narrow[3];
            for (int j = 0; j < 3; j++) wide[j] = rows[i].at[j], narrow[j] = (int32_t)wide[j];
            a.cu_seqlens = bytes == 8 ? (const void *)wide : narrow;
            REFUSED(BRIM_E_OFFSETS, rows[i].words);
        }
        a.max_tok = 17, REFUSED(BRIM_E_OFFSETS, "max_tok 17");
        a.max_tok = -1, REFUSED(BRIM_E_OFFSETS, "max_tok -1");
        a.offset_bytes = 0, REFUSED(BRIM_E_DTYPE, "offset_bytes is 0");
        a.offset_bytes = 2, REFUSED(BRIM_E_DTYPE, "offset_bytes is 2");
        a.cu_seqlens = (const char *)c.offsets + bytes / 2;
        REFUSED(BRIM_E_ALIGNMENT, "cu_seqlens is not aligned");
        assert_untouched(&c);
        run(&c.args);
        kda_case_free(&c);
    }
}

/* Checked mode looks at the values: a decay above 0, below the promised bound, or NaN; and two
 * sequences in one slot. Without it they are the caller's business. */
static void checked_mode(void **state)
{
    (void)state;
    for (int f32 = 0; f32 < 2; f32++) {
        struct kda_spec spec = plain(40);
        spec.n_seq = 2, spec.gate = BRIM_KDA_GATE_GIVEN, spec.lower_bound = -2,
        spec.f32_decay = f32;
        struct kda_case c;
        kda_case_make(&c, &spec);
        static const float bad[] = {1, 1e-6f, -2.1f, -INFINITY, INFINITY, NAN};
        for (int i = 0; i < 6; i++) {
            int at = 55 * 128 + 77; /* sequence 1, token 15 */
            float before = f32 ? ((float *)c.g)[at] : 0;
            uint16_t half = ((uint16_t *)c.g)[at];
            if (f32)
                ((float *)c.g)[at] = bad[i];
            else
                ((uint16_t *)c.g)[at] = brim_bf16_from_f32(bad[i]);
            brim_kda_args a = c.args;
            a.flags |= BRIM_KDA_CHECKED;
            REFUSED(BRIM_E_RANGE, "sequence 1, token 15, channel 77 lies outside its bounds");
            if (f32)
                ((float *)c.g)[at] = before;
            else
                ((uint16_t *)c.g)[at] = half;
        }
        assert_untouched(&c);
        c.args.flags |= BRIM_KDA_CHECKED;
        run(&c.args);
        kda_case_free(&c);
    }
    struct kda_spec spec = plain(5);
    spec.n_seq = 4;
    struct kda_case c;
    kda_case_make(&c, &spec);
    c.args.flags |= BRIM_KDA_CHECKED;
    c.args.n_slot = 4;
    brim_kda_args a = c.args;
    static const int32_t twice[] = {3, 1, -1, 3}, apart[] = {3, -1, -1, 0};
    a.state_index = twice;
    REFUSED(BRIM_E_ARGUMENT, "sequences 0 and 3 share slot 3");
    assert_untouched(&c);
    c.args.state_index = apart;
    run(&c.args);
    kda_case_free(&c);
}

/* K5, K4: the three gates by constants computed apart from this code (python, 17 digits). */
static void gate_formulas(void **state)
{
    (void)state;
    static const float gs[] = {-8, 0, 8}, as[] = {-2, 0, 2};
    static const double sigmoid[3][3] = {{0.252998758428, 0.5, 0.747001241572},
                                         {0.000335350130466, 0.5, 0.99966464987},
                                         {2.12710867159e-26, 0.5, 1}};
    static const double softplus[3][3] = {{4.53923164752e-05, 0.0938072700057, 1.08272765821},
                                          {0.000335406372896, 0.69314718056, 8.00033540637},
                                          {0.00247833650527, 5.12170340197, 59.114927128}};
    struct kda_spec spec = plain(1);
    spec.f32_beta = 1;
    struct kda_case c;
    kda_case_make(&c, &spec);
    for (int j = 0; j < 128; j++) c.dt_bias[j] = 0;
    for (int a = 0; a < 3; a++)
        for (int g = 0; g < 3; g++) {
            struct brim_kda_task task;
            c.a_log[0] = as[a];
            ((uint16_t *)c.g)[5] = brim_bf16_from_f32(gs[g]);
            c.args.gate = BRIM_KDA_GATE_LOWER_BOUND, c.args.lower_bound = -5;
            brim_kda_task_make(&c.args, 0, 0, &task);
            double bounded = brim_kda_log_decay(&c.args, &task, 0, 5);
            assert_true(fabs(bounded + 5 * sigmoid[a][g]) <= 1e-6 * fabs(bounded));
            c.args.gate = BRIM_KDA_GATE_SOFTPLUS, c.args.lower_bound = 0;
            brim_kda_task_make(&c.args, 0, 0, &task);
            double free_decay = brim_kda_log_decay(&c.args, &task, 0, 5);
            assert_true(fabs(free_decay + softplus[a][g]) <= 1e-6 * fabs(free_decay));
            if (gs[g] == 0) /* no clamped softplus */
                assert_true(fabs(bounded - fmax(free_decay, -5)) > 1e-4 * fabs(bounded));
        }
    kda_case_free(&c);
}

/* K9, K10: nothing but empty sequences, and none at all: no hang, states handed on bit for bit. */
static void empty_sequences(void **state)
{
    (void)state;
    static const int64_t nothing[] = {0, 0, 0}, first[] = {0, 1}, middle[] = {5, 0, 4};
    static const struct {
        const int64_t *lengths;
        int64_t n_seq;
    } rows[] = {{nothing, 1}, {nothing, 3}, {first, 2}, {middle, 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct kda_spec spec = plain(0);
        spec.n_seq = rows[i].n_seq, spec.lengths = rows[i].lengths, spec.n_value_head = 2;
        struct kda_case c;
        kda_case_make(&c, &spec);
        run(&c.args);
        for (int64_t n = 0; n < spec.n_seq; n++)
            if (rows[i].lengths[n] == 0)
                assert_memory_equal((float *)c.final + n * 32768, (float *)c.initial + n * 32768,
                                    32768 * sizeof(float));
        kda_case_free(&c);
    }
    struct kda_spec spec = plain(0); /* a fixed batch of no tokens, and no sequences */
    spec.n_seq = 2;
    struct kda_case c;
    kda_case_make(&c, &spec);
    run(&c.args);
    assert_memory_equal(c.final, c.initial, c.state_bytes);
    memset(c.final, 0xFF, c.state_bytes);
    c.args.n_seq = 0;
    run(&c.args);
    assert_untouched(&c);
    kda_case_free(&c);
}

/* K3: at every place, later tokens and the length change no bit before. Two heads. */
static void prefixes_at_every_place(void **state)
{
    (void)state;
    struct kda_spec spec = plain(70);
    spec.n_head = spec.n_value_head = 2;
    struct kda_case whole, c;
    kda_case_make(&whole, &spec);
    run(&whole.args);
    for (int t = 1; t < 70; t++)
        for (int cut = 0; cut < 2; cut++) {
            kda_case_make(&c, &spec);
            for (int i = t * 256; i < 70 * 256 && !cut; i++)
                ((uint16_t *)c.g)[i] = i & 1 ? 0x4140 : 0xC140; /* 12 and -12 */
            if (cut) c.args.n_tok = t;
            run(&c.args);
            assert_memory_equal(c.out, whole.out, (size_t)t * 512);
            kda_case_free(&c);
        }
    kda_case_free(&whole);
}

/* K17, K15: one run of 256 against four of 64, which have its bits, and 100 + 156 and 255 + 1,
 * which are near. */
static void one_run_and_several(void **state)
{
    (void)state;
    static const int plans[][5] = {
        {64, 64, 64, 64, 0}, {100, 156, 0}, {255, 1, 0}, {64, 1, 191, 0}};
    struct kda_spec spec = plain(256);
    struct kda_case whole, c;
    kda_case_make(&whole, &spec);
    run(&whole.args);
    for (int i = 0; i < 4; i++) {
        int64_t at = 0;
        kda_case_make(&c, &spec);
        for (const int *n = plans[i]; *n; at += *n++) {
            brim_kda_args part = c.args;
            part.n_tok = *n;
            if (at) part.initial_state = c.final; /* in place */
            part.q = c.q + at * 128, part.k = c.k + at * 128, part.v = c.v + at * 128;
            part.g = (uint16_t *)c.g + at * 128, part.beta = (uint16_t *)c.beta + at;
            part.out = c.out + at * 128;
            run(&part);
        }
        if (i == 0) {
            assert_memory_equal(c.out, whole.out, c.v_bytes);
            assert_memory_equal(c.final, whole.final, c.state_bytes);
        }
        struct kda_error e = kda_measure(&c.args, 0, 0);
        if (!kda_within(&e, KDA_TYPICAL, 256) || e.state > 3e-5)
            fail_msg("plan %d: out %.2e window %.2e state %.2e", i, e.out, e.window, e.state);
        kda_case_free(&c);
    }
    kda_case_free(&whole);
}

/* K44, K35: a sequence alone and among others has the same bits, and so has each of any number of
 * heads. */
static void company_changes_nothing(void **state)
{
    (void)state;
    static const int64_t n_seqs[] = {1, 2, 7, 33}, n_heads[] = {7, 97};
    for (int i = 0; i < 4; i++) {
        struct kda_spec spec = plain(33);
        spec.n_seq = n_seqs[i];
        struct kda_case c;
        kda_case_make(&c, &spec);
        run(&c.args);
        int64_t n = n_seqs[i] - 1;
        float *final = kda_alloc(65536);
        uint16_t *out = kda_alloc(33 * 256);
        brim_kda_args one = c.args;
        one.n_seq = 1, one.q = c.q + n * 33 * 128, one.k = c.k + n * 33 * 128;
        one.v = c.v + n * 33 * 128, one.g = (uint16_t *)c.g + n * 33 * 128;
        one.beta = (uint16_t *)c.beta + n * 33, one.out = out, one.final_state = final;
        one.initial_state = (float *)c.initial + n * 16384;
        run(&one);
        assert_memory_equal(out, c.out + n * 33 * 128, 33 * 256);
        assert_memory_equal(final, (float *)c.final + n * 16384, 65536);
        free(final), free(out);
        kda_case_free(&c);
    }
    for (int i = 0; i < 2; i++) {
        int64_t n_head = n_heads[i], h = n_head - 1;
        struct kda_spec spec = plain(5);
        spec.n_head = spec.n_value_head = n_head;
        struct kda_case c;
        kda_case_make(&c, &spec);
        run(&c.args);
        uint16_t *out = kda_alloc(5 * 256);
        float *final = kda_alloc(65536);
        brim_kda_args one = c.args;
        one.n_head = one.n_value_head = 1;
        one.q = c.q + h * 128, one.k = c.k + h * 128, one.v = c.v + h * 128;
        one.g = (uint16_t *)c.g + h * 128, one.beta = (uint16_t *)c.beta + h;
        one.a_log = c.a_log + h, one.dt_bias = c.dt_bias + h * 128;
        one.initial_state = (float *)c.initial + h * 16384, one.final_state = final;
        one.out = out, one.out_stride = (brim_kda_stride){640, 128, 128};
        run(&one);
        for (int t = 0; t < 5; t++)
            assert_memory_equal(out + t * 128, c.out + (t * n_head + h) * 128, 256);
        assert_memory_equal(final, (float *)c.final + h * 16384, 65536);
        free(out), free(final);
        kda_case_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pointer_and_stride),
        cmocka_unit_test(shapes_gates_and_pools),
        cmocka_unit_test(offsets_of_packed_sequences),
        cmocka_unit_test(checked_mode),
        cmocka_unit_test(gate_formulas),
        cmocka_unit_test(empty_sequences),
        cmocka_unit_test(prefixes_at_every_place),
        cmocka_unit_test(one_run_and_several),
        cmocka_unit_test(company_changes_nothing),
    };
    return cmocka_run_group_tests_name("kda_cases", tests, NULL, NULL);
}
