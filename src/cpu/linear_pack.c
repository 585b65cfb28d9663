/* SPDX-License-Identifier: Apache-2.0
 * From the weights of a file to panels, and one row back. Panels are written one after the other,
 * each once and from start to end, so the pages of source and destination are touched in order.
 * Little-endian only, as both architectures of brim are. */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"
#include "cpu/linear.h"

struct pack_job {
    struct brim_linear *out;
    const struct brim_weight *parts;
    int n_part;
    float *rows;         /* [n_thread][n_in], only when dequantizing */
    _Atomic int64_t bad; /* lowest row * n_group + group with a scale or bias not finite */
};

/* ---- where a row of the packed matrix lies in the file ---- */

struct source_row {
    const struct brim_weight *part; /* NULL: a padding row of zeros */
    int64_t row;                    /* within the part */
    const uint8_t *data;
    const uint8_t *scales, *biases; /* AFFINE4 */
};

static struct source_row source_row(const struct pack_job *job, int64_t row)
{
    for (int i = 0; i < job->n_part; i++) {
        const struct brim_weight *part = &job->parts[i];
        if (row >= part->n_out) {
            row -= part->n_out;
            continue;
        }
        struct source_row at = {.part = part, .row = row};
        size_t file_row = (size_t)brim_weight_file_row(part, row);
        at.data = (const uint8_t *)part->data + file_row * brim_weight_row_bytes(part);
        if (part->kind == BRIM_WEIGHT_AFFINE4) {
            size_t row_bytes = (size_t)(part->n_in / part->group) * brim_dtype_bytes(part->dtype);
            at.scales = (const uint8_t *)part->scales + file_row * row_bytes;
            at.biases = (const uint8_t *)part->biases + file_row * row_bytes;
        }
        return at;
    }
    return (struct source_row){0};
}

static void note_bad(struct pack_job *job, int64_t row, int64_t group)
{
    int64_t at = row * (job->out->n_in / job->out->group) + group;
    int64_t seen = atomic_load(&job->bad);
    while (at < seen && !atomic_compare_exchange_weak(&job->bad, &seen, at)) {
    }
}

/* ---- element helpers ---- */

static uint16_t load_u16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t load_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static bool finite_f16(uint16_t bits)
{
    return (bits & 0x7C00) != 0x7C00;
}

static bool finite_element(enum brim_dtype dtype, const uint8_t *at)
{
    if (dtype == BRIM_DTYPE_F16) return finite_f16(load_u16(at));
    if (dtype == BRIM_DTYPE_BF16) return (load_u16(at) & 0x7F80) != 0x7F80;
    uint32_t bits;
    memcpy(&bits, at, sizeof bits);
    return (bits & 0x7F800000) != 0x7F800000;
}

/* Bytes 0, 2, 4 and 6. */
static uint32_t even_bytes(uint64_t bytes)
{
    bytes &= 0x00FF00FF00FF00FF;
    bytes = (bytes | bytes >> 8) & 0x0000FFFF0000FFFF;
    return (uint32_t)(bytes | bytes >> 16);
}

/* ---- one lane of one panel ---- */

static void pack_affine4(struct pack_job *job, const struct source_row *row, int64_t out_row,
                         uint8_t *panel, int lane)
{
    const struct brim_linear *out = job->out;
    size_t element = brim_dtype_bytes(out->dtype), words = (size_t)out->group / 8;
    size_t group_bytes = brim_w4_group_bytes(out->dtype, out->group);
    int64_t n_group = out->n_in / out->group;
    for (int64_t g = 0; g < n_group; g++, panel += group_bytes) {
        const uint8_t *scale = row->scales + (size_t)g * element;
        const uint8_t *bias = row->biases + (size_t)g * element;
        if (!finite_element(out->dtype, scale) || !finite_element(out->dtype, bias))
            note_bad(job, out_row, g);
        memcpy(panel + (size_t)lane * element, scale, element);
        memcpy(panel + (BRIM_PANEL + (size_t)lane) * element, bias, element);
        uint8_t *codes = panel + 2 * BRIM_PANEL * element + 4 * (size_t)lane;
        const uint8_t *from = row->data + (size_t)g * words * 4;
        for (size_t j = 0; j < words; j++) memcpy(codes + j * BRIM_PANEL * 4, from + j * 4, 4);
    }
}

/* Q4_0 and Q4_1: byte i of a block holds inputs i (low nibble) and i + 16. */
static void pack_q4(struct pack_job *job, const struct source_row *row, int64_t out_row,
                    uint8_t *panel, int lane)
{
    const struct brim_linear *out = job->out;
    bool has_min = row->part->kind == BRIM_WEIGHT_Q4_1;
    size_t element = brim_dtype_bytes(out->dtype), head = has_min ? 4 : 2;
    size_t group_bytes = brim_w4_group_bytes(out->dtype, 32);
    const uint8_t *from = row->data;
    for (int64_t g = 0; g < out->n_in / 32; g++, panel += group_bytes, from += head + 16) {
        uint16_t d = load_u16(from), m = has_min ? load_u16(from + 2) : 0;
        if (!finite_f16(d) || !finite_f16(m)) note_bad(job, out_row, g);
        uint8_t *scale = panel + (size_t)lane * element, *bias = scale + BRIM_PANEL * element;
        if (out->dtype == BRIM_DTYPE_F16) {
            if (!has_min) m = brim_f16_from_f32(-8 * brim_f32_from_f16(d)); /* exact */
            memcpy(scale, &d, 2);
            memcpy(bias, &m, 2);
        } else {
            float wide = brim_f32_from_f16(d), min = -8 * wide;
            memcpy(scale, &wide, 4);
            memcpy(bias, &min, 4);
        }
        uint32_t words[4];
        brim_weight_q4_words(from + head, words);
        uint8_t *codes = panel + 2 * BRIM_PANEL * element + 4 * (size_t)lane;
        for (size_t j = 0; j < 4; j++) memcpy(codes + j * BRIM_PANEL * 4, &words[j], 4);
    }
}

static void pack_q8(struct pack_job *job, const struct source_row *row, int64_t out_row,
                    uint8_t *panel, int lane)
{
    const uint8_t *from = row->data;
    uint8_t *codes = panel + brim_q8_scale_bytes(job->out->n_in) + 4 * (size_t)lane;
    for (int64_t g = 0; g < job->out->n_in / 32; g++, from += 34, codes += 32 * BRIM_PANEL) {
        if (!finite_f16(load_u16(from))) note_bad(job, out_row, g);
        memcpy(panel + ((size_t)g * BRIM_PANEL + (size_t)lane) * 2, from, 2);
        for (size_t j = 0; j < 4; j++) {
            uint64_t eight = load_u64(from + 2 + 8 * j);
            const uint32_t even = even_bytes(eight), odd = even_bytes(eight >> 8);
            memcpy(codes + 2 * j * BRIM_PANEL * 4, &even, 4);
            memcpy(codes + (2 * j + 1) * BRIM_PANEL * 4, &odd, 4);
        }
    }
}

static void pack_dense16(const struct source_row *row, int64_t n_in, uint8_t *panel, int lane)
{
    uint8_t *to = panel + 2 * (size_t)lane;
    for (size_t k = 0; k < (size_t)n_in; k++) memcpy(to + k * BRIM_PANEL * 2, row->data + k * 2, 2);
}

static void pack_f32(const uint8_t *from, int64_t n_in, uint8_t *panel, int lane)
{
    uint8_t *to = panel + 4 * (size_t)lane;
    for (size_t k = 0; k < (size_t)n_in; k++) memcpy(to + k * BRIM_PANEL * 4, from + k * 4, 4);
}

static bool weight_scales_finite(const struct source_row *row, int64_t group)
{
    const struct brim_weight *w = row->part;
    size_t element = brim_dtype_bytes(w->dtype), g = (size_t)group;
    switch (w->kind) {
    case BRIM_WEIGHT_DENSE:
        return true;
    case BRIM_WEIGHT_AFFINE4:
        return finite_element(w->dtype, row->scales + g * element) &&
               finite_element(w->dtype, row->biases + g * element);
    case BRIM_WEIGHT_Q4_0:
        return finite_f16(load_u16(row->data + g * 18));
    case BRIM_WEIGHT_Q4_1:
        return finite_f16(load_u16(row->data + g * 20)) &&
               finite_f16(load_u16(row->data + g * 20 + 2));
    case BRIM_WEIGHT_Q8_0:
        return finite_f16(load_u16(row->data + g * 34));
    }
    return true;
}

static void pack_lane(struct pack_job *job, int64_t out_row, uint8_t *panel, int lane, int worker)
{
    const struct brim_linear *out = job->out;
    struct source_row row = source_row(job, out_row);
    if (!row.part) return;
    if (job->rows) {
        float *values = job->rows + (size_t)worker * (size_t)out->n_in;
        for (int64_t g = 0; g < out->n_in / row.part->group; g++)
            if (!weight_scales_finite(&row, g)) note_bad(job, out_row, g);
        brim_weight_row_f32(row.part, row.row, values);
        pack_f32((const uint8_t *)values, out->n_in, panel, lane);
        return;
    }
    switch (row.part->kind) {
    case BRIM_WEIGHT_DENSE:
        if (out->dtype == BRIM_DTYPE_F32)
            pack_f32(row.data, out->n_in, panel, lane);
        else
            pack_dense16(&row, out->n_in, panel, lane);
        return;
    case BRIM_WEIGHT_AFFINE4:
        pack_affine4(job, &row, out_row, panel, lane);
        return;
    case BRIM_WEIGHT_Q4_0:
    case BRIM_WEIGHT_Q4_1:
        pack_q4(job, &row, out_row, panel, lane);
        return;
    case BRIM_WEIGHT_Q8_0:
        pack_q8(job, &row, out_row, panel, lane);
        return;
    }
}

static void pack_panel(void *arg, int64_t index, int worker)
{
    struct pack_job *job = arg;
    const struct brim_linear *out = job->out;
    uint8_t *panel = out->panels + (size_t)index * out->panel_bytes;
    int64_t first = index * BRIM_PANEL;
    /* Padding rows and the padding of Q8 scales must read as zeros. */
    if (first + BRIM_PANEL > out->n_out || out->kind == BRIM_LINEAR_Q8)
        memset(panel, 0, out->panel_bytes);
    for (int lane = 0; lane < BRIM_PANEL && first + lane < out->n_out; lane++)
        pack_lane(job, first + lane, panel, lane, worker);
}

/* ---- the whole matrix ---- */

int brim_linear_can_fuse(const struct brim_weight *parts, int n_part)
{
    return brim_weight_can_join(parts, n_part);
}

static void choose_layout(struct brim_linear *out, const struct brim_weight *parts, int n_part,
                          enum brim_matmul_level level)
{
    const struct brim_weight *first = &parts[0];
    size_t bytes = 0, n_in = (size_t)out->n_in;
    out->dtype = first->dtype;
    switch (first->kind) {
    case BRIM_WEIGHT_DENSE:
        out->kind = BRIM_LINEAR_DENSE;
        break;
    case BRIM_WEIGHT_Q8_0:
        out->kind = BRIM_LINEAR_Q8;
        out->dtype = BRIM_DTYPE_F16;
        out->group = 32;
        break;
    default:
        out->kind = BRIM_LINEAR_W4;
        out->group = first->kind == BRIM_WEIGHT_AFFINE4 ? first->group : 32;
        if (first->kind != BRIM_WEIGHT_AFFINE4) out->dtype = BRIM_DTYPE_F16;
        for (int i = 0; i < n_part; i++)
            if (parts[i].kind == BRIM_WEIGHT_Q4_0 && brim_weight_q4_0_overflows(&parts[i]))
                out->dtype = BRIM_DTYPE_F32;
    }
    if (level == BRIM_MATMUL_DENSE && out->kind != BRIM_LINEAR_DENSE) {
        out->kind = BRIM_LINEAR_DENSE;
        out->dtype = BRIM_DTYPE_F32;
    }
    switch (out->kind) {
    case BRIM_LINEAR_DENSE:
        bytes = n_in * BRIM_PANEL * brim_dtype_bytes(out->dtype);
        break;
    case BRIM_LINEAR_W4:
        bytes = n_in / (size_t)out->group * brim_w4_group_bytes(out->dtype, out->group);
        break;
    case BRIM_LINEAR_Q8:
        bytes = brim_q8_scale_bytes(out->n_in) + n_in * BRIM_PANEL;
        break;
    }
    out->panel_bytes = (bytes + 63) / 64 * 64;
}

static brim_status pack(struct brim_linear *out, const struct brim_weight *parts, int n_part,
                        const char *name, enum brim_matmul_level level, struct brim_arena *arena,
                        struct brim_pool *pool, brim_error *err)
{
    BRIM_REQUIRE(err, n_part >= 1, BRIM_E_ARGUMENT, "%s: no weight to pack", name);
    BRIM_REQUIRE(err, brim_linear_can_fuse(parts, n_part), BRIM_E_ARGUMENT,
                 "%s: weights of different kind, group or width cannot be one matrix", name);
    out->n_in = parts[0].n_in;
    for (int i = 0; i < n_part; i++) {
        BRIM_TRY(brim_weight_check(&parts[i], name, err));
        BRIM_REQUIRE(err, !__builtin_add_overflow(out->n_out, parts[i].n_out, &out->n_out),
                     BRIM_E_SHAPE, "%s: too many rows", name);
    }
    out->level = level;
    choose_layout(out, parts, n_part, level);
    out->n_panel = out->n_out / BRIM_PANEL + (out->n_out % BRIM_PANEL != 0);
    uint64_t n_bytes;
    BRIM_REQUIRE(err,
                 brim_mul_u64((uint64_t)out->n_panel, out->panel_bytes, &n_bytes) &&
                     n_bytes <= SIZE_MAX,
                 BRIM_E_SHAPE, "%s: too large", name);
    out->owns_panels = !arena;
    out->panels = arena ? brim_arena_alloc(arena, (size_t)n_bytes) : brim_alloc((size_t)n_bytes);
    BRIM_REQUIRE(err, out->panels, BRIM_E_NO_MEMORY, "%s: out of memory for %" PRIu64 " bytes",
                 name, n_bytes);

    struct pack_job job = {.out = out, .parts = parts, .n_part = n_part};
    atomic_init(&job.bad, INT64_MAX);
    if (out->kind == BRIM_LINEAR_DENSE && parts[0].kind != BRIM_WEIGHT_DENSE) {
        out->group = parts[0].kind == BRIM_WEIGHT_AFFINE4 ? parts[0].group : 32;
        job.rows = brim_calloc((size_t)brim_pool_size(pool), (size_t)out->n_in * sizeof(float));
        BRIM_REQUIRE(err, job.rows, BRIM_E_NO_MEMORY, "%s: out of memory", name);
    }
    brim_pool_run(pool, pack_panel, &job, out->n_panel);
    brim_free(job.rows);
    int64_t bad = atomic_load(&job.bad);
    if (bad != INT64_MAX) {
        int64_t n_group = out->n_in / out->group;
        return brim_fail(err, BRIM_E_NOT_FINITE,
                         "%s: the scale or bias of row %" PRId64 ", group %" PRId64
                         " is not finite",
                         name, bad / n_group, bad % n_group);
    }
    if (out->kind == BRIM_LINEAR_DENSE) out->group = 0;
    return BRIM_OK;
}

brim_status brim_linear_pack_in(struct brim_linear *out, const struct brim_weight *parts,
                                int n_part, const char *name, enum brim_matmul_level level,
                                struct brim_arena *arena, struct brim_pool *pool, brim_error *err)
{
    memset(out, 0, sizeof *out);
    brim_status status = pack(out, parts, n_part, name, level, arena, pool, err);
    if (status != BRIM_OK) brim_linear_free(out);
    return status;
}

brim_status brim_linear_pack_level(struct brim_linear *out, const struct brim_weight *parts,
                                   int n_part, const char *name, enum brim_matmul_level level,
                                   struct brim_pool *pool, brim_error *err)
{
    return brim_linear_pack_in(out, parts, n_part, name, level, NULL, pool, err);
}

brim_status brim_linear_pack(struct brim_linear *out, const struct brim_weight *parts, int n_part,
                             const char *name, struct brim_pool *pool, brim_error *err)
{
    return brim_linear_pack_level(out, parts, n_part, name, BRIM_MATMUL_SPLIT_K, pool, err);
}

void brim_linear_free(struct brim_linear *linear)
{
    if (linear->owns_panels) brim_free(linear->panels);
    brim_free(linear->bias);
    memset(linear, 0, sizeof *linear);
}

/* ---- one row back ---- */

void brim_linear_row_f32(const struct brim_linear *linear, int64_t row, float *out)
{
    const struct brim_panel panel = brim_linear_panel(linear, row / BRIM_PANEL);
    size_t lane = (size_t)(row % BRIM_PANEL);
    switch (linear->kind) {
    case BRIM_LINEAR_DENSE:
        for (size_t k = 0; k < (size_t)linear->n_in; k++)
            out[k] = brim_dtype_load(linear->dtype, panel.data, k * BRIM_PANEL + lane);
        return;
    case BRIM_LINEAR_W4: {
        size_t group_bytes = brim_w4_group_bytes(linear->dtype, linear->group);
        const uint8_t *at = panel.data;
        for (int64_t in = 0; in < linear->n_in; in += linear->group, at += group_bytes) {
            float scale = brim_dtype_load(linear->dtype, at, lane);
            float bias = brim_dtype_load(linear->dtype, at, BRIM_PANEL + lane);
            const uint8_t *codes = at + 2 * BRIM_PANEL * brim_dtype_bytes(linear->dtype);
            for (int k = 0; k < linear->group; k++) {
                uint32_t word;
                memcpy(&word, codes + ((size_t)(k / 8) * BRIM_PANEL + lane) * 4, 4);
                out[in + k] = scale * (float)(int32_t)(word >> (k % 8 * 4) & 15) + bias;
            }
        }
        return;
    }
    case BRIM_LINEAR_Q8:
        for (int64_t in = 0; in < linear->n_in; in += 32) {
            float scale = brim_dtype_load(BRIM_DTYPE_F16, brim_q8_scales(&panel, in), lane);
            const int8_t *block = brim_q8_codes(&panel, in);
            for (int k = 0; k < 32; k++) {
                size_t order = (size_t)brim_x8_order(k);
                size_t at = order / 4 * 4 * BRIM_PANEL + lane * 4 + order % 4;
                out[in + k] = scale * (float)block[at];
            }
        }
        return;
    }
}
