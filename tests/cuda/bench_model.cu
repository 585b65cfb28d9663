/* SPDX-License-Identifier: Apache-2.0
 * Times of the model's own kernels for Qwen3-4B's shapes, as CSV: chains of launches inside a CUDA
 * graph, each on memory of its own (more than the L2 holds in all), time per launch with the gap
 * between launches. floor_us: bytes of keys and values at 4.4 TB/s, or products at 790 TFLOP/s.
 *   gpu_bench_model [part of a name] */
#include <algorithm>
#include <functional>

#include "graph_time.cuh"
#include "model_device.h"

static const char *filter;
static cudaStream_t stream;

/* Median of 15 replays of a graph of n launches, us per launch. */
static double time_chain(int n, const std::function<void(int)> &launch)
{
    auto chain = [&] {
        for (int i = 0; i < n; i++) launch(i);
    };
    chain();
    CHECK(cudaStreamSynchronize(stream));
    return time_graph(stream, nullptr, 0, 15, chain) / n;
}

static void report(const char *name, int64_t rows, int64_t keys, int pdl, int n, double floor_us,
                   const std::function<void(int)> &launch)
{
    if (filter && !strstr(name, filter)) return;
    printf("%s,%lld,%lld,%d,%.2f,%.2f\n", name, (long long)rows, (long long)keys, pdl,
           time_chain(n, launch), floor_us);
    fflush(stdout);
}

enum { N_HEAD = 32, N_HEAD_KV = 8, HEAD_DIM = 128, N_EMBD = 2560, N_FF = 9728, N_VOCAB = 151936 };

static void bench_attention(device_array<uint8_t> &cache, int64_t n_row, int64_t n_key, bool decode)
{
    size_t half = (size_t)N_HEAD_KV * (size_t)n_key * HEAD_DIM * 2;
    int n = (int)std::min<size_t>(cache.n / (2 * half), decode ? 200 : 12);
    if (n_row * n_key > (1 << 20)) n = 4;
    device_array<uint16_t> q((size_t)n_row * N_HEAD * HEAD_DIM), out(q.n);
    q.fill(0x38);
    device_array<uint8_t> work(brim_cuda_attention_decode_bytes(N_HEAD, N_HEAD_KV, HEAD_DIM));
    work.fill(0);
    device_array<int64_t> pos(std::vector<int64_t>{n_key - n_row});
    double pairs = (double)n_row * ((double)n_key - ((double)n_row - 1) / 2);
    double floor_us = std::max((double)half * 2 / 4.4e6, pairs * N_HEAD * HEAD_DIM * 4 / 790e6);
    if (decode) {
        device_array<uint16_t> qkv((size_t)n_row * 6144);
        device_array<float> table((size_t)n_key * HEAD_DIM), w(HEAD_DIM);
        qkv.fill(0x3C), table.fill(0), w.fill(0);
        for (int pdl = 0; pdl < 2; pdl++)
            report("attention_decode_rotating", n_row, n_key, pdl, n, floor_us, [&](int i) {
                uint8_t *kv = cache.ptr + (size_t)i * 2 * half;
                brim_cuda_rotate_args r = {};
                r.n_row = n_row, r.n_head = N_HEAD, r.qkv = qkv.ptr, r.qkv_dtype = BRIM_DTYPE_BF16;
                r.qkv_stride = 6144, r.q_norm = w.ptr, r.k_norm = w.ptr, r.eps = 1e-6f;
                r.rope_table = table.ptr, r.first_pos = pos.ptr, r.q = q.ptr;
                r.kv = {kv, kv + half, BRIM_DTYPE_F16, N_HEAD_KV, HEAD_DIM, n_key};
                brim_cuda_attention_args a = {};
                a.n_row = n_row, a.n_head = N_HEAD, a.q = q.ptr, a.first_pos = pos.ptr;
                a.kv = r.kv, a.scale = 0.0883883f, a.out = out.ptr, a.rotate = &r;
                a.out_stride = N_HEAD * HEAD_DIM, a.workspace = work.ptr, a.n_key_max = n_key;
                a.pdl = pdl;
                RUN(brim_cuda_attention_decode(&a, stream, &err));
            });
    }
    for (int pdl = 0; pdl < 2; pdl++)
        report(decode ? "attention_decode" : "attention_prefill", n_row, n_key, pdl, n, floor_us,
               [&](int i) {
                   brim_cuda_attention_args a = {};
                   uint8_t *kv = cache.ptr + (size_t)i * 2 * half;
                   a.n_row = n_row, a.n_head = N_HEAD, a.q = q.ptr, a.first_pos = pos.ptr;
                   a.kv = {kv, kv + half, BRIM_DTYPE_F16, N_HEAD_KV, HEAD_DIM, n_key};
                   a.scale = 0.0883883f, a.out = out.ptr, a.out_stride = N_HEAD * HEAD_DIM;
                   a.workspace = work.ptr, a.n_key_max = n_key, a.pdl = pdl;
                   if (decode)
                       RUN(brim_cuda_attention_decode(&a, stream, &err));
                   else
                       RUN(brim_cuda_attention_prefill(&a, stream, &err));
               });
}

static void bench_rows(int64_t n_row)
{
    device_array<float> x((size_t)n_row * N_EMBD), w(N_EMBD), table(4096 * HEAD_DIM);
    device_array<uint16_t> y((size_t)n_row * 2 * N_FF), z((size_t)n_row * N_FF);
    x.fill(0), w.fill(0), table.fill(0), y.fill(0);
    device_array<uint16_t> k((size_t)N_HEAD_KV * 4096 * HEAD_DIM), v(k.n), q((size_t)n_row * 4096);
    device_array<int64_t> pos(std::vector<int64_t>{100});
    for (int pdl = 0; pdl < 2; pdl++) {
        report("rmsnorm", n_row, 0, pdl, 100, 0, [&](int) {
            brim_cuda_rmsnorm_args a = {n_row, N_EMBD, x.ptr,  N_EMBD, w.ptr,
                                        1e-6f, y.ptr,  N_EMBD, pdl,    NULL};
            RUN(brim_cuda_rmsnorm(&a, stream, &err));
        });
        report("rotate", n_row, 0, pdl, 100, 0, [&](int) {
            brim_cuda_rotate_args a = {};
            a.n_row = n_row, a.n_head = N_HEAD, a.qkv = y.ptr, a.qkv_dtype = BRIM_DTYPE_BF16;
            a.qkv_stride = 6144, a.q_norm = w.ptr, a.k_norm = w.ptr, a.eps = 1e-6f;
            a.rope_table = table.ptr, a.first_pos = pos.ptr, a.q = q.ptr, a.pdl = pdl;
            a.kv = {k.ptr, v.ptr, BRIM_DTYPE_F16, N_HEAD_KV, HEAD_DIM, 4096};
            RUN(brim_cuda_rotate(&a, stream, &err));
        });
        report("swiglu", n_row, 0, pdl, 100, 0, [&](int) {
            brim_cuda_swiglu_args a = {n_row, N_FF, y.ptr, BRIM_DTYPE_BF16, 2 * N_FF, 1, z.ptr,
                                       N_FF,  pdl,  NULL};
            RUN(brim_cuda_swiglu(&a, stream, &err));
        });
    }
}

static void bench_sample(void)
{
    brim_rng rng;
    brim_rng_seed(&rng, 1);
    device_array<float> logits(randoms(N_VOCAB, &rng, 3)), uniform(std::vector<float>{0.5f});
    device_array<int32_t> ranges(std::vector<int32_t>{0, 151669}), id(1);
    struct {
        const char *name;
        float temperature, top_p;
        int32_t top_k;
    } kinds[] = {{"argmax", 0, 1, 0},
                 {"sample_temperature", 0.8f, 1, 0},
                 {"sample_top_k", 0.8f, 1, 40},
                 {"sample_top_k_top_p", 0.6f, 0.95f, 20},
                 {"sample_top_p", 0.8f, 0.95f, 0}};
    for (auto &kind : kinds)
        report(kind.name, 1, 0, 0, 20, 0, [&](int) {
            brim_cuda_sample_args a = {};
            a.n_vocab = N_VOCAB, a.logits = logits.ptr, a.ranges = ranges.ptr, a.n_range = 1;
            a.temperature = kind.temperature, a.top_p = kind.top_p, a.top_k = kind.top_k;
            a.repeat_penalty = 1, a.uniform = uniform.ptr, a.id = id.ptr;
            RUN(brim_cuda_sample(&a, stream, &err));
        });
}

int main(int argc, char **argv)
{
    filter = argc > 1 ? argv[1] : NULL;
    brim_cuda_device device;
    brim_error err = {};
    if (brim_cuda_device_get(0, &device, &err) != BRIM_OK) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    CHECK(cudaStreamCreate(&stream));
    device_array<uint8_t> cache(640u << 20);
    cache.fill(0x2C);
    printf("kernel,rows,keys,pdl,us,floor_us\n");
    for (int64_t n_key : {128, 512, 2048, 8192, 32768}) bench_attention(cache, 1, n_key, true);
    bench_attention(cache, 4, 2048, true);
    bench_attention(cache, 8, 2048, true);
    for (int64_t n : {32, 128, 512, 2048, 4096}) bench_attention(cache, n, n, false);
    bench_attention(cache, 128, 8192, false);
    bench_rows(1);
    bench_rows(128);
    bench_sample();
    return 0;
}
