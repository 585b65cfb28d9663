/* SPDX-License-Identifier: Apache-2.0
 * base: status text, allocator with failure injection, pool, number formats.
 * ctest labels: threads */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/checked.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/status.h"
#include "tensor/dtype.h"

static void fail_text_is_one_line_and_cut_at_a_character(void **state)
{
    (void)state;
    brim_error err = {0};
    assert_int_equal(brim_fail(&err, BRIM_E_IO, "a\nb %d", 7), BRIM_E_IO);
    assert_string_equal(err.text, "a?b 7");
    char lengthy[700];
    memset(lengthy, 'x', sizeof lengthy);
    memcpy(lengthy + 506, "\xC3\xA9", 2); /* e-acute over the cut */
    lengthy[699] = '\0';
    brim_fail(&err, BRIM_E_IO, "%s", lengthy);
    assert_int_equal(strlen(err.text), 506);
    assert_int_equal(brim_fail(NULL, BRIM_E_ARGUMENT, "x"), BRIM_E_ARGUMENT);
}

static void injected_allocation_failure(void **state)
{
    (void)state;
    brim_mem_fail_after(1);
    void *first = brim_alloc(10);
    void *second = brim_alloc(10);
    brim_mem_fail_after(-1);
    assert_non_null(first);
    assert_null(second);
    assert_int_equal((uintptr_t)first % BRIM_MEM_ALIGN, 0);
    brim_free(first);
    assert_null(brim_calloc(SIZE_MAX / 2, 3));
    assert_null(brim_alloc(SIZE_MAX));
}

static void arena_blocks_do_not_overlap(void **state)
{
    (void)state;
    struct brim_arena arena = {0};
    const size_t sizes[] = {1, 64, 0, 5 << 20, 40 << 20, 30 << 20, 3}; /* more than one chunk */
    enum { N = sizeof sizes / sizeof *sizes };
    uint8_t *blocks[N];
    for (int i = 0; i < N; i++) {
        blocks[i] = brim_arena_alloc(&arena, sizes[i]);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % BRIM_MEM_ALIGN, 0);
        if (sizes[i]) blocks[i][0] = blocks[i][sizes[i] - 1] = (uint8_t)(i + 1);
    }
    for (int i = 0; i < N; i++) {
        if (sizes[i]) assert_int_equal(blocks[i][0], i + 1);
        if (sizes[i]) assert_int_equal(blocks[i][sizes[i] - 1], i + 1);
    }
    assert_null(brim_arena_alloc(&arena, SIZE_MAX));
    assert_null(brim_arena_alloc(&arena, SIZE_MAX - 100));
    brim_arena_free(&arena);
    assert_null(arena.chunks);
    for (int n = 0; n < 2; n++) {
        brim_mem_fail_after(n);
        void *block = brim_arena_alloc(&arena, 100);
        brim_mem_fail_after(-1);
        assert_null(block);
        assert_null(arena.chunks);
    }
}

static void spans(void **state)
{
    (void)state;
    assert_true(brim_span_ok(0, 0, 0));
    assert_true(brim_span_ok(4, 4, 8));
    assert_false(brim_span_ok(4, 5, 8));
    assert_false(brim_span_ok(9, 0, 8));
    assert_false(brim_span_ok(4, UINT64_MAX, 8));
}

struct tally {
    int hits[1000];
};

static void count_item(void *arg, int64_t item, int worker)
{
    (void)worker;
    ((struct tally *)arg)->hits[item]++;
}

static void pool_runs_every_item_once(void **state)
{
    (void)state;
    for (int n_thread = 1; n_thread <= 5; n_thread += 2) {
        struct brim_pool *pool;
        assert_int_equal(brim_pool_create(&pool, n_thread, NULL), BRIM_OK);
        assert_int_equal(brim_pool_size(pool), n_thread);
        for (int repeat = 0; repeat < 200; repeat++) {
            struct tally tally = {{0}};
            int n_item = repeat * 5;
            brim_pool_run(pool, count_item, &tally, n_item);
            for (int i = 0; i < 1000; i++) assert_int_equal(tally.hits[i], i < n_item);
        }
        brim_pool_free(&pool);
        assert_null(pool);
    }
    struct brim_pool *pool;
    assert_int_equal(brim_pool_create(&pool, -3, NULL), BRIM_E_ARGUMENT);
    for (int n = 0; n < 4; n++) {
        brim_mem_fail_after(n);
        brim_status status = brim_pool_create(&pool, 3, NULL);
        brim_mem_fail_after(-1);
        if (status == BRIM_OK) brim_pool_free(&pool);
        assert_int_equal(status, n < 4 ? BRIM_E_NO_MEMORY : BRIM_OK);
    }
}

static void half_round_trip(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = brim_f32_from_f16((uint16_t)h);
        if (isnan(f)) continue;
        assert_int_equal(brim_f16_from_f32(f), h);
        float b = brim_f32_from_bf16((uint16_t)h);
        if (!isnan(b)) assert_int_equal(brim_bf16_from_f32(b), h);
    }
    assert_int_equal(brim_f16_from_f32(65504.0f), 0x7BFF);
    assert_int_equal(brim_f16_from_f32(65519.9f), 0x7BFF);
    assert_int_equal(brim_f16_from_f32(65520.0f), 0x7C00);
    assert_int_equal(brim_f16_from_f32(0x1p-25f), 0); /* tie to even: zero */
    assert_int_equal(brim_f16_from_f32(0x1.8p-25f), 1);
    assert_int_equal(brim_f16_from_f32(1.0f + 0x1p-11f), 0x3C00); /* tie to even */
    assert_int_equal(brim_f16_from_f32(1.0f + 0x3p-11f), 0x3C02);
    assert_true(isnan(brim_f32_from_f16(brim_f16_from_f32(NAN))));
    assert_true(isnan(brim_f32_from_bf16(brim_bf16_from_f32(NAN))));
}

static void tiers(void **state)
{
    (void)state;
    struct brim_cpu_info info = brim_cpu_detect();
    assert_true(brim_cpu_tier_ok(&info, BRIM_CPU_TIER_C));
    assert_true(brim_cpu_tier_ok(&info, info.tier));
    enum brim_cpu_tier tier;
    assert_true(brim_cpu_tier_parse("avx512", &tier));
    assert_int_equal(tier, BRIM_CPU_TIER_AVX512);
    assert_false(brim_cpu_tier_parse("sse9", &tier));
    struct brim_cpu_info old = {.tier = BRIM_CPU_TIER_AVX2};
    assert_false(brim_cpu_tier_ok(&old, BRIM_CPU_TIER_AVX512));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_text_is_one_line_and_cut_at_a_character),
        cmocka_unit_test(injected_allocation_failure),
        cmocka_unit_test(arena_blocks_do_not_overlap),
        cmocka_unit_test(spans),
        cmocka_unit_test(pool_runs_every_item_once),
        cmocka_unit_test(half_round_trip),
        cmocka_unit_test(tiers),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
