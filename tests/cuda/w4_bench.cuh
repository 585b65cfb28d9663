/* SPDX-License-Identifier: Apache-2.0
 * Times of the W4 kernels, cold, as CSV: included by check_w4.cu alone. */
#ifndef BRIM_TESTS_W4_BENCH_CUH
#define BRIM_TESTS_W4_BENCH_CUH

#include "graph_time.cuh"
#include "w4_problem.cuh"

static const struct projection {
    const char *name;
    int64_t in, out;
} shapes[] = {{"q", 2560, 4096},      {"kv", 2560, 1024},   {"o", 4096, 2560},
              {"gate", 2560, 9728},   {"down", 9728, 2560}, {"qkv", 2560, 6144},
              {"gateup", 2560, 19456}};

static void bench(int n_sm)
{
    printf("projection,rows,in,out,form,split,us\n");
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    device_array<uint8_t> flush(256u << 20);
    brim_error err = {};
    printf("clock,0,0,0,tiny,1,%.2f\n", time_tiny(stream, flush.ptr, flush.n));
    static const int64_t rows_all[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048};
    for (auto &s : shapes) {
        for (int64_t rows : rows_all) {
            problem p(rows, s.in, s.out, 128, BRIM_DTYPE_BF16, SPECIAL_NONE, false, DENSE);
            auto row = [&](const char *form, int64_t split, double us) {
                printf("%s,%lld,%lld,%lld,%s,%lld,%.2f\n", s.name, (long long)rows, (long long)s.in,
                       (long long)s.out, form, (long long)split, us);
            };
            int n_sample = rows >= 512 ? 10 : 20;
            if (rows <= 128) {
                brim_w4_cluster_plan cp = brim_w4_cluster_plan_make(rows, s.in, s.out, n_sm);
                row("cluster", cp.split, time_graph(stream, flush.ptr, flush.n, n_sample, [&] {
                        brim_cuda_w4_cluster(&p.args, &p.packed, &cp, 0, stream, &err);
                    }));
            }
            if (rows <= 8)
                row("matvec", 1, time_graph(stream, flush.ptr, flush.n, n_sample, [&] {
                        brim_cuda_w4_matvec(&p.args, stream, &err);
                    }));
            if (rows == 16 || rows == 32 || rows == 64 || rows == 128 || rows == 2048) {
                brim_split_plan off = {0, 1, 0, 0, s.in}, plan;
                brim_split_policy course = brim_split_policy_course();
                if (brim_split_plan_make(&course, rows, s.in, s.out, &plan, &err) != BRIM_OK)
                    exit(1);
                device_array<uint8_t> planes(
                    brim_cuda_w4_workspace_bytes(&plan, rows, s.out, BRIM_W4_PLANES_BF16));
                row("tiled", 1, time_graph(stream, flush.ptr, flush.n, n_sample, [&] {
                        brim_cuda_w4_tiled(&p.args, &off, BRIM_W4_PLANES_BF16, nullptr, stream,
                                           &err);
                    }));
                row("split-k", plan.split, time_graph(stream, flush.ptr, flush.n, n_sample, [&] {
                        brim_cuda_w4_tiled(&p.args, &plan, BRIM_W4_PLANES_BF16, planes.ptr, stream,
                                           &err);
                    }));
            }
            fflush(stdout);
        }
    }
}

/* Every plan of the cluster kernel that fills the machine at all, for the given row counts: CSV,
 * the chosen plan marked and timed warm as well. */
static void explore(int n_sm, int n_rows, char **rows_text)
{
    printf("projection,rows,slabs,parts,split,ctas,us,chosen\n");
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    device_array<uint8_t> flush(256u << 20);
    brim_error err = {};
    for (auto &s : shapes) {
        problem p(256, s.in, s.out, 128, BRIM_DTYPE_BF16, SPECIAL_NONE, false, DENSE);
        for (int i = 0; i < n_rows; i++) {
            const int64_t rows = atoi(rows_text[i]);
            p.args.n_row = rows;
            brim_w4_cluster_plan own = brim_w4_cluster_plan_make(rows, s.in, s.out, n_sm);
            const int most = brim_w4_cluster_max_warpgroups(own.n_token);
            auto time = [&](const brim_w4_cluster_plan &plan, bool cold) {
                return time_graph(stream, cold ? flush.ptr : nullptr, flush.n, 7, [&] {
                    if (brim_cuda_w4_cluster(&p.args, &p.packed, &plan, 0, stream, &err) != BRIM_OK)
                        printf("%s\n", err.text);
                });
            };
            if (rows > 32) {
                brim_w4_stream_plan sp = brim_w4_stream_plan_make(rows, s.in, s.out, n_sm);
                printf("%s,%lld,%d,0,%d,%lld,%.2f,stream\n", s.name, (long long)rows, sp.n_slab,
                       sp.split, (long long)sp.n_cta,
                       time_graph(stream, flush.ptr, flush.n, 7, [&] {
                           if (brim_cuda_w4_stream(&p.args, &p.packed, &sp, 0, stream, &err) !=
                               BRIM_OK)
                               printf("%s\n", err.text);
                       }));
            }
            for (int code = 0; code < 512; code++) {
                const int n_slab = code % 8 + 1, n_part = code / 8 % 8 + 1, split = code / 64 + 1;
                if (n_slab * n_part > most || split > 8) continue;
                brim_w4_cluster_plan plan =
                    brim_w4_cluster_plan_pin(rows, s.in, s.out, n_sm, n_slab, n_part, split);
                if (!brim_w4_cluster_lay_out(&plan, 128, 2).n_stage) continue;
                const int64_t n_cta = plan.n_tile_out * plan.n_tile_token * split;
                const bool chosen =
                    n_slab == own.n_slab && n_part == own.n_part && split == own.split;
                if (!chosen && (n_cta < 60 || n_cta > 3 * n_sm)) continue;
                printf("%s,%lld,%d,%d,%d,%lld,%.2f,%s\n", s.name, (long long)rows, n_slab, n_part,
                       split, (long long)n_cta, time(plan, true), chosen ? "chosen" : "");
                if (chosen)
                    printf("%s,%lld,%d,%d,%d,%lld,%.2f,warm\n", s.name, (long long)rows, n_slab,
                           n_part, split, (long long)n_cta, time(plan, false));
            }
            fflush(stdout);
        }
    }
}

/* Every row count from 1 to 256 through the choice that the operator makes: CSV. */
static void sweep(int n_sm)
{
    printf("# kv: k and v alike; gate: gate and up alike; qkv, gateup: fused\n"
           "projection,M,us,kernel,plan\n");
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    device_array<uint8_t> flush(256u << 20);
    brim_error err = {};
    for (auto &s : shapes) {
        problem p(256, s.in, s.out, 128, BRIM_DTYPE_BF16, SPECIAL_NONE, false, DENSE);
        for (int64_t rows = 1; rows <= 256; rows++) {
            p.args.n_row = rows;
            brim_w4_hopper_plan plan = brim_w4_hopper_plan_make(rows, s.in, s.out, n_sm);
            double us = time_graph(stream, flush.ptr, flush.n, 5, [&] {
                brim_status status =
                    plan.kernel == BRIM_W4_KERNEL_GEMV
                        ? brim_cuda_w4_gemv(&p.args, &p.packed, nullptr, &plan.gemv, 0, stream,
                                            &err)
                    : plan.kernel == BRIM_W4_KERNEL_CLUSTER
                        ? brim_cuda_w4_cluster(&p.args, &p.packed, &plan.cluster, 0, stream, &err)
                        : brim_cuda_w4_stream(&p.args, &p.packed, &plan.stream, 0, stream, &err);
                if (status != BRIM_OK) printf("%s\n", err.text), exit(1);
            });
            char text[96];
            brim_w4_hopper_plan_print(&plan, text, sizeof text);
            char *colon = strchr(text, ':');
            *colon = 0;
            printf("%s,%lld,%.2f,%s,%s\n", s.name, (long long)rows, us, text, colon + 2);
        }
        fflush(stdout);
    }
}

#endif
