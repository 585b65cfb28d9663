/* SPDX-License-Identifier: Apache-2.0
 * Work is cut into items of (key head, tile of tokens), the expensive late tiles first. When that
 * gives too few items for the threads, as in decode over a long context, an item is one segment of
 * keys instead and the states are merged afterwards: same arithmetic, same bits. */
#include "cpu/attention.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/count.h"

enum {
    PANEL = 16,
    TILE_ROWS =
        96, /* query rows of a tile: its K and V blocks are converted once for all of them */
    SPLIT_TOKENS = 4 /* up to this many tokens the keys may be split over threads */
};

static int padded_dim(int head_dim)
{
    return (head_dim + PANEL - 1) / PANEL * PANEL;
}

/* Kernel scratch, shared by all tiers: K block and V block in f32, scores of 8 rows, then per row
 * q, the segment's sum, the total, and 16 floats of running state. */
size_t brim_attention_scratch_floats(int n_row, int head_dim)
{
    size_t dim = (size_t)padded_dim(head_dim);
    return dim * BRIM_ATTENTION_BLOCK * 2 + (size_t)8 * BRIM_ATTENTION_BLOCK +
           (size_t)n_row * (3 * dim + PANEL);
}

/* acc[n_row][padded dim], then largest and sum of each row. */
size_t brim_attention_partial_floats(int n_row, int head_dim)
{
    return ((size_t)n_row * ((size_t)padded_dim(head_dim) + 2) + 15) & ~(size_t)15;
}

int64_t brim_attention_kv_round(int64_t n_position)
{
    return brim_ceil_div(n_position, BRIM_ATTENTION_BLOCK) * BRIM_ATTENTION_BLOCK;
}

size_t brim_attention_kv_bytes(enum brim_dtype dtype, int n_head_kv, int head_dim, int64_t n_alloc)
{
    return (size_t)n_head_kv * (size_t)head_dim * (size_t)n_alloc * brim_dtype_bytes(dtype);
}

/* ---- storing ---- */

struct store_job {
    const struct brim_cpu_ops *ops;
    const struct brim_attention_kv *kv;
    int64_t first_pos, n_tok;
    const float *k, *v;
    int64_t k_stride, v_stride;
    int64_t first_panel, n_panel;
};

static void store_panel_f16(const struct store_job *job, int64_t head, int64_t pos, int64_t n)
{
    const struct brim_attention_kv *kv = job->kv;
    int64_t dim = kv->head_dim, tok = pos - job->first_pos;
    uint16_t *panel = (uint16_t *)kv->k + (head * kv->n_alloc + pos / PANEL * PANEL) * dim;
    uint16_t *value = (uint16_t *)kv->v + (head * kv->n_alloc + pos) * dim;
    uint16_t row[BRIM_ATTENTION_MAX_DIM];
    for (int64_t t = 0; t < n; t++) {
        job->ops->f16_from_f32(job->k + (tok + t) * job->k_stride + head * dim, dim, row);
        uint16_t *lane = panel + (pos + t) % PANEL;
        for (int64_t d = 0; d < dim; d++) lane[d * PANEL] = row[d];
        job->ops->f16_from_f32(job->v + (tok + t) * job->v_stride + head * dim, dim,
                               value + t * dim);
    }
}

static void store_panel_f32(const struct store_job *job, int64_t head, int64_t pos, int64_t n)
{
    const struct brim_attention_kv *kv = job->kv;
    int64_t dim = kv->head_dim, tok = pos - job->first_pos;
    float *panel = (float *)kv->k + (head * kv->n_alloc + pos / PANEL * PANEL) * dim;
    float *value = (float *)kv->v + (head * kv->n_alloc + pos) * dim;
    for (int64_t t = 0; t < n; t++) {
        const float *row = job->k + (tok + t) * job->k_stride + head * dim;
        float *lane = panel + (pos + t) % PANEL;
        for (int64_t d = 0; d < dim; d++) lane[d * PANEL] = row[d];
        memcpy(value + t * dim, job->v + (tok + t) * job->v_stride + head * dim,
               (size_t)dim * sizeof *value);
    }
}

static void store_item(void *arg, int64_t item, int worker)
{
    (void)worker;
    const struct store_job *job = arg;
    int64_t head = item / job->n_panel;
    int64_t begin = (job->first_panel + item % job->n_panel) * PANEL, end = begin + PANEL;
    if (begin < job->first_pos) begin = job->first_pos;
    if (end > job->first_pos + job->n_tok) end = job->first_pos + job->n_tok;
    if (job->kv->dtype == BRIM_DTYPE_F16)
        store_panel_f16(job, head, begin, end - begin);
    else
        store_panel_f32(job, head, begin, end - begin);
}

void brim_attention_kv_store(const struct brim_cpu_ops *ops, struct brim_pool *pool,
                             const struct brim_attention_kv *kv, int64_t first_pos, int64_t n_tok,
                             const float *k, int64_t k_stride, const float *v, int64_t v_stride)
{
    if (n_tok == 0) return;
    assert(first_pos >= 0 && first_pos + n_tok <= kv->n_alloc);
    struct store_job job = {.ops = ops,
                            .kv = kv,
                            .first_pos = first_pos,
                            .n_tok = n_tok,
                            .k = k,
                            .v = v,
                            .k_stride = k_stride,
                            .v_stride = v_stride,
                            .first_panel = first_pos / PANEL};
    job.n_panel = brim_ceil_div(first_pos + n_tok, PANEL) - job.first_panel;
    /* One token is less work than waking a thread. */
    brim_pool_run(n_tok > 1 ? pool : NULL, store_item, &job, job.n_panel * kv->n_head_kv);
}

/* ---- export and import ---- */

/* Bytes from the start of a head's panels to dimension d of position pos. */
static size_t panel_offset(int64_t pos, int64_t d, int64_t dim, size_t width)
{
    return (size_t)((pos / PANEL * dim + d) * PANEL + pos % PANEL) * width;
}

void brim_attention_kv_export(const struct brim_attention_kv *kv, int64_t n_position, void *out)
{
    size_t width = brim_dtype_bytes(kv->dtype);
    size_t n_bytes = (size_t)n_position * (size_t)kv->head_dim * width;
    size_t head_bytes = (size_t)kv->n_alloc * (size_t)kv->head_dim * width;
    uint8_t *to = out, *values = to + (size_t)kv->n_head_kv * n_bytes;
    for (int head = 0; head < kv->n_head_kv; head++) {
        const uint8_t *panels = (const uint8_t *)kv->k + (size_t)head * head_bytes;
        for (int64_t pos = 0; pos < n_position; pos++) {
            for (int64_t d = 0; d < kv->head_dim; d++, to += width)
                memcpy(to, panels + panel_offset(pos, d, kv->head_dim, width), width);
        }
        memcpy(values + (size_t)head * n_bytes, (const uint8_t *)kv->v + (size_t)head * head_bytes,
               n_bytes);
    }
}

void brim_attention_kv_import(const struct brim_attention_kv *kv, int64_t n_position,
                              const void *data)
{
    size_t width = brim_dtype_bytes(kv->dtype);
    size_t n_bytes = (size_t)n_position * (size_t)kv->head_dim * width;
    size_t head_bytes = (size_t)kv->n_alloc * (size_t)kv->head_dim * width;
    const uint8_t *from = data, *values = from + (size_t)kv->n_head_kv * n_bytes;
    for (int head = 0; head < kv->n_head_kv; head++) {
        uint8_t *panels = (uint8_t *)kv->k + (size_t)head * head_bytes;
        for (int64_t pos = 0; pos < n_position; pos++) {
            for (int64_t d = 0; d < kv->head_dim; d++, from += width)
                memcpy(panels + panel_offset(pos, d, kv->head_dim, width), from, width);
        }
        memcpy((uint8_t *)kv->v + (size_t)head * head_bytes, values + (size_t)head * n_bytes,
               n_bytes);
    }
}

/* ---- attention ---- */

struct run_job {
    const struct brim_cpu_ops *ops;
    const struct brim_attention_kv *kv;
    const float *q;
    int64_t q_stride;
    int group; /* query heads per key head */
    int64_t first_pos, n_tok;
    float scale;
    float *out;
    int64_t out_stride;
    int64_t tile_tok, n_tile;
    int64_t n_segment; /* of the split; 0: no split */
    float *scratch;    /* per worker */
    size_t scratch_floats;
    float *partial; /* [n_head_kv][n_segment] */
    size_t partial_floats;
};

/* Tokens of a tile, so that it has about TILE_ROWS rows. */
static int64_t tokens_per_tile(int64_t group, int64_t n_tok)
{
    int64_t n = TILE_ROWS / group;
    if (n < 1) n = 1;
    return n < n_tok ? n : n_tok;
}

size_t brim_attention_workspace_bytes(int n_head, int n_head_kv, int head_dim, int64_t n_tok,
                                      int64_t n_position, int n_thread)
{
    int group = n_head / n_head_kv;
    size_t tile_rows = (size_t)(tokens_per_tile(group, n_tok) * group);
    size_t scratch =
        brim_mem_round(brim_attention_scratch_floats((int)tile_rows, head_dim) * sizeof(float));
    int64_t split_tok = n_tok < SPLIT_TOKENS ? n_tok : SPLIT_TOKENS;
    size_t partial = brim_attention_partial_floats((int)split_tok * group, head_dim);
    size_t n_segment = (size_t)brim_ceil_div(n_position, BRIM_ATTENTION_SEGMENT);
    return scratch * (size_t)n_thread + partial * n_segment * (size_t)n_head_kv * sizeof(float);
}

static struct brim_attention_tile make_tile(const struct run_job *job, int64_t head, int64_t tok,
                                            int64_t n_tok, int worker)
{
    const struct brim_attention_kv *kv = job->kv;
    size_t head_bytes =
        (size_t)kv->n_alloc * (size_t)kv->head_dim * brim_dtype_bytes(kv->dtype) * (size_t)head;
    int64_t column = head * job->group * kv->head_dim;
    return (struct brim_attention_tile){
        .q = job->q + tok * job->q_stride + column,
        .q_stride = job->q_stride,
        .n_tok = (int)n_tok,
        .n_head = job->group,
        .first_pos = job->first_pos + tok,
        .kv_dtype = kv->dtype,
        .k = (const uint8_t *)kv->k + head_bytes,
        .v = (const uint8_t *)kv->v + head_bytes,
        .head_dim = kv->head_dim,
        .scale = job->scale,
        .out = job->out + tok * job->out_stride + column,
        .out_stride = job->out_stride,
        .scratch = job->scratch + (size_t)worker * job->scratch_floats,
    };
}

static void tile_item(void *arg, int64_t item, int worker)
{
    const struct run_job *job = arg;
    int64_t n_head = job->kv->n_head_kv;
    int64_t tok = (job->n_tile - 1 - item / n_head) * job->tile_tok;
    int64_t n_tok = job->n_tok - tok < job->tile_tok ? job->n_tok - tok : job->tile_tok;
    struct brim_attention_tile tile = make_tile(job, item % n_head, tok, n_tok, worker);
    job->ops->attention(&tile);
}

static void segment_item(void *arg, int64_t item, int worker)
{
    const struct run_job *job = arg;
    struct brim_attention_tile tile = make_tile(job, item / job->n_segment, 0, job->n_tok, worker);
    tile.partial = job->partial + (size_t)item * job->partial_floats;
    tile.segment = item % job->n_segment;
    job->ops->attention(&tile);
}

static void merge_item(void *arg, int64_t item, int worker)
{
    const struct run_job *job = arg;
    struct brim_attention_tile tile = make_tile(job, item, 0, job->n_tok, worker);
    tile.partial = job->partial + (size_t)(item * job->n_segment) * job->partial_floats;
    job->ops->attention_merge(&tile, job->n_segment);
}

void brim_attention_run(const struct brim_cpu_ops *ops, struct brim_pool *pool,
                        const struct brim_attention_kv *kv, const float *q, int64_t q_stride,
                        int n_head, int64_t first_pos, int64_t n_tok, float scale, float *out,
                        int64_t out_stride, void *workspace)
{
    if (n_tok == 0) return;
    assert(n_head % kv->n_head_kv == 0 && first_pos >= 0 && first_pos + n_tok <= kv->n_alloc);
    int n_thread = brim_pool_size(pool);
    struct run_job job = {.ops = ops,
                          .kv = kv,
                          .q = q,
                          .q_stride = q_stride,
                          .group = n_head / kv->n_head_kv,
                          .first_pos = first_pos,
                          .n_tok = n_tok,
                          .scale = scale,
                          .out = out,
                          .out_stride = out_stride,
                          .scratch = workspace};
    job.tile_tok = tokens_per_tile(job.group, n_tok);
    job.n_tile = brim_ceil_div(n_tok, job.tile_tok);
    job.scratch_floats =
        brim_mem_round(brim_attention_scratch_floats((int)job.tile_tok * job.group, kv->head_dim) *
                       sizeof(float)) /
        sizeof(float);
    int64_t n_item = job.n_tile * kv->n_head_kv;
    int64_t n_segment = brim_ceil_div(first_pos + n_tok, BRIM_ATTENTION_SEGMENT);
    /* Fewer than four items per thread leave threads idle at the end of the job. */
    if (n_tok <= SPLIT_TOKENS && job.n_tile == 1 && n_segment > 1 && n_thread > 1 &&
        n_item < 4 * n_thread) {
        job.n_segment = n_segment;
        job.partial = job.scratch + (size_t)n_thread * job.scratch_floats;
        job.partial_floats = brim_attention_partial_floats((int)n_tok * job.group, kv->head_dim);
        brim_pool_run(pool, segment_item, &job, n_segment * kv->n_head_kv);
        brim_pool_run(n_segment * n_head > 256 ? pool : NULL, merge_item, &job, kv->n_head_kv);
        return;
    }
    brim_pool_run(pool, tile_item, &job, n_item);
}
