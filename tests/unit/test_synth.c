/* SPDX-License-Identifier: Apache-2.0
 * Synthetic checkpoints: they open, look like the published form, and say what they are. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "brim/tools.h"
#include "load/checkpoint.h"
#include "unit/model_files.h"

static uint64_t last_done, last_total;

static void note_progress(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    assert_true(done > last_done && done <= total);
    last_done = done;
    last_total = total;
}

static void read_file(const char *dir, const char *name, struct bytes *out)
{
    char path[600], block[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    out->n = 0;
    for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;) put(out, block, n);
    put(out, "", 1);
    fclose(file);
}

static void tiny(void **state)
{
    (void)state;
    char top[256], a[300], b[300], c[300];
    make_dir(top);
    snprintf(a, sizeof a, "%s/a", top);
    snprintf(b, sizeof b, "%s/b/", top);
    snprintf(c, sizeof c, "%s/c", top);
    brim_error err = {0};
    last_done = 0;
    if (brim_synth("tiny", a, 5, note_progress, NULL, &err) != BRIM_OK) fail_msg("%s", err.text);
    assert_int_equal(last_done, last_total);
    assert_int_equal(brim_synth("tiny", b, 5, NULL, NULL, &err), BRIM_OK);
    assert_int_equal(brim_synth("tiny", c, 6, NULL, NULL, &err), BRIM_OK);
    assert_int_equal(brim_synth("tiny", a, 5, NULL, NULL, &err), BRIM_E_ARGUMENT);
    struct bytes one = {0}, two = {0};
    read_file(a, "model.safetensors", &one);
    read_file(b, "model.safetensors", &two);
    assert_int_equal(one.n, two.n);
    assert_memory_equal(one.data, two.data, one.n); /* the seed decides */
    uint64_t header;
    memcpy(&header, one.data, 8);
    assert_int_equal(header % 8, 0);
    assert_non_null(strstr((char *)one.data + 8, "\"brim_synthetic\":\"tiny\""));
    read_file(c, "model.safetensors", &two);
    assert_int_not_equal(memcmp(one.data, two.data, one.n), 0);
    read_file(a, "config.json", &one);
    assert_non_null(strstr((char *)one.data, "brim_synthetic"));
    read_file(a, "README.md", &one);
    assert_non_null(strstr((char *)one.data, "never trained"));

    brim_inspection *inspection;
    if (brim_inspect_open(&inspection, a, NULL, NULL, &err) != BRIM_OK) fail_msg("%s", err.text);
    brim_inspect_summary s;
    brim_inspect_get(inspection, &s);
    assert_string_equal(s.family, "qwen3");
    assert_string_equal(s.format, "safetensors");
    assert_string_equal(s.rope_scaling, "none");
    assert_null(s.chat);
    assert_int_equal(s.n_tensor, 25 * 2 + 4);
    assert_int_equal(s.n_vocab, 512);
    assert_int_equal(s.quant_group, 128);
    assert_int_equal(s.tensor_bytes, last_total);
    assert_int_equal(s.n_eos, 2);
    /* per layer: q, o 512 x 256, k, v 256 x 256, three of 512 x 256, norms 2 x 256 + 2 x 128 */
    uint64_t layer = 2 * 512 * 256 + 2 * 256 * 256 + 3 * 512 * 256 + 768;
    assert_int_equal(s.n_parameter, 2 * layer + 512 * 256 + 256);
    brim_inspect_tensor t;
    brim_inspect_get_tensor(inspection, 0, &t);
    assert_string_equal(t.name, "model.embed_tokens.weight");
    assert_string_equal(t.type, "U32");
    assert_int_equal(t.shape[0], 512);
    assert_int_equal(t.shape[1], 32);
    brim_inspect_close(&inspection);
    assert_null(inspection);

    /* scales of both signs, weights centred near zero and of unit row length */
    struct brim_checkpoint *checkpoint;
    assert_int_equal(brim_checkpoint_open(&checkpoint, a, NULL, NULL, &err), BRIM_OK);
    struct brim_weight_source source = brim_checkpoint_source(checkpoint);
    struct brim_weight w;
    assert_true(source.find(source.ctx, "model.layers.1.mlp.down_proj.weight", &w));
    int n_negative = 0, n_scale = (int)(w.n_out * w.n_in / w.group);
    for (int i = 0; i < n_scale; i++) {
        float scale = brim_dtype_load(w.dtype, w.scales, (size_t)i);
        assert_true(brim_dtype_load(w.dtype, w.biases, (size_t)i) == -8 * scale);
        n_negative += scale < 0;
    }
    assert_in_range(n_negative, n_scale * 2 / 5, n_scale * 3 / 5);
    float row[512];
    double sum = 0;
    for (int64_t i = 0; i < w.n_out; i++) {
        brim_weight_row_f32(&w, i, row);
        for (int64_t k = 0; k < w.n_in; k++) sum += (double)row[k] * (double)row[k];
    }
    sum /= (double)w.n_out;
    assert_true(sum > 0.7 && sum < 1.6);
    brim_checkpoint_close(&checkpoint);
    bytes_free(&one);
    bytes_free(&two);
    b[strlen(b) - 1] = '\0';
    remove_dir(a);
    remove_dir(b);
    remove_dir(c);
    remove_dir(top);
}

static void presets_and_refusals(void **state)
{
    (void)state;
    assert_string_equal(brim_synth_preset(0), "qwen3-0.6b");
    assert_string_equal(brim_synth_preset(1), "qwen3-4b");
    assert_string_equal(brim_synth_preset(2), "tiny");
    assert_null(brim_synth_preset(3));
    brim_error err = {0};
    assert_int_equal(brim_synth("huge", "x", 1, NULL, NULL, &err), BRIM_E_ARGUMENT);
    assert_non_null(strstr(err.text, "preset huge is unknown: qwen3-0.6b, qwen3-4b and tiny work"));
    assert_int_equal(brim_synth("tiny", NULL, 1, NULL, NULL, &err), BRIM_E_ARGUMENT);
    assert_int_equal(brim_synth("tiny", "/nonexistent/a/b", 1, NULL, NULL, &err), BRIM_E_IO);
    brim_inspection *inspection;
    assert_int_equal(brim_inspect_open(&inspection, "/nonexistent", NULL, NULL, &err),
                     BRIM_E_MISSING);
    assert_null(inspection);
}

static void allocation_failures(void **state)
{
    (void)state;
    char top[256], out[300], partial[400];
    make_dir(top);
    snprintf(out, sizeof out, "%s/out", top);
    snprintf(partial, sizeof partial, "%s.partial", out);
    for (int64_t after = 0;; after++) {
        struct stat st;
        brim_mem_fail_after(after);
        brim_status status = brim_synth("tiny", out, 1, NULL, NULL, NULL);
        brim_mem_fail_after(-1);
        assert_int_not_equal(lstat(partial, &st), 0);
        if (status == BRIM_OK) break;
        assert_int_equal(status, BRIM_E_NO_MEMORY);
        assert_int_not_equal(lstat(out, &st), 0);
    }
    remove_dir(out);
    remove_dir(top);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny),
        cmocka_unit_test(presets_and_refusals),
        cmocka_unit_test(allocation_failures),
    };
    return cmocka_run_group_tests_name("synth", tests, NULL, NULL);
}
