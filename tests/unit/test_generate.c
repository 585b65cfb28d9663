/* SPDX-License-Identifier: Apache-2.0
 * Generation: what ends it, the text handed out, stop strings wherever tokens are cut. The tiny
 * models babble, which is what a test of text hold-back wants: most tokens are pieces of
 * characters. The last test runs SmolLM2 where its file is at hand (BRIM_TEST_SMOLLM2, or the
 * cache). */
#include "engine_util.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "run/stop.h"
#include "text/utf8.h"

static brim_engine *engine;

static int open_engine(void **state)
{
    (void)state;
    engine = tiny_engine("qwen2_bias", 1);
    return 0;
}

static int close_engine(void **state)
{
    (void)state;
    brim_engine_close(&engine);
    return 0;
}

/* ---- the matcher alone ---- */

/* Length of the text before the stop that ends first (the longest of several), or -1. */
static long first_stop(const char *text, size_t len, const char *const *stops, size_t n_stop)
{
    for (size_t end = 1; end <= len; end++) {
        long begin = -1;
        for (size_t i = 0; i < n_stop; i++) {
            size_t n = strlen(stops[i]);
            if (n <= end && memcmp(text + end - n, stops[i], n) == 0 &&
                (begin < 0 || (long)(end - n) < begin))
                begin = (long)(end - n);
        }
        if (begin >= 0) return begin;
    }
    return -1;
}

static void matcher(void **state)
{
    (void)state;
    static const char *const sets[][3] = {
        {"own fox", NULL, NULL}, {"b", "ab", NULL},        {"aab", "ba", NULL},
        {"b", "abc", NULL},      {"aaaa", NULL, NULL},     {"abcabd", "cab", "x"},
        {"aba", "bab", "abb"},   {"bbbbbbbbb", "a", NULL},
    };
    uint32_t seed = 1;
    for (int repeat = 0; repeat < 4000; repeat++) {
        const char *const *stops = sets[repeat % 8];
        size_t n_stop = stops[1] ? stops[2] ? 3 : 2 : 1;
        char text[40], got[40];
        seed = seed * 1664525u + 1013904223u;
        size_t len = seed >> 24 & 31, n_got = 0;
        for (size_t i = 0; i < len; i++) {
            seed = seed * 1664525u + 1013904223u;
            text[i] = "abcabdab"[seed >> 28 & 7];
        }
        if (repeat % 8 == 0) len = (size_t)snprintf(text, sizeof text, "the brown fox");
        struct brim_stop *stop;
        MUST(brim_stop_create(&stop, stops, n_stop, 8, &err));
        bool found = false;
        for (size_t at = 0; at < len && !found;) {
            seed = seed * 1664525u + 1013904223u;
            size_t n = 1 + (seed >> 29), n_out;
            if (n > len - at) n = len - at;
            char piece[8]; /* exact size under ASan by being at the end */
            memcpy(piece + 8 - n, text + at, n);
            const char *out;
            found = brim_stop_feed(stop, piece + 8 - n, n, &out, &n_out);
            memcpy(got + n_got, out, n_out);
            n_got += n_out;
            at += n;
        }
        if (!found) {
            const char *out;
            size_t n_out;
            brim_stop_flush(stop, &out, &n_out);
            memcpy(got + n_got, out, n_out);
            n_got += n_out;
        }
        long expected = first_stop(text, len, stops, n_stop);
        assert_int_equal(found, expected >= 0);
        assert_int_equal(n_got, expected >= 0 ? (size_t)expected : len);
        assert_memory_equal(got, text, n_got);
        brim_stop_free(&stop);
    }
}

/* ---- generation ---- */

struct text {
    char data[8192];
    size_t n;
    int n_call, stop_at; /* stop_at: the call that returns false, 0 never */
    uint64_t count_first, count_last;
    char raw[4096]; /* bytes of the tokens */
    size_t n_raw;
};

/* Is it whole characters? */
static bool is_utf8(const char *text, size_t len)
{
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)text[i++];
        int more = c < 0x80 ? 0 : c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : c >= 0xC2 ? 1 : -1;
        if (more < 0) return false;
        for (; more > 0; more--)
            if (i == len || ((unsigned char)text[i++] & 0xC0) != 0x80) return false;
    }
    return true;
}

static bool collect(void *ctx, const char *text, size_t len)
{
    struct text *t = ctx;
    assert_true(len > 0 && t->n + len <= sizeof t->data);
    assert_true(is_utf8(text, len));
    memcpy(t->data + t->n, text, len);
    t->n += len;
    t->n_call++;
    if (t->n_call == 1) t->count_first = brim_mem_count();
    t->count_last = brim_mem_count();
    return t->n_call != t->stop_at;
}

struct request {
    uint32_t prompt;
    uint64_t seed;
    float temperature;
    int64_t n_context, max_tokens;
    const char *const *stops;
    size_t n_stop;
    bool stop_at_eos;
    int stop_at_call;
};

enum { N_PROMPT = 12 };

static brim_generate_result generate(const struct request *r, struct text *text, int64_t *length)
{
    int32_t ids[N_PROMPT];
    some_ids(r->prompt, ids, N_PROMPT);
    brim_session *session = tiny_session(engine, r->n_context, 0);
    brim_sampler *sampler;
    brim_sampling sampling;
    brim_sampling_default(&sampling);
    sampling.temperature = r->temperature;
    sampling.seed = r->seed;
    MUST(brim_sampler_open(&sampler, engine, &sampling, &err));
    MUST(brim_session_sync(session, ids, N_PROMPT, NULL, &err));
    brim_generate_options options;
    brim_generate_options_default(&options);
    options.max_tokens = r->max_tokens;
    options.stops = r->stops;
    options.n_stop = r->n_stop;
    options.ignore_eos = !r->stop_at_eos;
    options.on_text = collect;
    options.on_text_ctx = text;
    memset(text, 0, sizeof *text);
    text->stop_at = r->stop_at_call;
    brim_generate_result result;
    MUST(brim_generate(session, sampler, &options, &result, &err));
    if (length) *length = brim_session_length(session);
    for (int64_t i = N_PROMPT; i < brim_session_length(session); i++) {
        size_t len;
        int32_t id = brim_session_tokens(session)[i];
        const char *bytes = brim_token_bytes(engine, id, &len);
        if (brim_token_is_special(engine, id)) continue;
        assert_true(text->n_raw + len <= sizeof text->raw);
        memcpy(text->raw + text->n_raw, bytes, len);
        text->n_raw += len;
    }
    assert_int_equal(brim_session_length(session), N_PROMPT + result.n_generated);
    if (result.n_generated > 0) assert_non_null(brim_session_logits(session));
    assert_true(result.first_token_ns >= 0 && result.decode_ns >= 0);
    brim_sampler_close(&sampler);
    brim_session_close(&session);
    return result;
}

static void length_limits(void **state)
{
    (void)state;
    struct text text;
    int64_t length;
    brim_generate_result r = generate(&(struct request){.max_tokens = 0}, &text, NULL);
    assert_int_equal(r.finish, BRIM_FINISH_LENGTH);
    assert_int_equal(r.n_generated, 0);
    assert_int_equal(text.n, 0);
    r = generate(&(struct request){.max_tokens = 5}, &text, NULL);
    assert_int_equal(r.finish, BRIM_FINISH_LENGTH);
    assert_int_equal(r.n_generated, 5);
    static const int64_t limits[] = {-1, 1000, INT64_MAX, INT64_MIN};
    for (int i = 0; i < 4; i++) { /* the context ends it: never shifted, never looped */
        r = generate(&(struct request){.n_context = 64, .max_tokens = limits[i]}, &text, &length);
        assert_int_equal(r.finish, BRIM_FINISH_LENGTH);
        assert_int_equal(length, 64);
    }
    r = generate(&(struct request){.n_context = N_PROMPT, .max_tokens = 3}, &text, NULL);
    assert_int_equal(r.finish, BRIM_FINISH_LENGTH);
    assert_int_equal(r.n_generated, 0);
}

/* The streamed text of 1, 2, 3 ... tokens is the text of their bytes decoded at once: U+FFFD stands
 * where the last token leaves a character unfinished. */
static void cut_anywhere(void **state)
{
    (void)state;
    static struct text text;
    static uint8_t whole[3 * sizeof text.raw];
    int n_unfinished = 0;
    for (uint32_t prompt = 1; prompt <= 3; prompt++) {
        for (int64_t n = 1; n <= 40; n++) {
            generate(&(struct request){.prompt = prompt, .max_tokens = n}, &text, NULL);
            size_t len = brim_utf8_replace((const uint8_t *)text.raw, text.n_raw, whole);
            assert_int_equal(text.n, len);
            assert_memory_equal(text.data, whole, len);
            n_unfinished += len >= 3 && memcmp(whole + len - 3, "\xEF\xBF\xBD", 3) == 0;
        }
    }
    assert_true(n_unfinished > 3);
}

/* What was held back for a stop that does not come is handed out at the end. */
static void held_text_is_flushed(void **state)
{
    (void)state;
    static struct text whole, part;
    generate(&(struct request){.prompt = 1, .max_tokens = 30}, &whole, NULL);
    for (size_t n = 1; n <= 12; n++) {
        char stop[16];
        memcpy(stop, whole.data + whole.n - n, n);
        stop[n] = '!';
        stop[n + 1] = '\0';
        if (!is_utf8(stop, n)) continue;
        const char *stops[] = {stop};
        brim_generate_result r =
            generate(&(struct request){.prompt = 1, .max_tokens = 30, .stops = stops, .n_stop = 1},
                     &part, NULL);
        assert_int_equal(r.finish, BRIM_FINISH_LENGTH);
        assert_int_equal(part.n, whole.n);
        assert_memory_equal(part.data, whole.data, whole.n);
    }
}

static void stop_strings(void **state)
{
    (void)state;
    static struct text whole, part;
    int n_spread = 0;
    for (uint32_t prompt = 1; prompt <= 2; prompt++) {
        generate(&(struct request){.prompt = prompt, .max_tokens = 30}, &whole, NULL);
        for (size_t at = 0; at < whole.n; at++) {
            for (size_t n = 1; n <= 9 && at + n <= whole.n; n += 2) {
                char one[16], two[16];
                memcpy(one, whole.data + at, n);
                one[n] = '\0';
                snprintf(two, sizeof two, "%.*s!", (int)(n / 2 + 1), whole.data + at);
                if (strlen(one) != n || !is_utf8(one, n) || !is_utf8(two, strlen(two))) continue;
                const char *stops[] = {two, one};
                long expected = first_stop(whole.data, whole.n, stops, 2);
                brim_generate_result r = generate(
                    &(struct request){
                        .prompt = prompt, .max_tokens = 30, .stops = stops, .n_stop = 2},
                    &part, NULL);
                assert_true(expected >= 0 && expected <= (long)at);
                assert_int_equal(r.finish, BRIM_FINISH_STOP);
                assert_int_equal(part.n, expected);
                assert_memory_equal(part.data, whole.data, part.n);
                n_spread += n > 4;
            }
        }
    }
    assert_true(n_spread > 20);
}

static void bad_stops_are_refused(void **state)
{
    (void)state;
    const char *stops[] = {"a", ""};
    int32_t ids[4];
    some_ids(1, ids, 4);
    brim_session *session = tiny_session(engine, 0, 0);
    brim_sampler *sampler;
    MUST(brim_sampler_open(&sampler, engine, NULL, &err));
    MUST(brim_session_eval(session, ids, 4, &err));
    brim_generate_options options;
    brim_generate_options_default(&options);
    options.stops = stops;
    options.n_stop = 2;
    brim_generate_result result;
    MUST_FAIL(brim_generate(session, sampler, &options, &result, &err), BRIM_E_ARGUMENT,
              "stop string 1");
    stops[1] = "\xE2\x80";
    MUST_FAIL(brim_generate(session, sampler, &options, &result, &err), BRIM_E_ARGUMENT, "UTF-8");
    assert_int_equal(brim_session_length(session), 4);
    MUST(brim_session_rewind(session, 2, &err));
    options.n_stop = 0;
    MUST_FAIL(brim_generate(session, sampler, &options, &result, &err), BRIM_E_ARGUMENT,
              "no logits");
    brim_sampler_close(&sampler);
    brim_session_close(&session);
}

static void end_token(void **state)
{
    (void)state;
    static struct text text;
    int n_eos = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        brim_generate_result r = generate(
            &(struct request){
                .seed = seed, .temperature = 3, .max_tokens = -1, .stop_at_eos = true},
            &text, NULL);
        assert_true(r.finish == BRIM_FINISH_EOS || r.finish == BRIM_FINISH_LENGTH);
        n_eos += r.finish == BRIM_FINISH_EOS;
    }
    assert_true(n_eos > 3); /* two of 479 tokens end, 116 are drawn */
    assert_true(brim_token_is_eos(engine, 478));
    assert_true(brim_token_is_eos(engine, 476));
    assert_false(brim_token_is_eos(engine, 477));
}

static void callback_stops(void **state)
{
    (void)state;
    static struct text text;
    brim_generate_result r =
        generate(&(struct request){.max_tokens = 50, .stop_at_call = 3}, &text, NULL);
    assert_int_equal(r.finish, BRIM_FINISH_CALLER);
    assert_int_equal(text.n_call, 3);
    assert_true(r.n_generated < 50);
}

static void no_memory_is_taken(void **state)
{
    (void)state;
    static struct text text;
    const char *stops[] = {"never seen"};
    generate(&(struct request){.temperature = 1, .max_tokens = 60, .stops = stops, .n_stop = 1},
             &text, NULL);
    assert_true(text.n_call > 5);
    assert_int_equal(text.count_first, text.count_last);
}

/* ---- the demonstration model ---- */

static bool smollm2_path(char *out, size_t capacity)
{
    static const char name[] = "brim/SmolLM2-135M-Instruct.Q4_1.gguf";
    const char *given = getenv("BRIM_TEST_SMOLLM2"), *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (given && given[0])
        snprintf(out, capacity, "%s", given);
    else if (cache && cache[0])
        snprintf(out, capacity, "%s/%s", cache, name);
    else
        snprintf(out, capacity, "%s/.cache/%s", home ? home : "", name);
    return access(out, R_OK) == 0;
}

static void smollm2_answers(void **state)
{
    (void)state;
    char path[1024];
    if (!smollm2_path(path, sizeof path)) {
        printf("SKIP: SmolLM2 is not at %s (./run.sh fetches it)\n", path);
        return;
    }
    brim_engine *smol;
    MUST(brim_engine_open(&smol, path, NULL, &err));
    brim_session *session = tiny_session(smol, 512, 0);
    brim_sampler *sampler;
    MUST(brim_sampler_open(&sampler, smol, NULL, &err));
    const brim_chat_turn turn = {"user", "What is the capital of France?"};
    int32_t ids[256];
    size_t n;
    MUST(brim_chat_tokenize(smol, &turn, 1, NULL, ids, 256, &n, &err));
    MUST(brim_session_sync(session, ids, (int64_t)n, NULL, &err));
    static struct text text;
    brim_generate_options options;
    brim_generate_options_default(&options);
    options.max_tokens = 32;
    options.on_text = collect;
    options.on_text_ctx = &text;
    brim_generate_result result;
    MUST(brim_generate(session, sampler, &options, &result, &err));
    text.data[text.n] = '\0';
    assert_string_equal(text.data, "The capital of France is Paris.");
    assert_int_equal(result.finish, BRIM_FINISH_EOS);
    brim_sampler_close(&sampler);
    brim_session_close(&session);
    brim_engine_close(&smol);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matcher),
        cmocka_unit_test(length_limits),
        cmocka_unit_test(cut_anywhere),
        cmocka_unit_test(stop_strings),
        cmocka_unit_test(held_text_is_flushed),
        cmocka_unit_test(end_token),
        cmocka_unit_test(bad_stops_are_refused),
        cmocka_unit_test(callback_stops),
        cmocka_unit_test(no_memory_is_taken),
        cmocka_unit_test(smollm2_answers),
    };
    return cmocka_run_group_tests_name("generate", tests, open_engine, close_engine);
}
