/* SPDX-License-Identifier: Apache-2.0
 * Snapshots, version 1, little-endian, every piece a multiple of 8 bytes (padded with zeros):
 *   header (struct snapshot_header), tokens i32[n_token], logits f32[n_vocab] if has_logits, then
 *   per layer [k, v][n_head_kv][n_token][head_dim] in the cache's type, then a 64-bit hash over all
 *   pieces in this order.
 * Reading checks everything, the hash included, before the session changes. */
#define _GNU_SOURCE
#include "run/engine.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/map.h"
#include "base/mem.h"
#include "model/weights.h"

enum { SNAPSHOT_VERSION = 1 };
static const char magic[8] = {'b', 'r', 'i', 'm', 's', 'n', 'a', 'p'};

struct snapshot_header {
    char magic[8];
    uint32_t version, kv_dtype;
    uint64_t fingerprint;
    int64_t n_layer, n_head_kv, head_dim, n_vocab;
    int64_t n_token;
    uint64_t has_logits;
    uint64_t n_bytes; /* of the whole snapshot */
};
_Static_assert(sizeof(struct snapshot_header) % 8 == 0, "pieces are multiples of 8 bytes");

static size_t padded(size_t n_bytes)
{
    return (n_bytes + 7) / 8 * 8;
}

/* Sizes of the pieces; every dimension is one of a live session, so nothing overflows. */
struct layout {
    size_t tokens, logits, layer, total;
};

static struct layout layout_of(const brim_session *session, int64_t n_token, bool has_logits)
{
    const struct brim_kv_shape *kv = &session->state.kv_shape;
    struct layout l = {0};
    l.tokens = padded((size_t)n_token * sizeof(int32_t));
    l.logits =
        has_logits ? padded((size_t)session->engine->model->config.n_vocab * sizeof(float)) : 0;
    l.layer =
        padded(2 * (size_t)(kv->n_head_kv * n_token * kv->head_dim) * brim_dtype_bytes(kv->dtype));
    l.total = sizeof(struct snapshot_header) + l.tokens + l.logits + (size_t)kv->n_layer * l.layer +
              sizeof(uint64_t);
    return l;
}

static struct snapshot_header header_of(const brim_session *session, int64_t n_token,
                                        bool has_logits)
{
    const struct brim_kv_shape *kv = &session->state.kv_shape;
    struct snapshot_header h = {
        .version = SNAPSHOT_VERSION,
        .kv_dtype = (uint32_t)kv->dtype,
        .fingerprint = session->engine->model->fingerprint,
        .n_layer = kv->n_layer,
        .n_head_kv = kv->n_head_kv,
        .head_dim = kv->head_dim,
        .n_vocab = session->engine->model->config.n_vocab,
        .n_token = n_token,
        .has_logits = has_logits,
        .n_bytes = layout_of(session, n_token, has_logits).total,
    };
    memcpy(h.magic, magic, sizeof magic);
    return h;
}

/* Where pieces go: memory, or a file through a buffer of one piece. */
struct sink {
    uint8_t *memory; /* next byte, or NULL */
    FILE *file;
    uint8_t *buffer; /* for a file: the largest piece */
    uint64_t hash;
};

static uint8_t *piece_begin(struct sink *sink)
{
    return sink->memory ? sink->memory : sink->buffer;
}

static bool piece_end(struct sink *sink, size_t n_bytes)
{
    sink->hash = brim_hash64(sink->hash, piece_begin(sink), n_bytes);
    if (!sink->memory) return fwrite(sink->buffer, 1, n_bytes, sink->file) == n_bytes;
    sink->memory += n_bytes;
    return true;
}

static bool put(struct sink *sink, const void *data, size_t n_bytes, size_t n_padded)
{
    uint8_t *at = piece_begin(sink);
    memcpy(at, data, n_bytes);
    memset(at + n_bytes, 0, n_padded - n_bytes);
    return piece_end(sink, n_padded);
}

/* BRIM_E_IO without text when the file takes no more. */
static brim_status write_snapshot(const brim_session *session, struct sink *sink, brim_error *err)
{
    const struct brim_kv_shape *kv = &session->state.kv_shape;
    const struct brim_backend_ops *ops = session->engine->backend->ops;
    bool has_logits = session->has_logits;
    struct layout l = layout_of(session, session->n_token, has_logits);
    struct snapshot_header h = header_of(session, session->n_token, has_logits);
    sink->hash = BRIM_HASH64_SEED;
    if (!put(sink, &h, sizeof h, sizeof h)) return BRIM_E_IO;
    size_t n = (size_t)session->n_token * sizeof(int32_t);
    if (n > 0 && !put(sink, session->tokens, n, l.tokens)) return BRIM_E_IO;
    n = (size_t)h.n_vocab * sizeof(float);
    const float *logits;
    BRIM_TRY(brim_session_fetch_logits(session, &logits, err));
    if (has_logits && !put(sink, logits, n, l.logits)) return BRIM_E_IO;
    for (int64_t layer = 0; l.layer > 0 && layer < kv->n_layer; layer++) {
        uint8_t *at = piece_begin(sink);
        memset(at + l.layer - 8, 0, 8);
        BRIM_TRY(ops->kv_export(session->state.kv, layer, session->n_token, at, err));
        if (!piece_end(sink, l.layer)) return BRIM_E_IO;
    }
    uint64_t hash = sink->hash;
    return put(sink, &hash, sizeof hash, sizeof hash) ? BRIM_OK : BRIM_E_IO;
}

brim_status brim_session_snapshot(const brim_session *session, void *data, size_t capacity,
                                  size_t *n_bytes, brim_error *err)
{
    BRIM_REQUIRE(err, session && n_bytes, BRIM_E_ARGUMENT, "session or n_bytes is null");
    *n_bytes = layout_of(session, session->n_token, session->has_logits).total;
    if (!data) return BRIM_OK;
    BRIM_REQUIRE(err, capacity >= *n_bytes, BRIM_E_ARGUMENT,
                 "snapshot: %zu bytes are needed, the buffer holds %zu", *n_bytes, capacity);
    struct sink sink = {.memory = data};
    return write_snapshot(session, &sink, err);
}

/* Everything about the bytes but the tokens' values: the header against the session, size, hash. */
static brim_status check_snapshot(const brim_session *session, const uint8_t *data, size_t n_bytes,
                                  const char *name, struct snapshot_header *h, struct layout *l,
                                  brim_error *err)
{
    BRIM_REQUIRE(err, n_bytes >= sizeof *h + sizeof(uint64_t), BRIM_E_FORMAT,
                 "%s: %zu bytes are too few for a snapshot", name, n_bytes);
    memcpy(h, data, sizeof *h);
    BRIM_REQUIRE(err, memcmp(h->magic, magic, sizeof magic) == 0, BRIM_E_FORMAT,
                 "%s: not a snapshot", name);
    BRIM_REQUIRE(err, h->version == SNAPSHOT_VERSION, BRIM_E_FORMAT,
                 "%s: snapshot version %" PRIu32 ", this build reads %d", name, h->version,
                 SNAPSHOT_VERSION);
    BRIM_REQUIRE(err, h->n_token >= 0 && h->has_logits <= 1, BRIM_E_FORMAT,
                 "%s: damaged snapshot header", name);
    BRIM_REQUIRE(err, h->n_token <= session->engine->model->config.n_context, BRIM_E_FORMAT,
                 "%s: the snapshot holds %" PRId64 " tokens, the model's context is %" PRId64, name,
                 h->n_token, session->engine->model->config.n_context);
    struct snapshot_header want = header_of(session, h->n_token, h->has_logits);
    BRIM_REQUIRE(err,
                 h->fingerprint == want.fingerprint && h->n_layer == want.n_layer &&
                     h->n_head_kv == want.n_head_kv && h->head_dim == want.head_dim &&
                     h->n_vocab == want.n_vocab,
                 BRIM_E_FORMAT, "%s: the snapshot was made by another model", name);
    BRIM_REQUIRE(err, h->kv_dtype == want.kv_dtype, BRIM_E_FORMAT,
                 "%s: the snapshot's keys and values are %s, the session's %s", name,
                 h->kv_dtype <= BRIM_DTYPE_U8 ? brim_dtype_name((enum brim_dtype)h->kv_dtype)
                                              : "unknown",
                 brim_dtype_name((enum brim_dtype)want.kv_dtype));
    *l = layout_of(session, h->n_token, h->has_logits);
    BRIM_REQUIRE(err, h->n_bytes == l->total && n_bytes == l->total, BRIM_E_FORMAT,
                 "%s: the snapshot has %zu bytes, its header asks for %zu", name, n_bytes,
                 l->total);
    BRIM_REQUIRE(err, h->n_token <= session->state.n_position, BRIM_E_CONTEXT,
                 "%s: %" PRId64 " tokens do not fit the context of %" PRId64, name, h->n_token,
                 session->state.n_position);
    uint64_t hash = brim_hash64(BRIM_HASH64_SEED, data, sizeof *h), stored;
    const uint8_t *at = data + sizeof *h;
    if (l->tokens) hash = brim_hash64(hash, at, l->tokens);
    at += l->tokens;
    if (l->logits) hash = brim_hash64(hash, at, l->logits);
    at += l->logits;
    for (int64_t layer = 0; l->layer && layer < h->n_layer; layer++, at += l->layer)
        hash = brim_hash64(hash, at, l->layer);
    memcpy(&stored, at, sizeof stored);
    BRIM_REQUIRE(err, hash == stored, BRIM_E_FORMAT,
                 "%s: the snapshot's checksum does not match: it is damaged", name);
    return BRIM_OK;
}

static brim_status restore(brim_session *session, const uint8_t *data, size_t n_bytes,
                           const char *name, brim_error *err)
{
    struct snapshot_header h = {0};
    struct layout l = {0};
    BRIM_TRY(check_snapshot(session, data, n_bytes, name, &h, &l, err));
    const uint8_t *tokens = data + sizeof h;
    for (int64_t i = 0; i < h.n_token; i++) {
        int32_t id;
        memcpy(&id, tokens + (size_t)i * sizeof id, sizeof id);
        BRIM_REQUIRE(err, brim_engine_id_ok(session->engine, id), BRIM_E_FORMAT,
                     "%s: token %" PRId64 " of the snapshot is outside the vocabulary", name, i);
    }
    const struct brim_backend_ops *ops = session->engine->backend->ops;
    struct brim_state *state = &session->state;
    const uint8_t *logits = tokens + l.tokens, *layers = logits + l.logits;
    /* From here only a failing device can stop us; the session is then empty, not half restored. */
    session->n_token = 0;
    session->has_logits = false;
    session->logits = NULL;
    for (int64_t layer = 0; l.layer && layer < h.n_layer; layer++)
        BRIM_TRY(
            ops->kv_import(state->kv, layer, h.n_token, layers + (size_t)layer * l.layer, err));
    if (h.has_logits) {
        BRIM_TRY(ops->rows_write(state->step, state->logits, logits, h.n_vocab, err));
        session->has_logits = true;
    }
    if (h.n_token > 0) memcpy(session->tokens, tokens, (size_t)h.n_token * sizeof(int32_t));
    session->n_token = h.n_token;
    return BRIM_OK;
}

brim_status brim_session_restore(brim_session *session, const void *data, size_t n_bytes,
                                 brim_error *err)
{
    BRIM_REQUIRE(err, session && data, BRIM_E_ARGUMENT, "session or data is null");
    return restore(session, data, n_bytes, "snapshot", err);
}

/* Write beside `path` and rename; `temporary` is "<path>.XXXXXX" and names the file on return. */
static brim_status save_beside(const brim_session *session, const char *path, char *temporary,
                               struct sink *sink, brim_error *err)
{
    int fd = mkstemp(temporary);
    BRIM_REQUIRE(err, fd >= 0, BRIM_E_IO, "%s: cannot create a file beside it: %s", path,
                 strerror(errno));
    sink->file = fdopen(fd, "wb");
    if (!sink->file) {
        brim_status status = brim_fail(err, BRIM_E_IO, "%s: %s", path, strerror(errno));
        close(fd);
        unlink(temporary);
        return status;
    }
    setvbuf(sink->file, NULL, _IONBF, 0); /* pieces are large: no second buffer */
    brim_status status = write_snapshot(session, sink, err);
    bool written = status == BRIM_OK && fsync(fd) == 0;
    int code = errno;
    if (fclose(sink->file) != 0) written = false;
    if (written && rename(temporary, path) == 0) return BRIM_OK;
    if (written) code = errno;
    unlink(temporary);
    if (status != BRIM_OK && status != BRIM_E_IO) return status;
    return brim_fail(err, BRIM_E_IO, "%s: cannot write the snapshot: %s", path, strerror(code));
}

brim_status brim_session_save(const brim_session *session, const char *path, brim_error *err)
{
    BRIM_REQUIRE(err, session && path && path[0], BRIM_E_ARGUMENT,
                 "session is null or the path empty");
    /* The rename would put a file in the place of /dev/null, a pipe or a link. */
    struct stat st;
    BRIM_REQUIRE(err, lstat(path, &st) != 0 || S_ISREG(st.st_mode), BRIM_E_IO,
                 "%s: a directory, link, pipe or device is not replaced by a snapshot", path);
    struct layout l = layout_of(session, session->n_token, session->has_logits);
    size_t largest = sizeof(struct snapshot_header);
    if (l.tokens > largest) largest = l.tokens;
    if (l.logits > largest) largest = l.logits;
    if (l.layer > largest) largest = l.layer;
    struct sink sink = {.buffer = brim_alloc(largest)};
    static const char suffix[] = ".XXXXXX";
    size_t len = strlen(path);
    char *temporary = brim_alloc(len + sizeof suffix);
    brim_status status;
    if (!sink.buffer || !temporary) {
        status = brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory for the snapshot", path);
    } else {
        snprintf(temporary, len + sizeof suffix, "%s%s", path, suffix);
        status = save_beside(session, path, temporary, &sink, err);
    }
    brim_free(sink.buffer);
    brim_free(temporary);
    return status;
}

brim_status brim_session_load(brim_session *session, const char *path, brim_error *err)
{
    BRIM_REQUIRE(err, session && path && path[0], BRIM_E_ARGUMENT,
                 "session is null or the path empty");
    struct brim_map map;
    BRIM_TRY(brim_map_open(&map, path, err));
    brim_status status =
        restore(session, map.data ? map.data : (const uint8_t *)"", map.n_bytes, path, err);
    brim_map_close(&map);
    return status;
}
