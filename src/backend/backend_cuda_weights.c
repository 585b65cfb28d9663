/* SPDX-License-Identifier: Apache-2.0
 * Weights on their way to the device. Rows are put into two pieces of page-locked memory in turn,
 * in the order the device wants them (rotary rows, gate beside up, GGUF blocks as affine groups),
 * so a piece is filled while the one before is copied. At the level DENSE 4-bit weights are
 * dequantized there, at HOPPER repacked; the file's order is then kept for the embedding only. */
#include "backend/backend_cuda.h"
#include "backend/backend_rows.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "cuda/runtime/runtime.h"
#include "cuda/w4/dequantize.h"
#include "cuda/w4/w4.h"

enum { PIECE_BYTES = 16 << 20 };

static struct cuda_backend *self(struct brim_backend *backend)
{
    return (struct cuda_backend *)backend;
}

/* ---- to the device ---- */

static brim_status staging_open(struct cuda_backend *cuda, brim_error *err)
{
    for (int i = 0; i < 2; i++) {
        if (!cuda->staging.piece[i])
            BRIM_TRY(brim_cuda_host_alloc((void **)&cuda->staging.piece[i], PIECE_BYTES,
                                          "loading weights", err));
        if (!cuda->staging.free[i]) BRIM_TRY(brim_cuda_event_create(&cuda->staging.free[i], err));
    }
    return BRIM_OK;
}

void brim_cuda_staging_free(struct cuda_backend *cuda)
{
    for (int i = 0; i < 2; i++) {
        brim_cuda_host_free(cuda->staging.piece[i]);
        brim_cuda_event_free(cuda->staging.free[i]);
        cuda->staging.piece[i] = NULL;
        cuda->staging.free[i] = NULL;
    }
    brim_cuda_free(cuda->staging.raw);
    cuda->staging.raw = NULL;
    cuda->staging.raw_bytes = 0;
}

/* The next piece of page-locked memory, once the copy from it is over. */
static brim_status piece_take(struct cuda_backend *cuda, uint8_t **out, brim_error *err)
{
    *out = cuda->staging.piece[cuda->staging.turn];
    return brim_cuda_event_wait(cuda->staging.free[cuda->staging.turn], err);
}

static brim_status piece_send(struct cuda_backend *cuda, void *to, size_t n_bytes, const char *name,
                              brim_error *err)
{
    int turn = cuda->staging.turn;
    cuda->staging.turn = !turn;
    BRIM_TRY(brim_cuda_copy(to, cuda->staging.piece[turn], n_bytes, cuda->stream, name, err));
    return brim_cuda_event_record(cuda->staging.free[turn], cuda->stream, err);
}

/* Rows [0, n_row) of an array, each row_bytes long, to device memory. */
static brim_status send_rows(struct cuda_backend *cuda, void *to, size_t row_bytes, int64_t n_row,
                             enum brim_cuda_array array, const struct brim_cuda_source *s,
                             brim_error *err)
{
    BRIM_REQUIRE(err, row_bytes <= PIECE_BYTES, BRIM_E_SHAPE, "%s: rows of %zu bytes are too long",
                 s->name, row_bytes);
    if (row_bytes == 0) return BRIM_OK;
    int64_t n_piece = (int64_t)(PIECE_BYTES / row_bytes);
    for (int64_t row = 0; row < n_row; row += n_piece) {
        int64_t n = n_row - row < n_piece ? n_row - row : n_piece;
        uint8_t *piece;
        BRIM_TRY(piece_take(cuda, &piece, err));
        for (int64_t i = 0; i < n; i++)
            BRIM_TRY(brim_cuda_row_fill(s, array, row + i, piece + (size_t)i * row_bytes, err));
        BRIM_TRY(piece_send(cuda, (uint8_t *)to + (size_t)row * row_bytes, (size_t)n * row_bytes,
                            s->name, err));
    }
    return BRIM_OK;
}

static size_t round_256(size_t n)
{
    return (n + 255) / 256 * 256;
}

/* Set the pointers of *w inside one block; returns its size (block NULL: only that). */
static size_t raw_place(struct brim_cuda_table *w, uint8_t *block)
{
    const void **const arrays[] = {&w->data, &w->scales, &w->biases};
    size_t at = 0;
    for (int i = 0; i < 3; i++) {
        size_t n_bytes = (size_t)w->n_out * brim_cuda_row_bytes(w, (enum brim_cuda_array)i);
        if (block) *arrays[i] = n_bytes ? block + at : NULL;
        at += round_256(n_bytes);
    }
    return at;
}

static brim_status raw_send(struct cuda_backend *cuda, const struct brim_cuda_table *w,
                            const struct brim_cuda_source *s, brim_error *err)
{
    const void *const arrays[] = {w->data, w->scales, w->biases};
    for (int i = 0; i < 3; i++) {
        enum brim_cuda_array array = (enum brim_cuda_array)i;
        /* The description has device pointers to const: only loading writes there. */
        BRIM_TRY(send_rows(cuda, (void *)(uintptr_t)arrays[i], brim_cuda_row_bytes(w, array),
                           w->n_out, array, s, err));
    }
    return BRIM_OK;
}

/* Device memory that is only needed until the matrix is repacked. */
static brim_status scratch(struct cuda_backend *cuda, size_t n_bytes, const char *name,
                           uint8_t **out, brim_error *err)
{
    if (cuda->staging.raw_bytes < n_bytes) {
        brim_cuda_free(cuda->staging.raw); /* waits for its users */
        cuda->staging.raw_bytes = 0;
        BRIM_TRY(brim_cuda_alloc(&cuda->staging.raw, n_bytes, name, err));
        cuda->staging.raw_bytes = n_bytes;
    }
    *out = cuda->staging.raw;
    return BRIM_OK;
}

static brim_status own(struct cuda_backend *cuda, struct brim_matrix *matrix, size_t n_bytes,
                       const char *name, void **out, brim_error *err)
{
    BRIM_TRY(brim_cuda_alloc(out, n_bytes, name, err));
    matrix->n_bytes += n_bytes;
    cuda->weight_bytes += n_bytes;
    return BRIM_OK;
}

static brim_status dequantize(struct cuda_backend *cuda, struct brim_matrix *matrix,
                              struct brim_cuda_linear *linear, const struct brim_cuda_table *file,
                              const char *name, brim_error *err)
{
    struct brim_cuda_table *w = &linear->raw;
    *w = (struct brim_cuda_table){.kind = BRIM_WEIGHT_DENSE,
                                  .dtype = BRIM_DTYPE_BF16,
                                  .n_out = file->n_out,
                                  .n_in = file->n_in};
    void *block;
    BRIM_TRY(own(cuda, matrix, raw_place(w, NULL), name, &block, err));
    raw_place(w, block);
    const struct brim_cuda_dequantize_args args = {.w = *file, .out = block};
    return brim_cuda_dequantize(&args, cuda->stream, err);
}

static brim_status repack(struct cuda_backend *cuda, struct brim_matrix *matrix,
                          struct brim_cuda_linear *linear, const struct brim_cuda_table *file,
                          const char *name, brim_error *err)
{
    size_t codes = brim_cuda_w4_packed_codes_bytes(file->n_out, file->n_in);
    size_t params =
        brim_cuda_w4_packed_params_bytes(file->n_out, file->n_in, file->group, file->dtype);
    void *block;
    BRIM_TRY(own(cuda, matrix, codes + params, name, &block, err));
    linear->packed.codes = block;
    linear->packed.params = (uint8_t *)block + codes;
    const struct brim_cuda_w4 args = {
        .n_in = file->n_in,
        .n_out = file->n_out,
        .group = file->group,
        .param_dtype = file->dtype,
        .codes = file->data,
        .scales = file->scales,
        .biases = file->biases,
    };
    return brim_cuda_w4_pack(&args, &linear->packed, cuda->stream, err);
}

/* The parts of `s` into *linear, already described by linear->raw. */
static brim_status send(struct cuda_backend *cuda, struct brim_matrix *matrix,
                        struct brim_cuda_linear *linear, const struct brim_cuda_source *s,
                        enum brim_matrix_role role, brim_error *err)
{
    struct brim_cuda_table file = linear->raw;
    size_t n_bytes = raw_place(&file, NULL);
    bool table = role == BRIM_MATRIX_TABLE || role == BRIM_MATRIX_TABLE_AND_HEAD;
    bool dense = cuda->level == BRIM_CUDA_DENSE && file.kind != BRIM_WEIGHT_DENSE;
    bool packed = cuda->level == BRIM_CUDA_HOPPER && linear->is_w4 && role != BRIM_MATRIX_TABLE;
    bool keep = !dense && (!packed || table);
    if (packed) BRIM_TRY(brim_cuda_rows_check_packable(s, err));
    void *block;
    if (keep)
        BRIM_TRY(own(cuda, matrix, n_bytes, s->name, &block, err));
    else
        BRIM_TRY(scratch(cuda, n_bytes, s->name, (uint8_t **)&block, err));
    raw_place(&file, block);
    if (keep) linear->raw = file;
    BRIM_TRY(raw_send(cuda, &file, s, err));
    if (packed) BRIM_TRY(repack(cuda, matrix, linear, &file, s->name, err));
    if (dense) {
        BRIM_TRY(dequantize(cuda, matrix, linear, &file, s->name, err));
        linear->is_w4 = false;
    }
    return BRIM_OK;
}

static brim_status send_vector(struct cuda_backend *cuda, float *to, const float *from, int64_t n,
                               const char *name, brim_error *err)
{
    int64_t n_piece = PIECE_BYTES / (int64_t)sizeof *from;
    for (int64_t i = 0; i < n; i += n_piece) {
        size_t n_bytes = (size_t)(n - i < n_piece ? n - i : n_piece) * sizeof *from;
        uint8_t *piece;
        BRIM_TRY(piece_take(cuda, &piece, err));
        memcpy(piece, from + i, n_bytes);
        BRIM_TRY(piece_send(cuda, to + i, n_bytes, name, err));
    }
    return BRIM_OK;
}

/* Additive biases in the order of the rows; `values` is host memory of n_out. */
static brim_status send_bias(struct cuda_backend *cuda, struct brim_matrix *matrix,
                             struct brim_cuda_linear *linear, const struct brim_cuda_source *s,
                             const struct brim_weight *const *biases, float *values,
                             brim_error *err)
{
    float *at = values;
    for (int i = 0; i < s->n_part; i++) {
        brim_weight_row_f32(biases[i], 0, at);
        for (int64_t j = 0; j < biases[i]->n_in; j++)
            BRIM_REQUIRE(err, isfinite(at[j]), BRIM_E_NOT_FINITE,
                         "%s: value %" PRId64 " of the bias of part %d is not finite", s->name, j,
                         i);
        at += biases[i]->n_in;
    }
    BRIM_TRY(own(cuda, matrix, (size_t)linear->n_out * sizeof(float), s->name,
                 (void **)&linear->bias, err));
    return send_vector(cuda, linear->bias, values, linear->n_out, s->name, err);
}

/* ---- matrices ---- */

static void describe(struct brim_cuda_linear *linear, struct brim_cuda_source *s)
{
    *linear = (struct brim_cuda_linear){.paired = s->paired};
    linear->raw = brim_cuda_rows_describe(s);
    linear->is_w4 = linear->raw.kind == BRIM_WEIGHT_AFFINE4;
    linear->n_out = linear->raw.n_out;
    linear->n_in = linear->raw.n_in;
}

static void matrix_release(struct cuda_backend *cuda, struct brim_matrix *matrix)
{
    cuda->weight_bytes -= matrix->n_bytes;
    for (int i = 0; i < matrix->n_part; i++) {
        brim_cuda_free((void *)matrix->parts[i].raw.data);
        brim_cuda_free(matrix->parts[i].packed.codes);
        brim_cuda_free(matrix->parts[i].bias);
    }
    brim_free(matrix);
}

static brim_status load(struct cuda_backend *cuda, struct brim_matrix *matrix,
                        const struct brim_weight *parts, const struct brim_weight *const *biases,
                        int n_part, enum brim_matrix_role role, const char *name, brim_error *err)
{
    BRIM_TRY(staging_open(cuda, err));
    for (int i = 0; i < n_part; i++) {
        BRIM_TRY(brim_weight_check(&parts[i], name, err));
        matrix->n_out += parts[i].n_out;
    }
    matrix->n_in = parts[0].n_in;
    bool join = n_part > 1 && brim_weight_can_join(parts, n_part);
    bool pair = join && role == BRIM_MATRIX_GATE_UP && cuda->level == BRIM_CUDA_HOPPER &&
                parts[0].n_out % 8 == 0 && parts[0].n_out == parts[1].n_out;
    int n_linear = join ? 1 : n_part;
    for (int i = 0; i < n_linear; i++) {
        struct brim_cuda_linear *linear = &matrix->parts[i];
        struct brim_cuda_source s = {
            .parts = parts + i, .n_part = join ? n_part : 1, .paired = pair, .name = name};
        describe(linear, &s);
        matrix->n_part++;
        BRIM_TRY(send(cuda, matrix, linear, &s, role, err));
        if (!biases || !biases[i]) continue;
        assert(!pair);
        float *values = brim_alloc((size_t)linear->n_out * sizeof *values);
        BRIM_REQUIRE(err, values, BRIM_E_NO_MEMORY, "%s: out of memory for its bias", name);
        brim_status status = send_bias(cuda, matrix, linear, &s, biases + i, values, err);
        brim_free(values);
        BRIM_TRY(status);
    }
    return BRIM_OK;
}

brim_status brim_cuda_matrix_create(struct brim_backend *backend, struct brim_matrix **out,
                                    const struct brim_weight *parts,
                                    const struct brim_weight *const *biases, int n_part,
                                    enum brim_matrix_role role, const char *name, brim_error *err)
{
    struct cuda_backend *cuda = self(backend);
    assert(n_part >= 1 && n_part <= BRIM_CUDA_PARTS);
    *out = NULL;
    struct brim_matrix *matrix = brim_calloc(1, sizeof *matrix);
    BRIM_REQUIRE(err, matrix, BRIM_E_NO_MEMORY, "%s: out of memory", name);
    brim_status status = load(cuda, matrix, parts, biases, n_part, role, name, err);
    if (status != BRIM_OK) {
        matrix_release(cuda, matrix);
        return status;
    }
    matrix->next = cuda->matrices;
    cuda->matrices = matrix;
    *out = matrix;
    return BRIM_OK;
}

void brim_cuda_matrix_free(struct brim_backend *backend, struct brim_matrix **matrix)
{
    struct cuda_backend *cuda = self(backend);
    if (!*matrix) return;
    struct brim_matrix **link = &cuda->matrices;
    while (*link != *matrix) link = &(*link)->next;
    *link = (*matrix)->next;
    matrix_release(cuda, *matrix);
    *matrix = NULL;
}

/* ---- vectors ---- */

void brim_cuda_vector_free(struct brim_backend *backend, struct brim_vector **vector)
{
    (void)backend;
    if (!*vector) return;
    brim_cuda_free((*vector)->data);
    brim_free(*vector);
    *vector = NULL;
}

static brim_status vector_load(struct cuda_backend *cuda, struct brim_vector *vector,
                               const struct brim_weight *w, float *values, const char *name,
                               brim_error *err)
{
    brim_weight_row_f32(w, 0, values);
    for (int64_t i = 0; i < vector->n; i++)
        BRIM_REQUIRE(err, isfinite(values[i]), BRIM_E_NOT_FINITE,
                     "tensor %s: value %" PRId64 " is not finite", name, i);
    BRIM_TRY(staging_open(cuda, err));
    BRIM_TRY(
        brim_cuda_alloc((void **)&vector->data, (size_t)vector->n * sizeof *values, name, err));
    return send_vector(cuda, vector->data, values, vector->n, name, err);
}

brim_status brim_cuda_vector_create(struct brim_backend *backend, struct brim_vector **out,
                                    const struct brim_weight *w, const char *name, brim_error *err)
{
    *out = NULL;
    struct brim_vector *vector = brim_calloc(1, sizeof *vector);
    float *values = brim_alloc((size_t)w->n_in * sizeof *values);
    brim_status status = BRIM_E_NO_MEMORY;
    if (vector && values) {
        vector->n = w->n_in;
        status = vector_load(self(backend), vector, w, values, name, err);
    } else {
        brim_fail(err, status, "%s: out of memory", name);
    }
    brim_free(values);
    if (status != BRIM_OK) brim_cuda_vector_free(backend, &vector);
    *out = vector;
    return status;
}
