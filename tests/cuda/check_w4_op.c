/* SPDX-License-Identifier: Apache-2.0
 * brim_w4_matmul on the GPU, through the public header alone: values against the CPU's f32 product,
 * what was really launched (nodes of a captured graph, by kernel name) against the plan, bits where
 * they must agree, refusals, offsets beyond 2^31. Outputs and workspace are poisoned.
 *   gpu_check_w4_op [short | bench]
 * Ends with "N passed, N failed, N skipped". */
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brim/kernels.h"
#include "cuda_ok.h"
#include "tensor/dtype.h"

static int n_passed, n_failed;

static bool expect(bool ok, const char *fmt, ...)
{
    va_list list;
    ok ? n_passed++ : n_failed++;
    if (ok) return true;
    printf("FAILED ");
    va_start(list, fmt);
    vprintf(fmt, list);
    va_end(list);
    printf("\n");
    return false;
}

static void *device_bytes(size_t n_bytes, int fill)
{
    void *p;
    CUDA_OK(cudaMalloc(&p, n_bytes ? n_bytes : 1));
    CUDA_OK(cudaMemset(p, fill, n_bytes));
    return p;
}

static void *upload(const void *from, size_t n_bytes)
{
    void *p = device_bytes(n_bytes, 0);
    CUDA_OK(cudaMemcpy(p, from, n_bytes, cudaMemcpyHostToDevice));
    return p;
}

static uint64_t rng_state = 88172645463325252u;
static uint64_t rng_u64(void)
{
    rng_state ^= rng_state << 13, rng_state ^= rng_state >> 7, rng_state ^= rng_state << 17;
    return rng_state;
}
static float rng_uniform(void)
{
    return (float)(rng_u64() >> 40) * 0x1p-24f;
}
static float rng_gaussian(void)
{
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += rng_uniform();
    return (sum - 2) * 1.7320508f;
}

/* What the next matrix and the next rows of x are made of. TINY: each weight is a subnormal of bf16
 * or close to it, so that one flushed to zero shows. */
enum special { ORDINARY, NEGATIVE, ZERO, TINY, LARGE_X };
static enum special special;
static const char *const special_names[] = {"", ", scales negative", ", scales zero",
                                            ", weights subnormal", ", x of 6e4"};

/* A matrix on host and device, packed as well. */
struct matrix {
    int64_t n_in, n_out;
    int group;
    brim_kernel_dtype dtype;
    uint32_t *codes;
    void *scales, *biases;
    void *d_codes, *d_scales, *d_biases, *d_packed;
};

static void pack(struct matrix *m)
{
    brim_w4_args a;
    brim_error err = {0};
    size_t n_bytes = 0;
    brim_w4_args_init(&a);
    a.device = BRIM_KERNEL_CUDA;
    a.n_in = m->n_in, a.n_out = m->n_out, a.group = m->group, a.param_dtype = m->dtype;
    a.codes = m->d_codes, a.scales = m->d_scales, a.biases = m->d_biases;
    if (brim_w4_pack_bytes(&a, &n_bytes, &err)) printf("%s\n", err.text);
    m->d_packed = device_bytes(n_bytes, 0xFF);
    expect(brim_w4_pack(&a, m->d_packed, &err) == BRIM_OK, "pack: %s", err.text);
}

static struct matrix matrix_make(int64_t n_in, int64_t n_out, int group, brim_kernel_dtype dtype)
{
    struct matrix m = {.n_in = n_in, .n_out = n_out, .group = group, .dtype = dtype};
    size_t n_word = (size_t)(n_in / 8 * n_out), n_param = (size_t)(n_in / group * n_out);
    size_t width = dtype == BRIM_KERNEL_F32 ? 4 : 2;
    m.codes = malloc(n_word * 4 + 8);
    m.scales = malloc(n_param * width);
    m.biases = malloc(n_param * width);
    for (size_t i = 0; i < n_word; i++) m.codes[i] = (uint32_t)(rng_u64() >> 16);
    for (size_t i = 0; i < n_param; i++) {
        float s = (0.1f + 0.1f * rng_uniform()) * (rng_u64() & 64 ? 1.0f : -1.0f);
        if (special == NEGATIVE) s = -fabsf(s);
        if (special == ZERO) s = 0;
        float b = -7.5f * s + 0.05f * rng_gaussian();
        if (special == TINY) s *= 2e-38f, b = -7.5f * s;
        if (dtype == BRIM_KERNEL_F32) {
            ((float *)m.scales)[i] = s, ((float *)m.biases)[i] = b;
        } else {
            bool half = dtype == BRIM_KERNEL_F16;
            ((uint16_t *)m.scales)[i] = half ? brim_f16_from_f32(s) : brim_bf16_from_f32(s);
            ((uint16_t *)m.biases)[i] = half ? brim_f16_from_f32(b) : brim_bf16_from_f32(b);
        }
    }
    m.d_codes = upload(m.codes, n_word * 4);
    m.d_scales = upload(m.scales, n_param * width);
    m.d_biases = upload(m.biases, n_param * width);
    pack(&m);
    return m;
}

static void matrix_free(struct matrix *m)
{
    free(m->codes), free(m->scales), free(m->biases);
    CUDA_OK(cudaFree(m->d_codes));
    CUDA_OK(cudaFree(m->d_scales));
    CUDA_OK(cudaFree(m->d_biases));
    CUDA_OK(cudaFree(m->d_packed));
}

/* Rows of x against a matrix; ref in f32 from the CPU operator. */
struct product {
    struct matrix *m;
    int64_t n_row, x_stride, y_stride;
    uint16_t *y, *first; /* host copies: the last result, and one to compare with */
    float *ref;
    void *d_x, *d_y;
    void *workspace;
    size_t workspace_bytes;
    brim_w4_args args;
};

static struct product product_make(struct matrix *m, int64_t n_row)
{
    struct product p = {.m = m, .n_row = n_row, .x_stride = m->n_in + 8, .y_stride = m->n_out + 3};
    size_t n_x = (size_t)(n_row * p.x_stride), n_y = (size_t)(n_row * p.y_stride);
    uint16_t *x = malloc(n_x * 2);
    memset(x, 0xFF, n_x * 2);
    for (int64_t r = 0; r < n_row; r++)
        for (int64_t k = 0; k < m->n_in; k++)
            x[r * p.x_stride + k] = brim_bf16_from_f32(special == LARGE_X && k == 5 ? 6e4f
                                                       : special == TINY ? 4096 * rng_gaussian()
                                                                         : rng_gaussian());
    p.y = malloc(n_y * 2);
    p.first = malloc(n_y * 2);
    p.ref = malloc((size_t)(n_row * m->n_out) * 4);
    p.d_x = upload(x, n_x * 2);
    p.d_y = device_bytes(n_y * 2, 0xFF);
    p.workspace_bytes = (size_t)64 << 20;
    p.workspace = device_bytes(p.workspace_bytes, 0xFF);
    brim_error err = {0};
    expect(brim_w4_workspace_init(BRIM_KERNEL_CUDA, p.workspace, p.workspace_bytes, NULL, &err) ==
               BRIM_OK,
           "workspace init: %s", err.text);
    brim_w4_args_init(&p.args);
    brim_w4_args *a = &p.args;
    a->n_row = n_row, a->n_in = m->n_in, a->n_out = m->n_out, a->group = m->group;
    a->param_dtype = m->dtype, a->x_stride = p.x_stride;
    brim_w4_args host = *a;
    host.device = BRIM_KERNEL_CPU, host.n_thread = 16;
    host.x = x, host.y = p.ref, host.y_stride = m->n_out, host.y_dtype = BRIM_KERNEL_F32;
    host.codes = m->codes, host.scales = m->scales, host.biases = m->biases;
    expect(brim_w4_matmul(&host, &err) == BRIM_OK, "CPU reference: %s", err.text);
    a->device = BRIM_KERNEL_CUDA;
    a->x = p.d_x, a->y = p.d_y, a->y_stride = p.y_stride;
    a->codes = m->d_codes, a->scales = m->d_scales, a->biases = m->d_biases;
    a->workspace = p.workspace, a->workspace_bytes = p.workspace_bytes;
    free(x);
    return p;
}

static void product_free(struct product *p)
{
    free(p->y), free(p->first), free(p->ref);
    CUDA_OK(cudaFree(p->d_x));
    CUDA_OK(cudaFree(p->d_y));
    CUDA_OK(cudaFree(p->workspace));
}

static void fetch(struct product *p)
{
    size_t n_bytes = (size_t)(p->n_row * p->y_stride) * 2;
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaMemcpy(p->y, p->d_y, n_bytes, cudaMemcpyDeviceToHost));
}

static void keep(struct product *p)
{
    memcpy(p->first, p->y, (size_t)(p->n_row * p->y_stride) * 2);
}

static bool same(const struct product *p)
{
    return !memcmp(p->first, p->y, (size_t)(p->n_row * p->y_stride) * 2);
}

/* rms error over the output's rms; infinite where a guard changed, a value is not finite or lies
 * more than two bf16 units of the largest output away. */
static double error_of(const struct product *p)
{
    double err2 = 0, ref2 = 0, worst = 0, largest = 0;
    for (int64_t r = 0; r < p->n_row; r++) {
        for (int64_t o = 0; o < p->m->n_out; o++) {
            double got = (double)brim_f32_from_bf16(p->y[r * p->y_stride + o]);
            double want = (double)p->ref[r * p->m->n_out + o];
            if (!isfinite(got)) return INFINITY;
            err2 += (got - want) * (got - want), ref2 += want * want;
            worst = fmax(worst, fabs(got - want)), largest = fmax(largest, fabs(want));
        }
        for (int64_t o = p->m->n_out; o < p->y_stride; o++)
            if (p->y[r * p->y_stride + o] != 0xFFFF) return INFINITY;
    }
    if (ref2 == 0) return INFINITY;
    if (worst > 2 * exp2(floor(log2(largest)) - 7)) return INFINITY;
    return sqrt(err2 / ref2);
}

/* Kernels of one call, by the name each was launched under. */
struct launches {
    int accumulate, reduce, matvec, naive, hopper, other;
};

static struct launches count_launches(const brim_w4_args *args)
{
    struct launches n = {0};
    cudaStream_t stream;
    cudaGraph_t graph;
    size_t n_node = 0;
    brim_w4_args a = *args;
    brim_error err = {0};
    CUDA_OK(cudaStreamCreate(&stream));
    a.stream = stream;
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    brim_status status = brim_w4_matmul(&a, &err);
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    expect(status == BRIM_OK, "captured call: %s", err.text);
    CUDA_OK(cudaGraphGetNodes(graph, NULL, &n_node));
    cudaGraphNode_t nodes[16];
    if (n_node > 16) n_node = 16;
    if (n_node > 0) CUDA_OK(cudaGraphGetNodes(graph, nodes, &n_node));
    for (size_t i = 0; i < n_node; i++) {
        enum cudaGraphNodeType type;
        struct cudaKernelNodeParams params;
        const char *name = "";
        CUDA_OK(cudaGraphNodeGetType(nodes[i], &type));
        if (type == cudaGraphNodeTypeKernel) {
            CUDA_OK(cudaGraphKernelNodeGetParams(nodes[i], &params));
            CUDA_OK(cudaFuncGetName(&name, params.func));
        }
        if (strstr(name, "w4_tile"))
            n.accumulate++;
        else if (strstr(name, "w4_reduce"))
            n.reduce++;
        else if (strstr(name, "w4_matvec"))
            n.matvec++;
        else if (strstr(name, "w4_naive"))
            n.naive++;
        else if (strstr(name, "w4_"))
            n.hopper++;
        else
            n.other++;
    }
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaStreamDestroy(stream));
    return n;
}

/* One form: launches as the plan says, values within the bound. */
static void check_form(struct product *p, const char *form, double bound, bool count)
{
    const brim_w4_args *a = &p->args;
    brim_w4_plan plan;
    brim_error err = {0};
    size_t n_bytes = 0;
    long long rows = p->n_row, in = a->n_in, out = a->n_out;
    if (!expect(brim_w4_plan_make(a, &plan, &err) == BRIM_OK, "%s %lld %lld %lld plan: %s", form,
                rows, in, out, err.text))
        return;
    expect(brim_w4_workspace_bytes(a, &n_bytes, &err) == BRIM_OK && n_bytes == plan.workspace_bytes,
           "%s: workspace of plan and query differ", form);
    CUDA_OK(cudaMemset(p->workspace, 0xFF, n_bytes));
    CUDA_OK(cudaMemset(p->d_y, 0xFF, (size_t)(p->n_row * p->y_stride) * 2));
    if (!expect(brim_w4_matmul(a, &err) == BRIM_OK, "%s %lld %lld %lld: %s", form, rows, in, out,
                err.text))
        return;
    fetch(p);
    double e = error_of(p);
    /* Subnormals are multiples of 2^-133: an rms of 1.88e-3 of theirs, where bf16's is 1.43e-3. */
    if (special == TINY && strcmp(plan.kernel, "matvec") != 0)
        bound = sqrt(bound * bound + 1.88e-3 * 1.88e-3 - 1.43e-3 * 1.43e-3);
    /* gemv's sums are 2^-33 of the true ones, subnormal here (w4.md). */
    if (special == TINY && !strcmp(plan.kernel, "gemv")) bound = 1.2e-2;
    /* Three sigma of an rms over so many outputs; one input makes all rows' errors, that of 6e4. */
    bound *= 1 + 3 / sqrt(2.0 * (double)((special == LARGE_X ? 1 : p->n_row) * a->n_out));
    expect(e <= bound, "%s rows %lld in %lld out %lld (%s split %lld)%s: rms %.3e, bound %.2e",
           form, rows, in, out, plan.kernel, (long long)plan.split.split, special_names[special], e,
           bound);
    if (!count) return;
    struct launches n = count_launches(a);
    bool split = !strcmp(plan.kernel, "split-k");
    bool ok = n.other == 0 && n.reduce == plan.reduces && n.reduce == split &&
              n.accumulate + n.matvec + n.naive + n.hopper == plan.accumulates &&
              n.accumulate == (split || !strcmp(plan.kernel, "tiled")) &&
              n.matvec == !strcmp(plan.kernel, "matvec") &&
              n.naive == !strcmp(plan.kernel, "naive") && split == (plan.split.split > 1);
    expect(ok,
           "%s rows %lld in %lld out %lld: plan %s, launched %d tile, %d reduce, %d matvec, %d "
           "naive, %d hopper, %d other",
           form, rows, in, out, plan.kernel, n.accumulate, n.reduce, n.matvec, n.naive, n.hopper,
           n.other);
}

/* Every level of one product, and the bits that must agree. Bounds: w4a16 numerics, bf16 output
 * 1.66e-3, bf16 weights with it 2.2e-3, bf16 planes 2.8e-3. */
static void check_product(struct matrix *m, int64_t n_row, bool naive)
{
    struct product p = product_make(m, n_row);
    brim_w4_args *a = &p.args;
    brim_w4_plan plan;
    brim_error err = {0};
    a->level = BRIM_W4_TILED, a->split = BRIM_W4_SPLIT_OFF;
    check_form(&p, "tiled", 2.4e-3, true);
    struct launches unsplit = count_launches(a);
    keep(&p);
    a->split = BRIM_W4_SPLIT_AUTO;
    for (int policy = 0; policy < 2; policy++)
        for (int planes = 0; planes < 2; planes++) {
            a->policy = policy ? BRIM_W4_POLICY_COURSE : BRIM_W4_POLICY_DEVICE;
            a->plane_dtype = planes ? BRIM_KERNEL_F32 : BRIM_KERNEL_BF16;
            check_form(&p, policy ? "split-k course" : "split-k device", planes ? 2.4e-3 : 3.0e-3,
                       true);
            expect(brim_w4_plan_make(a, &plan, &err) == BRIM_OK, "plan: %s", err.text);
            struct launches n = count_launches(a);
            expect(plan.split.split > 1 || (same(&p) && !memcmp(&n, &unsplit, sizeof n)),
                   "rows %lld out %lld: split 1 is not the unsplit kernel to the bit",
                   (long long)n_row, (long long)m->n_out);
            expect(n_row > 8 || plan.split.matvec, "rows %lld: not the matvec", (long long)n_row);
            for (int i = 0; i < 3 && plan.split.split > 1; i++) {
                struct product again = p;
                again.first = p.y, again.y = malloc((size_t)(n_row * p.y_stride) * 2);
                expect(brim_w4_matmul(a, &err) == BRIM_OK, "repeat: %s", err.text);
                fetch(&again);
                expect(same(&again), "split-k repeats to the bit");
                free(again.y);
            }
        }
    a->policy = BRIM_W4_POLICY_DEVICE, a->plane_dtype = BRIM_KERNEL_BF16;
    if (naive || n_row <= 8) {
        a->level = BRIM_W4_MATVEC;
        check_form(&p, "level matvec", 1.9e-3, true);
        expect(n_row > 8 || same(&p), "rows %lld: the matvec's bits depend on the level",
               (long long)n_row);
    }
    if (special == TINY &&
        m->dtype == BRIM_KERNEL_BF16) { /* below 2^-86 `cluster` keeps no bf16: unpack.cuh */
        product_free(&p);
        return;
    }
    a->level = BRIM_W4_AUTO;
    a->packed = m->d_packed;
    const void *codes = a->codes;
    a->codes = a->scales = a->biases = NULL; /* the Hopper kernels read the packed form alone */
    check_form(&p, "hopper", 2.4e-3, true);
    expect(brim_w4_plan_make(a, &plan, &err) == BRIM_OK &&
               (!strcmp(plan.kernel, "gemv") || !strcmp(plan.kernel, "cluster") ||
                !strcmp(plan.kernel, "stream")),
           "rows %lld: %s is no Hopper kernel", (long long)n_row, plan.kernel);
    keep(&p);
    a->level = BRIM_W4_HOPPER;
    for (int i = 0; i < 3; i++) {
        check_form(&p, "hopper", 2.4e-3, false);
        expect(same(&p), "hopper rows %lld repeats to the bit", (long long)n_row);
    }
    a->codes = codes;
    product_free(&p);
}

/* Groups and inputs at the edge of their types, in every form. */
static void check_specials(int64_t n_in, int64_t n_out, int group, const int64_t *rows, int n_rows)
{
    static const brim_kernel_dtype dtypes[] = {BRIM_KERNEL_BF16, BRIM_KERNEL_F32};
    for (int kind = NEGATIVE; kind <= LARGE_X; kind++)
        for (int d = 0; d < 2; d++) {
            special = (enum special)kind;
            struct matrix m = matrix_make(n_in, n_out, group, dtypes[d]);
            for (int i = 0; i < n_rows; i++) check_product(&m, rows[i], true);
            matrix_free(&m);
        }
    special = ORDINARY;
}

static void check_pinned(struct matrix *m)
{
    struct product p = product_make(m, 40);
    brim_w4_plan plan;
    brim_error err = {0};
    p.args.level = BRIM_W4_TILED, p.args.split = BRIM_W4_SPLIT_OFF;
    check_form(&p, "pinned off", 2.4e-3, true);
    keep(&p);
    p.args.split = BRIM_W4_SPLIT_PINNED;
    for (int64_t split = 1; split <= 20; split++) {
        if (m->n_in / m->group % split) continue;
        brim_split_plan pin = {.split = split, .partition_inputs = m->n_in / split};
        p.args.pinned = &pin;
        check_form(&p, "pinned", 3.0e-3, true);
        expect(brim_w4_plan_make(&p.args, &plan, &err) == BRIM_OK && plan.split.split == split,
               "pinned split %lld was not kept", (long long)split);
        expect(same(&p) == (split == 1), "pinned split %lld: bits", (long long)split);
        /* 100 runs of a dirty workspace */
        for (int i = 0; split == 10 && i < 100; i++) {
            if (i == 0) keep(&p);
            CUDA_OK(cudaMemset(p.workspace, i, plan.workspace_bytes));
            expect(brim_w4_matmul(&p.args, &err) == BRIM_OK, "repeat: %s", err.text);
            fetch(&p);
            expect(same(&p), "pinned split 10, run %d: bits", i);
            if (i == 99) {
                pin = (brim_split_plan){.split = 1, .partition_inputs = m->n_in};
                expect(brim_w4_matmul(&p.args, &err) == BRIM_OK, "unsplit: %s", err.text);
                fetch(&p);
                keep(&p);
            }
        }
    }
    product_free(&p);
}

static void refused(const struct product *p, const brim_w4_args *a, brim_status want,
                    const char *text)
{
    brim_error err = {0};
    CUDA_OK(cudaMemset(p->d_y, 0xFF, (size_t)(p->n_row * p->y_stride) * 2));
    brim_status got = brim_w4_matmul(a, &err);
    expect(got == want && strstr(err.text, text), "refusal '%s': %s: %s", text,
           brim_status_name(got), err.text);
    struct product copy = *p;
    fetch(&copy);
    bool clean = true;
    for (int64_t i = 0; i < p->n_row * p->y_stride; i++) clean = clean && p->y[i] == 0xFFFF;
    expect(clean, "refusal '%s' touched y", text);
}

static void check_refusals(struct matrix *m)
{
    struct product p = product_make(m, 32);
    p.args.level = BRIM_W4_TILED, p.args.policy = BRIM_W4_POLICY_COURSE;
    brim_w4_args a = p.args;
    size_t need = 0;
    expect(brim_w4_workspace_bytes(&a, &need, NULL) == BRIM_OK && need > 0, "a split needs room");
    a.workspace_bytes = need - 1, refused(&p, &a, BRIM_E_WORKSPACE, "this product needs");
    a = p.args, a.workspace = NULL, refused(&p, &a, BRIM_E_WORKSPACE, "has 0 bytes");
    a = p.args, a.workspace = (char *)p.workspace + 128;
    refused(&p, &a, BRIM_E_ALIGNMENT, "workspace is not 256-byte aligned");
    a = p.args, a.x = (char *)p.d_x + 8, refused(&p, &a, BRIM_E_ALIGNMENT, "x is not 16-byte");
    a = p.args, a.x_stride -= 4, refused(&p, &a, BRIM_E_STRIDE, "stride of x");
    a = p.args, a.y = p.d_x, refused(&p, &a, BRIM_E_ARGUMENT, "y overlaps x");
    a = p.args, a.level = BRIM_W4_HOPPER, refused(&p, &a, BRIM_E_ARGUMENT, "brim_w4_pack");
    a = p.args, a.level = BRIM_W4_HOPPER, a.packed = p.d_y;
    refused(&p, &a, BRIM_E_ARGUMENT, "y overlaps packed");
    a = p.args, a.n_row = (int64_t)65535 * 32 + 1, a.n_out = 32, a.y_stride = 32, a.x = (void *)256;
    a.y = (void *)((uintptr_t)1 << 50);
    refused(&p, &a, BRIM_E_SHAPE, "grid of the tiled kernel");
    brim_w4_args_init(&a); /* no rows: no pointer, no launch */
    a.device = BRIM_KERNEL_CUDA, a.n_in = 2560, a.n_out = 1024;
    struct launches n = count_launches(&a), none = {0};
    expect(!memcmp(&n, &none, sizeof n), "no rows launch nothing");
    product_free(&p);
}

/* x and y with rows so far apart that the last lies beyond 2^31 elements, at full size. */
static void check_far_rows(struct matrix *m, int64_t n_row)
{
    struct product p = product_make(m, n_row);
    int64_t stride = (((int64_t)1 << 31) / (n_row - 1) / 64 + 1) * 64;
    size_t n_bytes = (size_t)((n_row - 1) * stride + m->n_out + m->n_in) * 2;
    char *x = device_bytes(n_bytes, 0xFF), *y = device_bytes(n_bytes, 0xFF);
    CUDA_OK(cudaMemcpy2D(x, (size_t)stride * 2, p.d_x, (size_t)p.x_stride * 2, (size_t)m->n_in * 2,
                         (size_t)n_row, cudaMemcpyDeviceToDevice));
    brim_error err = {0};
    for (int form = 0; form < 4; form++) {
        brim_w4_args a = p.args;
        a.level = form == 0 ? BRIM_W4_MATVEC : form == 3 ? BRIM_W4_HOPPER : BRIM_W4_TILED;
        a.split = form == 1 ? BRIM_W4_SPLIT_OFF : BRIM_W4_SPLIT_AUTO;
        a.packed = form == 3 ? m->d_packed : NULL;
        a.x = x, a.y = y, a.x_stride = a.y_stride = stride;
        CUDA_OK(cudaMemset2D(y, (size_t)stride * 2, 0xFF, (size_t)m->n_out * 2, (size_t)n_row));
        expect(brim_w4_matmul(&a, &err) == BRIM_OK, "far rows: %s", err.text);
        CUDA_OK(cudaDeviceSynchronize());
        CUDA_OK(cudaMemset(p.d_y, 0xFF, (size_t)(n_row * p.y_stride) * 2));
        CUDA_OK(cudaMemcpy2D(p.d_y, (size_t)p.y_stride * 2, y, (size_t)stride * 2,
                             (size_t)m->n_out * 2, (size_t)n_row, cudaMemcpyDeviceToDevice));
        fetch(&p);
        double e = error_of(&p);
        expect(e <= 3.1e-3, "rows %lld, %lld elements apart, form %d: rms %.3e", (long long)n_row,
               (long long)stride, form, e);
    }
    CUDA_OK(cudaFree(x));
    CUDA_OK(cudaFree(y));
    product_free(&p);
}

/* The last outputs of a product, against the CPU on those rows of the matrix alone. */
static void check_tail(const char *what, const struct matrix *m, const struct product *p,
                       const uint16_t *x, int64_t n_row, int64_t n_tail)
{
    int64_t first = m->n_out - n_tail;
    float *ref = malloc((size_t)(n_row * n_tail) * 4);
    uint16_t *got = malloc((size_t)(n_row * n_tail) * 2);
    brim_w4_args a = p->args;
    brim_error err = {0};
    a.device = BRIM_KERNEL_CPU, a.n_thread = 16, a.packed = NULL, a.workspace = NULL;
    a.workspace_bytes = 0, a.pinned = NULL, a.split = BRIM_W4_SPLIT_OFF, a.level = BRIM_W4_AUTO;
    a.n_row = n_row, a.n_out = n_tail;
    a.x = x, a.y = ref, a.y_stride = n_tail, a.y_dtype = BRIM_KERNEL_F32;
    a.codes = m->codes + first * (m->n_in / 8);
    a.scales = (uint16_t *)m->scales + first * (m->n_in / m->group);
    a.biases = (uint16_t *)m->biases + first * (m->n_in / m->group);
    expect(brim_w4_matmul(&a, &err) == BRIM_OK, "%s: CPU: %s", what, err.text);
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaMemcpy2D(got, (size_t)n_tail * 2, (uint16_t *)p->args.y + first,
                         (size_t)p->args.y_stride * 2, (size_t)n_tail * 2, (size_t)n_row,
                         cudaMemcpyDeviceToHost));
    double err2 = 0, ref2 = 0;
    for (int64_t i = 0; i < n_row * n_tail; i++) {
        double d = (double)brim_f32_from_bf16(got[i]) - (double)ref[i];
        err2 += d * d, ref2 += (double)ref[i] * (double)ref[i];
    }
    double e = sqrt(err2 / ref2);
    expect(e <= 3.1e-3, "%s: rms %.3e of the last outputs", what, e);
    free(ref), free(got);
}

/* More than 2^31 weights, and planes of more than 2^31 elements. */
static void check_large(int64_t n_in, int64_t n_out, int64_t n_row, int64_t split)
{
    struct matrix m = matrix_make(n_in, n_out, 128, BRIM_KERNEL_BF16);
    size_t n_x = (size_t)(n_row * n_in);
    uint16_t *x = malloc(n_x * 2);
    for (size_t i = 0; i < n_x; i++) x[i] = brim_bf16_from_f32(rng_gaussian());
    struct product p = {.m = &m, .n_row = n_row};
    brim_split_plan pin = {.split = split, .partition_inputs = n_in / split};
    brim_w4_args_init(&p.args);
    brim_w4_args *a = &p.args;
    a->device = BRIM_KERNEL_CUDA, a->n_row = n_row, a->n_in = n_in, a->n_out = n_out;
    a->x = upload(x, n_x * 2), a->x_stride = n_in, a->y_stride = n_out;
    a->y = device_bytes((size_t)(n_row * n_out) * 2, 0xFF);
    a->codes = m.d_codes, a->scales = m.d_scales, a->biases = m.d_biases;
    a->level = BRIM_W4_TILED, a->split = BRIM_W4_SPLIT_PINNED, a->pinned = &pin;
    brim_error err = {0};
    expect(brim_w4_workspace_bytes(a, &a->workspace_bytes, &err) == BRIM_OK, "%s", err.text);
    a->workspace = device_bytes(a->workspace_bytes, 0xFF);
    expect(brim_w4_matmul(a, &err) == BRIM_OK, "large split: %s", err.text);
    check_tail("large, pinned split", &m, &p, x, n_row, 64);
    a->split = BRIM_W4_SPLIT_OFF, a->pinned = NULL;
    expect(brim_w4_matmul(a, &err) == BRIM_OK, "large tiled: %s", err.text);
    check_tail("large, tiled", &m, &p, x, n_row, 64);
    a->n_row = n_row < 8 ? n_row : 8, a->level = BRIM_W4_MATVEC;
    expect(brim_w4_matmul(a, &err) == BRIM_OK, "large matvec: %s", err.text);
    check_tail("large, matvec", &m, &p, x, a->n_row, 64);
    a->n_row = n_row, a->level = BRIM_W4_HOPPER, a->packed = m.d_packed;
    size_t need = 0;
    expect(brim_w4_workspace_bytes(a, &need, &err) == BRIM_OK, "%s", err.text);
    if (need > a->workspace_bytes) {
        CUDA_OK(cudaFree(a->workspace));
        a->workspace = device_bytes(need, 0xFF), a->workspace_bytes = need;
    }
    expect(brim_w4_workspace_init(a->device, a->workspace, need, NULL, &err) == BRIM_OK, "init");
    CUDA_OK(cudaMemset(a->y, 0xFF, (size_t)(n_row * n_out) * 2));
    expect(brim_w4_matmul(a, &err) == BRIM_OK, "large hopper: %s", err.text);
    check_tail("large, hopper", &m, &p, x, n_row, 64);
    CUDA_OK(cudaFree((void *)(uintptr_t)a->x));
    CUDA_OK(cudaFree(a->y));
    CUDA_OK(cudaFree(a->workspace));
    free(x);
    matrix_free(&m);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Median of 20 replays of a graph of one call, L2 written over before each. */
static float time_cold(const brim_w4_args *args, void *flush, size_t flush_bytes)
{
    enum { N = 20, WARM = 3 };
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
    float us[N + WARM];
    brim_w4_args a = *args;
    CUDA_OK(cudaStreamCreate(&stream));
    a.stream = stream;
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    brim_status status = brim_w4_matmul(&a, NULL);
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    if (status != BRIM_OK) exit(2);
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    CUDA_OK(cudaEventCreate(&begin));
    CUDA_OK(cudaEventCreate(&end));
    for (int i = 0; i < N + WARM; i++) {
        CUDA_OK(cudaMemsetAsync(flush, i, flush_bytes, stream));
        CUDA_OK(cudaEventRecord(begin, stream));
        CUDA_OK(cudaGraphLaunch(exec, stream));
        CUDA_OK(cudaEventRecord(end, stream));
        CUDA_OK(cudaEventSynchronize(end));
        CUDA_OK(cudaEventElapsedTime(&us[i], begin, end));
    }
    qsort(us + WARM, N, sizeof *us, by_value);
    CUDA_OK(cudaEventDestroy(begin));
    CUDA_OK(cudaEventDestroy(end));
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaStreamDestroy(stream));
    return us[WARM + N / 2] * 1e3f;
}

/* Tiled against split-k by both policies and by pinned splits. */
static void bench(struct matrix *m, const char *name)
{
    static const int64_t rows[] = {16, 32, 64, 128};
    size_t flush_bytes = (size_t)256 << 20;
    void *flush = device_bytes(flush_bytes, 0);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct product p = product_make(m, rows[r]);
        brim_w4_args *a = &p.args;
        brim_w4_plan plan;
        a->level = BRIM_W4_TILED;
        for (int form = 0; form < 3; form++) {
            static const char *const names[] = {"tiled", "course", "device"};
            a->split = form ? BRIM_W4_SPLIT_AUTO : BRIM_W4_SPLIT_OFF;
            a->policy = form == 1 ? BRIM_W4_POLICY_COURSE : BRIM_W4_POLICY_DEVICE;
            if (brim_w4_plan_make(a, &plan, NULL)) exit(2);
            printf("%s,%d,%s,%d,%.2f\n", name, (int)rows[r], names[form], (int)plan.split.split,
                   (double)time_cold(a, flush, flush_bytes));
        }
        a->split = BRIM_W4_SPLIT_PINNED;
        for (int64_t split = 2; split <= 16; split++) {
            if (m->n_in / 128 % split) continue;
            brim_split_plan pin = {.split = split, .partition_inputs = m->n_in / split};
            a->pinned = &pin;
            printf("%s,%d,pinned,%d,%.2f\n", name, (int)rows[r], (int)split,
                   (double)time_cold(a, flush, flush_bytes));
        }
        product_free(&p);
    }
    CUDA_OK(cudaFree(flush));
}

int main(int argc, char **argv)
{
    bool brief = argc > 1 && !strcmp(argv[1], "short"),
         timed = argc > 1 && !strcmp(argv[1], "bench");
    int n_device = 0;
    if (cudaGetDeviceCount(&n_device) != cudaSuccess || n_device == 0) {
        printf("SKIP: no CUDA device\n0 passed, 0 failed, 1 skipped\n");
        return 77;
    }
    static const struct {
        const char *name;
        int64_t n_in, n_out;
    } model[] = {{"kv", 2560, 1024},
                 {"q", 2560, 4096},
                 {"o", 4096, 2560},
                 {"gate", 2560, 9728},
                 {"down", 9728, 2560}};
    if (timed) {
        printf("projection,rows,form,split,us\n");
        for (int i = 0; i < 5; i++) {
            struct matrix m = matrix_make(model[i].n_in, model[i].n_out, 128, BRIM_KERNEL_BF16);
            bench(&m, model[i].name);
            matrix_free(&m);
        }
        return n_failed != 0;
    }
    if (brief) {
        struct matrix m = matrix_make(320, 200, 64, BRIM_KERNEL_BF16);
        static const int64_t rows[] = {1, 17, 70};
        for (int i = 0; i < 3; i++) check_product(&m, rows[i], true);
        matrix_free(&m);
        /* the rows at which a tile is full and the next begins */
        static const int64_t seams[] = {8, 9, 16, 32, 33, 64, 65, 96, 97, 128, 129, 160, 161};
        struct matrix low = matrix_make(128, 40, 32, BRIM_KERNEL_BF16);
        for (size_t i = 0; i < sizeof seams / sizeof *seams; i++)
            check_product(&low, seams[i], true);
        matrix_free(&low);
        check_specials(320, 72, 64, rows, 2);
        printf("%d passed, %d failed, 0 skipped\n", n_passed, n_failed);
        return n_failed != 0;
    }
    static const int64_t rows[] = {1, 8, 9, 16, 17, 32, 33, 64, 65, 96, 97, 128, 129, 160, 161};
    enum { N_ROWS = sizeof rows / sizeof *rows };
    struct matrix kv = matrix_make(2560, 1024, 128, BRIM_KERNEL_BF16);
    for (int i = 0; i < N_ROWS; i++) check_product(&kv, rows[i], true);
    check_pinned(&kv);
    check_refusals(&kv);
    check_far_rows(&kv, 2);
    check_far_rows(&kv, 8);
    check_far_rows(&kv, 9);
    check_far_rows(&kv, 65);
    matrix_free(&kv);
    for (int i = 1; i < 5; i++) {
        struct matrix m = matrix_make(model[i].n_in, model[i].n_out, 128, BRIM_KERNEL_BF16);
        for (int r = 0; r < N_ROWS; r++) check_product(&m, rows[r], false);
        matrix_free(&m);
    }
    struct matrix edge = matrix_make(2560, 1032, 128, BRIM_KERNEL_BF16);
    check_product(&edge, 17, true);
    matrix_free(&edge);
    /* A filled grid whose reduction could be cut: it must fall back, bit for bit. */
    struct matrix filled = matrix_make(256, 19456, 128, BRIM_KERNEL_BF16);
    check_product(&filled, 128, false);
    matrix_free(&filled);
    struct matrix small = matrix_make(576, 1536, 32, BRIM_KERNEL_F16);
    for (int i = 0; i < N_ROWS; i += 3) check_product(&small, rows[i], true);
    matrix_free(&small);
    struct matrix wide = matrix_make(640, 200, 64, BRIM_KERNEL_F32);
    for (int i = 1; i < N_ROWS; i += 4) check_product(&wide, rows[i], true);
    matrix_free(&wide);
    static const int64_t special_rows[] = {1, 2, 8, 9, 33, 128};
    check_specials(2560, 1024, 128, special_rows, 6);
    check_large(4096, 524352, 9, 4);    /* 2^31 weights and more */
    check_large(2560, 131072, 896, 20); /* planes of 2^31 elements and more */
    printf("%d passed, %d failed, 0 skipped\n", n_passed, n_failed);
    return n_failed != 0;
}
