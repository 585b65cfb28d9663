/* SPDX-License-Identifier: Apache-2.0
 * Work item: a panel of 16 outputs and up to CHUNK rows. A worker copies the panel's weights into
 * the order of the kernels (linear.h) and multiplies all rows of the chunk with it; x is converted
 * to f32 once a chunk. Results depend on nothing but their own row, output and the split. */
#include "cpu/w4_direct.h"

#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "cpu/linear.h"

/* SLICE: inputs unpacked at a time, a multiple of every group. */
enum { CHUNK = 8 * BRIM_TILE_ROWS, SLICE = 256 };

struct job {
    const struct brim_w4_direct *w;
    const struct brim_cpu_ops *ops;
    int64_t row, n_row; /* of this chunk */
    float *x;           /* matvec: rows; otherwise tiles [n_in][tile rows] */
    float *sums;        /* matvec: [n_row][n_in / group] */
    uint8_t *scratch;
    size_t worker_bytes, panel_bytes;
};

/* A worker's memory: the panel, then one unpacked slice, then two times [CHUNK][16] of sums. */
static float *slice_of(uint8_t *scratch, const struct job *job)
{
    return (float *)(void *)(scratch + job->panel_bytes);
}

static void load_row(const struct brim_w4_direct *w, int64_t row, float *out)
{
    const uint8_t *x = (const uint8_t *)w->x;
    brim_dtype_to_f32(w->x_dtype, x + row * w->x_stride * (int64_t)brim_dtype_bytes(w->x_dtype),
                      (size_t)w->n_in, out);
}

/* Rows of a tile of the chunk; all but the last have gemm_rows. */
static int tile_rows(const struct job *job, int64_t tile)
{
    int64_t left = job->n_row - tile * job->ops->gemm_rows;
    return left < job->ops->gemm_rows ? (int)left : job->ops->gemm_rows;
}

static void load_tile(void *arg, int64_t tile, int worker)
{
    const struct job *job = arg;
    const struct brim_w4_direct *w = job->w;
    int n = tile_rows(job, tile);
    int64_t row = tile * job->ops->gemm_rows;
    (void)worker;
    if (w->matvec) {
        for (int i = 0; i < n; i++) {
            float *x = job->x + (row + i) * w->n_in,
                  *sum = job->sums + (row + i) * (w->n_in / w->group);
            load_row(w, job->row + row + i, x);
            for (int64_t in = 0; in < w->n_in; in += w->group) {
                float s = 0;
                for (int k = 0; k < w->group; k++) s += x[in + k];
                *sum++ = s;
            }
        }
        return;
    }
    /* [n_in][n], slice by slice through a small buffer of rows */
    float rows[BRIM_TILE_ROWS * 32];
    float *out = job->x + row * w->n_in;
    int64_t element = (int64_t)brim_dtype_bytes(w->x_dtype);
    for (int64_t in = 0; in < w->n_in; in += 32) {
        for (int i = 0; i < n; i++)
            brim_dtype_to_f32(w->x_dtype,
                              (const uint8_t *)w->x +
                                  ((job->row + row + i) * w->x_stride + in) * element,
                              32, rows + i * 32);
        job->ops->x_pack(rows, 32, n, 32, out + in * n);
    }
}

/* Outputs that lie beyond the matrix get zeros. */
static struct brim_panel copy_panel(const struct brim_w4_direct *w, int64_t index, uint8_t *to)
{
    size_t element = brim_dtype_bytes(w->param_dtype), words = (size_t)w->group / 8;
    size_t group_bytes = brim_w4_group_bytes(w->param_dtype, w->group);
    int64_t n_group = w->n_in / w->group;
    for (int lane = 0; lane < BRIM_PANEL; lane++) {
        int64_t out = index * BRIM_PANEL + lane;
        bool inside = out < w->n_out;
        const uint8_t *codes = (const uint8_t *)w->codes + out * (w->n_in / 2);
        const uint8_t *scales = (const uint8_t *)w->scales + out * n_group * (int64_t)element;
        const uint8_t *biases = (const uint8_t *)w->biases + out * n_group * (int64_t)element;
        uint8_t *group = to;
        for (int64_t g = 0; g < n_group; g++, group += group_bytes) {
            uint8_t *scale = group + (size_t)lane * element, *bias = scale + BRIM_PANEL * element;
            uint8_t *word = group + 2 * BRIM_PANEL * element + 4 * (size_t)lane;
            if (inside) {
                memcpy(scale, scales + g * (int64_t)element, element);
                memcpy(bias, biases + g * (int64_t)element, element);
                const uint8_t *from = codes + g * (w->group / 2);
                for (size_t j = 0; j < words; j++)
                    memcpy(word + j * BRIM_PANEL * 4, from + j * 4, 4);
            } else {
                memset(scale, 0, element);
                memset(bias, 0, element);
                for (size_t j = 0; j < words; j++) memset(word + j * BRIM_PANEL * 4, 0, 4);
            }
        }
    }
    return (struct brim_panel){
        .data = to, .dtype = w->param_dtype, .group = w->group, .n_in = w->n_in};
}

/* acc[row][16] = the sums over inputs [begin, end). */
static void multiply(const struct job *job, const struct brim_panel *panel, int64_t begin,
                     int64_t end, float *slice, float *acc)
{
    int64_t n_in = job->w->n_in;
    for (int64_t in = begin; in < end; in += SLICE) {
        int64_t n = end - in < SLICE ? end - in : SLICE;
        job->ops->w4_unpack(panel, in, in + n, slice);
        for (int64_t row = 0; row < job->n_row; row += job->ops->gemm_rows) {
            int n_tile = tile_rows(job, row / job->ops->gemm_rows);
            job->ops->gemm(slice, SLICE * BRIM_PANEL, 1, n, job->x + row * n_in + in * n_tile,
                           n_tile, acc + row * BRIM_PANEL, BRIM_PANEL, in != begin);
        }
    }
}

static void run_panel(void *arg, int64_t index, int worker)
{
    const struct job *job = arg;
    const struct brim_w4_direct *w = job->w;
    uint8_t *scratch = job->scratch + (size_t)worker * job->worker_bytes;
    float *slice = slice_of(scratch, job), *sum = slice + SLICE * BRIM_PANEL;
    float *part = sum + CHUNK * BRIM_PANEL;
    const struct brim_panel panel = copy_panel(w, index, scratch);
    if (w->matvec) {
        job->ops->w4_matvec(&panel, 0, w->n_in, job->x, w->n_in, job->sums, w->n_in / w->group,
                            (int)job->n_row, sum, BRIM_PANEL);
    } else {
        int64_t length = w->n_in / w->split, n = job->n_row * BRIM_PANEL;
        for (int64_t s = 0; s < w->split; s++) {
            float *to = w->split == 1 ? sum : part;
            multiply(job, &panel, s * length, (s + 1) * length, slice, to);
            if (w->split == 1) break;
            for (int64_t i = 0; i < n; i++) {
                float plane =
                    w->planes_bf16 ? brim_f32_from_bf16(brim_bf16_from_f32(part[i])) : part[i];
                sum[i] = s == 0 ? plane : sum[i] + plane;
            }
        }
    }
    int64_t first = index * BRIM_PANEL;
    int n_out = w->n_out - first < BRIM_PANEL ? (int)(w->n_out - first) : BRIM_PANEL;
    for (int64_t row = 0; row < job->n_row; row++) {
        int64_t at = (job->row + row) * w->y_stride + first;
        const float *from = sum + row * BRIM_PANEL;
        for (int o = 0; o < n_out; o++) {
            if (w->y_dtype == BRIM_DTYPE_F32)
                ((float *)w->y)[at + o] = from[o];
            else
                ((uint16_t *)w->y)[at + o] = brim_bf16_from_f32(from[o]);
        }
    }
}

brim_status brim_w4_direct_run(const struct brim_w4_direct *w, int n_thread, brim_error *err)
{
    struct brim_cpu_info info = brim_cpu_detect();
    struct job job = {.w = w, .ops = brim_cpu_ops_get(info.tier, &info)};
    int64_t n_panel = (w->n_out + BRIM_PANEL - 1) / BRIM_PANEL;
    if (n_thread > n_panel) n_thread = (int)n_panel;
    if (n_thread < 1) n_thread = 1;
    size_t rows = (size_t)(w->n_row < CHUNK ? w->n_row : CHUNK), n_in = (size_t)w->n_in;
    size_t x_bytes = brim_mem_round(rows * n_in * sizeof(float));
    size_t sum_bytes = brim_mem_round(rows * (n_in / (size_t)w->group) * sizeof(float));
    job.panel_bytes = n_in / (size_t)w->group * brim_w4_group_bytes(w->param_dtype, w->group);
    job.worker_bytes =
        job.panel_bytes + brim_mem_round((SLICE + 2 * CHUNK) * BRIM_PANEL * sizeof(float));
    uint8_t *block = brim_alloc(x_bytes + sum_bytes + (size_t)n_thread * job.worker_bytes);
    BRIM_REQUIRE(err, block, BRIM_E_NO_MEMORY, "w4: no memory for %zu rows of %lld inputs", rows,
                 (long long)w->n_in);
    job.x = (float *)(void *)block;
    job.sums = (float *)(void *)(block + x_bytes);
    job.scratch = block + x_bytes + sum_bytes;
    struct brim_pool *pool = NULL;
    brim_status status = n_thread > 1 ? brim_pool_create(&pool, n_thread, err) : BRIM_OK;
    for (job.row = 0; status == BRIM_OK && job.row < w->n_row; job.row += CHUNK) {
        job.n_row = w->n_row - job.row < CHUNK ? w->n_row - job.row : CHUNK;
        brim_pool_run(pool, load_tile, &job, (job.n_row - 1) / job.ops->gemm_rows + 1);
        brim_pool_run(pool, run_panel, &job, n_panel);
    }
    brim_pool_free(&pool);
    brim_free(block);
    return status;
}
