/* SPDX-License-Identifier: Apache-2.0
 * W4A16 kernels on the GPU, but for stream.cu (check_stream.cu): every form against an fp64
 * product, or their times as CSV. Outputs and workspace are poisoned, guard words follow each
 * output row. Ends with the line "N passed, N failed, N skipped"; without a device all is skipped,
 * with the reason. gpu_check_w4 [short | bench | sweep | explore ROWS...] */
#include "w4_bench.cuh"
#include "w4_problem.cuh"

template <typename F> static void run_form(problem &p, const char *form, double bound, F launch)
{
    p.poison();
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
    /* Subnormal weights are rounded to multiples of 2^-133: an rms of 1.88e-3 of theirs, where
     * bf16's own is 1.43e-3. "matvec" rounds none. */
    if (p.kind == SPECIAL_TINY && strcmp(form, "matvec") != 0)
        bound = sqrt(bound * bound + 1.88e-3 * 1.88e-3 - 1.43e-3 * 1.43e-3);
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
    /* bf16 weights below 2^-86 are not kept there (unpack.cuh) */
    if (p.kind != SPECIAL_TINY || p.dtype != BRIM_DTYPE_BF16) check_cluster(p, n_sm);
}

struct epilogue_case {
    brim_w4_epilogue kind;
    const char *name;
    double bound;
};
/* bf16 weights alone 1.43e-3; with bf16 output 2.2e-3; SWIGLU multiplies two such sums. */
static const epilogue_case epilogue_cases[] = {{BRIM_W4_STORE_BF16, "bf16", 2.4e-3},
                                               {BRIM_W4_STORE_F32, "f32", 1.7e-3},
                                               {BRIM_W4_ADD_F32, "add f32", 1.7e-3},
                                               {BRIM_W4_SWIGLU, "swiglu", 3.2e-3}};

/* Every epilogue, with and without a bias of the outputs. */
static void check_epilogues(int64_t rows, int64_t in, int64_t out, int group, brim_dtype dtype,
                            int n_sm)
{
    problem p(rows, in, out, group, dtype, SPECIAL_NONE);
    brim_w4_cluster_plan plans[] = {brim_w4_cluster_plan_make(rows, in, out, n_sm),
                                    brim_w4_cluster_plan_pin(rows, in, out, n_sm, 1, 1, 1),
                                    brim_w4_cluster_plan_pin(rows, in, out, n_sm, 1, 3, 3)};
    brim_split_plan off = {0, 1, 0, 0, in};
    for (const epilogue_case &e : epilogue_cases)
        for (int bias = 0; bias < 2; bias++) {
            if (e.kind == BRIM_W4_SWIGLU && out % 16) continue;
            p.args.epilogue = e.kind;
            p.args.out_bias = bias ? p.out_bias.ptr : nullptr;
            std::string form = std::string(e.name) + (bias ? " bias" : "");
            for (auto &plan : plans)
                run_form(p, ("cluster " + form).c_str(), e.bound, [&](brim_error *err) {
                    return brim_cuda_w4_cluster(&p.args, &p.packed, &plan, 0, nullptr, err);
                });
            if (e.kind == BRIM_W4_SWIGLU) continue;
            run_form(p, ("tiled " + form).c_str(), e.bound, [&](brim_error *err) {
                return brim_cuda_w4_tiled(&p.args, &off, BRIM_W4_PLANES_F32, nullptr, nullptr, err);
            });
        }
}

static bool fits(const problem &p, const brim_w4_cluster_plan &plan)
{
    return brim_w4_cluster_lay_out(&plan, p.group, p.dtype == BRIM_DTYPE_F32 ? 4 : 2).n_stage > 0;
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
    static const int pins[][3] = {{1, 1, 1}, {1, 1, 2}, {2, 1, 3}, {1, 2, 4}, {2, 2, 2},
                                  {1, 4, 1}, {4, 1, 8}, {3, 1, 5}, {1, 3, 7}, {1, 5, 2},
                                  {5, 1, 6}, {2, 1, 1}, {1, 2, 2}, {1, 3, 2}, {2, 1, 4}};
    for (auto &pin : pins) {
        plan = brim_w4_cluster_plan_pin(p.n_row, p.n_in, p.n_out, n_sm, pin[0], pin[1], pin[2]);
        if (pin[0] * pin[1] > brim_w4_cluster_max_warpgroups(plan.n_token) ||
            pin[2] > plan.n_unit || !fits(p, plan))
            continue;
        char form[48];
        snprintf(form, sizeof form, "cluster %d slabs %d parts split %d", pin[0], pin[1], pin[2]);
        run_form(p, form, 2.4e-3, [&](brim_error *e) {
            return brim_cuda_w4_cluster(&p.args, &p.packed, &plan, 0, nullptr, e);
        });
    }
}

/* A row keeps its bits whatever rows and outputs are beside it, as long as parts and split are the
 * same; 100 launches give the same bits. */
static void check_cluster_bits(int64_t rows, int64_t in, int64_t out, int n_sm)
{
    problem p(rows, in, out, 128, BRIM_DTYPE_BF16, SPECIAL_NONE);
    brim_error err = {};
    std::vector<uint16_t> all;
    for (int64_t n : {rows, rows / 2, (int64_t)1})
        for (int n_slab : {2, 1, 3}) {
            brim_w4_cluster_plan plan = brim_w4_cluster_plan_pin(n, in, out, n_sm, n_slab, 1, 4);
            p.args.n_row = n;
            p.poison();
            if (brim_cuda_w4_cluster(&p.args, &p.packed, &plan, 0, nullptr, &err) != BRIM_OK)
                exit(1);
            std::vector<uint16_t> got = p.y.to_host();
            if (all.empty()) all = got;
            size_t first = (size_t)(n * p.y_stride);
            expect(std::equal(got.begin(), got.begin() + first, all.begin()),
                   p.name("a row's bits without its neighbours"));
        }
    brim_w4_cluster_plan plan = brim_w4_cluster_plan_make(rows, in, out, n_sm);
    p.args.n_row = rows;
    bool equal = true;
    for (int i = 0; i < 100; i++) {
        p.poison();
        if (brim_cuda_w4_cluster(&p.args, &p.packed, &plan, 0, nullptr, &err) != BRIM_OK) exit(1);
        std::vector<uint16_t> got = p.y.to_host();
        if (i == 0) all = got;
        equal = equal && got == all;
    }
    expect(equal, p.name("cluster: 100 launches to the bit"));
}

static const special specials[] = {SPECIAL_NEGATIVE, SPECIAL_ZERO, SPECIAL_SUBNORMAL, SPECIAL_TINY,
                                   SPECIAL_LARGE_X};

int main(int argc, char **argv)
{
    bool brief = argc > 1 && !strcmp(argv[1], "short"); /* for the sanitizers */
    bool timed = argc > 1 && !strcmp(argv[1], "bench");
    bool explored = argc > 1 && !strcmp(argv[1], "explore");
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
        /* More panels than memory holds: the ring is refilled. */
        problem refilled(100, 1280, 72, 128, BRIM_DTYPE_BF16, SPECIAL_NONE);
        check_cluster(refilled, device.n_sm);
        for (special kind : specials) {
            problem p(9, 320, 200, 64, BRIM_DTYPE_BF16, kind);
            check_problem(p, device.n_sm);
            problem q(8, 320, 200, 64, BRIM_DTYPE_F32, kind);
            check_problem(q, device.n_sm);
        }
        printf("%d passed, %d failed, 0 skipped\n", n_passed, n_failed);
        return n_failed != 0;
    }
    if (argc > 1 && !strcmp(argv[1], "sweep")) {
        sweep(device.n_sm);
        return 0;
    }
    if (explored) {
        explore(device.n_sm, argc - 2, argv + 2);
        return 0;
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
    for (special kind : specials)
        for (int64_t r : {1, 17, 64}) {
            problem p(r, 2560, 1024, 128, BRIM_DTYPE_BF16, kind);
            check_problem(p, device.n_sm);
            problem q(r, 2560, 1024, 128, BRIM_DTYPE_F32, kind);
            check_problem(q, device.n_sm);
        }
    static const int64_t model[][2] = {
        {2560, 4096}, {4096, 2560}, {2560, 9728}, {9728, 2560}, {2560, 6144}};
    for (auto &s : model)
        for (int64_t r : {1, 8, 32, 128, 300}) {
            problem p(r, s[0], s[1], 128, BRIM_DTYPE_BF16, SPECIAL_NONE);
            check_problem(p, device.n_sm);
        }
    for (int64_t r : {1, 9, 17, 40, 64, 100})
        for (int64_t out : {200, 208, 1032}) {
            check_epilogues(r, 640, out, 128, BRIM_DTYPE_BF16, device.n_sm);
            check_epilogues(r, 576, out, 64, BRIM_DTYPE_F32, device.n_sm);
        }
    for (int64_t r : {20, 60, 128}) check_cluster_bits(r, 2560, 1032, device.n_sm);
    problem filled(128, 256, 2560, 128, BRIM_DTYPE_BF16, SPECIAL_NONE);
    check_problem(filled, device.n_sm);
    if (timed && n_failed == 0) bench(device.n_sm);
    fprintf(timed ? stderr : stdout, "%d passed, %d failed, 0 skipped\n", n_passed, n_failed);
    return n_failed != 0;
}
