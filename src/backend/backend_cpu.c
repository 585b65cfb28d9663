/* SPDX-License-Identifier: Apache-2.0
 * The CPU backend's memory: weights repacked into panels, session buffers, keys and values. */
#include "backend/backend_cpu.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "backend/cuda_level.h"
#include "base/checked.h"
#include "base/cpu.h"
#include "base/mem.h"

static struct cpu_backend *self(struct brim_backend *backend)
{
    return (struct cpu_backend *)backend;
}

/* ---- weights ---- */

static void matrix_release(struct cpu_backend *cpu, struct brim_matrix *matrix)
{
    for (int i = 0; i < matrix->n_part; i++) {
        const struct brim_linear *linear = &matrix->parts[i];
        cpu->weight_bytes -= (uint64_t)linear->n_panel * linear->panel_bytes;
        brim_linear_free(&matrix->parts[i]);
    }
    brim_free(matrix);
}

static brim_status make_bias(struct brim_linear *linear, const struct brim_weight *const *biases,
                             int n_part, const char *name, brim_error *err)
{
    linear->bias = brim_alloc((size_t)linear->n_out * sizeof *linear->bias);
    BRIM_REQUIRE(err, linear->bias, BRIM_E_NO_MEMORY, "%s: out of memory for its bias", name);
    float *out = linear->bias;
    for (int i = 0; i < n_part; i++) {
        brim_weight_row_f32(biases[i], 0, out);
        for (int64_t j = 0; j < biases[i]->n_in; j++)
            BRIM_REQUIRE(err, isfinite(out[j]), BRIM_E_NOT_FINITE,
                         "%s: value %" PRId64 " of the bias of part %d is not finite", name, j, i);
        out += biases[i]->n_in;
    }
    return BRIM_OK;
}

static brim_status pack(struct cpu_backend *cpu, struct brim_matrix *matrix,
                        const struct brim_weight *parts, const struct brim_weight *const *biases,
                        int n_part, const char *name, brim_error *err)
{
    bool fuse = n_part > 1 && brim_linear_can_fuse(parts, n_part);
    int n_linear = fuse ? 1 : n_part, per_linear = fuse ? n_part : 1;
    for (int i = 0; i < n_linear; i++) {
        struct brim_linear *linear = &matrix->parts[i];
        BRIM_TRY(brim_linear_pack_in(linear, parts + i, per_linear, name, cpu->level, &cpu->weights,
                                     cpu->pool, err));
        matrix->n_part++;
        cpu->weight_bytes += (uint64_t)linear->n_panel * linear->panel_bytes;
        matrix->n_out += linear->n_out;
        if (biases && biases[i]) BRIM_TRY(make_bias(linear, biases + i, per_linear, name, err));
    }
    return BRIM_OK;
}

static brim_status matrix_create(struct brim_backend *backend, struct brim_matrix **out,
                                 const struct brim_weight *parts,
                                 const struct brim_weight *const *biases, int n_part,
                                 enum brim_matrix_role role, const char *name, brim_error *err)
{
    (void)role; /* panels serve every one */
    struct cpu_backend *cpu = self(backend);
    assert(n_part >= 1 && n_part <= BRIM_MATRIX_PARTS);
    *out = NULL;
    struct brim_matrix *matrix = brim_calloc(1, sizeof *matrix);
    BRIM_REQUIRE(err, matrix, BRIM_E_NO_MEMORY, "%s: out of memory", name);
    matrix->n_in = parts[0].n_in;
    brim_status status = pack(cpu, matrix, parts, biases, n_part, name, err);
    if (status != BRIM_OK) {
        matrix_release(cpu, matrix);
        return status;
    }
    matrix->next = cpu->matrices;
    cpu->matrices = matrix;
    *out = matrix;
    return BRIM_OK;
}

static void matrix_free(struct brim_backend *backend, struct brim_matrix **matrix)
{
    struct cpu_backend *cpu = self(backend);
    if (!*matrix) return;
    struct brim_matrix **link = &cpu->matrices;
    while (*link != *matrix) link = &(*link)->next;
    *link = (*matrix)->next;
    matrix_release(cpu, *matrix);
    *matrix = NULL;
}

static void vector_free(struct brim_backend *backend, struct brim_vector **vector)
{
    (void)backend;
    if (!*vector) return;
    brim_free((*vector)->data);
    brim_free(*vector);
    *vector = NULL;
}

static brim_status vector_create(struct brim_backend *backend, struct brim_vector **out,
                                 const struct brim_weight *w, const char *name, brim_error *err)
{
    *out = NULL;
    struct brim_vector *vector = brim_calloc(1, sizeof *vector);
    BRIM_REQUIRE(err, vector, BRIM_E_NO_MEMORY, "%s: out of memory", name);
    vector->n = w->n_in;
    vector->data = brim_alloc((size_t)w->n_in * sizeof *vector->data);
    if (!vector->data) {
        vector_free(backend, &vector);
        return brim_fail(err, BRIM_E_NO_MEMORY, "%s: out of memory", name);
    }
    brim_weight_row_f32(w, 0, vector->data);
    for (int64_t i = 0; i < vector->n; i++) {
        if (isfinite(vector->data[i])) continue;
        vector_free(backend, &vector);
        return brim_fail(err, BRIM_E_NOT_FINITE, "tensor %s: value %" PRId64 " is not finite", name,
                         i);
    }
    *out = vector;
    return BRIM_OK;
}

static void info(const struct brim_backend *backend, struct brim_backend_info *out)
{
    const struct cpu_backend *cpu = (const struct cpu_backend *)backend;
    static const char *const levels[] = {
        [BRIM_MATMUL_SPLIT_K] = "split-k",
        [BRIM_MATMUL_TILED] = "tiled",
        [BRIM_MATMUL_MATVEC] = "matvec",
        [BRIM_MATMUL_DENSE] = "dense",
    };
    *out = (struct brim_backend_info){
        .name = "cpu",
        .device = "",
        .level = levels[cpu->level],
        .cpu_tier = brim_cpu_tier_name(cpu->ops->tier),
        .n_thread = brim_pool_size(cpu->pool),
        .step_rows = 512,
        .weight_bytes = cpu->weight_bytes,
    };
}

/* ---- session memory ---- */

static void step_free(struct brim_backend *backend, struct brim_step **step)
{
    (void)backend;
    if (!*step) return;
    brim_free((*step)->cosine);
    brim_free((*step)->sine);
    brim_free((*step)->normed);
    brim_free((*step)->gate_up);
    brim_free((*step)->linear_scratch);
    brim_free((*step)->attention_scratch);
    brim_free(*step);
    *step = NULL;
}

static float *alloc_rows(int64_t n_row, int64_t width)
{
    uint64_t n_bytes;
    if (!brim_mul_u64((uint64_t)n_row, (uint64_t)width, &n_bytes) ||
        !brim_mul_u64(n_bytes, sizeof(float), &n_bytes))
        return NULL;
    return brim_alloc(n_bytes);
}

static brim_status step_create(struct brim_backend *backend, struct brim_step **out,
                               const struct brim_step_shape *shape, brim_error *err)
{
    struct cpu_backend *cpu = self(backend);
    *out = NULL;
    struct brim_step *step = brim_calloc(1, sizeof *step);
    BRIM_REQUIRE(err, step, BRIM_E_NO_MEMORY, "session: out of memory");
    step->backend = cpu;
    step->shape = *shape;
    int64_t n_row = shape->n_row_max;
    int n_thread = brim_pool_size(cpu->pool);
    size_t linear_bytes = 0;
    for (const struct brim_matrix *m = cpu->matrices; m; m = m->next) {
        for (int i = 0; i < m->n_part; i++) {
            size_t n_bytes = brim_linear_scratch_bytes(&m->parts[i], n_row, n_thread);
            if (n_bytes > linear_bytes) linear_bytes = n_bytes;
        }
    }
    size_t attention_bytes = brim_attention_workspace_bytes(
        (int)shape->n_head, (int)shape->kv.n_head_kv, (int)shape->kv.head_dim, n_row,
        shape->kv.n_position, n_thread);
    step->cosine = alloc_rows(n_row, shape->rotary.n_pair);
    step->sine = alloc_rows(n_row, shape->rotary.n_pair);
    step->normed = alloc_rows(n_row, shape->n_embd);
    step->gate_up = alloc_rows(n_row, 2 * shape->n_ff);
    step->linear_scratch = brim_alloc(linear_bytes);
    step->attention_scratch = brim_alloc(attention_bytes);
    if (!step->cosine || !step->sine || !step->normed || !step->gate_up || !step->linear_scratch ||
        !step->attention_scratch) {
        step_free(backend, &step);
        return brim_fail(err, BRIM_E_NO_MEMORY,
                         "session: out of memory for steps of %" PRId64 " tokens", n_row);
    }
    *out = step;
    return BRIM_OK;
}

static void rows_free(struct brim_backend *backend, struct brim_rows **rows)
{
    (void)backend;
    if (!*rows) return;
    brim_free((*rows)->data);
    brim_free(*rows);
    *rows = NULL;
}

static brim_status rows_create(struct brim_backend *backend, struct brim_rows **out,
                               int64_t n_row_max, int64_t width, brim_error *err)
{
    *out = NULL;
    struct brim_rows *rows = brim_calloc(1, sizeof *rows);
    if (rows) {
        *rows = (struct brim_rows){alloc_rows(n_row_max, width), n_row_max, width};
        if (!rows->data) rows_free(backend, &rows);
    }
    BRIM_REQUIRE(err, rows, BRIM_E_NO_MEMORY,
                 "session: out of memory for %" PRId64 " rows of %" PRId64 " values", n_row_max,
                 width);
    *out = rows;
    return BRIM_OK;
}

static void kv_free(struct brim_backend *backend, struct brim_kv **kv)
{
    (void)backend;
    if (!*kv) return;
    brim_free((*kv)->memory);
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
    kv->n_alloc = brim_attention_kv_round(shape->n_position);
    kv->plane_bytes = brim_attention_kv_bytes(shape->dtype, (int)shape->n_head_kv,
                                              (int)shape->head_dim, kv->n_alloc);
    uint64_t n_bytes;
    /* Pages of positions that are never reached are never touched. */
    if (brim_mul_u64(kv->plane_bytes, 2 * (uint64_t)shape->n_layer, &n_bytes))
        kv->memory = brim_alloc(n_bytes);
    if (!kv->memory) {
        kv_free(backend, &kv);
        return brim_fail(err, BRIM_E_NO_MEMORY,
                         "session: out of memory for keys and values of %" PRId64 " positions",
                         shape->n_position);
    }
    *out = kv;
    return BRIM_OK;
}

static brim_status kv_export(const struct brim_kv *kv, int64_t layer, int64_t n_position, void *out,
                             brim_error *err)
{
    (void)err;
    const struct brim_attention_kv view = brim_kv_layer(kv, layer);
    brim_attention_kv_export(&view, n_position, out);
    return BRIM_OK;
}

static brim_status kv_import(struct brim_kv *kv, int64_t layer, int64_t n_position,
                             const void *data, brim_error *err)
{
    (void)err;
    const struct brim_attention_kv view = brim_kv_layer(kv, layer);
    brim_attention_kv_import(&view, n_position, data);
    return BRIM_OK;
}

static brim_status step_end(struct brim_step *step, brim_error *err)
{
    (void)err;
    step->ids = NULL;
    return BRIM_OK;
}

static brim_status step_wait(struct brim_step *step, brim_error *err)
{
    (void)step;
    (void)err;
    return BRIM_OK;
}

static const float *rows_read(struct brim_step *step, const struct brim_rows *rows, brim_error *err)
{
    (void)step;
    (void)err;
    return rows->data;
}

static brim_status rows_write(struct brim_step *step, struct brim_rows *rows, const void *data,
                              int64_t n, brim_error *err)
{
    (void)step;
    (void)err;
    assert(n <= rows->width);
    memcpy(rows->data, data, (size_t)n * sizeof *rows->data);
    return BRIM_OK;
}

/* ---- the backend ---- */

static void cpu_close(struct brim_backend **backend)
{
    struct cpu_backend *cpu = self(*backend);
    assert(!cpu->matrices);
    brim_pool_free(&cpu->pool);
    brim_arena_free(&cpu->weights);
    brim_free(cpu);
    *backend = NULL;
}

static const struct brim_backend_ops cpu_ops = {
    .name = "cpu",
    .close = cpu_close,
    .matrix_create = matrix_create,
    .matrix_free = matrix_free,
    .vector_create = vector_create,
    .vector_free = vector_free,
    .info = info,
    .step_create = step_create,
    .step_free = step_free,
    .rows_create = rows_create,
    .rows_free = rows_free,
    .kv_create = kv_create,
    .kv_free = kv_free,
    .kv_export = kv_export,
    .kv_import = kv_import,
    .step_begin = brim_cpu_step_begin,
    .embed = brim_cpu_embed,
    .norm_linear = brim_cpu_norm_linear,
    .attention = brim_cpu_attention,
    .keep_last = brim_cpu_keep_last,
    .norm_gate_up = brim_cpu_norm_gate_up,
    .linear_add = brim_cpu_linear_add,
    .head = brim_cpu_head,
    .step_end = step_end,
    .step_wait = step_wait,
    .rows_read = rows_read,
    .rows_write = rows_write,
};

static brim_status choose_tier(const char *name, const struct brim_cpu_info *processor,
                               enum brim_cpu_tier *out, brim_error *err)
{
    *out = processor->tier;
    if (!name) return BRIM_OK;
    BRIM_REQUIRE(err, brim_cpu_tier_parse(name, out), BRIM_E_ARGUMENT,
                 "cpu tier: \"%s\" is none of c, avx2, avx512, neon", name);
    BRIM_REQUIRE(err, brim_cpu_tier_ok(processor, *out), BRIM_E_UNSUPPORTED,
                 "cpu tier: this processor or system does not offer %s, its best is %s", name,
                 brim_cpu_tier_name(processor->tier));
    return BRIM_OK;
}

static brim_status choose_level(const char *name, enum brim_matmul_level *out, brim_error *err)
{
    static const struct {
        const char *name;
        enum brim_matmul_level level;
    } levels[] = {
        {"split-k", BRIM_MATMUL_SPLIT_K},
        {"tiled", BRIM_MATMUL_TILED},
        {"matvec", BRIM_MATMUL_MATVEC},
        {"dense", BRIM_MATMUL_DENSE},
    };
    *out = BRIM_MATMUL_SPLIT_K;
    if (!name) return BRIM_OK;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        *out = levels[i].level;
        if (strcmp(name, levels[i].name) == 0) return BRIM_OK;
    }
    enum brim_cuda_level cuda;
    bool of_cuda = brim_cuda_level_parse(name, &cuda, NULL) == BRIM_OK;
    return brim_fail(err, BRIM_E_ARGUMENT,
                     of_cuda ? "level: \"%s\" needs device cuda; the CPU has dense, matvec, tiled, "
                               "split-k"
                             : "level: \"%s\" is none of dense, matvec, tiled, split-k",
                     name);
}

brim_status brim_backend_cpu_open(struct brim_backend **out,
                                  const struct brim_backend_cpu_options *options, brim_error *err)
{
    *out = NULL;
    struct brim_cpu_info processor = brim_cpu_detect();
    enum brim_cpu_tier tier;
    enum brim_matmul_level level;
    BRIM_TRY(choose_tier(options->tier, &processor, &tier, err));
    BRIM_TRY(choose_level(options->level, &level, err));
    struct cpu_backend *cpu = brim_calloc(1, sizeof *cpu);
    BRIM_REQUIRE(err, cpu, BRIM_E_NO_MEMORY, "backend: out of memory");
    cpu->base.ops = &cpu_ops;
    cpu->ops = brim_cpu_ops_get(tier, &processor);
    cpu->mode = options->activations_int8 ? BRIM_ACTIVATIONS_INT8 : BRIM_ACTIVATIONS_F32;
    cpu->level = level;
    brim_status status = brim_pool_create(&cpu->pool, options->n_thread, err);
    if (status != BRIM_OK) {
        brim_free(cpu);
        return status;
    }
    *out = &cpu->base;
    return BRIM_OK;
}
