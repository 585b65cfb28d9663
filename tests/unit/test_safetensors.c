/* SPDX-License-Identifier: Apache-2.0
 * safetensors headers: every kind of damage is refused with a sentence that names the tensor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "load/safetensors.h"
#include "unit/model_files.h"

static void expect_bytes(const uint8_t *data, size_t n, brim_status wanted, const char *text)
{
    uint8_t *exact = malloc(n ? n : 1);
    if (n) memcpy(exact, data, n);
    struct brim_tensor_table table = {0};
    brim_error err = {0};
    brim_status status = brim_safetensors_parse(&table, exact, n, 0, "m.safetensors", &err);
    if (status != wanted || !strstr(err.text, text))
        fail_msg("%d \"%s\": expected \"%s\"", status, err.text, text);
    brim_table_free(&table);
    free(exact);
}

static void expect_refused(struct st_writer *w, const char *text)
{
    size_t n;
    uint8_t *file = st_finish(w, 0, &n);
    expect_bytes(file, n, BRIM_E_FORMAT, text);
    free(file);
}

/* A header given as text, followed by n_data zero bytes. */
static void expect_header(const char *json, size_t n_data, const char *text)
{
    struct bytes file = {0};
    static const uint8_t zeros[64];
    put_u64(&file, strlen(json));
    put_string(&file, json);
    put(&file, zeros, n_data);
    expect_bytes(file.data, file.n, BRIM_E_FORMAT, text);
    bytes_free(&file);
}

static void good_files(void **state)
{
    (void)state;
    for (int remainder = 0; remainder < 8; remainder++) {
        struct st_writer w = {0};
        st_row(&w, "b", "F32", "[2,3]", 8, 32); /* listed before "a", stored after it */
        st_row(&w, "a", "U32", "[2]", 0, 8);
        st_row(&w, "empty", "BF16", "[0,7]", 32, 32);
        st_row(&w, "scalar", "F64", "[]", 32, 40);
        for (uint8_t i = 0; i < 40; i++) put(&w.data, &i, 1);
        size_t n;
        uint8_t *file = st_finish(&w, remainder, &n);
        struct brim_tensor_table table = {0};
        brim_error err = {0};
        assert_int_equal(brim_safetensors_parse(&table, file, n, 5, "m", &err), BRIM_OK);
        assert_int_equal(brim_table_index(&table, "m", &err), BRIM_OK);
        assert_int_equal(table.n, 4);
        assert_string_equal(table.items[0].name, "a"); /* in the order of the data */
        const struct brim_file_tensor *b = brim_table_find(&table, "b");
        assert_int_equal(b->n_dim, 2);
        assert_int_equal(b->shape[0], 2);
        assert_int_equal(b->shape[1], 3);
        assert_int_equal(b->n_bytes, 24);
        assert_int_equal(b->data[0], 8);
        assert_int_equal(b->shard, 5);
        assert_ptr_equal(b->data + 32, file + n);
        assert_int_equal(brim_table_find(&table, "scalar")->storage, BRIM_STORAGE_OTHER);
        assert_null(brim_table_find(&table, "c"));
        brim_table_free(&table);
        free(file);
    }
    struct brim_tensor_table none = {0};
    assert_int_equal(
        brim_safetensors_parse(&none, (const uint8_t *)"\x02\0\0\0\0\0\0\0{}", 10, 0, "m", NULL),
        BRIM_OK);
    assert_int_equal(none.n, 0);
    brim_table_free(&none);
}

static void header_length(void **state)
{
    (void)state;
    expect_bytes(NULL, 0, BRIM_E_FORMAT, "truncated: 0 bytes");
    expect_bytes((const uint8_t *)"1234567", 7, BRIM_E_FORMAT, "truncated: 7 bytes");
    static const uint64_t lengths[] = {UINT64_MAX, 1ull << 63, 100000001};
    for (size_t i = 0; i < 3; i++) {
        uint8_t file[64] = {0};
        memcpy(file, &lengths[i], 8);
        expect_bytes(file, sizeof file, BRIM_E_FORMAT, "not a safetensors file");
    }
    uint8_t file[64] = {57};
    expect_bytes(file, sizeof file, BRIM_E_FORMAT, "1 of them are missing");
    file[0] = 0;
    expect_bytes(file, sizeof file, BRIM_E_FORMAT, "m.safetensors");
    expect_header("[]", 0, "not a JSON object");
    expect_header("{\"a\":", 0, "line 1");
    expect_header("{} x", 0, "line 1");
    expect_header("{\"a\":1}", 0, "tensor a: not an object");
    expect_header("{\"\":{}}", 0, "the name of tensor 0 is empty");
}

static void shape_against_offsets(void **state) /* S1, S2 */
{
    (void)state;
    struct st_writer w = {0};
    st_row(&w, "big", "F32", "[1000,1000]", 0, 4);
    put_u32(&w.data, 0);
    expect_refused(&w, "tensor big: its shape and F32 need 4000000 bytes, its data_offsets span 4");
    st_row(&w, "far", "F32", "[1000,1000]", 0, 4000000);
    put_u32(&w.data, 0);
    expect_refused(&w, "truncated: 3999996 bytes are missing");
    static const char *const shapes[] = {"[4294967296,4294967296]", "[9223372036854775807,2]",
                                         "[9223372036854775807]"};
    for (size_t i = 0; i < 3; i++) {
        st_row(&w, "wide", "F32", shapes[i], 0, 0);
        expect_refused(&w, "tensor wide: the product of its dimensions overflows");
    }
    st_row(&w, "minus", "F32", "[-1]", 0, 4);
    expect_refused(&w, "tensor minus: dimension 0");
    st_row(&w, "half", "F32", "[1.5]", 0, 4);
    expect_refused(&w, "tensor half: dimension 0");
    st_row(&w, "text", "F32", "\"1\"", 0, 4);
    expect_refused(&w, "tensor text: its shape");
    st_row(&w, "deep", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4);
    expect_refused(&w, "tensor deep: its shape");
    st_row(&w, "nibble", "F4", "[3]", 0, 1);
    expect_refused(&w, "tensor nibble: its shape and F4");
    expect_header("{\"t\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,0]}}", 4,
                  "tensor t: its data_offsets");
    expect_header("{\"t\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[-4,0]}}", 4,
                  "tensor t: its data_offsets");
    expect_header("{\"t\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0]}}", 4,
                  "tensor t: its data_offsets");
    expect_header("{\"t\":{\"dtype\":\"F32\",\"shape\":[]}}", 4, "tensor t: its data_offsets");
    expect_header("{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "tensor t: its shape");
    expect_header("{\"t\":{\"shape\":[],\"data_offsets\":[0,4]}}", 4, "tensor t: it has no dtype");
}

static void spans_overlap_or_leave_holes(void **state) /* S5, S3 */
{
    (void)state;
    static const uint8_t data[32];
    struct st_writer w = {0};
    st_row(&w, "k_proj", "F32", "[4]", 0, 16);
    st_row(&w, "v_proj", "F32", "[4]", 0, 16);
    put(&w.data, data, 16);
    expect_refused(&w, "tensors k_proj and v_proj overlap");
    st_row(&w, "a", "F32", "[4]", 0, 16);
    st_row(&w, "b", "F32", "[2]", 12, 20);
    put(&w.data, data, 20);
    expect_refused(&w, "tensors a and b overlap");
    st_row(&w, "a", "F32", "[4]", 4, 20);
    put(&w.data, data, 20);
    expect_refused(&w, "4 bytes before tensor a belong to no tensor");
    st_tensor(&w, "a", "F32", "[4]", data, 16);
    put(&w.data, data, 3);
    expect_refused(&w, "3 bytes after the last tensor");
    st_row(&w, "a", "F32", "[4]", 0, 16);
    put(&w.data, data, 15);
    expect_refused(&w, "truncated: 1 bytes are missing at the end");
}

static void keys_and_types(void **state) /* S6, S7 */
{
    (void)state;
    static const uint8_t data[8];
    struct st_writer w = {0};
    st_tensor(&w, "twice", "F32", "[1]", data, 4);
    st_tensor(&w, "twice", "F32", "[1]", data, 4);
    expect_refused(&w, "twice");
    st_tensor(&w, "odd", "F99", "[1]", data, 4);
    expect_refused(&w, "tensor odd: unknown dtype F99");
    expect_header("{\"__metadata__\":{\"format\":\"mlx\",\"n\":1}}", 0, "__metadata__ n");
    expect_header("{\"__metadata__\":[]}", 0, "__metadata__ is no object");
    expect_header(
        "{\"t\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4,
        "duplicate");
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    struct st_writer w = {0};
    static const uint8_t data[64];
    st_tensor(&w, "a", "F32", "[8]", data, 32);
    st_tensor(&w, "b", "BF16", "[2,8]", data, 32);
    size_t n;
    uint8_t *file = st_finish(&w, 3, &n);
    for (size_t cut = 0; cut < n; cut++) expect_bytes(file, cut, BRIM_E_FORMAT, "m.safetensors");
    free(file);
}

static void allocation_failures(void **state)
{
    (void)state;
    struct st_writer w = {0};
    static const uint8_t data[8];
    char name[16];
    for (int i = 0; i < 70; i++) { /* beyond the table's first capacity */
        snprintf(name, sizeof name, "t%d", i);
        st_tensor(&w, name, "F32", "[2]", data, 8);
    }
    size_t n;
    uint8_t *file = st_finish(&w, 0, &n);
    for (int64_t after = 0;; after++) {
        struct brim_tensor_table table = {0};
        brim_mem_fail_after(after);
        brim_status status = brim_safetensors_parse(&table, file, n, 0, "m", NULL);
        if (status == BRIM_OK) status = brim_table_index(&table, "m", NULL);
        brim_mem_fail_after(-1);
        brim_table_free(&table);
        if (status == BRIM_OK) {
            assert_true(after > 70);
            break;
        }
        assert_int_equal(status, BRIM_E_NO_MEMORY);
    }
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files),
        cmocka_unit_test(header_length),
        cmocka_unit_test(shape_against_offsets),
        cmocka_unit_test(spans_overlap_or_leave_holes),
        cmocka_unit_test(keys_and_types),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(allocation_failures),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
