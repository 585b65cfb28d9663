/* SPDX-License-Identifier: Apache-2.0
 * The W4 kernel for one to eight rows on the GPU: shapes, parameter types, epilogues, plans and the
 * norm in front, against an fp64 product; equal bits of a row whatever its neighbours; or its
 * times: each projection cold, then the four products of a layer as a chain.
 * Ends with the line "N passed, N failed, N skipped".
 *   gpu_check_gemv [short | bench | sweep] */
#include "cuda/w4/gemv.h"
#include "w4_problem.cuh"

static brim_w4_gemv_plan plan_of(const problem &p, int n_sm)
{
    return brim_w4_gemv_plan_make(p.n_in, p.n_out, n_sm);
}

static bool launch(problem &p, const brim_w4_gemv_plan &plan, const brim_cuda_w4_norm *norm,
                   int pdl)
{
    brim_error err = {};
    p.poison();
    brim_status status = brim_cuda_w4_gemv(&p.args, &p.packed, norm, &plan, pdl, nullptr, &err);
    if (status != BRIM_OK) {
        expect(false, p.name("gemv") + ": " + err.text);
        return false;
    }
    cudaError_t sync = cudaDeviceSynchronize();
    if (sync != cudaSuccess) {
        printf("FAILED %s: %s\n", p.name("gemv").c_str(), cudaGetErrorString(sync));
        exit(1);
    }
    return true;
}

/* Allows three sigma of an rms over the outputs at hand, as check_w4.cu. */
static void check(problem &p, const char *form, double bound, const brim_w4_gemv_plan &plan,
                  int pdl)
{
    if (!launch(p, plan, nullptr, pdl)) return;
    bool clean;
    double e = p.error(&clean);
    bound *= 1 + 3 / sqrt(2.0 * (double)(p.n_row * p.n_y()));
    char text[120];
    snprintf(text, sizeof text, " pair %d part %d split %d: rms %.3e bound %.1e%s", plan.n_pair,
             plan.n_part, plan.split, e, bound, clean ? "" : " NOT CLEAN");
    expect(clean && e <= bound, p.name(form) + text);
}

/* f32 outputs bound the sums themselves: the output's rounding does not hide them. */
static const double BF16_BOUND = 1.9e-3, F32_BOUND = 2e-5, SWIGLU_BOUND = 1.9e-3;

static void check_problem(problem &p, int n_sm)
{
    brim_w4_gemv_plan plan = plan_of(p, n_sm);
    check(p, "gemv", BF16_BOUND, plan, 0);
    std::vector<uint16_t> first = p.y.to_host();
    for (int pdl = 0; pdl < 2; pdl++) {
        check(p, "gemv again", BF16_BOUND, plan, pdl);
        expect(p.y.to_host() == first, p.name("gemv repeats to the bit"));
    }
    p.args.out_bias = p.out_bias.ptr;
    p.args.epilogue = BRIM_W4_STORE_F32;
    check(p, "gemv f32", F32_BOUND, plan, 0);
    p.args.epilogue = BRIM_W4_ADD_F32;
    check(p, "gemv add", F32_BOUND, plan, 0);
    p.args.epilogue = BRIM_W4_SWIGLU;
    if (p.n_out % 16 == 0) check(p, "gemv swiglu", SWIGLU_BOUND, plan, 0);
    p.args.epilogue = BRIM_W4_STORE_BF16;
    p.args.out_bias = nullptr;
}

/* Plans of every form. */
static brim_w4_gemv_plan pinned(int64_t in, int64_t out, int n_pair, int n_part, int split)
{
    brim_w4_gemv_plan plan = {n_pair, n_part, split, (in + 127) / 128, 0};
    plan.n_cta = (out + n_pair * 32 - 1) / (n_pair * 32) * split;
    return plan;
}

static void check_plans(problem &p)
{
    p.args.epilogue = BRIM_W4_STORE_F32;
    for (int n_pair : {1, 2, 3, 5, 7, 12})
        for (int n_part : {1, 2, 3, 5, 12})
            for (int split = 1; split <= 8; split *= 2) {
                if (n_pair * n_part > BRIM_W4_GEMV_WARPS || n_part * split > (p.n_in + 127) / 128)
                    continue;
                check(p, "gemv plan", F32_BOUND, pinned(p.n_in, p.n_out, n_pair, n_part, split), 0);
            }
    p.args.epilogue = BRIM_W4_STORE_BF16;
}

/* The first rows of a call have the bits of a call with fewer. */
static void check_row_bits(int64_t in, int64_t out, int group, brim_dtype dtype, int n_sm)
{
    problem p(8, in, out, group, dtype, SPECIAL_NONE);
    p.args.epilogue = BRIM_W4_STORE_F32;
    brim_w4_gemv_plan plan = plan_of(p, n_sm);
    if (!launch(p, plan, nullptr, 0)) return;
    std::vector<uint16_t> all = p.y.to_host();
    for (int64_t rows = 1; rows < 8; rows++) {
        p.args.n_row = rows;
        if (!launch(p, plan, nullptr, 0)) return;
        std::vector<uint16_t> few = p.y.to_host();
        bool same = true;
        for (int64_t r = 0; r < rows; r++)
            same &= !memcmp(&all[r * p.y_stride * 2], &few[r * p.y_stride * 2], out * 4);
        expect(same, p.name("gemv rows do not change each other's bits"));
    }
    /* Alone and last, beside NaN. */
    p.args.n_row = 1;
    p.args.x = p.x.ptr + 7 * p.x_stride;
    if (!launch(p, plan, nullptr, 0)) return;
    std::vector<uint16_t> last = p.y.to_host();
    expect(!memcmp(&all[7 * p.y_stride * 2], &last[0], out * 4), p.name("gemv last row alone"));
}

/* The norm in front gives the bits of the same numbers, normed on the host in the kernel's order of
 * multiplication, up to the rounding of the mean: compare by error and count of differing x. */
static void check_norm(int64_t rows, int64_t in, int64_t out, int group, brim_dtype dtype, int n_sm)
{
    problem p(rows, in, out, group, dtype, SPECIAL_NONE);
    brim_rng rng;
    brim_rng_seed(&rng, (uint64_t)(rows + in));
    int64_t stride = in + 4;
    std::vector<float> hx(rows * stride, NAN), hw(in);
    for (auto &w : hw) w = 1 + 0.5f * gaussian(&rng);
    std::vector<uint16_t> normed(p.x.n, 0xFFFF);
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t k = 0; k < in; k++) {
            float v = 3 * gaussian(&rng) * (float)(r + 1);
            hx[r * stride + k] = v, sum += (double)v * v;
        }
        float inv = (float)(1 / sqrt(sum / (double)in + 1e-6));
        for (int64_t k = 0; k < in; k++)
            normed[r * p.x_stride + k] = brim_bf16_from_f32(hx[r * stride + k] * inv * hw[k]);
    }
    device_array<float> dx(hx.size()), dw(hw.size());
    dx.from(hx), dw.from(hw);
    p.x.from(normed);
    p.args.epilogue = BRIM_W4_STORE_F32;
    brim_w4_gemv_plan plan = plan_of(p, n_sm);
    if (!launch(p, plan, nullptr, 0)) return;
    std::vector<uint16_t> want = p.y.to_host();
    brim_cuda_w4_norm norm = {dx.ptr, stride, dw.ptr, 1e-6f};
    p.args.x = nullptr;
    for (int pdl = 0; pdl < 2; pdl++) {
        if (!launch(p, plan, &norm, pdl)) return;
        std::vector<uint16_t> got = p.y.to_host();
        double err2 = 0, ref2 = 0;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t o = 0; o < out; o++) {
                double a = ((float *)want.data())[r * p.y_stride + o],
                       b = ((float *)got.data())[r * p.y_stride + o];
                err2 += (a - b) * (a - b), ref2 += a * a;
            }
        /* An input whose f32 value lies at a rounding boundary may go the other way: one of
         * thousands, 2^-9 relative. */
        char text[64];
        snprintf(text, sizeof text, ": rms %.2e", sqrt(err2 / ref2));
        expect(sqrt(err2 / ref2) < 2e-4, p.name("gemv norm") + text);
    }
}

/* x up to the top of its range, and tiny: each scaled to f32's middle inside. */
static void check_range(int n_sm)
{
    for (float size : {1e-30f, 1e-10f, 3e8f, 1e30f}) {
        problem p(3, 640, 48, 64, BRIM_DTYPE_F32, SPECIAL_NONE);
        std::vector<uint16_t> hx = p.x.to_host();
        for (int64_t r = 0; r < p.n_row; r++)
            for (int64_t k = 0; k < p.n_in; k++) {
                uint16_t &v = hx[r * p.x_stride + k];
                v = brim_bf16_from_f32(brim_f32_from_bf16(v) * (k % 5 == 0 ? size : 1e-3f * size));
            }
        p.x.from(hx);
        ref_params rp = {p.x.ptr,          (const uint8_t *)p.codes.ptr,
                         p.scales_f32.ptr, p.biases_f32.ptr,
                         p.ref.ptr,        p.n_row,
                         p.n_in,           p.n_out,
                         p.x_stride,       p.group};
        brim_launch_shape shape = {};
        shape.grid = dim3((unsigned)((p.n_row * p.n_out + 127) / 128)), shape.block = dim3(128);
        brim_error err = {};
        if (BRIM_LAUNCH(ref_kernel, shape, nullptr, rp, &err) != BRIM_OK) exit(1);
        p.args.epilogue = BRIM_W4_STORE_F32;
        check(p, "gemv range", F32_BOUND, plan_of(p, n_sm), 0);
    }
}

/* ---- times ----------------------------------------------------------------------------------- */

static double median(std::vector<double> v)
{
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

/* Median microseconds of a graph of what `body` launches; `flush` bytes are overwritten before each
 * replay. */
template <typename F>
static double time_graph(cudaStream_t stream, uint8_t *flush, size_t flush_bytes, int n_sample,
                         F body)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    body();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphUpload(exec, stream));
    cudaEvent_t a, b;
    CHECK(cudaEventCreate(&a));
    CHECK(cudaEventCreate(&b));
    std::vector<double> us;
    for (int i = 0; i < n_sample + 3; i++) {
        if (flush_bytes) CHECK(cudaMemsetAsync(flush, i, flush_bytes, stream));
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

/* A matrix of random codes and small parameters, packed order, no reference. */
struct matrix {
    device_array<uint8_t> codes, params;
    brim_cuda_w4_packed packed;
    matrix(int64_t in, int64_t out)
        : codes(brim_cuda_w4_packed_codes_bytes(out, in)),
          params(brim_cuda_w4_packed_params_bytes(out, in, 128, BRIM_DTYPE_BF16))
    {
        static std::vector<uint8_t> hc(16 << 20), hp(2 << 20);
        static bool ready;
        if (!ready) {
            brim_rng rng;
            brim_rng_seed(&rng, 1);
            for (size_t i = 0; i < hc.size(); i += 4) {
                uint32_t v = brim_rng_u32(&rng);
                memcpy(&hc[i], &v, 4);
            }
            for (size_t i = 0; i < hp.size(); i += 2) {
                uint16_t v = brim_bf16_from_f32((brim_rng_uniform(&rng) - 0.5f) * 0.02f);
                memcpy(&hp[i], &v, 2);
            }
            ready = true;
        }
        for (size_t i = 0; i < codes.n; i += hc.size())
            CHECK(cudaMemcpy(codes.ptr + i, hc.data(), std::min(hc.size(), codes.n - i),
                             cudaMemcpyHostToDevice));
        for (size_t i = 0; i < params.n; i += hp.size())
            CHECK(cudaMemcpy(params.ptr + i, hp.data(), std::min(hp.size(), params.n - i),
                             cudaMemcpyHostToDevice));
        packed = {out,       in,        (out + 63) / 64, (in + 127) / 128, 128, BRIM_DTYPE_BF16,
                  codes.ptr, params.ptr};
    }
    /* Outputs out0 .. out0 + out - 1, multiples of 64. */
    brim_cuda_w4_packed rows(int64_t out0, int64_t out) const
    {
        brim_cuda_w4_packed r = packed;
        int64_t unit = out0 / 64 * packed.n_unit;
        r.n_out = out, r.n_slab = out / 64;
        r.codes = codes.ptr + unit * 4096, r.params = params.ptr + unit * 256;
        return r;
    }
};

struct buffers {
    device_array<uint16_t> x, y, act;
    device_array<float> stream_x, norm_weight, logits;
    buffers()
        : x(8 * 9728), y(8 * 19456), act(8 * 9728), stream_x(8 * 2560), norm_weight(2560),
          logits(8 * 151936)
    {
        std::vector<uint16_t> hx(x.n, brim_bf16_from_f32(0.5f));
        x.from(hx), act.fill(0);
        std::vector<float> hf(stream_x.n, 0.5f), hw(2560, 1.0f);
        stream_x.from(hf), norm_weight.from(hw);
    }
};

static void must(brim_status status, const brim_error &err)
{
    if (status == BRIM_OK) return;
    printf("%s\n", err.text);
    exit(1);
}

static void gemv(const buffers &b, const brim_cuda_w4_packed &m, const void *x, void *y,
                 int64_t rows, brim_w4_epilogue epilogue, bool norm, const brim_w4_gemv_plan &plan,
                 int pdl, cudaStream_t stream)
{
    brim_cuda_w4 a = {};
    a.n_row = rows, a.n_in = m.n_in, a.n_out = m.n_out;
    a.x = x, a.x_stride = m.n_in, a.y = y;
    a.y_stride = epilogue == BRIM_W4_SWIGLU ? m.n_out / 2 : m.n_out;
    a.epilogue = epilogue;
    brim_cuda_w4_norm n = {b.stream_x.ptr, 2560, b.norm_weight.ptr, 1e-6f};
    brim_error err = {};
    must(brim_cuda_w4_gemv(&a, &m, norm ? &n : nullptr, &plan, pdl, stream, &err), err);
}

/* The four products of a layer, layer after layer, weights of SETS layers in turn. */
static void bench_chain(buffers &b, int n_sm, cudaStream_t stream)
{
    enum { SETS = 6, LAYERS = 36 };
    matrix qkv(2560, 6144 * SETS), o(4096, 2560 * SETS), gateup(2560, 19456 * SETS),
        down(9728, 2560 * SETS);
    brim_w4_gemv_plan pq = brim_w4_gemv_plan_make(2560, 6144, n_sm),
                      po = brim_w4_gemv_plan_make(4096, 2560, n_sm),
                      pg = brim_w4_gemv_plan_make(2560, 19456, n_sm),
                      pd = brim_w4_gemv_plan_make(9728, 2560, n_sm);
    for (int64_t rows : {1, 2, 4, 8})
        for (int pdl = 0; pdl < 2; pdl++) {
            double us = time_graph(stream, nullptr, 0, 10, [&] {
                for (int l = 0; l < LAYERS; l++) {
                    int s = l % SETS;
                    gemv(b, qkv.rows(s * 6144, 6144), nullptr, b.y.ptr, rows, BRIM_W4_STORE_BF16,
                         true, pq, pdl, stream);
                    gemv(b, o.rows(s * 2560, 2560), b.y.ptr, b.stream_x.ptr, rows, BRIM_W4_ADD_F32,
                         false, po, pdl, stream);
                    gemv(b, gateup.rows(s * 19456, 19456), nullptr, b.act.ptr, rows, BRIM_W4_SWIGLU,
                         true, pg, pdl, stream);
                    gemv(b, down.rows(s * 2560, 2560), b.act.ptr, b.stream_x.ptr, rows,
                         BRIM_W4_ADD_F32, false, pd, pdl, stream);
                }
            });
            printf("layer,%lld,0,0,0,0,0,,%s,%.2f\n", (long long)rows, pdl ? "pdl" : "serial",
                   us / LAYERS);
        }
}

/* cold: one launch of a graph after the caches were overwritten, the clock of the peers' table.
 * node: one of many launches over rotating weights; pdl: the same with dependent launch. */
static void bench(int n_sm, bool sweep)
{
    printf("projection,rows,in,out,pair,part,split,norm,cold,node,pdl\n");
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    device_array<uint8_t> flush(256u << 20);
    device_array<int> word(1);
    buffers b;
    brim_error err = {};
    tiny_params tp = {word.ptr};
    brim_launch_shape one = {};
    one.grid = dim3(1), one.block = dim3(32);
    double clock_us = time_graph(stream, flush.ptr, flush.n, 30, [&] {
        must(BRIM_LAUNCH(tiny_kernel, one, stream, tp, &err), err);
    });
    printf("clock,0,0,0,0,0,0,0,%.2f,,\n", clock_us);
    static const struct {
        const char *name;
        int64_t in, out;
    } shapes[] = {{"q", 2560, 4096},       {"kv", 2560, 1024},    {"o", 4096, 2560},
                  {"gate", 2560, 9728},    {"down", 9728, 2560},  {"qkv", 2560, 6144},
                  {"gateup", 2560, 19456}, {"head", 2560, 151936}};
    for (auto &s : shapes) {
        /* 200 MB, four times the cache. */
        int64_t sets = std::max<int64_t>(1, (400 << 20) / (s.in * s.out));
        matrix m(s.in, s.out * sets);
        brim_w4_gemv_plan chosen = brim_w4_gemv_plan_make(s.in, s.out, n_sm);
        for (int64_t rows : {1, 2, 4, 8}) {
            auto row = [&](const brim_w4_gemv_plan &plan, bool norm) {
                bool wide = s.out > 100000;
                brim_w4_epilogue e = wide ? BRIM_W4_STORE_F32 : BRIM_W4_STORE_BF16;
                void *y = wide ? (void *)b.logits.ptr : (void *)b.y.ptr;
                double us[3];
                us[0] = time_graph(stream, flush.ptr, flush.n, 15, [&] {
                    gemv(b, m.rows(0, s.out), b.x.ptr, y, rows, e, norm, plan, 0, stream);
                });
                for (int pdl = 0; pdl < 2; pdl++)
                    us[1 + pdl] = time_graph(stream, nullptr, 0, 7,
                                             [&] {
                                                 for (int64_t i = 0; i < sets; i++)
                                                     gemv(b, m.rows(i * s.out, s.out), b.x.ptr, y,
                                                          rows, e, norm, plan, pdl, stream);
                                             }) /
                                  (double)sets;
                printf("%s,%lld,%lld,%lld,%d,%d,%d,%d,%.2f,%.2f,%.2f\n", s.name, (long long)rows,
                       (long long)s.in, (long long)s.out, plan.n_pair, plan.n_part, plan.split,
                       norm, us[0], us[1], us[2]);
            };
            row(chosen, false);
            if (s.in == 2560) row(chosen, true);
            if (!sweep || (rows != 1 && rows != 8)) continue;
            for (int split = 1; split <= 8; split *= 2)
                for (int n_pair : {1, 2, 3, 4, 5, 6, BRIM_W4_GEMV_WARPS + 0}) {
                    int64_t units = chosen.n_unit / split;
                    int n_part = (int)std::min<int64_t>(BRIM_W4_GEMV_WARPS / n_pair, units);
                    int64_t most = (units + n_part - 1) / n_part;
                    n_part = (int)((units + most - 1) / most);
                    brim_w4_gemv_plan plan = pinned(s.in, s.out, n_pair, n_part, split);
                    bool sane = s.out > 100000 ? split == 1 && n_pair > 2
                                               : plan.n_cta >= 60 && plan.n_cta <= 310;
                    if (sane) row(plan, false);
                }
        }
    }
    bench_chain(b, n_sm, stream);
}

int main(int argc, char **argv)
{
    bool brief = argc > 1 && !strcmp(argv[1], "short"); /* for the sanitizers */
    bool sweep = argc > 1 && !strcmp(argv[1], "sweep"); /* other plans as well */
    bool timed = sweep || (argc > 1 && !strcmp(argv[1], "bench"));
    struct brim_cuda_device device;
    brim_error err = {};
    if (brim_cuda_device_get(0, &device, &err) != BRIM_OK) {
        printf("SKIP: %s\n0 passed, 0 failed, 1 skipped\n", err.text);
        return 77;
    }
    int n_sm = device.n_sm;
    if (brief) {
        for (int64_t r : {1, 5}) {
            problem p(r, 576, 208, 64, BRIM_DTYPE_BF16, SPECIAL_NONE);
            check_problem(p, n_sm);
        }
        check_norm(3, 576, 208, 32, BRIM_DTYPE_F16, n_sm);
        printf("%d passed, %d failed, 0 skipped\n", n_passed, n_failed);
        return n_failed != 0;
    }
    static const brim_dtype dtypes[] = {BRIM_DTYPE_BF16, BRIM_DTYPE_F16, BRIM_DTYPE_F32};
    for (brim_dtype dtype : dtypes)
        for (int group : {32, 64, 128})
            for (int64_t r : {1, 3, 8}) {
                problem p(r, 640, 208, group, dtype, SPECIAL_NONE);
                check_problem(p, n_sm);
                if (r == 3) check_plans(p);
            }
    for (int64_t r = 1; r <= 8; r++) {
        problem a(r, 576, 1536, 32, BRIM_DTYPE_F16, SPECIAL_NONE); /* 4.5 units */
        check_problem(a, n_sm);
        problem b(r, 2560, 1031, 128, BRIM_DTYPE_BF16, SPECIAL_NONE);
        check_problem(b, n_sm);
        problem c(r, 32, 5, 32, BRIM_DTYPE_BF16, SPECIAL_NONE);
        check_problem(c, n_sm);
    }
    for (special kind : {SPECIAL_NEGATIVE, SPECIAL_ZERO, SPECIAL_SUBNORMAL, SPECIAL_LARGE_X})
        for (int64_t r : {1, 7}) {
            problem p(r, 2560, 1024, 128,
                      kind == SPECIAL_SUBNORMAL ? BRIM_DTYPE_F32 : BRIM_DTYPE_BF16, kind);
            check_problem(p, n_sm);
        }
    static const int64_t model[][2] = {{2560, 4096}, {4096, 2560}, {2560, 9728},
                                       {9728, 2560}, {2560, 6144}, {2560, 19456}};
    for (auto &s : model)
        for (int64_t r : {1, 8}) {
            problem p(r, s[0], s[1], 128, BRIM_DTYPE_BF16, SPECIAL_NONE);
            check_problem(p, n_sm);
        }
    problem wide(8, 49152, 64, 32, BRIM_DTYPE_F32, SPECIAL_NONE); /* x of 8 rows in two launches */
    check_problem(wide, n_sm);
    brim_w4_gemv_plan one_cta = pinned(wide.n_in, wide.n_out, 2, 1, 1);
    wide.args.epilogue = BRIM_W4_STORE_F32;
    check(wide, "gemv rows in turn", F32_BOUND, one_cta, 1);
    for (brim_dtype dtype : dtypes) check_row_bits(2560, 1024, 128, dtype, n_sm);
    check_row_bits(576, 208, 32, BRIM_DTYPE_F16, n_sm);
    check_row_bits(9728, 2560, 128, BRIM_DTYPE_BF16, n_sm);
    for (int64_t r : {1, 2, 5, 8}) {
        check_norm(r, 2560, 6144, 128, BRIM_DTYPE_BF16, n_sm);
        check_norm(r, 576, 208, 32, BRIM_DTYPE_F16, n_sm);
        check_norm(r, 5120, 2048, 64, BRIM_DTYPE_F32, n_sm);
    }
    check_range(n_sm);
    if (timed && n_failed == 0) bench(n_sm, sweep);
    fprintf(timed ? stderr : stdout, "%d passed, %d failed, 0 skipped\n", n_passed, n_failed);
    return n_failed != 0;
}
