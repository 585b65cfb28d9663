/* SPDX-License-Identifier: Apache-2.0
 * config.json and generation_config.json: what is read, what is refused and how that is said. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "load/hf_config.h"

static brim_status parse(const char *config, const char *generation, struct brim_hf_config *out,
                         brim_error *err)
{
    return brim_hf_config_parse(out, config, strlen(config), generation,
                                generation ? strlen(generation) : 0, "dir/config.json", err);
}

/* A good Qwen3 configuration with `members` (each with a leading comma) added; members given there
 * replace those of the list. */
static const char *compose(const char *members)
{
    static const struct {
        const char *key, *value;
    } base[] = {{"model_type", "\"qwen3\""},     {"hidden_size", "2560"},
                {"num_hidden_layers", "36"},     {"intermediate_size", "9728"},
                {"num_attention_heads", "32"},   {"num_key_value_heads", "8"},
                {"vocab_size", "151936"},        {"max_position_embeddings", "40960"},
                {"rms_norm_eps", "1e-06"},       {"rope_theta", "1000000"},
                {"tie_word_embeddings", "true"}, {"hidden_act", "\"silu\""}};
    static char text[2048];
    char key[64];
    size_t n = (size_t)snprintf(text, sizeof text, "{\"rope_scaling\":null");
    if (strstr(members, "\"rope_scaling\"")) n = (size_t)snprintf(text, sizeof text, "{\"x\":1");
    for (size_t i = 0; i < sizeof base / sizeof *base; i++) {
        snprintf(key, sizeof key, "\"%s\":", base[i].key);
        if (!strstr(members, key))
            n += (size_t)snprintf(text + n, sizeof text - n, ",%s%s", key, base[i].value);
    }
    snprintf(text + n, sizeof text - n, "%s}", members);
    return text;
}

static void expect_ok(const char *members, const char *generation, struct brim_hf_config *out)
{
    brim_error err = {0};
    if (parse(compose(members), generation, out, &err) != BRIM_OK)
        fail_msg("%s: %s", members, err.text);
}

static void expect_refused(const char *members, brim_status wanted, const char *text)
{
    struct brim_hf_config config;
    brim_error err = {0};
    brim_status status = parse(compose(members), NULL, &config, &err);
    if (status != wanted || !strstr(err.text, text) || !strstr(err.text, "config.json"))
        fail_msg("%s: %d \"%s\", expected \"%s\"", members, status, err.text, text);
    assert_null(config.overrides);
}

static void plain(void **state)
{
    (void)state;
    struct brim_hf_config c;
    expect_ok("", NULL, &c);
    assert_int_equal(c.model.family, BRIM_FAMILY_QWEN3);
    assert_int_equal(c.model.head_dim, 128); /* not 2560 / 32 */
    assert_int_equal(c.model.n_layer, 36);
    assert_int_equal(c.model.n_ff, 9728);
    assert_int_equal(c.model.n_head, 32);
    assert_int_equal(c.model.n_head_kv, 8);
    assert_int_equal(c.model.n_vocab, 151936);
    assert_int_equal(c.model.n_context, 40960);
    assert_true(c.model.rope_theta == 1e6 && c.model.norm_eps == 1e-6f);
    assert_true(c.model.tie_embeddings && c.tie_given && !c.is_quantized && !c.model.qkv_bias);
    assert_int_equal(c.model.rope.kind, BRIM_ROPE_NONE);
    assert_int_equal(c.model.n_eos, 0);
    assert_int_equal(c.model.bos, -1);
    brim_hf_config_free(&c);
    expect_ok(",\"model_type\":\"qwen2\",\"head_dim\":null,\"num_key_value_heads\":null", NULL, &c);
    assert_true(c.model.qkv_bias);
    assert_int_equal(c.model.head_dim, 80);
    assert_int_equal(c.model.n_head_kv, 32);
    brim_hf_config_free(&c);
    expect_ok(",\"model_type\":\"llama\",\"tie_word_embeddings\":null,\"head_dim\":64", NULL, &c);
    assert_false(c.tie_given);
    assert_int_equal(c.model.head_dim, 64);
    brim_hf_config_free(&c);
}

static void rope(void **state)
{
    (void)state;
    struct brim_hf_config c;
    expect_ok(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}", NULL, &c);
    assert_int_equal(c.model.rope.kind, BRIM_ROPE_LINEAR);
    assert_true(c.model.rope.factor == 2);
    expect_ok(",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
              "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}",
              NULL, &c);
    assert_int_equal(c.model.rope.kind, BRIM_ROPE_LLAMA3);
    assert_true(c.model.rope.factor == 8 && c.model.rope.original_context == 8192);
    assert_true(c.model.rope.low_freq_factor == 1 && c.model.rope.high_freq_factor == 4);
    expect_ok(",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"
              "\"original_max_position_embeddings\":32768}",
              NULL, &c);
    assert_int_equal(c.model.rope.kind, BRIM_ROPE_YARN);
    assert_true(c.model.rope.beta_fast == 32 && c.model.rope.beta_slow == 1);
    assert_true(c.model.rope.truncate && c.model.rope.attention_factor == 0);
    expect_ok(",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":4.0,\"rope_theta\":5e5,"
              "\"beta_fast\":16,\"beta_slow\":2,\"mscale\":0.7,\"mscale_all_dim\":0.5,"
              "\"attention_factor\":1.25,\"truncate\":false}",
              NULL, &c);
    assert_true(c.model.rope_theta == 5e5 && c.model.rope.original_context == 40960);
    assert_true(c.model.rope.beta_fast == 16 && c.model.rope.beta_slow == 2);
    assert_true(c.model.rope.mscale == 0.7 && c.model.rope.mscale_all_dim == 0.5);
    assert_true(c.model.rope.attention_factor == 1.25 && !c.model.rope.truncate);
    expect_ok(",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5e5}", NULL, &c);
    assert_int_equal(c.model.rope.kind, BRIM_ROPE_NONE);

    expect_refused(",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}", BRIM_E_UNSUPPORTED,
                   "rope_scaling.rope_type is dynamic; default, linear, llama3 and yarn work");
    expect_refused(",\"rope_scaling\":{\"type\":\"yarn\"}", BRIM_E_MISSING,
                   "rope_scaling.factor is missing");
    expect_refused(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"2\"}", BRIM_E_FORMAT,
                   "rope_scaling.factor is no number");
    expect_refused(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0.5}", BRIM_E_UNSUPPORTED,
                   "factor is 0.5");
    expect_refused(",\"rope_scaling\":{\"type\":7}", BRIM_E_FORMAT, "rope_type is no text");
    expect_refused(",\"rope_scaling\":[]", BRIM_E_FORMAT, "rope_scaling is no object");
    expect_refused(",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
                   "\"high_freq_factor\":1,\"original_max_position_embeddings\":8192}",
                   BRIM_E_UNSUPPORTED, "low_freq_factor 4");
    expect_refused(",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"beta_fast\":1,"
                   "\"beta_slow\":32}",
                   BRIM_E_UNSUPPORTED, "beta_slow 32");
}

static void end_tokens(void **state)
{
    (void)state;
    struct brim_hf_config c;
    expect_ok(",\"eos_token_id\":7", NULL, &c);
    assert_int_equal(c.model.n_eos, 1);
    assert_int_equal(c.model.eos[0], 7);
    expect_ok(",\"eos_token_id\":7,\"bos_token_id\":1",
              "{\"eos_token_id\":[151645,151643],\"bos_token_id\":2}", &c);
    assert_int_equal(c.model.n_eos, 2);
    assert_int_equal(c.model.eos[0], 151645);
    assert_int_equal(c.model.eos[1], 151643);
    assert_int_equal(c.model.bos, 2);
    expect_ok(",\"eos_token_id\":[5,6],\"bos_token_id\":1",
              "{\"eos_token_id\":null,\"temperature\":0.6}", &c);
    assert_int_equal(c.model.n_eos, 2);
    assert_int_equal(c.model.bos, 1);
    expect_refused(",\"eos_token_id\":151936", BRIM_E_FORMAT, "eos_token_id");
    expect_refused(",\"eos_token_id\":[1,-2]", BRIM_E_FORMAT, "eos_token_id");
    expect_refused(",\"eos_token_id\":\"2\"", BRIM_E_FORMAT, "eos_token_id");
    expect_refused(",\"eos_token_id\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]",
                   BRIM_E_UNSUPPORTED, "eos_token_id has 17 ids, at most 16");
    expect_refused(",\"bos_token_id\":1e3", BRIM_E_FORMAT, "bos_token_id");
    brim_error err = {0};
    assert_int_equal(parse(compose(""), "{", &c, &err), BRIM_E_FORMAT);
    assert_non_null(strstr(err.text, "dir/generation_config.json"));
}

static void quantization(void **state)
{
    (void)state;
    struct brim_hf_config c;
    expect_ok(",\"quantization\":{\"group_size\":128,\"bits\":4},"
              "\"quantization_config\":{\"group_size\":1,\"bits\":1}",
              NULL, &c);
    assert_true(c.is_quantized && c.group == 128 && c.bits == 4);
    brim_hf_config_free(&c);
    expect_ok(",\"quantization_config\":{\"group_size\":64,\"bits\":4,\"mode\":\"affine\","
              "\"model.embed_tokens\":{\"group_size\":32,\"bits\":4},\"lm_head\":false,"
              "\"model.layers.0.mlp.up_proj\":{\"group_size\":128}}",
              NULL, &c);
    assert_int_equal(c.n_override, 2);
    int group, bits;
    brim_hf_config_quant(&c, "model.embed_tokens.weight", 18, &group, &bits);
    assert_int_equal(group, 32);
    brim_hf_config_quant(&c, "model.layers.0.mlp.up_proj", 26, &group, &bits);
    assert_int_equal(group, 128);
    brim_hf_config_quant(&c, "model.layers.0.mlp.up", 21, &group, &bits);
    assert_int_equal(group, 64);
    assert_int_equal(bits, 4);
    brim_hf_config_free(&c);
    static const struct {
        const char *value, *text;
        brim_status status;
    } bad[] = {
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128}", "quant_method is gptq",
         BRIM_E_UNSUPPORTED},
        {"{\"group_size\":64,\"bits\":8}", "bits is 8; 4 works", BRIM_E_UNSUPPORTED},
        {"{\"group_size\":16,\"bits\":4}", "group_size is 16; 32, 64 and 128", BRIM_E_UNSUPPORTED},
        {"{\"group_size\":32,\"bits\":4,\"mode\":\"mxfp4\"}", "mode is mxfp4; affine works",
         BRIM_E_UNSUPPORTED},
        {"{\"bits\":4}", "group_size is missing", BRIM_E_MISSING},
        {"{\"group_size\":64}", "bits is missing", BRIM_E_MISSING},
        {"{\"group_size\":\"64\",\"bits\":4}", "group_size is no integer", BRIM_E_FORMAT},
        {"[]", "quantization is no object", BRIM_E_FORMAT},
        {"{\"group_size\":64,\"bits\":4,\"lm_head\":{\"bits\":6}}",
         "quantization of lm_head has group_size 64 and bits 6", BRIM_E_UNSUPPORTED},
    };
    char members[300];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(members, sizeof members, ",\"quantization\":%s", bad[i].value);
        expect_refused(members, bad[i].status, bad[i].text);
    }
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *members, *text;
        brim_status status;
    } rows[] = {
        {",\"model_type\":\"gemma3\"", "model_type is gemma3", BRIM_E_UNSUPPORTED},
        {",\"model_type\":null", "model_type is missing", BRIM_E_MISSING},
        {",\"attention_bias\":true", "attention_bias", BRIM_E_UNSUPPORTED},
        {",\"mlp_bias\":true", "mlp_bias", BRIM_E_UNSUPPORTED},
        {",\"use_sliding_window\":true,\"sliding_window\":4096", "use_sliding_window",
         BRIM_E_UNSUPPORTED},
        {",\"layer_types\":[\"full_attention\",\"sliding_attention\"]",
         "layer_types[1] is sliding_attention", BRIM_E_UNSUPPORTED},
        {",\"hidden_act\":\"gelu\"", "hidden_act is gelu", BRIM_E_UNSUPPORTED},
        {",\"partial_rotary_factor\":0.5", "partial_rotary_factor is 0.5", BRIM_E_UNSUPPORTED},
        {",\"hidden_size\":null", "hidden_size is missing", BRIM_E_MISSING},
        {",\"hidden_size\":\"2560\"", "hidden_size is no integer", BRIM_E_FORMAT},
        {",\"hidden_size\":2560.5", "hidden_size is no integer", BRIM_E_FORMAT},
        {",\"num_hidden_layers\":0", "num_hidden_layers", BRIM_E_UNSUPPORTED},
        {",\"num_hidden_layers\":-1", "num_hidden_layers", BRIM_E_UNSUPPORTED},
        {",\"num_attention_heads\":0", "num_attention_heads", BRIM_E_UNSUPPORTED},
        {",\"num_key_value_heads\":0", "num_key_value_heads", BRIM_E_UNSUPPORTED},
        {",\"num_key_value_heads\":7", "num_key_value_heads", BRIM_E_UNSUPPORTED},
        {",\"head_dim\":12", "head_dim", BRIM_E_UNSUPPORTED},
        {",\"head_dim\":512", "head_dim", BRIM_E_UNSUPPORTED},
        {",\"vocab_size\":9223372036854775807", "vocab_size", BRIM_E_UNSUPPORTED},
        {",\"intermediate_size\":0", "intermediate_size", BRIM_E_UNSUPPORTED},
        {",\"max_position_embeddings\":0", "max_position_embeddings", BRIM_E_UNSUPPORTED},
        {",\"rms_norm_eps\":-1", "rms_norm_eps", BRIM_E_UNSUPPORTED},
        {",\"rope_theta\":0", "rope_theta", BRIM_E_UNSUPPORTED},
        {",\"tie_word_embeddings\":1", "tie_word_embeddings is neither", BRIM_E_FORMAT},
        {",\"x\":NaN", "line 1", BRIM_E_FORMAT},
        {",\"y\":1,\"y\":2", "duplicate", BRIM_E_FORMAT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_refused(rows[i].members, rows[i].status, rows[i].text);
    struct brim_hf_config c;
    brim_error err = {0};
    assert_int_equal(parse("", NULL, &c, &err), BRIM_E_FORMAT);
    assert_int_equal(parse("[1]", NULL, &c, &err), BRIM_E_FORMAT);
}

/* What only a caller that fills the struct itself can get wrong. */
static void check_alone(void **state)
{
    (void)state;
    struct brim_hf_config c;
    expect_ok("", NULL, &c);
    brim_error err = {0};
    struct brim_model_config m = c.model;
    assert_int_equal(brim_model_config_check(&m, "m", &err), BRIM_OK);
    m.rope_theta = NAN;
    assert_int_equal(brim_model_config_check(&m, "m", &err), BRIM_E_UNSUPPORTED);
    m = c.model;
    m.norm_eps = NAN;
    assert_int_equal(brim_model_config_check(&m, "m", &err), BRIM_E_UNSUPPORTED);
    m = c.model;
    m.add_bos = true;
    assert_int_equal(brim_model_config_check(&m, "m", &err), BRIM_E_FORMAT);
    m = c.model;
    m.n_eos = 1;
    m.eos[0] = 151936;
    assert_int_equal(brim_model_config_check(&m, "m", &err), BRIM_E_FORMAT);
    m = c.model;
    m.rope.kind = BRIM_ROPE_YARN;
    m.rope.factor = 4;
    m.rope.original_context = NAN;
    assert_int_equal(brim_model_config_check(&m, "m", &err), BRIM_E_UNSUPPORTED);
}

static void allocation_failures(void **state)
{
    (void)state;
    const char *text = compose(",\"quantization\":{\"group_size\":64,\"bits\":4,"
                               "\"a\":{\"group_size\":32},\"b\":{\"group_size\":32}}");
    struct brim_hf_config c;
    for (int64_t after = 0;; after++) {
        brim_mem_fail_after(after);
        brim_status status = parse(text, NULL, &c, NULL);
        brim_mem_fail_after(-1);
        if (status == BRIM_OK) {
            assert_int_equal(after, 3);
            break;
        }
        assert_int_equal(status, BRIM_E_NO_MEMORY);
        assert_null(c.overrides);
    }
    brim_hf_config_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain),
        cmocka_unit_test(rope),
        cmocka_unit_test(end_tokens),
        cmocka_unit_test(quantization),
        cmocka_unit_test(refused),
        cmocka_unit_test(check_alone),
        cmocka_unit_test(allocation_failures),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
