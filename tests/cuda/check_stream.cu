/* SPDX-License-Identifier: Apache-2.0
 * The W4 kernel for many rows (src/cuda/w4/stream.cu) against an fp64 product of sampled outputs,
 * or its times as CSV. y is poisoned and followed by guard columns and rows, x by NaN. Ends with
 * "N passed, N failed, N skipped"; without a device all is skipped, with the reason.
 *   gpu_check_stream [short | bench | sweep]
 * bench: chosen plans, cold, after the checks. sweep: every plan whose estimated cost is within
 * 1.7 times the best, the figures that the cost model in plan/w4_stream.c was fitted to. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <string>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/w4/stream.h"
#include "cuda/w4/w4.h"
#include "graph_time.cuh"
#include "tensor/dtype.h"

static int n_passed, n_failed;

/* Launch through BRIM_LAUNCH; a failure ends the program. */
#define RUN(kernel, n_thread, stream, params)                                \
    do {                                                                     \
        brim_error err_ = {};                                                \
        brim_launch_shape shape_ = {};                                       \
        shape_.grid = dim3((unsigned)(((n_thread) + 255) / 256));            \
        shape_.block = dim3(256);                                            \
        if (BRIM_LAUNCH(kernel, shape_, stream, params, &err_) != BRIM_OK) { \
            fprintf(stderr, "%s\n", err_.text);                              \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

static void expect(bool ok, const std::string &what)
{
    ok ? n_passed++ : n_failed++;
    if (!ok) printf("FAILED %s\n", what.c_str());
}

/* ---- data: made on the device, a hash of position ----------------------------------------------
 */

static __device__ uint32_t hash(uint64_t i, uint32_t salt)
{
    uint64_t z = i * 0x9E3779B97F4A7C15ull + salt * 0xD1B54A32D192ED03ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return (uint32_t)(z >> 32);
}
static __device__ float uniform(uint64_t i, uint32_t salt)
{
    return (float)(hash(i, salt) >> 8) * (1.0f / 16777216.0f);
}
/* Close to normal: four uniforms, variance 1. */
static __device__ float normal(uint64_t i, uint32_t salt)
{
    float sum = 0;
    for (uint32_t k = 0; k < 4; k++) sum += uniform(i * 4 + k, salt);
    return (sum - 2) * 1.7320508f;
}

/* Groups and inputs at the edge of what they may be. TINY: each weight is a subnormal of bf16 or
 * close to it, so that one flushed to zero shows. */
enum special { ORDINARY, NEGATIVE, ZERO, TINY, LARGE_X };
static const char *const special_names[] = {"", ", scales negative", ", scales zero",
                                            ", weights subnormal", ", x of 6e4"};

struct data_params {
    uint16_t *x;
    uint32_t *codes;
    uint8_t *scales, *biases;
    float *scales_f32, *biases_f32, *out_bias;
    int64_t n_row, n_in, n_out, x_stride, x_rows;
    int group;
    enum brim_dtype dtype;
    special kind;
};
static __device__ float put_param(uint8_t *to, int64_t i, float v, enum brim_dtype dtype)
{
    if (dtype == BRIM_DTYPE_F32) {
        ((float *)to)[i] = v;
        return v;
    }
    if (dtype == BRIM_DTYPE_F16) {
        ((__half *)to)[i] = __float2half_rn(v);
        return __half2float(((__half *)to)[i]);
    }
    ((__nv_bfloat16 *)to)[i] = __float2bfloat16_rn(v);
    return __bfloat162float(((__nv_bfloat16 *)to)[i]);
}
static __global__ void data_kernel(data_params p)
{
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = at; i < p.x_rows * p.x_stride; i += step) {
        bool inside = i / p.x_stride < p.n_row && i % p.x_stride < p.n_in;
        float v = p.kind == LARGE_X && i % p.x_stride == 5 ? 6e4f : normal(i, 1);
        if (p.kind == TINY) v *= 4096;
        p.x[i] = inside ? __bfloat16_as_ushort(__float2bfloat16_rn(v)) : 0xFFFF;
    }
    for (int64_t i = at; i < p.n_out * p.n_in / 8; i += step) p.codes[i] = hash(i, 2);
    for (int64_t i = at; i < p.n_out * p.n_in / p.group; i += step) {
        float s = (hash(i, 3) & 1 ? -1.0f : 1.0f) * (0.1f + 0.1f * uniform(i, 4));
        float noise = p.kind == TINY ? 0 : 0.05f * normal(i, 5);
        if (p.kind == NEGATIVE) s = -fabsf(s);
        if (p.kind == ZERO) s = 0;
        if (p.kind == TINY) s *= 2e-38f;
        s = p.scales_f32[i] = put_param(p.scales, i, s, p.dtype);
        p.biases_f32[i] = put_param(p.biases, i, -7.5f * s + noise, p.dtype);
    }
    for (int64_t i = at; i < p.n_out; i += step) p.out_bias[i] = 20 * normal(i, 6);
}

/* ---- reference: fp64, sampled outputs, the checkpoint's own order -------------------------------
 */

struct sample_params {
    const uint16_t *x;
    const uint8_t *codes;
    const float *scales, *biases, *out_bias;
    const void *y; /* what the kernel left */
    double *want, *got;
    int64_t n_row, n_in, n_out, n_col, x_stride, y_stride, n_sample;
    int group, epilogue;
};
static __device__ double product(const sample_params &p, int64_t row, int64_t out)
{
    double sum = p.out_bias ? p.out_bias[out] : 0;
    for (int64_t k = 0; k < p.n_in; k++) {
        int64_t at = out * p.n_in + k;
        int q = k % 2 ? p.codes[at / 2] >> 4 : p.codes[at / 2] & 15;
        double w = (double)p.scales[at / p.group] * q + (double)p.biases[at / p.group];
        sum += w * (double)__uint_as_float((uint32_t)p.x[row * p.x_stride + k] << 16);
    }
    return sum;
}
/* Of n_row x n_col results: all of them if they fit, else every kind of corner and a hash. */
static __device__ void sample_of(const sample_params &p, int64_t i, int64_t *row, int64_t *col)
{
    if (p.n_row * p.n_col <= p.n_sample) {
        *row = i / p.n_col, *col = i % p.n_col;
        return;
    }
    *row = hash(i, 7) % p.n_row, *col = hash(i, 8) % p.n_col;
    if (i % 8 == 1) *row = p.n_row - 1;
    if (i % 8 == 2) *col = p.n_col - 1 - hash(i, 9) % 4 % p.n_col;
    if (i % 8 == 3) *row = 0;
}
static __global__ void sample_kernel(sample_params p)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p.n_sample) return;
    p.want[i] = p.got[i] = 0;
    if (p.n_row * p.n_col <= p.n_sample && i >= p.n_row * p.n_col) return;
    int64_t row, col;
    sample_of(p, i, &row, &col);
    if (p.epilogue == BRIM_W4_SWIGLU) {
        double gate = product(p, row, col / 8 * 16 + col % 8);
        p.want[i] = gate / (1 + exp(-gate)) * product(p, row, col / 8 * 16 + 8 + col % 8);
    } else {
        p.want[i] = product(p, row, col);
        if (p.epilogue == BRIM_W4_ADD_F32) p.want[i] += 1.0; /* y began as ones */
    }
    bool wide = p.epilogue == BRIM_W4_STORE_F32 || p.epilogue == BRIM_W4_ADD_F32;
    int64_t at = row * p.y_stride + col;
    p.got[i] = wide ? ((const float *)p.y)[at]
                    : __uint_as_float((uint32_t)((const uint16_t *)p.y)[at] << 16);
}

struct clean_params {
    const uint8_t *y;
    int64_t n_row, n_col, y_stride, y_rows;
    int wide;
    uint32_t fill;
    unsigned *bad; /* non-finite results, touched guards */
};
static __global__ void clean_kernel(clean_params p)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p.y_rows * p.y_stride) return;
    bool inside = i / p.y_stride < p.n_row && i % p.y_stride < p.n_col;
    uint32_t bits = p.wide ? ((const uint32_t *)p.y)[i] : ((const uint16_t *)p.y)[i] << 16;
    uint32_t fill = p.wide ? p.fill : p.fill << 16;
    bool ok = inside ? (bits & 0x7F800000u) != 0x7F800000u : bits == fill;
    if (!ok) atomicAdd(p.bad, 1);
}
struct ones_params {
    float *y;
    int64_t n;
};
static __global__ void ones_kernel(ones_params p)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < p.n) p.y[i] = 1;
}
struct equal_params {
    const uint16_t *a, *b;
    int64_t n_row, n_col, stride;
    unsigned *bad;
};
static __global__ void equal_kernel(equal_params p)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p.n_row * p.n_col) return;
    int64_t at = i / p.n_col * p.stride + i % p.n_col;
    if (p.a[at] != p.b[at]) atomicAdd(p.bad, 1);
}

/* y_pad: columns between rows of y; a multiple of 8 allows 16-byte stores. */
struct problem {
    int64_t n_row, n_in, n_out, x_stride, x_rows, y_stride, y_rows;
    int group;
    brim_dtype dtype;
    special kind;
    device_array<uint16_t> x;
    device_array<uint32_t> codes;
    device_array<uint8_t> scales, biases;
    device_array<float> scales_f32, biases_f32, out_bias;
    device_array<float> y; /* f32 or bf16 */
    device_array<uint8_t> packed_codes, packed_params;
    device_array<unsigned> bad;
    brim_cuda_w4 args;
    brim_cuda_w4_packed packed;

    problem(int64_t rows, int64_t in, int64_t out, int grp, brim_dtype dt, int y_pad,
            special kind_ = ORDINARY)
        : n_row(rows), n_in(in), n_out(out), x_stride(in + 8), x_rows(rows + 1),
          y_stride(out + y_pad), y_rows(rows + 1), group(grp), dtype(dt), kind(kind_),
          x(x_rows * x_stride), codes(out * in / 8), scales(out * in / grp * brim_dtype_bytes(dt)),
          biases(out * in / grp * brim_dtype_bytes(dt)), scales_f32(out * in / grp),
          biases_f32(out * in / grp), out_bias(out), y(y_rows * y_stride),
          packed_codes(brim_cuda_w4_packed_codes_bytes(out, in)),
          packed_params(brim_cuda_w4_packed_params_bytes(out, in, grp, dt)), bad(1)
    {
        data_params d = {x.ptr,          codes.ptr,    scales.ptr, biases.ptr, scales_f32.ptr,
                         biases_f32.ptr, out_bias.ptr, n_row,      n_in,       n_out,
                         x_stride,       x_rows,       group,      dtype,      kind};
        RUN(data_kernel, 1 << 18, nullptr, d);
        args = {};
        args.n_row = n_row, args.n_in = n_in, args.n_out = n_out, args.group = group;
        args.param_dtype = dtype;
        args.x = x.ptr, args.x_stride = x_stride, args.codes = codes.ptr;
        args.scales = scales.ptr, args.biases = biases.ptr, args.y = y.ptr;
        args.y_stride = y_stride;
        packed = {};
        packed.codes = packed_codes.ptr, packed.params = packed_params.ptr;
        packed_codes.fill(0xFF), packed_params.fill(0xFF);
        brim_error err = {};
        if (brim_cuda_w4_pack(&args, &packed, nullptr, &err) != BRIM_OK) {
            printf("%s\n", err.text);
            exit(1);
        }
        CHECK(cudaDeviceSynchronize());
    }

    std::string name(const brim_w4_stream_plan &plan) const
    {
        char text[240];
        snprintf(text, sizeof text,
                 "rows %lld in %lld out %lld group %d %s epilogue %d stride %lld: %d tokens, %d "
                 "slabs, split %d%s",
                 (long long)n_row, (long long)n_in, (long long)n_out, group, brim_dtype_name(dtype),
                 args.epilogue, (long long)y_stride, plan.n_token, plan.n_slab, plan.split,
                 special_names[kind]);
        return text;
    }

    bool launch(const brim_w4_stream_plan &plan, int pdl)
    {
        bool add = args.epilogue == BRIM_W4_ADD_F32;
        y.fill(0xFF);
        if (add) {
            ones_params o = {y.ptr, (int64_t)y.n};
            RUN(ones_kernel, o.n, nullptr, o);
        }
        brim_error err = {};
        if (brim_cuda_w4_stream(&args, &packed, &plan, pdl, nullptr, &err) != BRIM_OK) {
            expect(false, name(plan) + ": " + err.text);
            return false;
        }
        cudaError_t sync = cudaDeviceSynchronize();
        if (sync != cudaSuccess) {
            printf("FAILED %s: %s\n", name(plan).c_str(), cudaGetErrorString(sync));
            exit(1);
        }
        return true;
    }

    void check(const brim_w4_stream_plan &plan, int pdl)
    {
        if (!launch(plan, pdl)) return;
        const bool wide = args.epilogue == BRIM_W4_STORE_F32 || args.epilogue == BRIM_W4_ADD_F32;
        const int64_t n_col = args.epilogue == BRIM_W4_SWIGLU ? n_out / 2 : n_out;
        bad.fill(0);
        float one = 1;
        uint32_t fill = wide ? 0xFFFFFFFFu : 0xFFFFu;
        if (args.epilogue == BRIM_W4_ADD_F32) memcpy(&fill, &one, 4);
        clean_params c = {
            (const uint8_t *)y.ptr, n_row, n_col, y_stride, y_rows, wide, fill, bad.ptr};
        RUN(clean_kernel, y_rows * y_stride, nullptr, c);
        const int64_t n = 1 << 13;
        device_array<double> want(n), got(n);
        sample_params s = {x.ptr,
                           (const uint8_t *)codes.ptr,
                           scales_f32.ptr,
                           biases_f32.ptr,
                           args.out_bias,
                           y.ptr,
                           want.ptr,
                           got.ptr,
                           n_row,
                           n_in,
                           n_out,
                           n_col,
                           x_stride,
                           y_stride,
                           n,
                           group,
                           args.epilogue};
        RUN(sample_kernel, n, nullptr, s);
        std::vector<double> hw = want.to_host(), hg = got.to_host();
        double err2 = 0, ref2 = 0;
        for (int64_t i = 0; i < n; i++)
            err2 += (hg[i] - hw[i]) * (hg[i] - hw[i]), ref2 += hw[i] * hw[i];
        double e = sqrt(err2 / ref2);
        unsigned n_bad = bad.to_host()[0];
        /* bf16 weights 1.44e-3, bf16 outputs 1.66e-3 of the output's rms; a product of two sums
         * carries the first twice. Three sigma of an rms over this many. */
        double bound = wide ? 1.6e-3 : args.epilogue == BRIM_W4_SWIGLU ? 3.2e-3 : 2.4e-3;
        /* subnormals are multiples of 2^-133 */
        if (kind == TINY) bound = sqrt(bound * bound + 1.88e-3 * 1.88e-3 - 1.43e-3 * 1.43e-3);
        bound *= 1 + 3 / sqrt(2.0 * (double)std::min<int64_t>(n, n_row * n_col));
        char text[96];
        snprintf(text, sizeof text, ": rms %.3e bound %.1e, %u not clean", e, bound, n_bad);
        expect(n_bad == 0 && e <= bound, name(plan) + text);
    }

    /* bf16 results of another launch equal those in `first`, rows 0 .. rows - 1. */
    bool same(const device_array<float> &first, int64_t rows)
    {
        bad.fill(0);
        equal_params q = {
            (const uint16_t *)y.ptr, (const uint16_t *)first.ptr, rows, n_out, y_stride, bad.ptr};
        RUN(equal_kernel, rows * n_out, nullptr, q);
        return bad.to_host()[0] == 0;
    }
};

static const struct {
    const char *name;
    int64_t in, out;
} shapes[] = {{"q", 2560, 4096},      {"kv", 2560, 1024},   {"o", 4096, 2560},
              {"gate", 2560, 9728},   {"down", 9728, 2560}, {"qkv", 2560, 6144},
              {"gateup", 2560, 19456}};
static const int tokens_all[] = {64, 96, 128};

static void check_repeats(problem &p, const brim_w4_stream_plan &plan, int n)
{
    if (!p.launch(plan, 0)) return;
    device_array<float> first(p.y.n);
    CHECK(cudaMemcpy(first.ptr, p.y.ptr, p.y.n * 4, cudaMemcpyDeviceToDevice));
    bool equal = true;
    for (int i = 0; i < n && equal; i++) equal = p.launch(plan, i % 2) && p.same(first, p.n_row);
    expect(equal, p.name(plan) + ": repeats to the bit");
}

static void check_all(int n_sm, bool brief)
{
    /* Every tile, split and epilogue on a shape that is whole nowhere. */
    for (int token : tokens_all)
        for (int slab = 1; slab <= 4; slab++)
            for (int split : {1, 2, 3, 5, 8}) {
                if (brief && (slab == 1 || slab == 3 || split > 2)) continue;
                problem p(161, 704, 1040, 64, BRIM_DTYPE_BF16, split % 2 ? 8 : 3);
                brim_w4_stream_plan plan =
                    brim_w4_stream_plan_pin(161, 704, 1040, n_sm, token, slab, split);
                for (int kind = 0; kind < 4; kind++) {
                    if (brief && kind % 2) continue;
                    p.args.epilogue = (brim_w4_epilogue)kind;
                    p.args.out_bias = (kind + split) % 2 ? p.out_bias.ptr : nullptr;
                    p.check(plan, kind % 2);
                }
            }
    for (special kind : {NEGATIVE, ZERO, TINY, LARGE_X})
        for (brim_dtype dtype : {BRIM_DTYPE_BF16, BRIM_DTYPE_F32}) {
            if (kind == TINY && dtype == BRIM_DTYPE_BF16) continue; /* below 2^-86: unpack.cuh */
            problem p(brief ? 70 : 200, 704, brief ? 72 : 1040, 64, dtype, 8, kind);
            p.check(brim_w4_stream_plan_pin(p.n_row, p.n_in, p.n_out, n_sm, 96, 2, 2), 0);
        }
    if (brief) return;
    for (brim_dtype dtype : {BRIM_DTYPE_BF16, BRIM_DTYPE_F16, BRIM_DTYPE_F32})
        for (int group : {32, 64, 128})
            for (int64_t rows : {1, 65, 129, 200}) {
                int64_t in = group == 128 ? 640 : 576;
                problem p(rows, in, 201, group, dtype, 2);
                p.check(brim_w4_stream_plan_make(rows, in, 201, n_sm), 0);
                for (int split : {1, 3})
                    p.check(brim_w4_stream_plan_pin(rows, in, 201, n_sm, 128, 2, split), 0);
            }
    for (auto &s : shapes)
        for (int64_t rows : {65, 96, 128, 129, 160, 161, 200, 257, 512, 2048}) {
            problem p(rows, s.in, s.out, 128, BRIM_DTYPE_BF16, 8);
            brim_w4_stream_plan plan = brim_w4_stream_plan_make(rows, s.in, s.out, n_sm);
            p.check(plan, 0);
            if (rows == 129 || rows == 2048) check_repeats(p, plan, rows == 129 ? 100 : 10);
        }
    /* A row's bits depend on the split alone. */
    problem p(257, 2560, 1024, 128, BRIM_DTYPE_BF16, 8);
    for (int split : {1, 4}) {
        p.args.n_row = p.n_row = 257;
        if (!p.launch(brim_w4_stream_plan_pin(257, 2560, 1024, n_sm, 128, 4, split), 0)) return;
        device_array<float> first(p.y.n);
        CHECK(cudaMemcpy(first.ptr, p.y.ptr, p.y.n * 4, cudaMemcpyDeviceToDevice));
        for (int token : tokens_all)
            for (int64_t rows : {1, 65, 200}) {
                p.args.n_row = p.n_row = rows;
                brim_w4_stream_plan plan =
                    brim_w4_stream_plan_pin(rows, 2560, 1024, n_sm, token, 2, split);
                expect(p.launch(plan, 0) && p.same(first, rows),
                       p.name(plan) + ": bits of the same row in another tile");
            }
    }
}

/* ---- times -------------------------------------------------------------------------------------
 */

/* within: 0 times the chosen plan; else all whose estimate is below `within` times the best. */
static void time_shapes(int n_sm, double within, int n_sample)
{
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    device_array<uint8_t> flush(within > 0 ? 128u << 20 : 256u << 20);
    printf("projection,rows,in,out,form,split,us%s\n", within > 0 ? ",estimate" : "");
    printf("clock,0,0,0,tiny,1,%.2f\n", time_tiny(stream, flush.ptr, flush.n));
    for (auto &s : shapes)
        for (int64_t rows : {64, 65, 96, 128, 129, 192, 256, 384, 512, 1024, 2048}) {
            problem p(rows, s.in, s.out, 128, BRIM_DTYPE_BF16, 0);
            brim_w4_stream_plan best = brim_w4_stream_plan_make(rows, s.in, s.out, n_sm);
            double best_cost = brim_w4_stream_plan_cost(&best, n_sm);
            auto row = [&](const brim_w4_stream_plan &plan, const char *form) {
                brim_error err = {};
                double us = time_graph(stream, flush.ptr, flush.n, n_sample, [&] {
                    if (brim_cuda_w4_stream(&p.args, &p.packed, &plan, 0, stream, &err) != BRIM_OK)
                        printf("%s\n", err.text);
                });
                printf("%s,%lld,%lld,%lld,%s %dx%d,%d,%.2f", s.name, (long long)rows,
                       (long long)s.in, (long long)s.out, form, plan.n_slab * 64, plan.n_token,
                       plan.split, us);
                if (within > 0) printf(",%.2f", brim_w4_stream_plan_cost(&plan, n_sm) / 1750);
                printf("\n");
            };
            row(best, within > 0 ? "chosen" : "stream");
            for (int token : tokens_all)
                for (int slab = 1; slab <= 4; slab++)
                    for (int split = 1; split <= 8; split++) {
                        brim_w4_stream_plan plan =
                            brim_w4_stream_plan_pin(rows, s.in, s.out, n_sm, token, slab, split);
                        if (brim_w4_stream_plan_cost(&plan, n_sm) < best_cost * within)
                            row(plan, "plan");
                    }
            fflush(stdout);
        }
}

int main(int argc, char **argv)
{
    const std::string mode = argc > 1 ? argv[1] : "";
    struct brim_cuda_device device;
    brim_error err = {};
    if (brim_cuda_device_get(0, &device, &err) != BRIM_OK) {
        printf("SKIP: %s\n0 passed, 0 failed, 1 skipped\n", err.text);
        return 77;
    }
    check_all(device.n_sm, mode == "short");
    if (n_failed == 0 && mode == "bench") time_shapes(device.n_sm, 0, 20);
    if (n_failed == 0 && mode == "sweep") time_shapes(device.n_sm, 1.7, 5);
    fprintf(mode == "bench" || mode == "sweep" ? stderr : stdout,
            "%d passed, %d failed, 0 skipped\n", n_passed, n_failed);
    return n_failed != 0;
}
