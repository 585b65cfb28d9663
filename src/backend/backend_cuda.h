/* SPDX-License-Identifier: Apache-2.0
 * What the opaque types of backend.h are on CUDA; for backend_cuda.c (device, session memory),
 * backend_cuda_weights.c (loading), backend_cuda_linear.c (which product), backend_cuda_step.c
 * (operators) and backend_cuda_record.c (steps replayed as graphs). The residual stream, queries,
 * keys, values and logits are f32, the inputs of products bf16. Every session has a stream of its
 * own; weights and snapshots use the engine's. */
#ifndef BRIM_BACKEND_BACKEND_CUDA_H
#define BRIM_BACKEND_BACKEND_CUDA_H

#include "backend/backend.h"
#include "backend/cuda_level.h"
#include "cuda/device.h"
#include "cuda/model/ops.h"
#include "cuda/w4/pack.h"
#include "plan/w4_hopper.h"

enum { BRIM_CUDA_PARTS = 3 };

/* y = x W^T for one kind of weights. */
struct brim_cuda_linear {
    bool is_w4;
    bool paired; /* gate and up rows in the order of brim_w4_pair_row */
    int64_t n_out, n_in;
    struct brim_cuda_table raw;        /* checkpoint order; data NULL where only `packed` is kept */
    struct brim_cuda_w4_packed packed; /* is_w4 at the Hopper level; else codes NULL */
    float *bias;                       /* device, [n_out] in the order of the rows, or NULL */
};

struct brim_matrix {
    struct brim_cuda_linear parts[BRIM_CUDA_PARTS]; /* one if the weights could be joined */
    int n_part;
    int64_t n_in, n_out;
    uint64_t n_bytes;
    struct brim_matrix *next; /* all matrices of the backend: workspaces are sized over them */
};

struct brim_vector {
    float *data; /* device */
    int64_t n;
};

struct brim_rows {
    void *data;            /* device; 4 bytes an element, bf16 rows use half */
    enum brim_dtype dtype; /* of what was written last */
    float *host;           /* page-locked copy, made by the first rows_read */
    int64_t n_row_max, width;
    int64_t stride; /* width rounded up to 16 bytes of bf16 */
    int64_t n_row;  /* rows the head wrote last */
};

struct brim_kv {
    struct brim_kv_shape shape;
    size_t plane_bytes; /* of k, and of v, of one layer */
    uint8_t *memory;    /* device, [n_layer][k, v][plane_bytes] */
    void *stream;       /* the engine's: exports and imports */
};

struct cuda_backend {
    struct brim_backend base;
    enum brim_cuda_level level;
    struct brim_cuda_device device;
    void *stream; /* weights, snapshots */
    struct brim_matrix *matrices;
    uint64_t weight_bytes;
    int32_t *ranges; /* device, [n_range][2]: ids that may be sampled */
    int n_range;
    int64_t n_vocab; /* the last of them, and one more */
    /* While weights load: two pieces of page-locked memory in turn, and device memory for weights
     * in the file's order before they are repacked. */
    struct {
        uint8_t *piece[2];
        void *free[2]; /* events: the piece has been read */
        int turn;
        void *raw;
        size_t raw_bytes;
    } staging;
};

/* What the host tells a step; one block so that one copy brings it. */
struct brim_cuda_input {
    int64_t first_pos;
    int64_t last_row; /* of the rows that somebody asked for: a recorded step may have more */
    int32_t ids[];
};

static inline size_t brim_cuda_input_bytes(int64_t n_row)
{
    return sizeof(struct brim_cuda_input) + (size_t)n_row * sizeof(int32_t);
}

/* The launches of a step that wants logits, for row counts that all take the same ones. */
struct brim_cuda_recording {
    void *graph;     /* NULL: not recorded yet */
    int64_t key_max; /* positions it may see */
    const struct brim_rows *logits;
    bool met; /* such a step has run, launch by launch */
};

/* Rows up to which steps are recorded; more keep the device busy longer than launching takes. */
enum { BRIM_CUDA_RECORD_ROWS = 256, BRIM_CUDA_RECORDINGS = 18 };

/* Schedules already made: making one costs the host as much as a launch. */
enum { BRIM_CUDA_PLANS = 16 };
struct brim_cuda_plan {
    int64_t n_row, n_in, n_out; /* n_row 0: none */
    struct brim_w4_hopper_plan plan;
};

/* Page-locked: what the device answers, and what sampling asks. */
struct brim_cuda_result {
    int32_t id;    /* the likeliest token */
    int32_t drawn; /* the token sampled */
    float uniform;
};

struct brim_step {
    struct cuda_backend *backend;
    struct brim_step_shape shape;
    void *stream;
    brim_status status; /* the first failure of the step */
    brim_error error;
    int64_t n_row, first_pos;

    struct brim_cuda_input *input;      /* device */
    struct brim_cuda_input *host_in[3]; /* page-locked; 0 and 1 in turn, 2 for recorded steps */
    void *host_in_free[2];              /* events: the copy has been made */
    int host_in_turn;
    float *rope_table; /* [n_position][2][n_pair] */
    void *normed;      /* bf16 [n_row_max][normed_stride]: input of a product */
    int64_t normed_stride;
    void *product; /* bf16 [n_row_max][product_stride]: a product before it is used */
    int64_t product_stride;
    void *q;               /* kv.dtype [n_row_max][n_head][head_dim] */
    float *plain;          /* of the plain operators; DENSE and MATVEC */
    void *attention;       /* of attention_decode; zeroed once */
    void *attention_plain; /* f32 [n_head][n_row_max][n_position]; DENSE to FUSED */
    void *linear;          /* of products: counters (zeroed once), partial sums, planes */
    void *sample;          /* of sampling; zeroed once */
    struct brim_cuda_result *result;
    int32_t *recent;                   /* page-locked, [n_position]: the penalty's window */
    const struct brim_rows *argmax_of; /* result->id is theirs, once the step has been waited for */

    struct brim_cuda_recording recordings[BRIM_CUDA_RECORDINGS];
    struct brim_cuda_recording *recording; /* the one the operators are captured for, or NULL */
    bool replaying;                        /* a recorded step runs that nobody has waited for */
    struct brim_cuda_plan plans[BRIM_CUDA_PLANS];
    int plan_turn;
};

/* backend_cuda_weights.c */
brim_status brim_cuda_matrix_create(struct brim_backend *backend, struct brim_matrix **out,
                                    const struct brim_weight *parts,
                                    const struct brim_weight *const *biases, int n_part,
                                    enum brim_matrix_role role, const char *name, brim_error *err);
void brim_cuda_matrix_free(struct brim_backend *backend, struct brim_matrix **matrix);
brim_status brim_cuda_vector_create(struct brim_backend *backend, struct brim_vector **out,
                                    const struct brim_weight *w, const char *name, brim_error *err);
void brim_cuda_vector_free(struct brim_backend *backend, struct brim_vector **vector);
/* Loading is over (or failed): its memory goes. */
void brim_cuda_staging_free(struct cuda_backend *cuda);

/* backend_cuda_linear.c */

/* Device bytes of step->linear for products of up to n_row rows over all matrices. */
brim_status brim_cuda_product_bytes(const struct cuda_backend *cuda, int64_t n_row, size_t *out,
                                    brim_error *err);
struct brim_cuda_product {
    /* Input: bf16 [n_row][x_stride], or f32 rows and the norm they go through first. */
    const void *x;
    int64_t x_stride, n_row;
    const struct brim_vector *norm;
    float eps;
    void *y;
    int64_t y_stride;
    enum brim_w4_epilogue epilogue;
};
/* y = x W^T + bias, parts side by side, by the kernel of the level. SWIGLU wants one paired part,
 * ADD_F32 one part. */
void brim_cuda_product(struct brim_step *step, const struct brim_matrix *w,
                       const struct brim_cuda_product *p);

/* backend_cuda_record.c */

/* The first failure of a step stays. */
void brim_cuda_note(struct brim_step *step, brim_status status);
/* Positions the step's attention may see: a recording's capacity. */
int64_t brim_cuda_key_max(const struct brim_step *step);
bool brim_cuda_step_begin(struct brim_step *step, const int32_t *ids, int64_t n_row,
                          int64_t first_pos, bool want_logits);
brim_status brim_cuda_step_end(struct brim_step *step, brim_error *err);

/* backend_cuda_step.c */
brim_status brim_cuda_step_create(struct brim_backend *backend, struct brim_step **out,
                                  const struct brim_step_shape *shape, brim_error *err);
void brim_cuda_step_free(struct brim_backend *backend, struct brim_step **step);
void brim_cuda_op_embed(struct brim_step *step, const struct brim_matrix *table,
                        struct brim_rows *x);
void brim_cuda_op_norm_linear(struct brim_step *step, const struct brim_rows *x,
                              const struct brim_vector *norm, float eps,
                              const struct brim_matrix *w, struct brim_rows *y);
void brim_cuda_op_attention(struct brim_step *step, const struct brim_attention_args *args);
void brim_cuda_op_keep_last(struct brim_step *step, int64_t n, struct brim_rows *const *buffers,
                            int n_buffer);
void brim_cuda_op_norm_gate_up(struct brim_step *step, const struct brim_rows *x,
                               const struct brim_vector *norm, float eps,
                               const struct brim_matrix *w, struct brim_rows *y);
void brim_cuda_op_linear_add(struct brim_step *step, const struct brim_rows *x,
                             const struct brim_matrix *w, struct brim_rows *residual);
void brim_cuda_op_head(struct brim_step *step, const struct brim_rows *x, int64_t first, int64_t n,
                       const struct brim_vector *norm, float eps, const struct brim_matrix *w,
                       struct brim_rows *logits);
brim_status brim_cuda_step_wait(struct brim_step *step, brim_error *err);
const float *brim_cuda_rows_read(struct brim_step *step, const struct brim_rows *rows,
                                 brim_error *err);
brim_status brim_cuda_rows_write(struct brim_step *step, struct brim_rows *rows, const void *data,
                                 int64_t n, brim_error *err);
brim_status brim_cuda_op_sample(struct brim_step *step, const struct brim_rows *logits,
                                const struct brim_sample_args *args, int32_t *id, brim_error *err);

#endif
