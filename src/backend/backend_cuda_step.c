/* SPDX-License-Identifier: Apache-2.0
 * The CUDA backend's step: its memory and its operators. Token ids and positions come from device
 * memory, so that a recorded step serves all of them (backend_cuda_record.c). The likeliest token
 * is part of a step with the head of one row: greedy decoding brings one number to the host. */
#include "backend/backend_cuda.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/greedy.h"
#include "base/mem.h"
#include "cuda/runtime/runtime.h"

static bool is_hopper(const struct brim_step *step)
{
    return step->backend->level == BRIM_CUDA_HOPPER;
}

/* ---- memory ---- */

void brim_cuda_step_free(struct brim_backend *backend, struct brim_step **step_ptr)
{
    (void)backend;
    struct brim_step *step = *step_ptr;
    if (!step) return;
    if (step->stream) (void)brim_cuda_stream_wait(step->stream, "closing a session", NULL);
    for (int i = 0; i < BRIM_CUDA_RECORDINGS; i++) brim_cuda_graph_free(step->recordings[i].graph);
    void *const device[] = {step->input,  step->rope_table, step->normed,    step->product,
                            step->q,      step->plain,      step->attention, step->attention_plain,
                            step->linear, step->sample};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++) brim_cuda_free(device[i]);
    for (int i = 0; i < 3; i++) brim_cuda_host_free(step->host_in[i]);
    for (int i = 0; i < 2; i++) brim_cuda_event_free(step->host_in_free[i]);
    brim_cuda_host_free(step->result);
    brim_cuda_host_free(step->recent);
    brim_cuda_stream_free(step->stream);
    brim_free(step);
    *step_ptr = NULL;
}

static brim_status make_rope_table(struct brim_step *step, brim_error *err)
{
    const struct brim_rotary *rotary = &step->shape.rotary;
    size_t n_bytes = (size_t)rotary->n_pair * sizeof(double);
    void *inv_freq;
    BRIM_TRY(brim_cuda_alloc(&inv_freq, n_bytes, "session: rotation", err));
    brim_status status =
        brim_cuda_copy(inv_freq, rotary->inv_freq, n_bytes, step->stream, "session: rotation", err);
    const struct brim_cuda_rope_table_args args = {
        .n_position = step->shape.kv.n_position,
        .n_pair = rotary->n_pair,
        .amplitude = rotary->amplitude,
        .inv_freq = inv_freq,
        .table = step->rope_table,
    };
    if (status == BRIM_OK) status = brim_cuda_rope_table(&args, step->stream, err);
    if (status == BRIM_OK) status = brim_cuda_stream_wait(step->stream, "session: rotation", err);
    brim_cuda_free(inv_freq);
    return status;
}

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Device memory by what it is for; blocks marked zero are cleared once. */
static brim_status make_memory(struct brim_step *step, brim_error *err)
{
    const struct cuda_backend *cuda = step->backend;
    const struct brim_step_shape *s = &step->shape;
    const struct brim_kv_shape *kv = &s->kv;
    size_t n_row = (size_t)s->n_row_max, head_dim = (size_t)kv->head_dim, f32 = sizeof(float);
    size_t heads = (size_t)(s->n_head + kv->n_head_kv) * head_dim;
    int64_t widest = 2 * s->n_ff > s->n_embd ? 2 * s->n_ff : s->n_embd;
    step->normed_stride = (s->n_embd + 7) / 8 * 8;
    step->product_stride = (widest + 7) / 8 * 8;
    size_t plain = 0, plain_attention = 0, linear;
    if (cuda->level < BRIM_CUDA_FUSED) plain = n_row * f32 * largest(heads, (size_t)s->n_ff);
    if (cuda->level < BRIM_CUDA_ATTENTION)
        plain_attention =
            brim_cuda_attention_plain_bytes(s->n_row_max, (int)s->n_head, kv->n_position);
    BRIM_TRY(brim_cuda_product_bytes(cuda, s->n_row_max, &linear, err));
    size_t decode =
        brim_cuda_attention_decode_bytes((int)s->n_head, (int)kv->n_head_kv, (int)kv->head_dim);
    const struct {
        void **out;
        size_t n_bytes;
        bool zero;
        const char *what;
    } blocks[] = {
        {(void **)&step->input, brim_cuda_input_bytes(s->n_row_max), true, "session: tokens"},
        {(void **)&step->rope_table, (size_t)kv->n_position * head_dim * f32, false,
         "session: rotation"},
        {&step->normed, n_row * (size_t)step->normed_stride * 2, false, "session: activations"},
        {&step->product, n_row * (size_t)step->product_stride * 2, false, "session: activations"},
        {&step->q, n_row * (size_t)s->n_head * head_dim * brim_dtype_bytes(kv->dtype), false,
         "session: queries"},
        {(void **)&step->plain, plain, false, "session: activations"},
        {&step->attention, decode, true, "session: attention"},
        {&step->attention_plain, plain_attention, false, "session: attention scores"},
        {&step->linear, linear, true, "session: products"},
        {&step->sample, BRIM_CUDA_SAMPLE_BYTES, true, "session: sampling"},
    };
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        if (blocks[i].n_bytes == 0) continue;
        BRIM_TRY(brim_cuda_alloc(blocks[i].out, blocks[i].n_bytes, blocks[i].what, err));
        if (blocks[i].zero)
            BRIM_TRY(brim_cuda_fill(*blocks[i].out, 0, blocks[i].n_bytes, step->stream,
                                    blocks[i].what, err));
    }
    for (int i = 0; i < 3; i++) {
        int64_t most = s->n_row_max;
        if (i == 2 && most > BRIM_CUDA_RECORD_ROWS) most = BRIM_CUDA_RECORD_ROWS;
        BRIM_TRY(brim_cuda_host_alloc((void **)&step->host_in[i], brim_cuda_input_bytes(most),
                                      "session: tokens", err));
    }
    for (int i = 0; i < 2; i++) BRIM_TRY(brim_cuda_event_create(&step->host_in_free[i], err));
    BRIM_TRY(brim_cuda_host_alloc((void **)&step->result, sizeof *step->result, "session: sampling",
                                  err));
    return brim_cuda_host_alloc((void **)&step->recent,
                                (size_t)kv->n_position * sizeof *step->recent, "session: sampling",
                                err);
}

brim_status brim_cuda_step_create(struct brim_backend *backend, struct brim_step **out,
                                  const struct brim_step_shape *shape, brim_error *err)
{
    *out = NULL;
    BRIM_REQUIRE(err, shape->kv.head_dim <= BRIM_CUDA_MAX_HEAD_DIM, BRIM_E_UNSUPPORTED,
                 "device cuda: heads of %" PRId64 " values are wider than %d", shape->kv.head_dim,
                 BRIM_CUDA_MAX_HEAD_DIM);
    BRIM_REQUIRE(err, shape->n_head <= BRIM_CUDA_MAX_GQA * shape->kv.n_head_kv, BRIM_E_UNSUPPORTED,
                 "device cuda: %" PRId64 " query heads share %" PRId64
                 " key heads; at most %d may share one",
                 shape->n_head, shape->kv.n_head_kv, BRIM_CUDA_MAX_GQA);
    struct brim_step *step = brim_calloc(1, sizeof *step);
    BRIM_REQUIRE(err, step, BRIM_E_NO_MEMORY, "session: out of memory");
    step->backend = (struct cuda_backend *)backend;
    step->shape = *shape;
    brim_status status = brim_cuda_stream_create(&step->stream, err);
    if (status == BRIM_OK) status = make_memory(step, err);
    if (status == BRIM_OK) status = make_rope_table(step, err);
    if (status != BRIM_OK) brim_cuda_step_free(backend, &step);
    *out = step;
    return status;
}

/* ---- operators ---- */

void brim_cuda_op_embed(struct brim_step *step, const struct brim_matrix *table,
                        struct brim_rows *x)
{
    if (step->status != BRIM_OK) return;
    x->dtype = BRIM_DTYPE_F32;
    const struct brim_cuda_embed_args args = {
        .n_row = step->n_row,
        .table = table->parts[0].raw,
        .ids = step->input->ids,
        .x = x->data,
        .x_stride = x->stride,
    };
    brim_cuda_note(step, brim_cuda_embed(&args, step->stream, &step->error));
}

void brim_cuda_op_norm_linear(struct brim_step *step, const struct brim_rows *x,
                              const struct brim_vector *norm, float eps,
                              const struct brim_matrix *w, struct brim_rows *y)
{
    y->dtype = BRIM_DTYPE_F32;
    const struct brim_cuda_product p = {
        .x = x->data,
        .x_stride = x->stride,
        .n_row = step->n_row,
        .norm = norm,
        .eps = eps,
        .y = y->data,
        .y_stride = y->stride,
        .epilogue = BRIM_W4_STORE_F32,
    };
    brim_cuda_product(step, w, &p);
}

static struct brim_cuda_kv kv_layer(const struct brim_kv *kv, int64_t layer)
{
    uint8_t *k = kv->memory + (size_t)layer * 2 * kv->plane_bytes;
    return (struct brim_cuda_kv){
        .k = k,
        .v = k + kv->plane_bytes,
        .dtype = kv->shape.dtype,
        .n_head_kv = (int)kv->shape.n_head_kv,
        .head_dim = (int)kv->shape.head_dim,
        .n_position = kv->shape.n_position,
    };
}

void brim_cuda_op_attention(struct brim_step *step, const struct brim_attention_args *args)
{
    if (step->status != BRIM_OK) return;
    enum brim_cuda_level level = step->backend->level;
    const struct brim_cuda_rotate_args rotate = {
        .n_row = step->n_row,
        .n_head = (int)args->n_head,
        .qkv = args->qkv->data,
        .qkv_dtype = args->qkv->dtype,
        .qkv_stride = args->qkv->stride,
        .q_norm = args->q_norm ? args->q_norm->data : NULL,
        .k_norm = args->k_norm ? args->k_norm->data : NULL,
        .eps = args->norm_eps,
        .rope_table = step->rope_table,
        .first_pos = &step->input->first_pos,
        .kv = kv_layer(args->kv, args->layer),
        .q = step->q,
        .pdl = is_hopper(step),
        .workspace = step->plain,
    };
    bool on_the_way = is_hopper(step) && step->n_row <= BRIM_CUDA_DECODE_ROWS;
    if (level < BRIM_CUDA_FUSED)
        brim_cuda_note(step, brim_cuda_rotate_plain(&rotate, step->stream, &step->error));
    else if (!on_the_way)
        brim_cuda_note(step, brim_cuda_rotate(&rotate, step->stream, &step->error));
    args->out->dtype = BRIM_DTYPE_BF16;
    struct brim_cuda_attention_args attention = {
        .n_row = step->n_row,
        .n_head = (int)args->n_head,
        .q = step->q,
        .first_pos = &step->input->first_pos,
        .kv = rotate.kv,
        .scale = (float)(1 / sqrt((double)rotate.kv.head_dim)),
        .out = args->out->data,
        .out_stride = args->out->stride,
        .workspace = step->attention,
        .n_key_max = brim_cuda_key_max(step),
        .pdl = is_hopper(step),
        .rotate = on_the_way ? &rotate : NULL,
    };
    if (step->status != BRIM_OK) return;
    if (level < BRIM_CUDA_ATTENTION) {
        attention.workspace = step->attention_plain;
        brim_cuda_note(step, brim_cuda_attention_plain(&attention, step->stream, &step->error));
    } else if (step->n_row <= BRIM_CUDA_DECODE_ROWS) {
        brim_cuda_note(step, brim_cuda_attention_decode(&attention, step->stream, &step->error));
    } else {
        brim_cuda_note(step, brim_cuda_attention_prefill(&attention, step->stream, &step->error));
    }
}

void brim_cuda_op_keep_last(struct brim_step *step, int64_t n, struct brim_rows *const *buffers,
                            int n_buffer)
{
    assert(n >= 0 && n <= 1 && n <= step->n_row && n_buffer <= BRIM_CUDA_KEPT);
    struct brim_cuda_keep_args args = {
        .n_buffer = n_buffer,
        .row = &step->input->last_row,
        .pdl = is_hopper(step),
    };
    for (int i = 0; i < n_buffer; i++) {
        args.buffers[i].data = buffers[i]->data;
        args.buffers[i].row_bytes =
            buffers[i]->stride * (int64_t)brim_dtype_bytes(buffers[i]->dtype);
    }
    if (n == 1 && step->n_row > 1 && step->status == BRIM_OK)
        brim_cuda_note(step, brim_cuda_keep(&args, step->stream, &step->error));
    step->n_row = n;
}

void brim_cuda_op_norm_gate_up(struct brim_step *step, const struct brim_rows *x,
                               const struct brim_vector *norm, float eps,
                               const struct brim_matrix *w, struct brim_rows *y)
{
    bool inside = w->n_part == 1 && w->parts[0].paired;
    y->dtype = BRIM_DTYPE_BF16;
    const struct brim_cuda_product p = {
        .x = x->data,
        .x_stride = x->stride,
        .n_row = step->n_row,
        .norm = norm,
        .eps = eps,
        .y = inside ? y->data : step->product,
        .y_stride = inside ? y->stride : step->product_stride,
        .epilogue = inside ? BRIM_W4_SWIGLU : BRIM_W4_STORE_BF16,
    };
    brim_cuda_product(step, w, &p);
    if (inside || step->status != BRIM_OK) return;
    const struct brim_cuda_swiglu_args args = {
        .n_row = step->n_row,
        .n_ff = y->width,
        .gate_up = step->product,
        .gate_up_dtype = BRIM_DTYPE_BF16,
        .gate_up_stride = step->product_stride,
        .y = y->data,
        .y_stride = y->stride,
        .pdl = is_hopper(step),
        .workspace = step->plain,
    };
    brim_cuda_note(step, step->backend->level < BRIM_CUDA_FUSED
                             ? brim_cuda_swiglu_plain(&args, step->stream, &step->error)
                             : brim_cuda_swiglu(&args, step->stream, &step->error));
}

void brim_cuda_op_linear_add(struct brim_step *step, const struct brim_rows *x,
                             const struct brim_matrix *w, struct brim_rows *residual)
{
    bool inside = is_hopper(step) && w->n_part == 1;
    const struct brim_cuda_product p = {
        .x = x->data,
        .x_stride = x->stride,
        .n_row = step->n_row,
        .y = inside ? residual->data : step->product,
        .y_stride = inside ? residual->stride : step->product_stride,
        .epilogue = inside ? BRIM_W4_ADD_F32 : BRIM_W4_STORE_BF16,
    };
    brim_cuda_product(step, w, &p);
    if (inside || step->status != BRIM_OK) return;
    const struct brim_cuda_add_args args = {
        .n_row = step->n_row,
        .n = residual->width,
        .x = residual->data,
        .x_stride = residual->stride,
        .y = step->product,
        .y_dtype = BRIM_DTYPE_BF16,
        .y_stride = step->product_stride,
    };
    brim_cuda_note(step, brim_cuda_add(&args, step->stream, &step->error));
}

/* ---- logits and tokens ---- */

static brim_status choose(struct brim_step *step, const struct brim_rows *logits,
                          const struct brim_sample_args *args, int32_t *id, brim_error *err)
{
    const struct cuda_backend *cuda = step->backend;
    const struct brim_cuda_sample_args sample = {
        .n_vocab = cuda->n_vocab,
        .logits = logits->data,
        .ranges = cuda->ranges,
        .n_range = cuda->n_range,
        .temperature = args->temperature,
        .top_p = args->top_p,
        .min_p = args->min_p,
        .repeat_penalty = args->repeat_penalty,
        .top_k = args->top_k,
        .recent = args->n_recent > 0 ? step->recent : NULL,
        .n_recent = args->n_recent,
        .uniform = &step->result->uniform,
        .id = id,
        .workspace = step->sample,
        .pdl = is_hopper(step),
    };
    return brim_cuda_sample(&sample, step->stream, err);
}

void brim_cuda_op_head(struct brim_step *step, const struct brim_rows *x, int64_t first, int64_t n,
                       const struct brim_vector *norm, float eps, const struct brim_matrix *w,
                       struct brim_rows *logits)
{
    assert(first >= 0 && n <= logits->n_row_max);
    logits->dtype = BRIM_DTYPE_F32;
    logits->n_row = n;
    const struct brim_cuda_product p = {
        .x = (const float *)x->data + first * x->stride,
        .x_stride = x->stride,
        .n_row = n,
        .norm = norm,
        .eps = eps,
        .y = logits->data,
        .y_stride = logits->stride,
        .epilogue = BRIM_W4_STORE_F32,
    };
    brim_cuda_product(step, w, &p);
    step->argmax_of = NULL;
    if (n != 1 || step->status != BRIM_OK) return;
    const struct brim_sample_args likeliest = {.top_p = 1, .repeat_penalty = 1};
    brim_cuda_note(step, choose(step, logits, &likeliest, &step->result->id, &step->error));
    step->argmax_of = logits;
    if (step->recording) step->recording->logits = logits;
}

brim_status brim_cuda_step_wait(struct brim_step *step, brim_error *err)
{
    step->replaying = false;
    return brim_cuda_stream_wait(step->stream, "a step on the device", err);
}

brim_status brim_cuda_op_sample(struct brim_step *step, const struct brim_rows *logits,
                                const struct brim_sample_args *args, int32_t *id, brim_error *err)
{
    *id = -1;
    if (args->temperature < BRIM_GREEDY_TEMPERATURE && args->n_recent == 0 &&
        step->argmax_of == logits) {
        if (step->replaying) BRIM_TRY(brim_cuda_step_wait(step, err));
        *id = step->result->id;
        return BRIM_OK;
    }
    assert(args->n_recent <= step->shape.kv.n_position);
    /* No kernel in flight reads these: every draw is waited for, and the likeliest token, which a
     * step may still be choosing, needs neither. */
    step->result->uniform = args->uniform;
    if (args->n_recent > 0)
        memcpy(step->recent, args->recent, (size_t)args->n_recent * sizeof *args->recent);
    BRIM_TRY(choose(step, logits, args, &step->result->drawn, err));
    BRIM_TRY(brim_cuda_step_wait(step, err));
    *id = step->result->drawn;
    return BRIM_OK;
}

static brim_status read_rows(struct brim_step *step, struct brim_rows *rows, brim_error *err)
{
    size_t line = (size_t)rows->width * sizeof(float);
    if (!rows->host)
        BRIM_TRY(brim_cuda_host_alloc((void **)&rows->host, (size_t)rows->n_row_max * line,
                                      "logits", err));
    BRIM_TRY(brim_cuda_copy_2d(rows->host, line, rows->data, (size_t)rows->stride * sizeof(float),
                               line, (size_t)rows->n_row, step->stream, "logits", err));
    return brim_cuda_step_wait(step, err);
}

const float *brim_cuda_rows_read(struct brim_step *step, const struct brim_rows *rows,
                                 brim_error *err)
{
    /* The host copy is a cache of what the rows hold. */
    struct brim_rows *cache = (struct brim_rows *)(uintptr_t)rows;
    return read_rows(step, cache, err) == BRIM_OK ? cache->host : NULL;
}

brim_status brim_cuda_rows_write(struct brim_step *step, struct brim_rows *rows, const void *data,
                                 int64_t n, brim_error *err)
{
    assert(n <= rows->width);
    rows->dtype = BRIM_DTYPE_F32;
    rows->n_row = 1;
    step->argmax_of = NULL;
    BRIM_TRY(
        brim_cuda_copy(rows->data, data, (size_t)n * sizeof(float), step->stream, "logits", err));
    return brim_cuda_step_wait(step, err);
}
