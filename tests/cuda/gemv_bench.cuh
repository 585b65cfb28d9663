/* SPDX-License-Identifier: Apache-2.0
 * Times of the W4 kernels for one to eight rows as CSV, each projection and then the four products
 * of a layer as a chain, the kernels beside each other: included by check_gemv.cu alone. */
#ifndef BRIM_TESTS_GEMV_BENCH_CUH
#define BRIM_TESTS_GEMV_BENCH_CUH

#include "cuda/model/ops.h"
#include "graph_time.cuh"
#include "w4_matrix.cuh"
#include "w4_problem.cuh"

static brim_w4_gemv_plan pinned(brim_w4_gemv_kernel kernel, int64_t in, int64_t out, int n_pair,
                                int n_part, int split)
{
    brim_w4_gemv_plan plan = {};
    plan.n_pair = n_pair, plan.n_part = n_part, plan.split = split;
    plan.n_unit = (in + 127) / 128, plan.kernel = kernel;
    plan.n_cta = (out + n_pair * 32 - 1) / (n_pair * 32) * split;
    return plan;
}

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

/* Decode attention of Qwen3-4B at position 128, as the engine launches it between the first two
 * products. */
struct attention {
    enum { HEADS = 32, KV_HEADS = 8, DIM = 128, POSITIONS = 256 };
    device_array<float> qkv, norm, rope;
    device_array<uint16_t> cache, q, out;
    device_array<uint8_t> workspace;
    device_array<int64_t> first_pos;
    attention()
        : qkv(2 * 6144), norm(DIM), rope(POSITIONS * DIM), cache(2 * KV_HEADS * POSITIONS * DIM),
          q(2 * HEADS * DIM), out(2 * HEADS * DIM),
          workspace(brim_cuda_attention_decode_bytes(HEADS, KV_HEADS, DIM)), first_pos(1)
    {
        qkv.fill(0), norm.fill(0), rope.fill(0), cache.fill(0), q.fill(0), out.fill(0);
        workspace.fill(0);
        first_pos.from({128});
    }
    void launch(int64_t rows, int pdl, cudaStream_t stream)
    {
        brim_cuda_rotate_args r = {};
        r.n_row = rows, r.n_head = HEADS;
        r.qkv = qkv.ptr, r.qkv_dtype = BRIM_DTYPE_F32, r.qkv_stride = 6144;
        r.q_norm = r.k_norm = norm.ptr, r.eps = 1e-6f;
        r.rope_table = rope.ptr, r.first_pos = first_pos.ptr;
        r.kv = {cache.ptr, cache.ptr + cache.n / 2, BRIM_DTYPE_F16, KV_HEADS, DIM, POSITIONS};
        r.q = q.ptr, r.pdl = pdl;
        brim_cuda_attention_args a = {};
        a.n_row = rows, a.n_head = HEADS, a.q = q.ptr, a.first_pos = first_pos.ptr;
        a.kv = r.kv, a.scale = 0.088f;
        a.out = out.ptr, a.out_stride = HEADS * DIM;
        a.workspace = workspace.ptr, a.n_key_max = POSITIONS;
        a.pdl = pdl, a.rotate = &r;
        brim_error err = {};
        must(brim_cuda_attention_decode(&a, stream, &err), err);
    }
};

/* The four products of a layer, layer after layer, weights of SETS layers in turn: alone on each
 * kernel, then with attention on the schedules of the engine's chain. */
static void bench_chain(buffers &b, const std::vector<brim_w4_gemv_kernel> &kernels, int n_sm,
                        cudaStream_t stream)
{
    enum { SETS = 6, LAYERS = 36, QKV = 0, O, GATE_UP, DOWN };
    static const int64_t in[] = {2560, 4096, 2560, 9728}, out[] = {6144, 2560, 19456, 2560};
    matrix m[] = {{in[QKV], out[QKV] * SETS},
                  {in[O], out[O] * SETS},
                  {in[GATE_UP], out[GATE_UP] * SETS},
                  {in[DOWN], out[DOWN] * SETS}};
    attention attn;
    brim_w4_gemv_plan plans[4];
    auto chain = [&](int64_t rows, int pdl, bool with_attention) {
        for (int l = 0; l < LAYERS; l++) {
            auto product = [&](int i, const void *x, void *y, brim_w4_epilogue e) {
                gemv(b, m[i].rows(l % SETS * out[i], out[i]), x, y, rows, e, !x, plans[i], pdl,
                     stream);
            };
            if (with_attention) {
                product(QKV, nullptr, attn.qkv.ptr, BRIM_W4_STORE_F32);
                attn.launch(rows, pdl, stream);
            } else {
                product(QKV, nullptr, b.y.ptr, BRIM_W4_STORE_BF16);
            }
            product(O, with_attention ? attn.out.ptr : b.y.ptr, b.stream_x.ptr, BRIM_W4_ADD_F32);
            product(GATE_UP, nullptr, b.act.ptr, BRIM_W4_SWIGLU);
            product(DOWN, b.act.ptr, b.stream_x.ptr, BRIM_W4_ADD_F32);
        }
    };
    auto line = [&](const char *name, int64_t rows, int pdl, bool with_attention) {
        double us =
            time_graph(stream, nullptr, 0, 10, [&] { chain(rows, pdl, with_attention); }) / LAYERS;
        printf("%s,%lld,0,0,%s,0,0,0,,%s,%.2f\n", name, (long long)rows,
               brim_w4_gemv_kernel_name(plans[0].kernel), pdl ? "pdl" : "serial", us);
    };
    for (int64_t rows : {1, 2, 4, 8})
        for (brim_w4_gemv_kernel kernel : kernels) {
            for (int i = 0; i < 4; i++) {
                plans[i] = brim_w4_gemv_plan_make(rows, in[i], out[i], n_sm);
                plans[i].kernel = kernel;
            }
            for (int pdl = 0; pdl < 2; pdl++) line("layer", rows, pdl, false);
            if (rows > 2) continue;
            line("layer+attention", rows, 1, true);
            if (kernel != brim_w4_gemv_plan_chain(rows, in[O], out[O], n_sm).kernel) continue;
            for (int i = 0; i < 4; i++)
                plans[i] = brim_w4_gemv_plan_chain(rows, in[i], out[i], n_sm);
            line("layer+attention on links", rows, 1, true);
        }
}

/* cold: one launch of a graph after the caches were overwritten, the clock of the peers' table.
 * node: one of many launches over rotating weights; pdl: the same with dependent launch. */
static void bench(const std::vector<brim_w4_gemv_kernel> &kernels, int n_sm, bool sweep)
{
    printf("projection,rows,in,out,kernel,pair,part,split,norm,cold,node,pdl\n");
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    device_array<uint8_t> flush(256u << 20);
    buffers b;
    printf("clock,0,0,0,tiny,0,0,0,0,%.2f,,\n", time_tiny(stream, flush.ptr, flush.n));
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
        brim_w4_gemv_plan chosen = brim_w4_gemv_plan_make(1, s.in, s.out, n_sm);
        for (int64_t rows : {1, 2, 4, 8}) {
            auto time = [&](const brim_w4_gemv_plan &plan, bool norm) {
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
                printf("%s,%lld,%lld,%lld,%s,%d,%d,%d,%d,%.2f,%.2f,%.2f\n", s.name, (long long)rows,
                       (long long)s.in, (long long)s.out, brim_w4_gemv_kernel_name(plan.kernel),
                       plan.n_pair, plan.n_part, plan.split, norm, us[0], us[1], us[2]);
            };
            auto row = [&](brim_w4_gemv_plan plan, bool norm) {
                for (brim_w4_gemv_kernel kernel : kernels) plan.kernel = kernel, time(plan, norm);
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
                    brim_w4_gemv_plan plan =
                        pinned(BRIM_W4_GEMV_BF16, s.in, s.out, n_pair, n_part, split);
                    bool sane = s.out > 100000 ? split == 1 && n_pair > 2
                                               : plan.n_cta >= 60 && plan.n_cta <= 310;
                    if (sane) row(plan, false);
                }
        }
    }
    bench_chain(b, kernels, n_sm, stream);
}

#endif
