/* SPDX-License-Identifier: Apache-2.0
 * Snapshots: exact to the bit, refused when anything about them is wrong, files never half written.
 */
#define _DEFAULT_SOURCE
#include "engine_util.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_VOCAB = 512 };

static brim_engine *engine;

static int open_engine(void **state)
{
    (void)state;
    engine = tiny_engine("llama_tied", 1);
    return 0;
}

static int close_engine(void **state)
{
    (void)state;
    brim_engine_close(&engine);
    return 0;
}

static brim_session *open_session(bool kv_f32, int64_t n_context)
{
    brim_session *session;
    brim_session_options options;
    brim_session_options_default(&options);
    options.kv_f32 = kv_f32;
    options.n_context = n_context;
    MUST(brim_session_open(&session, engine, &options, &err));
    return session;
}

struct blob {
    uint8_t *data; /* exact size */
    size_t n;
};

static struct blob take(const brim_session *session)
{
    struct blob b;
    MUST(brim_session_snapshot(session, NULL, 0, &b.n, &err));
    b.data = malloc(b.n);
    assert_non_null(b.data);
    size_t n;
    MUST_FAIL(brim_session_snapshot(session, b.data, b.n - 1, &n, &err), BRIM_E_ARGUMENT, "bytes");
    assert_int_equal(n, b.n);
    MUST(brim_session_snapshot(session, b.data, b.n, &n, &err));
    return b;
}

static void round_trip(void **state)
{
    (void)state;
    int32_t ids[70];
    some_ids(1, ids, 70);
    for (int f32 = 0; f32 < 2; f32++) {
        for (int64_t n = 0; n <= 66; n += n < 3 ? 1 : 21) {
            brim_session *a = open_session(f32, 0), *b = open_session(f32, 100);
            MUST(brim_session_eval(a, ids, n, &err));
            struct blob blob = take(a);
            MUST(brim_session_eval(b, ids + 5, 17, &err)); /* replaced */
            MUST(brim_session_restore(b, blob.data, blob.n, &err));
            assert_int_equal(brim_session_length(b), n);
            if (n == 0) {
                assert_null(brim_session_logits(b));
            } else {
                assert_memory_equal(brim_session_tokens(b), ids, (size_t)n * sizeof *ids);
                assert_memory_equal(brim_session_logits(b), brim_session_logits(a),
                                    N_VOCAB * sizeof(float));
            }
            struct blob again = take(b);
            assert_int_equal(again.n, blob.n);
            assert_memory_equal(again.data, blob.data, blob.n);
            MUST(brim_session_eval(a, ids + n, 3, &err));
            MUST(brim_session_eval(b, ids + n, 3, &err));
            assert_memory_equal(brim_session_logits(b), brim_session_logits(a),
                                N_VOCAB * sizeof(float));
            free(again.data);
            free(blob.data);
            brim_session_close(&a);
            brim_session_close(&b);
        }
    }
}

static void without_logits(void **state)
{
    (void)state;
    int32_t ids[20];
    some_ids(2, ids, 20);
    brim_session *a = open_session(false, 0), *b = open_session(false, 0);
    MUST(brim_session_eval(a, ids, 20, &err));
    MUST(brim_session_rewind(a, 12, &err));
    struct blob blob = take(a);
    MUST(brim_session_restore(b, blob.data, blob.n, &err));
    assert_int_equal(brim_session_length(b), 12);
    assert_null(brim_session_logits(b));
    free(blob.data);
    brim_session_close(&a);
    brim_session_close(&b);
}

/* Every refusal leaves the session as it was. */
static void refusals(void **state)
{
    (void)state;
    int32_t ids[20];
    some_ids(3, ids, 20);
    brim_session *a = open_session(false, 0), *b = open_session(false, 0);
    MUST(brim_session_eval(a, ids, 9, &err));
    MUST(brim_session_eval(b, ids + 2, 11, &err));
    struct blob blob = take(a), before = take(b);

    /* One bit anywhere: header fields, tokens, logits, cache, checksum. */
    for (size_t i = 0; i < blob.n; i += i < 200 ? 1 : 97) {
        blob.data[i] ^= 0x10;
        brim_error err = {0};
        brim_status status = brim_session_restore(b, blob.data, blob.n, &err);
        blob.data[i] ^= 0x10;
        if (status != BRIM_E_FORMAT) fail_msg("byte %zu: %s", i, brim_status_name(status));
    }
    for (size_t n = 0; n < blob.n; n += n < 200 ? 1 : 501) {
        uint8_t *cut = malloc(n ? n : 1);
        assert_non_null(cut);
        memcpy(cut, blob.data, n);
        MUST_FAIL(brim_session_restore(b, cut, n, &err), BRIM_E_FORMAT, "snapshot");
        free(cut);
    }
    blob.data[8] = 2;
    MUST_FAIL(brim_session_restore(b, blob.data, blob.n, &err), BRIM_E_FORMAT, "version 2");
    blob.data[8] = 1;
    brim_session *wide = open_session(true, 0), *small = open_session(false, 8);
    MUST_FAIL(brim_session_restore(wide, blob.data, blob.n, &err), BRIM_E_FORMAT, "f16");
    MUST_FAIL(brim_session_restore(small, blob.data, blob.n, &err), BRIM_E_CONTEXT, "9");
    brim_engine *other_engine = tiny_engine("llama_linear", 1);
    brim_session *other = tiny_session(other_engine, 0, 0);
    MUST_FAIL(brim_session_restore(other, blob.data, blob.n, &err), BRIM_E_FORMAT, "another model");
    brim_session_close(&other);
    brim_engine_close(&other_engine);
    brim_session_close(&wide);
    brim_session_close(&small);

    struct blob after = take(b);
    assert_int_equal(after.n, before.n);
    assert_memory_equal(after.data, before.data, before.n);
    free(blob.data);
    free(before.data);
    free(after.data);
    brim_session_close(&a);
    brim_session_close(&b);
}

static int count_files(const char *directory)
{
    DIR *d = opendir(directory);
    assert_non_null(d);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') n++;
    closedir(d);
    return n;
}

static void files(void **state)
{
    (void)state;
    int32_t ids[20];
    some_ids(4, ids, 20);
    char directory[] = "/tmp/brim-snapshot-XXXXXX", path[64], blocked[80];
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/state", directory);
    brim_session *a = open_session(false, 0), *b = open_session(false, 0);
    MUST(brim_session_eval(a, ids, 15, &err));
    MUST(brim_session_save(a, path, &err));
    MUST(brim_session_load(b, path, &err));
    struct blob x = take(a), y = take(b);
    assert_int_equal(x.n, y.n);
    assert_memory_equal(x.data, y.data, x.n);
    free(x.data);
    free(y.data);

    MUST(brim_session_eval(a, ids, 2, &err)); /* over the old file */
    MUST(brim_session_save(a, path, &err));
    MUST(brim_session_load(b, path, &err));
    assert_int_equal(brim_session_length(b), 17);
    assert_int_equal(count_files(directory), 1);

    snprintf(blocked, sizeof blocked, "%s/none/state", directory);
    MUST_FAIL(brim_session_save(a, blocked, &err), BRIM_E_IO, "none/state");
    MUST_FAIL(brim_session_load(b, blocked, &err), BRIM_E_MISSING, "none/state");
    snprintf(blocked, sizeof blocked, "%s/directory", directory);
    assert_int_equal(mkdir(blocked, 0700), 0);
    MUST_FAIL(brim_session_save(a, blocked, &err), BRIM_E_IO, "directory"); /* cannot replace it */
    assert_int_equal(count_files(directory), 2);
    rmdir(blocked);
    struct stat st;
    assert_int_equal(mkfifo(blocked, 0600), 0); /* as any device: it must stay what it is */
    MUST_FAIL(brim_session_save(a, blocked, &err), BRIM_E_IO, "pipe");
    assert_true(lstat(blocked, &st) == 0 && S_ISFIFO(st.st_mode));
    unlink(blocked);
    assert_int_equal(symlink(path, blocked), 0);
    MUST_FAIL(brim_session_save(a, blocked, &err), BRIM_E_IO, "link");
    assert_true(lstat(blocked, &st) == 0 && S_ISLNK(st.st_mode));
    unlink(blocked);
    assert_int_equal(truncate(path, 100), 0);
    MUST_FAIL(brim_session_load(b, path, &err), BRIM_E_FORMAT, "state");
    assert_int_equal(truncate(path, 0), 0);
    MUST_FAIL(brim_session_load(b, path, &err), BRIM_E_FORMAT, "state");
    assert_int_equal(brim_session_length(b), 17);
    assert_int_equal(count_files(directory), 1);
    MUST_FAIL(brim_session_save(a, "", &err), BRIM_E_ARGUMENT, "empty");
    brim_session_close(&a);
    brim_session_close(&b);
    unlink(path);
    rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(without_logits),
        cmocka_unit_test(refusals),
        cmocka_unit_test(files),
    };
    return cmocka_run_group_tests_name("snapshot", tests, open_engine, close_engine);
}
