/* SPDX-License-Identifier: Apache-2.0
 * The encoder against MLX's own output (tests/golden/quant), and whole directories. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "brim/tools.h"
#include "load/affine4.h"
#include "load/checkpoint.h"
#include "unit/model_files.h"

static uint32_t take_u32(const uint8_t **at)
{
    uint32_t value;
    memcpy(&value, *at, 4);
    *at += 4;
    return value;
}

static void codes_equal_mlx(void **state)
{
    (void)state;
    FILE *file = fopen(BRIM_SOURCE_DIR "/tests/golden/quant/affine4.bin", "rb");
    assert_non_null(file);
    static uint8_t data[1 << 20];
    size_t n = fread(data, 1, sizeof data, file);
    fclose(file);
    assert_true(n > 12 && n < sizeof data && memcmp(data, "BRIMQV01", 8) == 0);
    const uint8_t *at = data + 8;
    uint32_t n_case = take_u32(&at);
    assert_int_equal(n_case, 9);
    for (uint32_t c = 0; c < n_case; c++) {
        enum brim_dtype dtype = (enum brim_dtype)take_u32(&at);
        int group = (int)take_u32(&at);
        size_t n_row = take_u32(&at), n_in = take_u32(&at), item = brim_dtype_bytes(dtype);
        size_t n_group = n_in / (size_t)group;
        const uint8_t *input = at, *words = input + n_row * n_in * item;
        const uint8_t *scales = words + n_row * n_in / 2;
        const uint8_t *biases = scales + n_row * n_group * item;
        at = biases + n_row * n_group * item;
        assert_true(at <= data + n);
        for (size_t row = 0; row < n_row; row++) {
            uint32_t *got_words = malloc(n_in / 2);
            uint8_t *got_scales = malloc(n_group * item), *got_biases = malloc(n_group * item);
            assert_true(brim_affine4_encode(dtype, input + row * n_in * item, (int64_t)n_in, group,
                                            got_words, got_scales, got_biases));
            int words_differ = memcmp(got_words, words + row * n_in / 2, n_in / 2);
            int scales_differ = memcmp(got_scales, scales + row * n_group * item, n_group * item);
            int biases_differ = memcmp(got_biases, biases + row * n_group * item, n_group * item);
            if (words_differ || scales_differ || biases_differ)
                fail_msg("%s group %d row %zu:%s%s%s", brim_dtype_name(dtype), group, row,
                         words_differ ? " codes" : "", scales_differ ? " scales" : "",
                         biases_differ ? " biases" : "");
            free(got_words);
            free(got_scales);
            free(got_biases);
        }
    }
    assert_ptr_equal(at, data + n);
}

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static char *read_in(const char *dir, const char *name, size_t *n_bytes)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    *n_bytes = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*n_bytes + 1);
    assert_int_equal(fread(data, 1, *n_bytes, file), *n_bytes);
    data[*n_bytes] = '\0';
    fclose(file);
    return data;
}

static void quantize_ok(const char *in, const char *out, int group, int n_thread)
{
    brim_quantize_options options;
    brim_quantize_options_default(&options);
    options.group = group;
    options.n_thread = n_thread;
    brim_error err = {0};
    if (brim_quantize(in, out, &options, &err) != BRIM_OK) fail_msg("%s", err.text);
}

static void expect_failure(const char *in, const char *out, int group, brim_status wanted,
                           const char *text)
{
    brim_quantize_options options;
    brim_quantize_options_default(&options);
    options.group = group;
    options.n_thread = 1;
    brim_error err = {0};
    brim_status status = brim_quantize(in, out, &options, &err);
    if (status != wanted || !strstr(err.text, text))
        fail_msg("%d \"%s\": expected \"%s\"", status, err.text, text);
}

/* Every matrix of `out` is the encoding of the same matrix of `in`, every vector is equal. */
static void compare(const char *in, const char *out, int group)
{
    struct brim_checkpoint *a, *b;
    brim_error err = {0};
    if (brim_checkpoint_open(&a, in, NULL, NULL, &err) != BRIM_OK) fail_msg("%s", err.text);
    if (brim_checkpoint_open(&b, out, NULL, NULL, &err) != BRIM_OK) fail_msg("%s", err.text);
    struct brim_weight_source from = brim_checkpoint_source(a), to = brim_checkpoint_source(b);
    size_t n_encoded = 0;
    for (size_t i = 0; i < brim_checkpoint_n_tensor(a); i++) {
        struct brim_tensor_info info;
        struct brim_weight w, q;
        brim_checkpoint_tensor_info(a, i, &info);
        assert_true(from.find(from.ctx, info.name, &w));
        assert_true(to.find(to.ctx, info.name, &q));
        if (q.kind == BRIM_WEIGHT_DENSE) {
            assert_true(info.n_dim == 1 || info.shape[1] % group != 0);
            assert_int_equal(q.dtype, w.dtype);
            assert_memory_equal(q.data, w.data, w.data_bytes);
            continue;
        }
        n_encoded++;
        assert_int_equal(q.group, group);
        assert_int_equal(q.dtype, w.dtype);
        size_t n_group = (size_t)(w.n_in / group), item = brim_dtype_bytes(w.dtype);
        uint32_t *words = malloc((size_t)w.n_in / 2);
        uint8_t *scales = malloc(n_group * item), *biases = malloc(n_group * item);
        for (int64_t row = 0; row < w.n_out; row++) {
            const uint8_t *values = (const uint8_t *)w.data + row * w.n_in * (int64_t)item;
            size_t at = (size_t)row * n_group * item;
            assert_true(brim_affine4_encode(w.dtype, values, w.n_in, group, words, scales, biases));
            assert_memory_equal((const uint8_t *)q.data + row * w.n_in / 2, words, w.n_in / 2);
            assert_memory_equal((const uint8_t *)q.scales + at, scales, n_group * item);
            assert_memory_equal((const uint8_t *)q.biases + at, biases, n_group * item);
        }
        free(words);
        free(scales);
        free(biases);
    }
    assert_int_equal(n_encoded, 15);
    brim_checkpoint_close(&a);
    brim_checkpoint_close(&b);
}

static void whole_directories(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"BF16", "F16", "F32"};
    static const int groups[] = {32, 64, 128};
    char in[256], top[256], out[300], out_too[300];
    make_dir(in);
    make_dir(top);
    snprintf(out, sizeof out, "%s/out", top);
    snprintf(out_too, sizeof out_too, "%s/out_too", top);
    for (int i = 0; i < 9; i++) {
        struct hf_tiny o = {.dtype = dtypes[i % 3], .n_shard = 1 + i / 4, .with_index = 1};
        hf_tiny_write(in, &o);
        write_text(in, "tokenizer.json", "{\"any\": 1}");
        write_text(in, "generation_config.json", "{\"eos_token_id\": [3, 4]}");
        write_text(in, ".hidden", "x");
        write_text(in, "pytorch_model.bin", "x");
        quantize_ok(in, out, groups[i / 3], 1);
        compare(in, out, groups[i / 3]);
        quantize_ok(in, out_too, groups[i / 3], 3);
        size_t n, n_too;
        char *data = read_in(out, "model.safetensors", &n);
        char *data_too = read_in(out_too, "model.safetensors", &n_too);
        assert_int_equal(n, n_too); /* the number of threads changes nothing */
        assert_memory_equal(data, data_too, n);
        assert_int_equal(data[0] % 8, 0);
        free(data);
        free(data_too);
        data = read_in(out, "config.json", &n);
        char wanted[80];
        snprintf(wanted, sizeof wanted, "{\n  \"quantization\": {\"group_size\": %d, \"bits\": 4},",
                 groups[i / 3]);
        assert_memory_equal(data, wanted, strlen(wanted));
        free(data);
        data = read_in(out, "tokenizer.json", &n);
        assert_string_equal(data, "{\"any\": 1}");
        free(data);
        data = read_in(out, "generation_config.json", &n);
        assert_non_null(data);
        free(data);
        assert_null(read_in(out, ".hidden", &n));
        assert_null(read_in(out, "pytorch_model.bin", &n));
        assert_null(read_in(out, "model.safetensors.index.json", &n));
        remove_dir(out);
        remove_dir(out_too);
        remove_in(in, ".hidden");
        remove_dir(in);
        assert_int_equal(mkdir(in, 0777), 0);
    }
    remove_dir(in);
    remove_dir(top);
}

static char left[2000];

static void note(void *ctx, const char *text)
{
    (void)ctx;
    size_t n = strlen(left);
    snprintf(left + n, sizeof left - n, "%s\n", text);
}

/* Rows that are no multiple of the group stay dense and are named. */
static void widths_that_do_not_fit(void **state)
{
    (void)state;
    char top[256], out[300];
    make_dir(top);
    snprintf(out, sizeof out, "%s/out", top);
    brim_quantize_options options;
    brim_quantize_options_default(&options);
    options.group = 128;
    options.warn = note;
    left[0] = '\0';
    brim_error err = {0};
    const char *in = BRIM_SOURCE_DIR "/tests/golden/models/qwen3_yarn";
    if (brim_quantize(in, out, &options, &err) != BRIM_OK) fail_msg("%s", err.text);
    assert_non_null(strstr(left, "stays as it is: rows of"));
    struct brim_checkpoint *checkpoint;
    if (brim_checkpoint_open(&checkpoint, out, NULL, NULL, &err) != BRIM_OK)
        fail_msg("%s", err.text);
    brim_checkpoint_close(&checkpoint);
    remove_dir(out);
    remove_dir(top);
}

static void refusals(void **state)
{
    (void)state;
    char in[256], top[256], out[300], partial[400];
    make_dir(in);
    make_dir(top);
    snprintf(out, sizeof out, "%s/out", top);
    snprintf(partial, sizeof partial, "%s.partial", out);
    struct hf_tiny o = {.dtype = "F32"};
    hf_tiny_write(in, &o);
    expect_failure(in, out, 48, BRIM_E_RANGE, "group 48: 32, 64 and 128 work");
    expect_failure(in, in, 64, BRIM_E_ARGUMENT, "exists already, and is not overwritten");
    expect_failure(in, "", 64, BRIM_E_ARGUMENT, "no name");
    expect_failure(in, "/nonexistent/a/b", 64, BRIM_E_IO, "/nonexistent/a/b.partial");
    assert_int_equal(mkdir(partial, 0777), 0);
    expect_failure(in, out, 64, BRIM_E_ARGUMENT, "out.partial: exists already");
    assert_true(exists(partial)); /* not ours to remove */
    assert_int_equal(rmdir(partial), 0);

    /* one NaN, in the last row of the embedding */
    char path[600];
    snprintf(path, sizeof path, "%s/model.safetensors", in);
    FILE *file = fopen(path, "r+b");
    uint64_t header;
    float nan_value = NAN;
    assert_int_equal(fread(&header, 8, 1, file), 1);
    fseek(file, (long)(8 + header + 39 * 512 + 200), SEEK_SET);
    fwrite(&nan_value, 4, 1, file);
    fclose(file);
    expect_failure(in, out, 64, BRIM_E_NOT_FINITE,
                   "tensor model.embed_tokens.weight: row 39 holds a value that is not finite");
    assert_false(exists(out) || exists(partial));

    struct hf_tiny packed = {.group = 64};
    hf_tiny_write(in, &packed);
    expect_failure(in, out, 64, BRIM_E_ARGUMENT, "it is quantized already");
    expect_failure(path, out, 64, BRIM_E_ARGUMENT, "give the directory");
    assert_false(exists(out) || exists(partial));
    assert_int_equal(brim_quantize(NULL, out, NULL, NULL), BRIM_E_ARGUMENT);
    remove_dir(in);
    remove_dir(top);
}

static void allocation_failures(void **state)
{
    (void)state;
    char in[256], top[256], out[300], partial[400];
    make_dir(in);
    make_dir(top);
    snprintf(out, sizeof out, "%s/out", top);
    snprintf(partial, sizeof partial, "%s.partial", out);
    struct hf_tiny o = {0};
    hf_tiny_write(in, &o);
    brim_quantize_options options;
    brim_quantize_options_default(&options);
    options.n_thread = 1;
    for (int64_t after = 0;; after++) {
        brim_mem_fail_after(after);
        brim_status status = brim_quantize(in, out, &options, NULL);
        brim_mem_fail_after(-1);
        assert_false(exists(partial));
        if (status == BRIM_OK) break;
        assert_int_equal(status, BRIM_E_NO_MEMORY);
        assert_false(exists(out));
    }
    compare(in, out, 64);
    remove_dir(out);
    remove_dir(in);
    remove_dir(top);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_equal_mlx),        cmocka_unit_test(whole_directories),
        cmocka_unit_test(widths_that_do_not_fit), cmocka_unit_test(refusals),
        cmocka_unit_test(allocation_failures),
    };
    return cmocka_run_group_tests_name("quantize", tests, NULL, NULL);
}
