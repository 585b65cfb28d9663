/* SPDX-License-Identifier: Apache-2.0
 * W4A16 kernels on the GPU: every form against an fp64 product, or their times as CSV.
 * Outputs and workspace are poisoned, guard words follow each output row. Ends with the line
 * "N passed, N failed, N skipped"; without a device all is skipped, with the reason.
 *   gpu_check_w4 [short | bench] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <string>
#include <vector>

#include <cuda_bf16.h>

#include "base/rng.h"
#include "cuda/device.h"
#include "cuda/launch.h"
#include "cuda/w4/cluster.h"
#include "cuda/w4/stream.h"
#include "cuda/w4/w4.h"
#include "tensor/dtype.h"

static int n_passed, n_failed;

#define CHECK(call)                                             \
    do {                                                        \
        brim_error err_ = {};                                   \
        if (brim_cuda_check((call), #call, &err_) != BRIM_OK) { \
            fprintf(stderr, "%s\n", err_.text);                 \
            exit(1);                                            \
        }                                                       \
    } while (0)

static void expect(bool ok, const std::string &what)
{
    ok ? n_passed++ : n_failed++;
    if (!ok) printf("FAILED %s\n", what.c_str());
}

template <typename T> struct device_array {
    T *ptr = nullptr;
    size_t n = 0;
    explicit device_array(size_t count) : n(count)
    {
        CHECK(cudaMalloc(&ptr, (count ? count : 1) * sizeof(T)));
    }
    device_array(const device_array &) = delete;
    ~device_array() { cudaFree(ptr); }
    void from(const std::vector<T> &v)
    {
        CHECK(cudaMemcpy(ptr, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    }
    std::vector<T> to_host() const
    {
        std::vector<T> v(n);
        CHECK(cudaMemcpy(v.data(), ptr, n * sizeof(T), cudaMemcpyDeviceToHost));
        return v;
    }
    void fill(int byte) { CHECK(cudaMemset(ptr, byte, n * sizeof(T))); }
};

/* fp64 product, one thread an output; independent of the kernels' own unpacking. */
struct ref_params {
    const uint16_t *x;
    const uint8_t *codes;
    const float *scales, *biases;
    double *y;
    int64_t n_row, n_in, n_out, x_stride;
    int group;
};
static __global__ void ref_kernel(ref_params p)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p.n_row * p.n_out) return;
    int64_t row = i / p.n_out, out = i % p.n_out;
    double sum = 0;
    for (int64_t k = 0; k < p.n_in; k++) {
        int64_t at = out * p.n_in + k;
        int q = k % 2 ? p.codes[at / 2] >> 4 : p.codes[at / 2] & 15;
        double w = (double)p.scales[at / p.group] * q + (double)p.biases[at / p.group];
        sum += w * (double)__uint_as_float((uint32_t)p.x[row * p.x_stride + k] << 16);
    }
    p.y[i] = sum;
}

static float gaussian(brim_rng *rng)
{
    float sum = 0;
    for (int i = 0; i < 12; i++) sum += brim_rng_uniform(rng);
    return sum - 6;
}

enum special { SPECIAL_NONE, SPECIAL_NEGATIVE, SPECIAL_ZERO, SPECIAL_SUBNORMAL, SPECIAL_LARGE_X };

struct problem {
    int64_t n_row, n_in, n_out, x_stride, y_stride;
    int group;
    brim_dtype dtype;
    device_array<uint16_t> x, y;
    device_array<uint32_t> codes;
    device_array<uint8_t> scales, biases;
    device_array<float> scales_f32, biases_f32;
    device_array<double> ref;
    device_array<uint8_t> packed_codes, packed_params;
    brim_cuda_w4 args;
    brim_cuda_w4_packed packed;

    problem(int64_t rows, int64_t in, int64_t out, int grp, brim_dtype dt, special kind)
        : n_row(rows), n_in(in), n_out(out), x_stride(in + 8), y_stride(out + 2), group(grp),
          dtype(dt), x(rows * (in + 8)), y(rows * (out + 2)), codes(out * in / 8),
          scales(out * in / grp * brim_dtype_bytes(dt)),
          biases(out * in / grp * brim_dtype_bytes(dt)), scales_f32(out * in / grp),
          biases_f32(out * in / grp), ref(rows * out),
          packed_codes(brim_cuda_w4_packed_codes_bytes(out, in)),
          packed_params(brim_cuda_w4_packed_params_bytes(out, in, grp, dt))
    {
        brim_rng rng;
        brim_rng_seed(&rng, (uint64_t)(rows * 131 + in * 17 + out + grp * 7 + dt + kind));
        std::vector<uint16_t> hx(x.n, 0xFFFF); /* NaN between the rows */
        for (int64_t r = 0; r < n_row; r++)
            for (int64_t k = 0; k < n_in; k++)
                hx[r * x_stride + k] =
                    brim_bf16_from_f32(kind == SPECIAL_LARGE_X && k == 5 ? 6e4f : gaussian(&rng));
        x.from(hx);
        std::vector<uint32_t> hc(codes.n);
        for (auto &c : hc) c = brim_rng_u32(&rng);
        codes.from(hc);
        size_t n_group = n_out * n_in / group, width = brim_dtype_bytes(dt);
        std::vector<uint8_t> hs(scales.n), hb(biases.n);
        std::vector<float> fs(n_group), fb(n_group);
        for (size_t i = 0; i < n_group; i++) {
            float s = (brim_rng_uniform(&rng) < 0.5f ? -1.0f : 1.0f) *
                      (0.1f + 0.1f * brim_rng_uniform(&rng));
            if (kind == SPECIAL_NEGATIVE) s = -fabsf(s);
            if (kind == SPECIAL_ZERO) s = 0;
            if (kind == SPECIAL_SUBNORMAL) s = 1e-40f;
            float b = -7.5f * s + 0.05f * gaussian(&rng);
            for (int which = 0; which < 2; which++) {
                float v = which ? b : s;
                uint8_t *at = (which ? hb : hs).data() + i * width;
                if (dt == BRIM_DTYPE_F32) {
                    memcpy(at, &v, 4);
                } else {
                    uint16_t h =
                        dt == BRIM_DTYPE_F16 ? brim_f16_from_f32(v) : brim_bf16_from_f32(v);
                    memcpy(at, &h, 2);
                    v = dt == BRIM_DTYPE_F16 ? brim_f32_from_f16(h) : brim_f32_from_bf16(h);
                }
                (which ? fb : fs)[i] = v;
            }
        }
        scales.from(hs), biases.from(hb), scales_f32.from(fs), biases_f32.from(fb);
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
        ref_params p = {x.ptr,          (const uint8_t *)codes.ptr,
                        scales_f32.ptr, biases_f32.ptr,
                        ref.ptr,        n_row,
                        n_in,           n_out,
                        x_stride,       group};
        brim_launch_shape shape = {};
        shape.grid = dim3((unsigned)((n_row * n_out + 127) / 128));
        shape.block = dim3(128);
        if (BRIM_LAUNCH(ref_kernel, shape, nullptr, p, &err) != BRIM_OK) exit(1);
        CHECK(cudaDeviceSynchronize());
    }

    std::string name(const char *form) const
    {
        char text[200];
        snprintf(text, sizeof text, "%s rows %lld in %lld out %lld group %d %s", form,
                 (long long)n_row, (long long)n_in, (long long)n_out, group,
                 brim_dtype_name(dtype));
        return text;
    }

    /* rms error over the output's rms; checks guards and finiteness. */
    double error(bool *clean) const
    {
        std::vector<uint16_t> hy = y.to_host();
        std::vector<double> hr = ref.to_host();
        double err2 = 0, ref2 = 0;
        *clean = true;
        for (int64_t r = 0; r < n_row; r++) {
            for (int64_t o = 0; o < n_out; o++) {
                double got = brim_f32_from_bf16(hy[r * y_stride + o]), want = hr[r * n_out + o];
                if (!isfinite(got)) *clean = false;
                err2 += (got - want) * (got - want), ref2 += want * want;
            }
            for (int64_t o = n_out; o < y_stride; o++)
                if (hy[r * y_stride + o] != 0xFFFF) *clean = false;
        }
        return sqrt(err2 / (ref2 > 0 ? ref2 : 1));
    }
};

template <typename F> static void run_form(problem &p, const char *form, double bound, F launch)
{
    p.y.fill(0xFF);
    brim_error err = {};
    brim_status status = launch(&err);
    if (status != BRIM_OK) {
        expect(false, p.name(form) + ": " + err.text);
        return;
    }
    cudaError_t sync = cudaDeviceSynchronize();
    if (sync != cudaSuccess) {
        printf("FAILED %s: %s\n", p.name(form).c_str(), cudaGetErrorString(sync));
        exit(1);
    }
    bool clean;
    double e = p.error(&clean);
    /* The bound is on an expectation: allow three sigma of an rms over this many outputs. */
    bound *= 1 + 3 / sqrt(2.0 * (double)(p.n_row * p.n_out));
    char text[64];
    snprintf(text, sizeof text, ": rms %.3e bound %.1e%s", e, bound, clean ? "" : " NOT CLEAN");
    expect(clean && e <= bound, p.name(form) + text);
}

static void check_cluster(problem &p, int n_sm);

static void check_problem(problem &p, int n_sm)
{
    /* Bounds: w4a16 numerics. bf16 output rounding 1.66e-3, bf16 weights 2.2e-3, bf16
     * planes 2.9e-3. */
    if (p.n_row <= 8)
        run_form(p, "matvec", 1.9e-3,
                 [&](brim_error *err) { return brim_cuda_w4_matvec(&p.args, nullptr, err); });
    brim_split_plan off = {0, 1, 0, 0, p.n_in};
    run_form(p, "tiled", 2.4e-3, [&](brim_error *err) {
        return brim_cuda_w4_tiled(&p.args, &off, BRIM_W4_PLANES_F32, nullptr, nullptr, err);
    });
    std::vector<uint16_t> unsplit = p.y.to_host();
    brim_split_policy course = brim_split_policy_course();
    course.align = std::max<int64_t>(p.group, 32);
    course.matvec_rows = 0;
    brim_split_plan plan;
    brim_error err = {};
    if (brim_split_plan_make(&course, p.n_row, p.n_in, p.n_out, &plan, &err) != BRIM_OK) {
        expect(false, p.name("plan") + err.text);
        return;
    }
    for (int planes = 0; planes < 2; planes++) {
        device_array<uint8_t> ws(
            brim_cuda_w4_workspace_bytes(&plan, p.n_row, p.n_out, (brim_w4_planes)planes));
        ws.fill(0xFF);
        run_form(p, planes ? "split f32" : "split bf16", planes ? 2.4e-3 : 3.0e-3,
                 [&](brim_error *e) {
                     return brim_cuda_w4_tiled(&p.args, &plan, (brim_w4_planes)planes, ws.ptr,
                                               nullptr, e);
                 });
        if (plan.split == 1)
            expect(p.y.to_host() == unsplit, p.name("split 1 equals unsplit, to the bit"));
    }
    check_cluster(p, n_sm);
    brim_w4_stream_plan sp = brim_w4_stream_plan_make(p.n_row, p.n_in, p.n_out, n_sm);
    size_t ws_bytes = brim_cuda_w4_stream_workspace_bytes(&sp);
    device_array<uint8_t> ws(ws_bytes);
    ws.fill(0xFF);
    CHECK(cudaMemset(ws.ptr, 0, BRIM_W4_STREAM_COUNTER_BYTES));
    std::vector<uint16_t> first;
    for (int repeat = 0; repeat < 3; repeat++) {
        run_form(p, "stream", 2.4e-3, [&](brim_error *e) {
            return brim_cuda_w4_stream(&p.args, &p.packed, &sp, ws.ptr, repeat == 2, nullptr, e);
        });
        std::vector<uint16_t> got = p.y.to_host();
        if (repeat == 0)
            first = got;
        else
            expect(got == first, p.name("stream repeats to the bit"));
    }
}

static void check_cluster(problem &p, int n_sm)
{
    brim_w4_cluster_plan plan = brim_w4_cluster_plan_make(p.n_row, p.n_in, p.n_out, n_sm);
    std::vector<uint16_t> first;
    for (int repeat = 0; repeat < 3; repeat++) {
        run_form(p, "cluster", 2.4e-3, [&](brim_error *e) {
            return brim_cuda_w4_cluster(&p.args, &p.packed, &plan, repeat == 2, nullptr, e);
        });
        std::vector<uint16_t> got = p.y.to_host();
        if (repeat == 0)
            first = got;
        else
            expect(got == first, p.name("cluster repeats to the bit"));
    }
    for (int split = 1; split <= 8 && split <= plan.n_unit; split *= 2) {
        plan.split = split;
        char form[32];
        snprintf(form, sizeof form, "cluster split %d", split);
        run_form(p, form, 2.4e-3, [&](brim_error *e) {
            return brim_cuda_w4_cluster(&p.args, &p.packed, &plan, 0, nullptr, e);
        });
    }
}

/* ---- times
 * --------------------------------------------------------------------------------------- */

static double median(std::vector<double> v)
{
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

/* One graph replay of one call after the L2 was flushed, events around it: the clock of the peers'
 * table (a tiny kernel reads about 4 us on it). */
template <typename F>
static double time_cold(cudaStream_t stream, uint8_t *flush, size_t flush_bytes, int n_sample,
                        F launch)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    launch();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t a, b;
    CHECK(cudaEventCreate(&a));
    CHECK(cudaEventCreate(&b));
    std::vector<double> us;
    for (int i = 0; i < n_sample + 3; i++) {
        CHECK(cudaMemsetAsync(flush, i, flush_bytes, stream));
        CHECK(cudaEventRecord(a, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaEventRecord(b, stream));
        CHECK(cudaEventSynchronize(b));
        float ms;
        CHECK(cudaEventElapsedTime(&ms, a, b));
        if (i >= 3) us.push_back(ms * 1e3);
    }
    cudaEventDestroy(a), cudaEventDestroy(b);
    cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
    return median(us);
}

struct tiny_params {
    int *p;
};
static __global__ void tiny_kernel(tiny_params p)
{
    if (threadIdx.x == 0) *p.p = 1;
}

static void bench(int n_sm)
{
    printf("projection,rows,in,out,form,split,us\n");
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    device_array<uint8_t> flush(256u << 20);
    device_array<int> word(1);
    brim_error err = {};
    tiny_params tp = {word.ptr};
    brim_launch_shape one = {};
    one.grid = dim3(1), one.block = dim3(32);
    double clock_us = time_cold(stream, flush.ptr, flush.n, 30, [&] {
        if (BRIM_LAUNCH(tiny_kernel, one, stream, tp, &err) != BRIM_OK) exit(1);
    });
    printf("clock,0,0,0,tiny,1,%.2f\n", clock_us);
    static const struct {
        const char *name;
        int64_t in, out;
    } shapes[] = {{"q", 2560, 4096},      {"kv", 2560, 1024},   {"o", 4096, 2560},
                  {"gate", 2560, 9728},   {"down", 9728, 2560}, {"qkv", 2560, 6144},
                  {"gateup", 2560, 19456}};
    static const int64_t rows_all[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048};
    for (auto &s : shapes) {
        for (int64_t rows : rows_all) {
            problem p(rows, s.in, s.out, 128, BRIM_DTYPE_BF16, SPECIAL_NONE);
            brim_w4_stream_plan sp = brim_w4_stream_plan_make(rows, s.in, s.out, n_sm);
            device_array<uint8_t> ws(brim_cuda_w4_stream_workspace_bytes(&sp));
            ws.fill(0);
            auto row = [&](const char *form, int64_t split, double us) {
                printf("%s,%lld,%lld,%lld,%s,%lld,%.2f\n", s.name, (long long)rows, (long long)s.in,
                       (long long)s.out, form, (long long)split, us);
            };
            int n_sample = rows >= 512 ? 10 : 20;
            if (rows > 64)
                row("stream", 1, time_cold(stream, flush.ptr, flush.n, n_sample, [&] {
                        brim_cuda_w4_stream(&p.args, &p.packed, &sp, ws.ptr, 0, stream, &err);
                    }));
            if (rows <= 128) {
                brim_w4_cluster_plan cp = brim_w4_cluster_plan_make(rows, s.in, s.out, n_sm);
                for (int split = 1; split <= 8; split *= 2) {
                    bool chosen = split == cp.split;
                    brim_w4_cluster_plan pinned = cp;
                    pinned.split = split;
                    row(chosen ? "cluster chosen" : "cluster", split,
                        time_cold(stream, flush.ptr, flush.n, n_sample, [&] {
                            brim_cuda_w4_cluster(&p.args, &p.packed, &pinned, 0, stream, &err);
                        }));
                }
            }
            if (rows <= 8)
                row("matvec", 1, time_cold(stream, flush.ptr, flush.n, n_sample, [&] {
                        brim_cuda_w4_matvec(&p.args, stream, &err);
                    }));
            if (rows == 16 || rows == 32 || rows == 64 || rows == 128 || rows == 2048) {
                brim_split_plan off = {0, 1, 0, 0, s.in}, plan;
                brim_split_policy course = brim_split_policy_course();
                if (brim_split_plan_make(&course, rows, s.in, s.out, &plan, &err) != BRIM_OK)
                    exit(1);
                device_array<uint8_t> planes(
                    brim_cuda_w4_workspace_bytes(&plan, rows, s.out, BRIM_W4_PLANES_BF16));
                row("tiled", 1, time_cold(stream, flush.ptr, flush.n, n_sample, [&] {
                        brim_cuda_w4_tiled(&p.args, &off, BRIM_W4_PLANES_BF16, nullptr, stream,
                                           &err);
                    }));
                row("split-k", plan.split, time_cold(stream, flush.ptr, flush.n, n_sample, [&] {
                        brim_cuda_w4_tiled(&p.args, &plan, BRIM_W4_PLANES_BF16, planes.ptr, stream,
                                           &err);
                    }));
            }
            fflush(stdout);
        }
    }
}

int main(int argc, char **argv)
{
    bool brief = argc > 1 && !strcmp(argv[1], "short"); /* for the sanitizers */
    bool timed = argc > 1 && !strcmp(argv[1], "bench");
    struct brim_cuda_device device;
    brim_error err = {};
    if (brim_cuda_device_get(0, &device, &err) != BRIM_OK) {
        printf("SKIP: %s\n0 passed, 0 failed, 1 skipped\n", err.text);
        return 77;
    }
    if (brief) {
        for (int64_t r : {1, 17, 70}) {
            problem p(r, 320, 200, 64, BRIM_DTYPE_BF16, SPECIAL_NONE);
            check_problem(p, device.n_sm);
        }
        printf("%d passed, %d failed, 0 skipped\n", n_passed, n_failed);
        return n_failed != 0;
    }
    static const int64_t rows[] = {1, 2, 3, 8, 9, 16, 17, 32, 33, 64, 65, 96, 97, 128, 129, 161};
    for (int64_t r : rows) {
        problem a(r, 2560, 1024, 128, BRIM_DTYPE_BF16, SPECIAL_NONE);
        check_problem(a, device.n_sm);
        problem b(r, 2560, 1032, 128, BRIM_DTYPE_BF16, SPECIAL_NONE);
        check_problem(b, device.n_sm);
        problem c(r, 576, 1536, 32, BRIM_DTYPE_F16, SPECIAL_NONE);
        check_problem(c, device.n_sm);
    }
    static const brim_dtype dtypes[] = {BRIM_DTYPE_BF16, BRIM_DTYPE_F16, BRIM_DTYPE_F32};
    for (brim_dtype dtype : dtypes)
        for (int group : {32, 64, 128})
            for (int64_t r : {1, 7, 12, 30, 50, 100, 200}) {
                problem p(r, 640, 200, group, dtype, SPECIAL_NONE);
                check_problem(p, device.n_sm);
            }
    for (special kind : {SPECIAL_NEGATIVE, SPECIAL_ZERO, SPECIAL_SUBNORMAL, SPECIAL_LARGE_X})
        for (int64_t r : {1, 17, 64}) {
            problem p(r, 2560, 1024, 128, BRIM_DTYPE_BF16, kind);
            check_problem(p, device.n_sm);
        }
    static const int64_t model[][2] = {
        {2560, 4096}, {4096, 2560}, {2560, 9728}, {9728, 2560}, {2560, 6144}};
    for (auto &s : model)
        for (int64_t r : {1, 8, 32, 128, 300}) {
            problem p(r, s[0], s[1], 128, BRIM_DTYPE_BF16, SPECIAL_NONE);
            check_problem(p, device.n_sm);
        }
    problem filled(128, 256, 2560, 128, BRIM_DTYPE_BF16, SPECIAL_NONE);
    check_problem(filled, device.n_sm);
    if (timed && n_failed == 0) bench(device.n_sm);
    fprintf(timed ? stderr : stdout, "%d passed, %d failed, 0 skipped\n", n_passed, n_failed);
    return n_failed != 0;
}
