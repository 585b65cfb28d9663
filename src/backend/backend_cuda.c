/* SPDX-License-Identifier: Apache-2.0
 * The CUDA backend: the device, its level, and the memory of sessions but for their steps. */
#include "backend/backend_cuda.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"
#include "cuda/runtime/runtime.h"

static struct cuda_backend *self(struct brim_backend *backend)
{
    return (struct cuda_backend *)backend;
}

static brim_status loaded(struct brim_backend *backend, const struct brim_id_range *ranges,
                          size_t n, brim_error *err)
{
    struct cuda_backend *cuda = self(backend);
    size_t n_bytes = n * sizeof *ranges;
    brim_cuda_free(cuda->ranges);
    BRIM_TRY(brim_cuda_alloc((void **)&cuda->ranges, n_bytes, "vocabulary", err));
    cuda->n_range = (int)n;
    cuda->n_vocab = n > 0 ? ranges[n - 1].end : 0;
    BRIM_TRY(brim_cuda_copy(cuda->ranges, ranges, n_bytes, cuda->stream, "vocabulary", err));
    BRIM_TRY(brim_cuda_stream_wait(cuda->stream, "loading weights", err));
    brim_cuda_staging_free(cuda);
    return BRIM_OK;
}

static void info(const struct brim_backend *backend, struct brim_backend_info *out)
{
    const struct cuda_backend *cuda = (const struct cuda_backend *)backend;
    *out = (struct brim_backend_info){
        .name = "cuda",
        .device = cuda->device.name,
        .level = brim_cuda_level_names[cuda->level],
        .cpu_tier = "",
        .step_rows = 2048,
        .weight_bytes = cuda->weight_bytes,
    };
}

/* ---- session memory ---- */

static void rows_free(struct brim_backend *backend, struct brim_rows **rows)
{
    (void)backend;
    if (!*rows) return;
    brim_cuda_free((*rows)->data);
    brim_cuda_host_free((*rows)->host);
    brim_free(*rows);
    *rows = NULL;
}

static brim_status rows_create(struct brim_backend *backend, struct brim_rows **out,
                               int64_t n_row_max, int64_t width, brim_error *err)
{
    *out = NULL;
    struct brim_rows *rows = brim_calloc(1, sizeof *rows);
    BRIM_REQUIRE(err, rows, BRIM_E_NO_MEMORY, "session: out of memory");
    *rows = (struct brim_rows){.n_row_max = n_row_max, .width = width};
    rows->stride = (width + 7) / 8 * 8;
    uint64_t n_bytes;
    brim_status status;
    if (brim_mul_u64((uint64_t)n_row_max, (uint64_t)rows->stride * sizeof(float), &n_bytes))
        status = brim_cuda_alloc(&rows->data, n_bytes, "session: activations", err);
    else
        status =
            brim_fail(err, BRIM_E_NO_MEMORY, "session: %" PRId64 " rows are too many", n_row_max);
    if (status != BRIM_OK) rows_free(backend, &rows);
    *out = rows;
    return status;
}

static void kv_free(struct brim_backend *backend, struct brim_kv **kv)
{
    (void)backend;
    if (!*kv) return;
    brim_cuda_free((*kv)->memory);
    brim_free(*kv);
    *kv = NULL;
}

static brim_status kv_create(struct brim_backend *backend, struct brim_kv **out,
                             const struct brim_kv_shape *shape, brim_error *err)
{
    *out = NULL;
    struct brim_kv *kv = brim_calloc(1, sizeof *kv);
    BRIM_REQUIRE(err, kv, BRIM_E_NO_MEMORY, "session: out of memory");
    kv->shape = *shape;
    kv->stream = self(backend)->stream;
    uint64_t n_bytes = (uint64_t)shape->n_position;
    bool ok = brim_mul_u64(
        n_bytes, (uint64_t)(shape->n_head_kv * shape->head_dim) * brim_dtype_bytes(shape->dtype),
        &n_bytes);
    n_bytes = (n_bytes + 255) / 256 * 256;
    kv->plane_bytes = n_bytes;
    ok = ok && brim_mul_u64(n_bytes, 2 * (uint64_t)shape->n_layer, &n_bytes);
    brim_status status =
        ok ? brim_cuda_alloc((void **)&kv->memory, n_bytes, "session: keys and values", err)
           : brim_fail(err, BRIM_E_NO_MEMORY,
                       "session: keys and values of %" PRId64 " positions are too many",
                       shape->n_position);
    if (status != BRIM_OK) kv_free(backend, &kv);
    *out = kv;
    return status;
}

/* Both ways: the session's device work is over, or its results would not be known. */
static brim_status kv_copy(const struct brim_kv *kv, int64_t layer, int64_t n_position, void *host,
                           bool to_host, brim_error *err)
{
    const struct brim_kv_shape *s = &kv->shape;
    size_t row = (size_t)s->head_dim * brim_dtype_bytes(s->dtype);
    size_t line = (size_t)n_position * row, pitch = (size_t)s->n_position * row;
    size_t n_line = (size_t)s->n_head_kv;
    for (size_t i = 0; i < 2; i++) {
        uint8_t *device = kv->memory + ((size_t)layer * 2 + i) * kv->plane_bytes;
        uint8_t *at = (uint8_t *)host + i * n_line * line;
        BRIM_TRY(to_host ? brim_cuda_copy_2d(at, line, device, pitch, line, n_line, kv->stream,
                                             "saving keys and values", err)
                         : brim_cuda_copy_2d(device, pitch, at, line, line, n_line, kv->stream,
                                             "restoring keys and values", err));
    }
    return brim_cuda_stream_wait(kv->stream, "copying keys and values", err);
}

static brim_status kv_export(const struct brim_kv *kv, int64_t layer, int64_t n_position, void *out,
                             brim_error *err)
{
    return kv_copy(kv, layer, n_position, out, true, err);
}

static brim_status kv_import(struct brim_kv *kv, int64_t layer, int64_t n_position,
                             const void *data, brim_error *err)
{
    /* Only read when copying to the device. */
    return kv_copy(kv, layer, n_position, (void *)(uintptr_t)data, false, err);
}

/* ---- the backend ---- */

static void cuda_close(struct brim_backend **backend)
{
    struct cuda_backend *cuda = self(*backend);
    assert(!cuda->matrices);
    if (cuda->stream) (void)brim_cuda_stream_wait(cuda->stream, "closing the device", NULL);
    brim_cuda_staging_free(cuda);
    brim_cuda_free(cuda->ranges);
    brim_cuda_stream_free(cuda->stream);
    brim_free(cuda);
    *backend = NULL;
}

static const struct brim_backend_ops cuda_ops = {
    .name = "cuda",
    .close = cuda_close,
    .matrix_create = brim_cuda_matrix_create,
    .matrix_free = brim_cuda_matrix_free,
    .vector_create = brim_cuda_vector_create,
    .vector_free = brim_cuda_vector_free,
    .loaded = loaded,
    .info = info,
    .step_create = brim_cuda_step_create,
    .step_free = brim_cuda_step_free,
    .rows_create = rows_create,
    .rows_free = rows_free,
    .kv_create = kv_create,
    .kv_free = kv_free,
    .kv_export = kv_export,
    .kv_import = kv_import,
    .step_begin = brim_cuda_step_begin,
    .embed = brim_cuda_op_embed,
    .norm_linear = brim_cuda_op_norm_linear,
    .attention = brim_cuda_op_attention,
    .keep_last = brim_cuda_op_keep_last,
    .norm_gate_up = brim_cuda_op_norm_gate_up,
    .linear_add = brim_cuda_op_linear_add,
    .head = brim_cuda_op_head,
    .step_end = brim_cuda_step_end,
    .step_wait = brim_cuda_step_wait,
    .sample = brim_cuda_op_sample,
    .rows_read = brim_cuda_rows_read,
    .rows_write = brim_cuda_rows_write,
};

brim_status brim_backend_cuda_open(struct brim_backend **out,
                                   const struct brim_backend_cuda_options *options, brim_error *err)
{
    *out = NULL;
    enum brim_cuda_level level;
    BRIM_TRY(brim_cuda_level_parse(options->level, &level, err));
    struct brim_cuda_device device;
    BRIM_TRY(brim_cuda_device_get(options->ordinal, &device, err));
    struct cuda_backend *cuda = brim_calloc(1, sizeof *cuda);
    BRIM_REQUIRE(err, cuda, BRIM_E_NO_MEMORY, "device cuda: out of memory");
    cuda->base.ops = &cuda_ops;
    cuda->level = level;
    cuda->device = device;
    brim_status status = brim_cuda_stream_create(&cuda->stream, err);
    if (status != BRIM_OK) {
        brim_free(cuda);
        return status;
    }
    *out = &cuda->base;
    return BRIM_OK;
}
