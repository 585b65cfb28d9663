/* SPDX-License-Identifier: Apache-2.0
 * The cases of `brim bench operators`. A case owns one block of state; its implementations compute
 * into one output, which the check compares with plain C arithmetic before anything is timed. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "operators.h"

#include "base/mem.h"
#include "base/rng.h"
#include "cpu/attention.h"
#include "cpu/linear.h"

/* ---- data ------------------------------------------------------------------------------------ */

/* About normal: the sum of four uniforms, centred, of unit variance. */
void bench_fill_normal(float *out, int64_t n, uint64_t seed)
{
    struct brim_rng rng;
    brim_rng_seed(&rng, seed);
    for (int64_t i = 0; i < n; i++) {
        float sum = -2.0f;
        for (int k = 0; k < 4; k++) sum += brim_rng_uniform(&rng);
        out[i] = sum * 1.7320508f;
    }
}

/* A random matrix as an MLX checkpoint holds it: u32 codes, bf16 scales of both signs and biases.
 */
brim_status bench_random_weight(struct brim_weight *out, int64_t n_out, int64_t n_in, int group,
                                uint64_t seed, brim_error *err)
{
    int64_t n_word = n_out * n_in / 8, n_group = n_out * n_in / group;
    uint32_t *codes = brim_alloc((size_t)n_word * sizeof(*codes));
    uint16_t *scales = brim_alloc((size_t)n_group * sizeof(*scales));
    uint16_t *biases = brim_alloc((size_t)n_group * sizeof(*biases));
    if (!codes || !scales || !biases) {
        brim_free(codes);
        brim_free(scales);
        brim_free(biases);
        return brim_fail(err, BRIM_E_NO_MEMORY,
                         "bench: no memory for a %" PRId64 " x %" PRId64 " matrix", n_out, n_in);
    }
    struct brim_rng rng;
    brim_rng_seed(&rng, seed);
    for (int64_t i = 0; i < n_word; i++) codes[i] = brim_rng_u32(&rng);
    float unit = 1.0f / (4.6f * sqrtf((float)n_in)); /* codes have deviation 4.6: outputs near 1 */
    for (int64_t i = 0; i < n_group; i++) {
        float scale = unit * (0.5f + brim_rng_uniform(&rng));
        if (brim_rng_u32(&rng) & 1) scale = -scale;
        scales[i] = brim_bf16_from_f32(scale);
        biases[i] = brim_bf16_from_f32(-7.5f * scale);
    }
    *out = (struct brim_weight){.kind = BRIM_WEIGHT_AFFINE4,
                                .dtype = BRIM_DTYPE_BF16,
                                .n_out = n_out,
                                .n_in = n_in,
                                .group = group,
                                .data = codes,
                                .data_bytes = (size_t)n_word * sizeof(*codes),
                                .scales = scales,
                                .biases = biases};
    return BRIM_OK;
}

void bench_free_weight(struct brim_weight *w)
{
    brim_free((void *)w->data);
    brim_free((void *)w->scales);
    brim_free((void *)w->biases);
    *w = (struct brim_weight){0};
}

/* Root mean square difference over root mean square of the reference. */
static double relative_error(const float *got, const float *want, int64_t n)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)got[i] - want[i];
        difference += d * d;
        size += (double)want[i] * want[i];
    }
    return size > 0 ? sqrt(difference / size) : difference;
}

/* Written so that NaN fails. */
void bench_compare(struct bench_case *c, int impl, const float *got, const float *want, int64_t n,
                   double bound)
{
    double error = relative_error(got, want, n);
    if (error <= bound || c->check[0]) return;
    snprintf(c->check, sizeof(c->check),
             "%s, implementation %s is off by %.3g (rms, relative; at most %g)", c->name,
             c->impl[impl].name, error, bound);
}

static void poison(float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = NAN;
}

/* f32 sums in another order; int8 activations round each input to 1/254 of its group's largest. */
static const double bound_f32 = 1e-5, bound_int8 = 2e-2;

/* ---- projections and embedding --------------------------------------------------------------- */

enum { MAX_COPY = 64 };

struct projection_impl {
    struct projection *owner;
    const struct brim_cpu_ops *ops;
    enum brim_matmul_level level;
    enum brim_activation_mode mode;
    struct brim_linear copies[MAX_COPY];
    int n_copy;
};

struct projection {
    struct brim_weight weight;
    struct projection_impl impl[BENCH_MAX_IMPL];
    struct brim_pool *pool;
    int64_t n_row, n_in, n_out;
    float *x, *y;
    void *scratch;
};

static void free_projection(struct bench_case *c)
{
    struct projection *p = c->owned;
    if (!p) return;
    bench_free_weight(&p->weight);
    for (int i = 0; i < BENCH_MAX_IMPL; i++)
        for (int k = 0; k < p->impl[i].n_copy; k++) brim_linear_free(&p->impl[i].copies[k]);
    brim_free(p->x);
    brim_free(p->y);
    brim_free(p->scratch);
    brim_free(p);
    c->owned = NULL;
}

static void run_projection(void *ctx, int64_t sample)
{
    struct projection_impl *impl = ctx;
    struct projection *p = impl->owner;
    brim_linear_run(impl->ops, p->pool, &impl->copies[sample % impl->n_copy], impl->mode, p->x,
                    p->n_in, p->n_row, p->y, p->n_out, p->scratch);
}

/* Bit for bit the first copy, elsewhere in memory. */
static brim_status copy_linear(struct brim_linear *out, const struct brim_linear *from,
                               brim_error *err)
{
    size_t bytes = (size_t)from->n_panel * from->panel_bytes;
    *out = *from;
    out->bias = NULL;
    out->panels = brim_alloc(bytes);
    BRIM_REQUIRE(err, out->panels, BRIM_E_NO_MEMORY, "bench: no memory for a copy of the weights");
    memcpy(out->panels, from->panels, bytes);
    return BRIM_OK;
}

static brim_status pack_copies(struct projection_impl *impl, const struct bench_context *ctx,
                               const char *name, brim_error *err)
{
    struct projection *p = impl->owner;
    BRIM_TRY(
        brim_linear_pack_level(&impl->copies[0], &p->weight, 1, name, impl->level, ctx->pool, err));
    impl->n_copy = 1;
    size_t bytes = (size_t)impl->copies[0].n_panel * impl->copies[0].panel_bytes;
    while (impl->n_copy < MAX_COPY && bytes * (size_t)impl->n_copy < (size_t)ctx->cold_bytes) {
        BRIM_TRY(copy_linear(&impl->copies[impl->n_copy], &impl->copies[0], err));
        impl->n_copy++;
    }
    return BRIM_OK;
}

/* Rows 0, the middle and the last, in double from the stored codes. */
static brim_status check_projection(struct bench_case *c, const struct bench_context *ctx,
                                    brim_error *err)
{
    struct projection *p = c->owned;
    (void)ctx;
    const int64_t rows[] = {0, p->n_row / 2, p->n_row - 1};
    float *want = brim_alloc(3 * (size_t)p->n_out * sizeof(*want));
    float *got = brim_alloc(3 * (size_t)p->n_out * sizeof(*got));
    float *w = brim_alloc((size_t)p->n_in * sizeof(*w));
    brim_status status = BRIM_OK;
    if (!want || !got || !w)
        status = brim_fail(err, BRIM_E_NO_MEMORY, "bench: no memory for the check of %s", c->name);
    for (int64_t o = 0; o < p->n_out && status == BRIM_OK; o++) {
        brim_weight_row_f32(&p->weight, o, w);
        for (int r = 0; r < 3; r++) {
            const float *x = p->x + rows[r] * p->n_in;
            double sum = 0;
            for (int64_t i = 0; i < p->n_in; i++) sum += (double)x[i] * w[i];
            want[r * p->n_out + o] = (float)sum;
        }
    }
    for (int i = 0; i < c->n_impl && status == BRIM_OK; i++)
        for (int64_t k = 0; k < p->impl[i].n_copy; k++) {
            poison(p->y, p->n_row * p->n_out);
            c->impl[i].run(c->impl[i].ctx, k);
            for (int r = 0; r < 3; r++)
                memcpy(got + r * p->n_out, p->y + rows[r] * p->n_out,
                       (size_t)p->n_out * sizeof(*got));
            bench_compare(c, i, got, want, 3 * p->n_out,
                          p->impl[i].mode == BRIM_ACTIVATIONS_INT8 ? bound_int8 : bound_f32);
        }
    brim_free(want);
    brim_free(got);
    brim_free(w);
    return status;
}

void bench_projection_dims(const struct bench_shape *s, const char *name, int64_t *n_in,
                           int64_t *n_out)
{
    int64_t q = (int64_t)s->n_head * s->head_dim, kv = (int64_t)s->n_head_kv * s->head_dim;
    *n_in = !strcmp(name, "o") ? q : !strcmp(name, "down") ? s->n_ff : s->n_embd;
    *n_out = !strcmp(name, "q")                             ? q
             : !strcmp(name, "k") || !strcmp(name, "v")     ? kv
             : !strcmp(name, "gate") || !strcmp(name, "up") ? s->n_ff
             : !strcmp(name, "head")                        ? s->n_vocab
                                                            : s->n_embd;
}

static void add_projection(struct bench_case *c, const char *name, const struct brim_cpu_ops *ops,
                           enum brim_matmul_level level, enum brim_activation_mode mode)
{
    struct projection *p = c->owned;
    struct projection_impl *impl = &p->impl[c->n_impl];
    impl->owner = p;
    impl->ops = ops;
    impl->level = level;
    impl->mode = mode;
    c->impl[c->n_impl].name = name;
    c->impl[c->n_impl].run = run_projection;
    c->impl[c->n_impl].ctx = impl;
    c->n_impl++;
}

brim_status bench_case_projection(struct bench_case *c, const struct bench_context *ctx,
                                  const char *name, int64_t n_row, bool split_k, brim_error *err)
{
    *c = (struct bench_case){.free = free_projection};
    snprintf(c->name, sizeof(c->name), "%s M=%" PRId64, name, n_row);
    struct projection *p = c->owned = brim_calloc(1, sizeof(*p));
    BRIM_REQUIRE(err, p, BRIM_E_NO_MEMORY, "bench: no memory");
    bench_projection_dims(ctx->shape, name, &p->n_in, &p->n_out);
    p->n_row = n_row;
    p->pool = ctx->pool;
    BRIM_TRY(bench_random_weight(&p->weight, p->n_out, p->n_in, ctx->shape->group, 11, err));
    if (n_row == 1) {
        add_projection(c, "reference", ctx->reference, BRIM_MATMUL_SPLIT_K, BRIM_ACTIVATIONS_F32);
        add_projection(c, "optimized", ctx->ops, BRIM_MATMUL_SPLIT_K, BRIM_ACTIVATIONS_F32);
    } else {
        add_projection(c, "tiled", ctx->ops, BRIM_MATMUL_TILED, BRIM_ACTIVATIONS_F32);
        if (split_k)
            add_projection(c, "split-k", ctx->ops, BRIM_MATMUL_SPLIT_K, BRIM_ACTIVATIONS_F32);
    }
    add_projection(c, "int8", ctx->ops, BRIM_MATMUL_SPLIT_K, BRIM_ACTIVATIONS_INT8);

    p->x = brim_alloc((size_t)(n_row * p->n_in) * sizeof(*p->x));
    p->y = brim_alloc((size_t)(n_row * p->n_out) * sizeof(*p->y));
    BRIM_REQUIRE(err, p->x && p->y, BRIM_E_NO_MEMORY, "bench: no memory for %s", c->name);
    bench_fill_normal(p->x, n_row * p->n_in, 12);
    size_t scratch_bytes = 0;
    for (int i = 0; i < c->n_impl; i++) {
        BRIM_TRY(pack_copies(&p->impl[i], ctx, name, err));
        size_t bytes = brim_linear_scratch_bytes(&p->impl[i].copies[0], n_row, ctx->n_thread);
        if (bytes > scratch_bytes) scratch_bytes = bytes;
    }
    p->scratch = brim_alloc(scratch_bytes);
    BRIM_REQUIRE(err, p->scratch, BRIM_E_NO_MEMORY, "bench: no memory for %s", c->name);
    return check_projection(c, ctx, err);
}

/* One row of the packed and of the dequantized table: token 42, as the course's runner takes. */
static void run_embedding(void *ctx, int64_t sample)
{
    struct projection_impl *impl = ctx;
    brim_linear_row_f32(&impl->copies[sample % impl->n_copy], 42, impl->owner->y);
}

brim_status bench_case_embedding(struct bench_case *c, const struct bench_context *ctx,
                                 brim_error *err)
{
    *c = (struct bench_case){.free = free_projection, .name = "embedding"};
    struct projection *p = c->owned = brim_calloc(1, sizeof(*p));
    BRIM_REQUIRE(err, p, BRIM_E_NO_MEMORY, "bench: no memory");
    p->n_row = 1;
    p->n_in = ctx->shape->n_embd;
    p->n_out = 64; /* rows near token 42 are enough: only one is read */
    BRIM_TRY(bench_random_weight(&p->weight, p->n_out, p->n_in, ctx->shape->group, 13, err));
    add_projection(c, "dense", ctx->ops, BRIM_MATMUL_DENSE, BRIM_ACTIVATIONS_F32);
    add_projection(c, "packed", ctx->ops, BRIM_MATMUL_SPLIT_K, BRIM_ACTIVATIONS_F32);
    p->y = brim_alloc((size_t)p->n_in * sizeof(*p->y));
    p->x = brim_alloc((size_t)p->n_in * sizeof(*p->x));
    BRIM_REQUIRE(err, p->x && p->y, BRIM_E_NO_MEMORY, "bench: no memory");
    brim_weight_row_f32(&p->weight, 42, p->x);
    for (int i = 0; i < c->n_impl; i++) {
        c->impl[i].run = run_embedding;
        BRIM_TRY(pack_copies(&p->impl[i], ctx, "embedding", err));
        poison(p->y, p->n_in);
        run_embedding(c->impl[i].ctx, 0);
        bench_compare(c, i, p->y, p->x, p->n_in, bound_f32);
    }
    return BRIM_OK;
}

/* ---- element-wise kernels -------------------------------------------------------------------- */

enum kernel_kind { KERNEL_RMSNORM, KERNEL_ROPE, KERNEL_SWIGLU };

struct kernel {
    enum kernel_kind kind;
    const struct brim_cpu_ops *ops[2];
    struct kernel_impl {
        struct kernel *owner;
        int which;
    } impl[2];
    int64_t n;
    int n_head, head_dim;
    float *x, *w, *y; /* inputs and output; rope: w holds cos and sin */
};

static void run_kernel(void *ctx, int64_t sample)
{
    (void)sample;
    const struct kernel_impl *impl = ctx;
    const struct kernel *k = impl->owner;
    const struct brim_cpu_ops *ops = k->ops[impl->which];
    switch (k->kind) {
    case KERNEL_RMSNORM:
        ops->rmsnorm(k->x, k->w, 1e-6f, k->n, k->y);
        break;
    case KERNEL_ROPE:
        /* in place: rotating again keeps the size */
        ops->rope(k->y, k->w, k->w + k->head_dim / 2, k->n_head, k->head_dim);
        break;
    case KERNEL_SWIGLU:
        ops->swiglu(k->x, k->w, k->n, k->y);
        break;
    }
}

static void free_kernel(struct bench_case *c)
{
    struct kernel *k = c->owned;
    if (!k) return;
    brim_free(k->x);
    brim_free(k->w);
    brim_free(k->y);
    brim_free(k);
    c->owned = NULL;
}

brim_status bench_case_kernel(struct bench_case *c, const struct bench_context *ctx,
                              const char *name, brim_error *err)
{
    *c = (struct bench_case){.free = free_kernel, .n_impl = 2};
    snprintf(c->name, sizeof(c->name), "%s", name);
    struct kernel *k = c->owned = brim_calloc(1, sizeof(*k));
    BRIM_REQUIRE(err, k, BRIM_E_NO_MEMORY, "bench: no memory");
    const struct bench_shape *s = ctx->shape;
    k->kind = !strcmp(name, "rmsnorm") ? KERNEL_RMSNORM
              : !strcmp(name, "rope")  ? KERNEL_ROPE
                                       : KERNEL_SWIGLU;
    k->n = k->kind == KERNEL_RMSNORM ? s->n_embd
           : k->kind == KERNEL_ROPE  ? (int64_t)s->n_head * s->head_dim
                                     : s->n_ff;
    k->n_head = s->n_head;
    k->head_dim = s->head_dim;
    k->x = brim_alloc((size_t)k->n * sizeof(float));
    k->w = brim_alloc((size_t)k->n * sizeof(float));
    k->y = brim_alloc((size_t)k->n * sizeof(float));
    float *want = brim_alloc((size_t)k->n * sizeof(float));
    if (!k->x || !k->w || !k->y || !want) {
        brim_free(want);
        return brim_fail(err, BRIM_E_NO_MEMORY, "bench: no memory for %s", name);
    }
    bench_fill_normal(k->x, k->n, 14);
    bench_fill_normal(k->w, k->n, 15);
    if (k->kind == KERNEL_ROPE)
        for (int i = 0; i < k->head_dim / 2; i++) { /* position 17, base 10^6 */
            double angle = 17 * pow(1e6, -2.0 * i / k->head_dim);
            k->w[i] = (float)cos(angle);
            k->w[k->head_dim / 2 + i] = (float)sin(angle);
        }
    static const char *const names[2] = {"reference", "optimized"};
    k->ops[0] = ctx->reference;
    k->ops[1] = ctx->ops;
    for (int i = 0; i < 2; i++) {
        k->impl[i] = (struct kernel_impl){k, i};
        c->impl[i].name = names[i];
        c->impl[i].run = run_kernel;
        c->impl[i].ctx = &k->impl[i];
        if (k->kind == KERNEL_ROPE)
            memcpy(k->y, k->x, (size_t)k->n * sizeof(float));
        else
            poison(k->y, k->n);
        run_kernel(&k->impl[i], 0);
        if (i == 0)
            memcpy(want, k->y, (size_t)k->n * sizeof(float));
        else
            bench_compare(c, i, k->y, want, k->n, bound_f32);
    }
    brim_free(want);
    return BRIM_OK;
}

/* ---- attention ------------------------------------------------------------------------------- */

struct attention {
    const struct brim_cpu_ops *ops[2];
    struct attention_impl {
        struct attention *owner;
        int which;
    } impl[2];
    struct brim_attention_kv kv;
    struct brim_pool *pool;
    int n_head;
    int64_t n_key, n_query;
    float *q, *out;
    void *workspace;
};

static void free_attention(struct bench_case *c)
{
    struct attention *a = c->owned;
    if (!a) return;
    brim_free(a->kv.k);
    brim_free(a->kv.v);
    brim_free(a->q);
    brim_free(a->out);
    brim_free(a->workspace);
    brim_free(a);
    c->owned = NULL;
}

static void run_attention(void *ctx, int64_t sample)
{
    (void)sample;
    const struct attention_impl *impl = ctx;
    const struct attention *a = impl->owner;
    int64_t stride = (int64_t)a->n_head * a->kv.head_dim;
    brim_attention_run(a->ops[impl->which], a->pool, &a->kv, a->q, stride, a->n_head,
                       a->n_key - a->n_query, a->n_query, 1.0f / sqrtf((float)a->kv.head_dim),
                       a->out, stride, a->workspace);
}

brim_status bench_case_attention(struct bench_case *c, const struct bench_context *ctx,
                                 int64_t n_key, int64_t n_query, int n_head_kv, brim_error *err)
{
    const struct bench_shape *s = ctx->shape;
    *c = (struct bench_case){.free = free_attention, .n_impl = 2};
    snprintf(c->name, sizeof(c->name), "attention S=%" PRId64 " L=%" PRId64, n_key, n_query);
    struct attention *a = c->owned = brim_calloc(1, sizeof(*a));
    BRIM_REQUIRE(err, a, BRIM_E_NO_MEMORY, "bench: no memory");
    a->n_head = s->n_head;
    a->n_key = n_key;
    a->n_query = n_query;
    a->pool = ctx->pool;
    int64_t n_alloc = brim_attention_kv_round(n_key);
    int64_t n_out = n_query * s->n_head * s->head_dim, n_kv = n_key * n_head_kv * s->head_dim;
    size_t kv_bytes = brim_attention_kv_bytes(BRIM_DTYPE_F16, n_head_kv, s->head_dim, n_alloc);
    a->kv = (struct brim_attention_kv){.dtype = BRIM_DTYPE_F16,
                                       .n_head_kv = n_head_kv,
                                       .head_dim = s->head_dim,
                                       .n_alloc = n_alloc,
                                       .k = brim_calloc(1, kv_bytes),
                                       .v = brim_calloc(1, kv_bytes)};
    a->q = brim_alloc((size_t)n_out * sizeof(float));
    a->out = brim_alloc((size_t)n_out * sizeof(float));
    a->workspace = brim_alloc(brim_attention_workspace_bytes(s->n_head, n_head_kv, s->head_dim,
                                                             n_query, n_key, ctx->n_thread));
    float *rows = brim_alloc((size_t)n_kv * sizeof(float));
    float *want = brim_alloc((size_t)n_out * sizeof(float));
    if (!a->kv.k || !a->kv.v || !a->q || !a->out || !a->workspace || !rows || !want) {
        brim_free(rows);
        brim_free(want);
        return brim_fail(err, BRIM_E_NO_MEMORY, "bench: no memory for %s", c->name);
    }
    bench_fill_normal(rows, n_kv, 16);
    bench_fill_normal(a->q, n_out, 17);
    int64_t stride = (int64_t)n_head_kv * s->head_dim;
    brim_attention_kv_store(ctx->reference, ctx->pool, &a->kv, 0, n_key, rows, stride, rows,
                            stride);
    brim_free(rows);
    static const char *const names[2] = {"reference", "optimized"};
    a->ops[0] = ctx->reference;
    a->ops[1] = ctx->ops;
    for (int i = 0; i < 2; i++) {
        a->impl[i] = (struct attention_impl){a, i};
        c->impl[i].name = names[i];
        c->impl[i].run = run_attention;
        c->impl[i].ctx = &a->impl[i];
        poison(a->out, n_out);
        run_attention(&a->impl[i], 0);
        if (i == 0)
            memcpy(want, a->out, (size_t)n_out * sizeof(float));
        else
            bench_compare(c, i, a->out, want, n_out, 1e-4);
    }
    brim_free(want);
    return BRIM_OK;
}
