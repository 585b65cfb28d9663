/* SPDX-License-Identifier: Apache-2.0
 * Where decode attention on the GPU cuts the cache: plain functions of a row's own position. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cuda/model/attn.h"

static const int splits[] = {1, 2, 5, 16, 44, 64};
enum { N_SPLIT = sizeof splits / sizeof splits[0] };

static void blocks_of_a_query(void **state)
{
    (void)state;
    assert_int_equal(attn_n_split(8), 16); /* Qwen3-4B: 128 of 132 multiprocessors */
    assert_int_equal(attn_n_split(3), 44); /* SmolLM2-135M */
    assert_int_equal(attn_n_split(1), ATTN_MAX_SPLIT);
    assert_int_equal(attn_n_split(132), 1);
    assert_int_equal(attn_n_split(500), 1);
}

/* The parts are whole steps, hold every key, the last one at least one, and there are never more
 * than blocks. */
static void parts_hold_every_key(void **state)
{
    (void)state;
    for (int i = 0; i < N_SPLIT; i++)
        for (int n_key = 1; n_key <= 140000; n_key += n_key < 9000 ? 1 : 37) {
            int keys = attn_split_keys(n_key, splits[i]), n_part = attn_n_part(n_key, keys);
            assert_int_equal(keys % ATTN_STEP_KEYS, 0);
            assert_in_range(n_part, 1, splits[i]);
            assert_true(n_part * (int64_t)keys >= n_key);
            assert_true((n_part - 1) * (int64_t)keys < n_key);
            if (n_key <= ATTN_UNSPLIT_KEYS) assert_int_equal(n_part, 1);
        }
}

/* Two passes are enough for the tokens of a tile. */
static void one_change_in_a_tile(void **state)
{
    (void)state;
    for (int i = 0; i < N_SPLIT; i++)
        for (int first = 1; first <= 40000; first++) {
            int n_change = 0;
            for (int j = 1; j < ATTN_TILE_ROWS; j++)
                n_change += attn_split_keys(first + j, splits[i]) !=
                            attn_split_keys(first + j - 1, splits[i]);
            assert_true(n_change <= 1);
        }
}

/* Every piece of 16 rows has a place of its own, eight rows of a piece in eight bank groups. */
static void places_of_pieces(void **state)
{
    (void)state;
    for (int row_bytes = 128; row_bytes <= 256; row_bytes *= 2) {
        uint8_t taken[256];
        memset(taken, 0, sizeof taken);
        for (int row = 0; row < 16; row++)
            for (int piece = 0; piece < row_bytes / 16; piece++) {
                uint32_t at = attn_piece_at(row, piece, row_bytes);
                assert_int_equal(at % 16, 0);
                assert_in_range(at / 16, 0, (uint32_t)row_bytes - 1);
                assert_int_equal(taken[at / 16]++, 0);
            }
        for (int row = 0; row < 16; row += 8)
            for (int piece = 0; piece < row_bytes / 16; piece++) {
                unsigned groups = 0;
                for (int i = 0; i < 8; i++)
                    groups |= 1u << attn_piece_at(row + i, piece, row_bytes) / 16 % 8;
                assert_int_equal(groups, 0xFF);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_a_query),
        cmocka_unit_test(parts_hold_every_key),
        cmocka_unit_test(one_change_in_a_tile),
        cmocka_unit_test(places_of_pieces),
    };
    return cmocka_run_group_tests_name("attn_cut", tests, NULL, NULL);
}
