/* SPDX-License-Identifier: Apache-2.0
 * The chain of launches of a prefill step on the H200, without a model file: 36 layers of
 * Qwen3-4B's shapes as the engine launches them at level hopper, random weights of six layers in
 * turn (more than the L2 holds). Times as CSV, us: `launch` is the host's time for all launches,
 * `stream` until they have run, `graph` a replay, `layer` a 36th of that. Then the replay
 * without some of the kernels: what each adds to the chain.
 *   gpu_bench_prefill [rows ...]
 *   gpu_bench_prefill search ROWS own|half ROUNDS   schedules of the products in the chain */
#include <functional>

#include "base/clock.h"
#include "cuda/model/ops.h"
#include "cuda/w4/cluster.h"
#include "cuda/w4/stream.h"
#include "cuda/w4/w4.h"
#include "graph_time.cuh"
#include "model_device.h"
#include "plan/w4_hopper.h"
#include "w4_matrix.cuh"

enum { N_LAYER = 36, SETS = 6, N_EMBD = 2560, N_FF = 9728, HEADS = 32, HEADS_KV = 8, DIM = 128 };
enum { QKV, O, GATE_UP, DOWN, N_PRODUCT };
enum {
    NORMS = 1 << N_PRODUCT,
    ROTATE = NORMS << 1,
    ATTENTION = ROTATE << 1,
    ALL = 2 * ATTENTION - 1
};

static const int64_t n_in[] = {N_EMBD, HEADS *DIM, N_EMBD, N_FF};
static const int64_t n_out[] = {(HEADS + 2 * HEADS_KV) * DIM, N_EMBD, 2 * N_FF, N_EMBD};
static const char *const names[] = {"qkv", "o", "gate_up", "down"};
static cudaStream_t stream;
static int n_sm;

struct chain {
    int64_t n_row;
    matrix *weights;
    brim_w4_hopper_plan plans[N_PRODUCT];
    device_array<float> x, qkv, weight, rope;
    device_array<uint16_t> normed, q, mixed, hidden, cache;
    device_array<int64_t> first_pos;
    int64_t n_position;
    int n_layer = N_LAYER;

    chain(int64_t rows, matrix *m)
        : n_row(rows), weights(m), x((size_t)rows * N_EMBD), qkv((size_t)rows * n_out[QKV]),
          weight(N_EMBD), rope((size_t)(rows + 255) / 256 * 256 * DIM),
          normed((size_t)rows * N_EMBD), q((size_t)rows * HEADS * DIM), mixed(q.n),
          hidden((size_t)rows * N_FF), cache(2 * HEADS_KV * rope.n * SETS),
          first_pos(std::vector<int64_t>{0}), n_position((rows + 255) / 256 * 256)
    {
        x.fill(0), qkv.fill(0), weight.fill(0), rope.fill(0), cache.fill(0);
        normed.fill(0), q.fill(0), mixed.fill(0), hidden.fill(0);
        for (int i = 0; i < N_PRODUCT; i++)
            plans[i] = brim_w4_hopper_plan_chain(n_row, n_in[i], n_out[i], n_sm);
    }
    void product(int i, int layer, const void *in, void *y, brim_w4_epilogue epilogue)
    {
        brim_cuda_w4_packed m = weights[i].rows(layer % SETS * n_out[i], n_out[i]);
        brim_cuda_w4 a = {};
        a.n_row = n_row, a.n_in = n_in[i], a.n_out = n_out[i];
        a.x = in, a.x_stride = n_in[i], a.y = y, a.epilogue = epilogue;
        a.y_stride = epilogue == BRIM_W4_SWIGLU ? n_out[i] / 2 : n_out[i];
        if (plans[i].kernel == BRIM_W4_KERNEL_CLUSTER)
            RUN(brim_cuda_w4_cluster(&a, &m, &plans[i].cluster, 1, stream, &err));
        else
            RUN(brim_cuda_w4_stream(&a, &m, &plans[i].stream, 1, stream, &err));
    }
    void norm()
    {
        brim_cuda_rmsnorm_args a = {n_row, N_EMBD,     x.ptr,  N_EMBD, weight.ptr,
                                    1e-6f, normed.ptr, N_EMBD, 1,      NULL};
        RUN(brim_cuda_rmsnorm(&a, stream, &err));
    }
    void attend(int layer, int what)
    {
        uint16_t *kv = cache.ptr + (size_t)(layer % SETS) * 2 * HEADS_KV * n_position * DIM;
        brim_cuda_rotate_args r = {};
        r.n_row = n_row, r.n_head = HEADS, r.qkv = qkv.ptr, r.qkv_dtype = BRIM_DTYPE_F32;
        r.qkv_stride = n_out[QKV], r.q_norm = r.k_norm = weight.ptr, r.eps = 1e-6f;
        r.rope_table = rope.ptr, r.first_pos = first_pos.ptr;
        r.kv = {kv, kv + HEADS_KV * n_position * DIM, BRIM_DTYPE_F16, HEADS_KV, DIM, n_position};
        r.q = q.ptr, r.pdl = 1;
        if (what & ROTATE) RUN(brim_cuda_rotate(&r, stream, &err));
        brim_cuda_attention_args a = {};
        a.n_row = n_row, a.n_head = HEADS, a.q = q.ptr, a.first_pos = first_pos.ptr;
        a.kv = r.kv, a.scale = 0.088f, a.out = mixed.ptr, a.out_stride = HEADS * DIM;
        a.n_key_max = n_row, a.pdl = 1;
        if (what & ATTENTION) RUN(brim_cuda_attention_prefill(&a, stream, &err));
    }
    void launch(int what)
    {
        for (int l = 0; l < n_layer; l++) {
            if (what & NORMS) norm();
            if (what & 1 << QKV) product(QKV, l, normed.ptr, qkv.ptr, BRIM_W4_STORE_F32);
            attend(l, what);
            if (what & 1 << O) product(O, l, mixed.ptr, x.ptr, BRIM_W4_ADD_F32);
            if (what & NORMS) norm();
            if (what & 1 << GATE_UP) product(GATE_UP, l, normed.ptr, hidden.ptr, BRIM_W4_SWIGLU);
            if (what & 1 << DOWN) product(DOWN, l, hidden.ptr, x.ptr, BRIM_W4_ADD_F32);
        }
    }
    double graph(int what, int n_sample)
    {
        return time_graph(stream, nullptr, 0, n_sample, [&] { launch(what); });
    }
};

static void bench(matrix *weights, int64_t rows)
{
    chain c(rows, weights);
    double launched[9], done[9];
    for (int i = -3; i < 9; i++) {
        CHECK(cudaStreamSynchronize(stream));
        int64_t begin = brim_clock_ns();
        c.launch(ALL);
        int64_t middle = brim_clock_ns();
        CHECK(cudaStreamSynchronize(stream));
        int64_t end = brim_clock_ns();
        if (i >= 0)
            launched[i] = (double)(middle - begin) / 1e3, done[i] = (double)(end - begin) / 1e3;
    }
    std::sort(launched, launched + 9), std::sort(done, done + 9);
    double all = c.graph(ALL, 9);
    printf("%lld,all,%.1f,%.1f,%.1f,%.2f\n", (long long)rows, launched[4], done[4], all,
           all / N_LAYER);
    const struct {
        const char *name;
        int what;
    } parts[] = {{"norms", NORMS},   {"rotate", ROTATE}, {"attention", ATTENTION},
                 {"qkv", 1 << QKV},  {"o", 1 << O},      {"gate_up", 1 << GATE_UP},
                 {"down", 1 << DOWN}};
    for (auto &part : parts) {
        double rest = c.graph(ALL & ~part.what, 5), alone = c.graph(part.what, 5);
        printf("%lld,%s,,,%.1f,%.2f\n", (long long)rows, part.name, alone, (all - rest) / N_LAYER);
    }
    fflush(stdout);
}

/* Schedules that may be worth a measurement; resident: the share of a multiprocessor's shared
 * memory that a CTA keeps to, 1 / resident. */
static std::vector<brim_w4_hopper_plan> schedules(int64_t rows, int i)
{
    std::vector<brim_w4_hopper_plan> all;
    auto add = [&](const brim_w4_hopper_plan &plan) {
        const int64_t n_cta = brim_w4_hopper_plan_ctas(&plan);
        if (n_cta >= 64 && n_cta <= 2 * n_sm) all.push_back(plan);
    };
    if (rows <= 128) {
        const int most = brim_w4_cluster_max_warpgroups((int)(rows + 15) / 16 * 16);
        for (int code = 0; code < 8 * 5 * 5; code++) {
            const int split = code % 8 + 1, n_part = code / 8 % 5 + 1, n_slab = code / 40 + 1;
            if (n_slab * n_part > most) continue;
            int n_byte = 0;
            for (int resident = 1; resident <= 3; resident++) {
                brim_w4_hopper_plan plan = {};
                plan.kernel = BRIM_W4_KERNEL_CLUSTER;
                plan.cluster =
                    brim_w4_cluster_plan_pin(rows, n_in[i], n_out[i], n_sm, n_slab, n_part, split);
                plan.cluster.n_resident = resident;
                const brim_w4_cluster_layout l = brim_w4_cluster_lay_out(&plan.cluster, 128, 2);
                if (!l.n_stage || l.n_byte == n_byte) continue;
                n_byte = l.n_byte;
                add(plan);
            }
        }
    }
    if (rows > 32) {
        for (int code = 0; code < 8 * 4 * 3; code++) {
            const int split = code % 8 + 1, n_slab = code / 8 % 4 + 1,
                      n_token = 64 + code / 32 * 32;
            if (n_token > 64 && n_token - 64 >= rows) continue;
            brim_w4_hopper_plan plan = {};
            plan.kernel = BRIM_W4_KERNEL_STREAM;
            plan.stream =
                brim_w4_stream_plan_pin(rows, n_in[i], n_out[i], n_sm, n_token, n_slab, split);
            add(plan);
        }
    }
    return all;
}

/* Products in turn take each schedule, the others as they are, and keep the fastest; from the
 * engine's schedules, or with `half` from those that leave room for the next kernel's CTAs. */
static void search(matrix *weights, int64_t rows, bool half, int n_round)
{
    enum { LAYERS = 12, SAMPLES = 5 };
    chain c(rows, weights);
    c.n_layer = LAYERS;
    for (auto &plan : c.plans)
        if (half && plan.kernel == BRIM_W4_KERNEL_CLUSTER) {
            brim_w4_cluster_plan &p = plan.cluster;
            if (p.n_slab > 3) {
                const int64_t n_unit_in = p.n_unit * BRIM_W4_UNIT;
                p = brim_w4_cluster_plan_pin(rows, n_unit_in, p.n_tile_out * p.n_slab * 64, n_sm, 3,
                                             1, 1);
            }
            p.n_resident = 2;
        }
    auto line = [&](int round, int i) {
        char text[96];
        brim_w4_hopper_plan_print(&c.plans[i], text, sizeof text);
        const bool cluster = c.plans[i].kernel == BRIM_W4_KERNEL_CLUSTER;
        const double us = c.graph(ALL, SAMPLES) / LAYERS;
        printf("%lld,%s,%d,%s,%s,%d,%lld,%.2f\n", (long long)rows, half ? "half" : "own", round,
               names[i], text, cluster ? c.plans[i].cluster.n_resident : 1,
               (long long)brim_w4_hopper_plan_ctas(&c.plans[i]), us);
        return us;
    };
    double best = line(0, 0);
    for (int i = 1; i < N_PRODUCT; i++) best = std::min(best, line(0, i));
    for (int round = 1; round <= n_round; round++) {
        for (int i : {GATE_UP, DOWN, QKV, O}) {
            brim_w4_hopper_plan kept = c.plans[i];
            for (const brim_w4_hopper_plan &plan : schedules(rows, i)) {
                c.plans[i] = plan;
                const double us = line(round, i);
                if (us < best) best = us, kept = plan;
            }
            c.plans[i] = kept;
            best = line(round, i); /* again: of many samples the least is lucky */
        }
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    brim_cuda_device device;
    brim_error err = {};
    if (brim_cuda_device_get(0, &device, &err) != BRIM_OK) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    n_sm = device.n_sm;
    CHECK(cudaStreamCreate(&stream));
    matrix weights[] = {{n_in[QKV], n_out[QKV] * SETS},
                        {n_in[O], n_out[O] * SETS},
                        {n_in[GATE_UP], n_out[GATE_UP] * SETS},
                        {n_in[DOWN], n_out[DOWN] * SETS}};
    if (argc == 5 && !strcmp(argv[1], "search")) {
        printf("rows,from,round,product,plan,resident,ctas,layer\n");
        search(weights, atoi(argv[2]), !strcmp(argv[3], "half"), atoi(argv[4]));
        return 0;
    }
    printf("rows,part,launch,stream,graph,layer\n");
    for (int i = 1; i < argc; i++) bench(weights, atoi(argv[i]));
    for (int64_t rows : {16, 32, 48, 64, 128, 256, 2048})
        if (argc == 1) bench(weights, rows);
    return 0;
}
