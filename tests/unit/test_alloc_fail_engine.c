/* SPDX-License-Identifier: Apache-2.0
 * Every allocation of opening an engine and a session, of evaluating, saving and generating fails,
 * alone and with all that follow: the call says so, and (under the address sanitizer) nothing is
 * leaked. */
#define _DEFAULT_SOURCE
#include "engine_util.h"

#include <unistd.h>

#include "base/mem.h"

/* Everything a program does with a model. The first failure ends it; true when all went well. */
static bool whole_life(const char *path, const char *save_path, brim_error *err)
{
    int32_t ids[32];
    some_ids(1, ids, 16);
    float *all = malloc(16 * 512 * sizeof *all);
    assert_non_null(all);
    brim_engine *engine = NULL;
    brim_session *session = NULL;
    brim_sampler *sampler = NULL;
    brim_engine_options options;
    brim_engine_options_default(&options);
    options.n_thread = 1;
    const brim_sampling sampling = {
        .temperature = 1, .top_p = 0.9f, .repeat_penalty = 1.2f, .repeat_window = 8};
    const char *stops[] = {"zzzz"};
    brim_generate_options generate;
    brim_generate_options_default(&generate);
    generate.max_tokens = 8;
    generate.ignore_eos = true;
    generate.stops = stops;
    generate.n_stop = 1;
    size_t n;
    const char *text = "Call me Ishmael.";
    bool ok = brim_engine_open(&engine, path, &options, err) == BRIM_OK &&
              brim_tokenize(engine, text, strlen(text), false, ids, 32, &n, err) == BRIM_OK &&
              brim_session_open(&session, engine, NULL, err) == BRIM_OK &&
              brim_session_sync(session, ids, (int64_t)n, NULL, err) == BRIM_OK &&
              brim_session_eval_all(session, ids, 4, all, err) == BRIM_OK &&
              brim_session_save(session, save_path, err) == BRIM_OK &&
              brim_session_load(session, save_path, err) == BRIM_OK &&
              brim_sampler_open(&sampler, engine, &sampling, err) == BRIM_OK &&
              brim_generate(session, sampler, &generate, NULL, err) == BRIM_OK;
    if (!engine) assert_null(session);
    brim_sampler_close(&sampler);
    brim_session_close(&session);
    brim_engine_close(&engine);
    free(all);
    return ok;
}

static void every_allocation_fails_once(void **state)
{
    const char *path = *state;
    char save_path[] = "/tmp/brim-alloc-XXXXXX";
    int fd = mkstemp(save_path);
    assert_true(fd >= 0);
    close(fd);
    uint64_t before = brim_mem_count();
    brim_error err = {0};
    if (!whole_life(path, save_path, &err)) fail_msg("%s", err.text);
    int64_t total = (int64_t)(brim_mem_count() - before);
    assert_true(total > 50);
    for (int64_t i = 0; i < 2 * total; i++) {
        int64_t n = i / 2;
        err = (brim_error){0};
        if (i % 2 == 0)
            brim_mem_fail_after(n); /* memory is gone for good */
        else
            brim_mem_fail_once(n); /* one block was too large */
        bool ok = whole_life(path, save_path, &err);
        brim_mem_fail_after(-1);
        /* A block that only makes things faster (a compiled pattern's machine code) may be missing.
         */
        if (ok && i % 2 == 1) continue;
        if (ok) fail_msg("allocation %d of %d failed and nobody noticed", (int)n, (int)total);
        if (err.status != BRIM_E_NO_MEMORY)
            fail_msg("allocation %d of %d: %s \"%s\"", (int)n, (int)total,
                     brim_status_name(err.status), err.text);
    }
    if (!whole_life(path, save_path, &err)) fail_msg("afterwards: %s", err.text);
    unlink(save_path);
}

int main(void)
{
    static char dense[] = GOLDEN_DIR "qwen2_bias", packed[] = GOLDEN_DIR "qwen3_mlx_g32";
    const struct CMUnitTest tests[] = {
        {"dense", every_allocation_fails_once, NULL, NULL, dense},
        {"4-bit", every_allocation_fails_once, NULL, NULL, packed},
    };
    return cmocka_run_group_tests_name("alloc_fail_engine", tests, NULL, NULL);
}
