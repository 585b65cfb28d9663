/* SPDX-License-Identifier: Apache-2.0
 * KDA on the CPU: the chunked forms against the fp64 token recurrence, and the contract. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/mem.h"
#include "check/kda_case.h"
#include "cpu/cpu_ops.h"
#include "cuda/kda/layout.h"
#include "plan/kda_route.h"

enum { NORM = BRIM_KDA_L2NORM, LOGIT = BRIM_KDA_BETA_LOGIT };

static struct kda_spec plain(int64_t n_tok, enum kda_regime regime)
{
    struct kda_spec spec = kda_plain(n_tok, 1, regime);
    spec.seed = 1;
    return spec;
}

static void run(struct kda_case *c, const struct kda_spec *spec)
{
    brim_error err = {0};
    kda_case_make(c, spec);
    if (brim_kda_prefill(&c->args, &err) != BRIM_OK) fail_msg("%s", err.text);
}

static void chunked_forms_meet_the_bars(void **state)
{
    (void)state;
    static const enum kda_regime regimes[] = {
        KDA_TYPICAL, KDA_WEAK, KDA_SATURATED, KDA_MIXED,        KDA_ALTERNATE, KDA_STEP,
        KDA_NEVER,   KDA_FULL, KDA_COLLINEAR, KDA_ANTIPARALLEL, KDA_ZEROS};
    for (size_t i = 0; i < sizeof regimes / sizeof *regimes; i++)
        for (int gpu = 0; gpu < 2; gpu++) {
            struct kda_spec spec = plain(regimes[i] == KDA_COLLINEAR ? 320 : 192, regimes[i]);
            struct kda_case c;
            run(&c, &spec);
            if (gpu) assert_int_equal(brim_kda_cpu(&c.args, BRIM_KDA_GPU, NULL), BRIM_OK);
            struct kda_error e = kda_measure(&c.args, 0, 0);
            if (!kda_within(&e, regimes[i], spec.n_tok) || (!gpu && e.state > 2e-5))
                fail_msg("regime %d gpu %d: out %.2e window %.2e state %.2e", (int)regimes[i], gpu,
                         e.out, e.window, e.state);
            kda_case_free(&c);
        }
}

static void every_length(void **state)
{
    (void)state;
    static const int lengths[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13,  14,  15, 16,
                                  17, 31, 32, 33, 47, 48, 63, 64, 65, 95, 96, 97, 127, 128, 129};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int gpu = 0; gpu < 2; gpu++) {
            struct kda_spec spec = plain(lengths[i], KDA_TYPICAL);
            spec.seed = (uint64_t)lengths[i];
            struct kda_case c;
            run(&c, &spec);
            if (gpu) assert_int_equal(brim_kda_cpu(&c.args, BRIM_KDA_GPU, NULL), BRIM_OK);
            struct kda_error e = kda_measure(&c.args, 0, 0);
            if (!kda_within(&e, KDA_TYPICAL, lengths[i]))
                fail_msg("T %d gpu %d: out %.2e window %.2e state %.2e", lengths[i], gpu, e.out,
                         e.window, e.state);
            kda_case_free(&c);
        }
}

static void gates_bounds_types_and_grouped_heads(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        struct kda_spec spec = plain(70, i % 2 ? KDA_MIXED : KDA_TYPICAL);
        spec.n_seq = 2, spec.n_head = 2, spec.n_value_head = 4, spec.pad = 8,
        spec.seed = (uint64_t)i + 50;
        spec.flags = (i & 1 ? NORM : 0) | (i & 2 ? LOGIT : 0) |
                     (i & 4 ? BRIM_KDA_STATE_K_FIRST : 0) | BRIM_KDA_CHECKED;
        spec.f32_beta = i % 3 == 0;
        spec.no_rate = i % 3 == 1, spec.no_bias = i % 4 == 3;
        spec.scale = i % 5 == 2 ? -0.3f : 0;
        if (i < 4) spec.lower_bound = (float[]){-5, -1, -0.01f, -3}[i];
        if (i >= 4 && i < 8) spec.gate = BRIM_KDA_GATE_SOFTPLUS, spec.lower_bound = 0;
        if (i >= 8)
            spec.gate = BRIM_KDA_GATE_GIVEN, spec.f32_decay = i % 2,
            spec.lower_bound = i < 10 ? -4 : 0;
        struct kda_case c;
        run(&c, &spec);
        for (int n = 0; n < 2; n++)
            for (int h = 0; h < 4; h++) {
                struct kda_error e = kda_measure(&c.args, n, h);
                if (!kda_within(&e, KDA_MIXED, 70) || e.state > 3e-5)
                    fail_msg("case %d: out %.2e window %.2e state %.2e", i, e.out, e.window,
                             e.state);
            }
        kda_case_free(&c);
    }
}

/* Every tier of this processor, plain C included, over lengths and regimes. */
static void tiers_meet_the_bars(void **state)
{
    (void)state;
    static const enum brim_cpu_tier tiers[] = {BRIM_CPU_TIER_C, BRIM_CPU_TIER_AVX2,
                                               BRIM_CPU_TIER_AVX512};
    static const int lengths[] = {1, 31, 33, 64, 129};
    struct brim_cpu_info info = brim_cpu_detect();
    void *scratch = aligned_alloc(64, (brim_kda_chunk_scratch_bytes() + 63) / 64 * 64);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 5 * (KDA_ZEROS + 1) && brim_cpu_tier_ok(&info, tiers[i]); j++) {
            struct kda_spec spec = plain(lengths[j % 5], (enum kda_regime)(j / 5));
            struct kda_case c;
            struct brim_kda_task task;
            spec.checkpoints = j % 2;
            spec.gate = j % 3 == 0   ? BRIM_KDA_GATE_GIVEN
                        : j % 3 == 1 ? BRIM_KDA_GATE_LOWER_BOUND
                                     : BRIM_KDA_GATE_SOFTPLUS;
            if (j % 3 == 2) spec.lower_bound = 0;
            kda_case_make(&c, &spec);
            memset(scratch, 0xFF, brim_kda_chunk_scratch_bytes());
            brim_kda_task_make(&c.args, 0, 0, &task);
            brim_kda_chunk_task_ops(brim_cpu_ops_get(tiers[i], &info), &c.args, &task, scratch);
            struct kda_error e = kda_measure(&c.args, 0, 0);
            if (!kda_within(&e, spec.regime, spec.n_tok) || e.state > 3e-5)
                fail_msg("tier %s, %d tokens, regime %d: out %.2e window %.2e state %.2e",
                         brim_cpu_tier_name(tiers[i]), lengths[j % 5], j / 5, e.out, e.window,
                         e.state);
            kda_case_free(&c);
        }
    free(scratch);
}

static void threads_change_no_bit_and_leak_nothing(void **state)
{
    (void)state;
    struct kda_spec spec = plain(100, KDA_TYPICAL);
    spec.n_seq = 3, spec.n_value_head = 2;
    struct kda_case one, many;
    run(&one, &spec);
    for (int n_thread = 2; n_thread <= 9; n_thread += 7) {
        kda_case_make(&many, &spec);
        many.args.n_thread = n_thread;
        assert_int_equal(brim_kda_prefill(&many.args, NULL), BRIM_OK);
        assert_memory_equal(one.out, many.out, one.v_bytes);
        assert_memory_equal(one.final, many.final, one.state_bytes);
        brim_status status = BRIM_E_NO_MEMORY;
        int n_fail = 0;
        for (; status == BRIM_E_NO_MEMORY; n_fail++) {
            assert_true(n_fail < 64);
            brim_mem_fail_after(n_fail);
            status = brim_kda_prefill(&many.args, NULL);
            brim_mem_fail_after(-1);
        }
        assert_int_equal(status, BRIM_OK);
        assert_true(n_fail > 1);
        kda_case_free(&many);
    }
    kda_case_free(&one);
}

static void steep_softplus_decay_is_exact(void **state)
{
    (void)state;
    struct kda_spec spec =
        plain(64, KDA_FULL); /* -20 and more per token: every factored scheme overflows */
    spec.gate = BRIM_KDA_GATE_SOFTPLUS, spec.lower_bound = 0;
    struct kda_case c;
    run(&c, &spec);
    struct kda_error e = kda_measure(&c.args, 0, 0);
    assert_true(e.finite && e.out < 4e-3 && e.state < 1e-5);
    kda_case_free(&c);
}

/* One chunk of many heads: a row's rounding of q k^T acts on all of its values alike, so that few
 * tokens average over little. */
static void one_chunk_of_many_heads_meets_the_bars(void **state)
{
    (void)state;
    enum { N_HEAD = 96 };
    struct kda_spec spec = kda_plain(32, N_HEAD, KDA_TYPICAL);
    struct kda_case c;
    spec.with_initial = 0;
    kda_case_make(&c, &spec);
    assert_int_equal(brim_kda_cpu(&c.args, BRIM_KDA_GPU, NULL), BRIM_OK);
    for (int h = 0; h < N_HEAD; h++) {
        struct kda_error e = kda_measure(&c.args, 0, h);
        if (!kda_within(&e, spec.regime, 32))
            fail_msg("head %d: out %.2e window %.2e state %.2e", h, e.out, e.window, e.state);
    }
    kda_case_free(&c);
}

/* The GPU's roundings without a bound: every regime, and decays that end everything at once. */
static void unbounded_rounding_model_meets_the_bars(void **state)
{
    (void)state;
    for (int i = 0; i <= KDA_ZEROS + 2; i++) {
        bool given = i > KDA_ZEROS;
        struct kda_spec spec = plain(100, given ? KDA_MIXED : (enum kda_regime)i);
        spec.gate = given ? BRIM_KDA_GATE_GIVEN : BRIM_KDA_GATE_SOFTPLUS, spec.lower_bound = 0;
        struct kda_case c;
        kda_case_make(&c, &spec);
        for (int t = 0; t < 100 && given; t++)
            for (int j = 0; j < 128; j++)
                ((uint16_t *)c.g)[t * 128 + j] =
                    brim_bf16_from_f32((t + j) % 5 ? -0.01f * (float)(j % 7)
                                       : i & 1     ? -INFINITY
                                                   : -1e4f);
        assert_int_equal(brim_kda_cpu(&c.args, BRIM_KDA_GPU, NULL), BRIM_OK);
        struct kda_error e = kda_measure(&c.args, 0, 0);
        if (!kda_within(&e, spec.regime, 100))
            fail_msg("case %d: out %.2e window %.2e state %.2e", i, e.out, e.window, e.state);
        assert_int_equal(brim_kda_cpu(&c.args, BRIM_KDA_FP32, NULL), BRIM_OK);
        e = kda_measure(&c.args, 0, 0);
        if (!kda_within(&e, spec.regime, 100) || e.state > 3e-5)
            fail_msg("fp32 case %d: out %.2e window %.2e state %.2e", i, e.out, e.window, e.state);
        kda_case_free(&c);
    }
}

static void packed_equals_each_alone(void **state)
{
    (void)state;
    static const int64_t lengths[] = {0, 65, 0, 33, 1, 0};
    struct kda_spec spec = plain(110, KDA_TYPICAL);
    spec.n_seq = 6, spec.lengths = lengths, spec.n_value_head = 2, spec.checkpoints = 1,
    spec.offset_bytes = 4;
    struct kda_case c;
    run(&c, &spec);
    int64_t row = 0;
    for (int n = 0; n < 6; n++) {
        brim_kda_args one = c.args;
        uint16_t out[65 * 256];
        float *final = kda_alloc(2 * 16384 * 4);
        one.cu_seqlens = NULL, one.offset_bytes = 0, one.n_seq = 1, one.n_tok = lengths[n],
        one.checkpoints = NULL;
        one.q = c.q + row * 128, one.k = c.k + row * 128, one.v = c.v + row * 256;
        one.g = (uint16_t *)c.g + row * 256, one.beta = (uint16_t *)c.beta + row * 2;
        one.initial_state = (float *)c.initial + n * 2 * 16384, one.final_state = final,
        one.out = (void *)(((uintptr_t)out + 15) & ~(uintptr_t)15);
        uint16_t *aligned = kda_alloc(sizeof out);
        one.out = aligned;
        assert_int_equal(brim_kda_prefill(&one, NULL), BRIM_OK);
        assert_memory_equal(aligned, c.out + row * 256, (size_t)lengths[n] * 512);
        assert_memory_equal(final, (float *)c.final + n * 2 * 16384, 2 * 16384 * 4);
        if (lengths[n] == 0) assert_memory_equal(final, one.initial_state, 2 * 16384 * 4);
        free(final), free(aligned);
        row += lengths[n];
    }
    for (int64_t i = row * 256; i < 110 * 256; i++) assert_int_equal(c.out[i], 0);
    kda_case_free(&c);
}

static void checkpoints_equal_shorter_runs(void **state)
{
    (void)state;
    for (int gpu = 0; gpu < 2; gpu++) {
        struct kda_spec spec = plain(130, KDA_TYPICAL);
        spec.checkpoints = 1;
        struct kda_case c, part;
        run(&c, &spec);
        if (gpu) assert_int_equal(brim_kda_cpu(&c.args, BRIM_KDA_GPU, NULL), BRIM_OK);
        for (int n = 1; n <= 2; n++) {
            kda_case_make(&part, &spec);
            part.args.n_tok = 64 * n, part.args.checkpoints = NULL;
            assert_int_equal(brim_kda_cpu(&part.args, gpu ? BRIM_KDA_GPU : BRIM_KDA_FP32, NULL),
                             BRIM_OK);
            assert_memory_equal(part.final, (float *)c.checkpoints + (n - 1) * 16384, 65536);
            kda_case_free(&part);
        }
        kda_case_free(&c);
    }
}

static void later_tokens_change_nothing_before(void **state)
{
    (void)state;
    for (int t = 1; t < 70; t += 6)
        for (int gpu = 0; gpu < 2; gpu++) {
            struct kda_spec spec = plain(70, KDA_TYPICAL);
            enum brim_kda_rounding mode = gpu ? BRIM_KDA_GPU : BRIM_KDA_FP32;
            struct kda_case a, b;
            kda_case_make(&a, &spec), kda_case_make(&b, &spec);
            for (int i = t * 128; i < 70 * 128; i++) {
                b.q[i] = 0x4100, b.k[i] ^= 0x8000, b.v[i] = 0x7FC0, ((uint16_t *)b.g)[i] = 0x40A0;
            }
            assert_int_equal(brim_kda_cpu(&a.args, mode, NULL), BRIM_OK);
            assert_int_equal(brim_kda_cpu(&b.args, mode, NULL), BRIM_OK);
            assert_memory_equal(a.out, b.out, (size_t)t * 256);
            kda_case_free(&a), kda_case_free(&b);
        }
}

static void split_runs_continue(void **state)
{
    (void)state;
    static const int cuts[] = {64, 32, 40, 99};
    for (int i = 0; i < 4; i++) {
        struct kda_spec spec = plain(100, KDA_WEAK);
        struct kda_case whole, part;
        run(&whole, &spec);
        kda_case_make(&part, &spec);
        brim_kda_args tail = part.args;
        part.args.n_tok = cuts[i];
        assert_int_equal(brim_kda_prefill(&part.args, NULL), BRIM_OK);
        tail.n_tok = 100 - cuts[i];
        tail.initial_state = part.final; /* in place */
        tail.q = part.q + cuts[i] * 128, tail.k = part.k + cuts[i] * 128,
        tail.v = part.v + cuts[i] * 128;
        tail.g = (uint16_t *)part.g + cuts[i] * 128, tail.out = part.out + cuts[i] * 128;
        tail.beta = (uint16_t *)part.beta + cuts[i];
        assert_int_equal(brim_kda_prefill(&tail, NULL), BRIM_OK);
        if (cuts[i] % 32 == 0) {
            assert_memory_equal(whole.out, part.out, whole.v_bytes);
            assert_memory_equal(whole.final, part.final, whole.state_bytes);
        } else {
            struct kda_error e = kda_measure(&part.args, 0, 0);
            assert_true(e.finite);
            for (int j = 0; j < 16384; j++)
                assert_true(fabsf(((float *)whole.final)[j] - ((float *)part.final)[j]) < 1e-4f);
        }
        kda_case_free(&whole), kda_case_free(&part);
    }
}

static void pool_slots_and_fresh(void **state)
{
    (void)state;
    struct kda_spec spec = plain(33, KDA_TYPICAL);
    spec.n_seq = 4;
    struct kda_case c, zero;
    kda_case_make(&c, &spec);
    static const int32_t index[] = {2, -1, 0, 3};
    static const uint8_t fresh[] = {0, 0, 1, 0};
    float *pool = kda_alloc(4 * 65536);
    for (int i = 0; i < 4 * 16384; i++) pool[i] = i / 16384 == 0 ? NAN : 0.25f * (float)(i % 7);
    c.args.initial_state = c.args.final_state = pool;
    c.args.state_index = index, c.args.n_slot = 4, c.args.fresh = fresh;
    assert_int_equal(brim_kda_prefill(&c.args, NULL), BRIM_OK);
    for (int i = 0; i < 16384; i++)
        assert_true(pool[16384 + i] == 0.25f * (float)((16384 + i) % 7)); /* unused */
    kda_case_make(&zero, &spec);
    zero.args.initial_state = NULL;
    assert_int_equal(brim_kda_prefill(&zero.args, NULL), BRIM_OK);
    assert_memory_equal(pool, (float *)zero.final + 2 * 16384,
                        65536); /* slot 0: sequence 2, fresh */
    assert_memory_equal(c.out + 33 * 128, zero.out + 33 * 128, 33 * 256); /* -1 starts from zero */
    c.args.state_index = (const int32_t[]){2, -1, 0, 7};
    assert_int_equal(brim_kda_prefill(&c.args, NULL), BRIM_E_RANGE);
    free(pool);
    kda_case_free(&c), kda_case_free(&zero);
}

static void layouts_and_state_types_agree(void **state)
{
    (void)state;
    struct kda_spec spec = plain(50, KDA_TYPICAL);
    struct kda_case a, b;
    run(&a, &spec);
    spec.flags |= BRIM_KDA_STATE_K_FIRST;
    kda_case_make(&b, &spec);
    for (int k = 0; k < 128; k++)
        for (int v = 0; v < 128; v++)
            ((float *)b.initial)[k * 128 + v] = ((float *)a.initial)[v * 128 + k];
    assert_int_equal(brim_kda_prefill(&b.args, NULL), BRIM_OK);
    assert_memory_equal(a.out, b.out, a.v_bytes);
    for (int k = 0; k < 128; k++)
        for (int v = 0; v < 128; v++)
            assert_true(((float *)b.final)[k * 128 + v] == ((float *)a.final)[v * 128 + k]);
    kda_case_free(&b);
    spec.flags &= ~(uint32_t)BRIM_KDA_STATE_K_FIRST;
    spec.state_dtype = BRIM_KERNEL_BF16;
    run(&b, &spec);
    struct kda_error e = kda_measure(&b.args, 0, 0);
    assert_true(kda_within(&e, KDA_TYPICAL, 50));
    kda_case_free(&a), kda_case_free(&b);
}

/* Rows of one packed buffer, out beside the inputs: apart, though their extents interleave. */
static void views_of_one_buffer_lie_apart(void **state)
{
    (void)state;
    struct kda_spec spec = plain(40, KDA_TYPICAL);
    struct kda_case c;
    kda_case_make(&c, &spec);
    enum { ROW = 5 * 128 };
    uint16_t *packed = aligned_alloc(16, 40 * ROW * 2);
    brim_kda_args a = c.args;
    const uint16_t *from[] = {c.q, c.k, c.v, c.g};
    for (int t = 0; t < 40; t++)
        for (int i = 0; i < 4; i++) memcpy(packed + t * ROW + i * 128, from[i] + t * 128, 256);
    a.q = packed, a.k = packed + 128, a.v = packed + 256, a.g = packed + 384;
    a.out = packed + 512;
    a.q_stride = a.k_stride = a.v_stride = a.g_stride = a.out_stride =
        (brim_kda_stride){40 * ROW, ROW, 128};
    brim_error err = {0};
    if (brim_kda_prefill(&a, &err) != BRIM_OK) fail_msg("%s", err.text);
    assert_int_equal(brim_kda_prefill(&c.args, &err), BRIM_OK);
    for (int t = 0; t < 40; t++) assert_memory_equal(packed + t * ROW + 512, c.out + t * 128, 256);
    a.out = packed + 504;
    assert_int_equal(brim_kda_prefill(&a, &err), BRIM_E_ARGUMENT);
    assert_int_equal(brim_kda_supported(NULL, &err), BRIM_E_ARGUMENT);
    assert_int_equal(brim_kda_plan_make(&c.args, NULL, &err), BRIM_E_ARGUMENT);
    assert_int_equal(brim_kda_workspace_bytes(&c.args, NULL, &err), BRIM_E_ARGUMENT);
    free(packed);
    kda_case_free(&c);
}

static void refusals_are_distinct_and_touch_nothing(void **state)
{
    (void)state;
    struct kda_spec spec = plain(40, KDA_TYPICAL);
    struct kda_case c;
    kda_case_make(&c, &spec);
    brim_error err;
#define REFUSED(change, code)                                 \
    do {                                                      \
        brim_kda_args a = c.args;                             \
        a.change;                                             \
        err.text[0] = 0;                                      \
        assert_int_equal(brim_kda_prefill(&a, &err), code);   \
        assert_true(err.text[0] != 0);                        \
        assert_int_equal(brim_kda_supported(&a, NULL), code); \
    } while (0)
    REFUSED(head_dim = 64, BRIM_E_SHAPE);
    REFUSED(n_thread = -1, BRIM_E_RANGE);
    REFUSED(out = c.v, BRIM_E_ARGUMENT);
    REFUSED(out = c.q + 8, BRIM_E_ARGUMENT);
    REFUSED(out = c.g, BRIM_E_ARGUMENT);
    REFUSED(final_state = (float *)c.initial + 8, BRIM_E_ARGUMENT);
    REFUSED(checkpoints = c.final; a.n_tok = 64, BRIM_E_ARGUMENT);
    REFUSED(n_tok = INT64_MAX, BRIM_E_SHAPE);
    REFUSED(split_length = -1, BRIM_E_RANGE);
    REFUSED(split_window = BRIM_KDA_WINDOW_MAX + 1, BRIM_E_RANGE);
    REFUSED(split_length = 2; a.split_window = 3, BRIM_E_RANGE);
    REFUSED(split_length = 2; a.split_first = 1, BRIM_E_RANGE);
    REFUSED(split_first = 4, BRIM_E_RANGE);
    REFUSED(n_head = 0, BRIM_E_SHAPE);
    REFUSED(n_value_head = 3; a.n_head = 2, BRIM_E_SHAPE);
    REFUSED(qkv_dtype = BRIM_KERNEL_F16, BRIM_E_DTYPE);
    REFUSED(g_dtype = BRIM_KERNEL_F32, BRIM_E_DTYPE);
    REFUSED(beta_dtype = 0, BRIM_E_DTYPE);
    REFUSED(state_dtype = BRIM_KERNEL_F16, BRIM_E_DTYPE);
    REFUSED(lower_bound = 0, BRIM_E_RANGE);
    REFUSED(lower_bound = -5.5f, BRIM_E_RANGE);
    REFUSED(lower_bound = NAN, BRIM_E_RANGE);
    REFUSED(gate = BRIM_KDA_GATE_SOFTPLUS, BRIM_E_RANGE);
    REFUSED(gate = 0, BRIM_E_ARGUMENT);
    REFUSED(flags |= 1 << 9, BRIM_E_ARGUMENT);
    REFUSED(q = NULL, BRIM_E_ARGUMENT);
    REFUSED(q = c.q + 1, BRIM_E_ALIGNMENT);
    REFUSED(v_stride.token = 130, BRIM_E_STRIDE);
    REFUSED(k_stride.token = 64, BRIM_E_STRIDE);
    REFUSED(beta_stride.token = -1, BRIM_E_STRIDE);
    REFUSED(state_stride = 16000, BRIM_E_STRIDE);
    REFUSED(scale = INFINITY, BRIM_E_RANGE);
    REFUSED(route = "m128", BRIM_E_UNSUPPORTED);
    /* more sequences than the case has states for: without them, or they would reach others' memory
     */
    c.args.initial_state = c.args.final_state = NULL;
    int64_t falling[] = {0, 12, 8, 16};
    REFUSED(cu_seqlens = falling; a.offset_bytes = 8; a.n_seq = 3; a.n_tok = 16;
            a.max_tok = 16, BRIM_E_OFFSETS);
    int64_t beyond[] = {0, 12, 41};
    REFUSED(cu_seqlens = beyond; a.offset_bytes = 8; a.n_seq = 2; a.max_tok = 40, BRIM_E_OFFSETS);
    REFUSED(cu_seqlens = beyond; a.offset_bytes = 2, BRIM_E_DTYPE);
    uint16_t one = brim_bf16_from_f32(1);
    ((uint16_t *)c.g)[77] = one;
    REFUSED(gate = BRIM_KDA_GATE_GIVEN; a.a_log = NULL; a.dt_bias = NULL;
            a.flags |= BRIM_KDA_CHECKED, BRIM_E_RANGE);
    for (size_t i = 0; i < c.v_bytes / 2; i++) assert_int_equal(c.out[i], 0xFFFF);
    for (size_t i = 0; i < c.state_bytes; i++) assert_int_equal(((uint8_t *)c.final)[i], 0xFF);
    kda_case_free(&c);
}

static void nan_stays_in_its_sequence_and_chunk(void **state)
{
    (void)state;
    for (int gpu = 0; gpu < 2; gpu++) {
        struct kda_spec spec = plain(100, KDA_TYPICAL);
        spec.n_seq = 2;
        struct kda_case clean, c;
        enum brim_kda_rounding mode = gpu ? BRIM_KDA_GPU : BRIM_KDA_FP32;
        kda_case_make(&clean, &spec), kda_case_make(&c, &spec);
        c.k[70 * 128 + 5] = 0x7FC0;
        assert_int_equal(brim_kda_cpu(&clean.args, mode, NULL), BRIM_OK);
        assert_int_equal(brim_kda_cpu(&c.args, mode, NULL), BRIM_OK);
        assert_memory_equal(c.out, clean.out, 64 * 256);
        assert_memory_equal(c.out + 100 * 128, clean.out + 100 * 128, 100 * 256);
        kda_case_free(&clean), kda_case_free(&c);
    }
}

/* Every 16-byte piece of a layout has a place of its own, inside its bounds, and eight rows of one
 * piece lie in eight different bank groups. */
static void device_layouts_are_bijective(void **state)
{
    (void)state;
    for (int which = 0; which < 3; which++) {
        static unsigned char seen[2][512];
        int n_piece = which == 2 ? 4 : 16, n_byte = which == 2 ? KDA_PANEL : 8192;
        memset(seen, 0, sizeof seen);
        for (int row = 0; row < 32; row++)
            for (int piece = 0; piece < n_piece; piece++) {
                uint32_t at = which == 0   ? kda_tile_at(row, piece)
                              : which == 1 ? kda_panel_at(row, piece)
                                           : kda_inv_at(row, piece);
                assert_true(at % 16 == 0 && at < (uint32_t)n_byte);
                assert_int_equal(seen[0][at / 16]++, 0);
                if (row % 8 == 0) {
                    unsigned groups = 0;
                    for (int i = 0; i < 8; i++) {
                        uint32_t next = which == 0   ? kda_tile_at(row + i, piece)
                                        : which == 1 ? kda_panel_at(row + i, piece)
                                                     : kda_inv_at(row + i, piece);
                        groups |= 1u << (next / 16 % 8);
                    }
                    assert_int_equal(groups, 0xFF);
                }
            }
    }
    static unsigned char pairs[64];
    for (int pair = 0; pair < 64; pair++) {
        uint32_t at = kda_gamma_at(pair);
        assert_true(at % 8 == 0 && at < 512);
        assert_int_equal(pairs[at / 8]++, 0);
        /* what a consumer lane computes: its first piece, then the others by exclusive or */
        assert_int_equal(at, (kda_gamma_at(pair & 3) ^ (uint32_t)(pair >> 3 << 4)) +
                                 (uint32_t)(pair >> 2 & 1) * 8);
    }
    assert_true(KDA_PACKET_USED % 128 == 0 && KDA_PACKET_USED <= KDA_PACKET_BYTES);
    assert_true(KDA_PACKET_BYTES % 1024 == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunked_forms_meet_the_bars),
        cmocka_unit_test(every_length),
        cmocka_unit_test(gates_bounds_types_and_grouped_heads),
        cmocka_unit_test(tiers_meet_the_bars),
        cmocka_unit_test(threads_change_no_bit_and_leak_nothing),
        cmocka_unit_test(steep_softplus_decay_is_exact),
        cmocka_unit_test(one_chunk_of_many_heads_meets_the_bars),
        cmocka_unit_test(unbounded_rounding_model_meets_the_bars),
        cmocka_unit_test(packed_equals_each_alone),
        cmocka_unit_test(checkpoints_equal_shorter_runs),
        cmocka_unit_test(later_tokens_change_nothing_before),
        cmocka_unit_test(split_runs_continue),
        cmocka_unit_test(pool_slots_and_fresh),
        cmocka_unit_test(layouts_and_state_types_agree),
        cmocka_unit_test(views_of_one_buffer_lie_apart),
        cmocka_unit_test(refusals_are_distinct_and_touch_nothing),
        cmocka_unit_test(nan_stays_in_its_sequence_and_chunk),
        cmocka_unit_test(device_layouts_are_bijective),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
