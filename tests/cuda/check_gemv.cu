/* SPDX-License-Identifier: Apache-2.0
 * The two W4 kernels for one to eight rows on the GPU: shapes, parameter types, epilogues, plans
 * and the norm in front, against an fp64 product; equal bits of a row whatever its neighbours; what
 * the integer kernel promises beyond that; or their times (gemv_bench.cuh).
 * Ends with the line "N passed, N failed, N skipped".
 *   gpu_check_gemv [bf16 | int8] [short | small | bench | sweep]
 * A name: that kernel alone. short: for the sanitizers; small: without the model's shapes, for the
 * emulator; sweep: times of other plans as well. */
#include "gemv_bench.cuh"

/* The kernel under test. */
static brim_w4_gemv_kernel kernel;

static brim_w4_gemv_plan plan_of(const problem &p, int n_sm)
{
    brim_w4_gemv_plan plan = brim_w4_gemv_plan_make(p.n_row, p.n_in, p.n_out, n_sm);
    plan.kernel = kernel;
    return plan;
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
    /* Sums are kept 2^-33 of the true ones: those of y near 2^-109 are subnormal (w4.md). */
    if (p.kind == SPECIAL_TINY && kernel == BRIM_W4_GEMV_BF16) bound = 1.2e-2;
    bound *= 1 + 3 / sqrt(2.0 * (double)(p.n_row * p.n_y()));
    char text[140];
    snprintf(text, sizeof text, " %s pair %d part %d split %d: rms %.3e bound %.1e%s",
             brim_w4_gemv_kernel_name(kernel), plan.n_pair, plan.n_part, plan.split, e, bound,
             clean ? "" : " NOT CLEAN");
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

static void check_plans(problem &p)
{
    int n_done = 0;
    p.args.epilogue = BRIM_W4_STORE_F32;
    for (int n_pair : {1, 2, 3, 5, 7, 12})
        for (int n_part : {1, 2, 3, 5, 12})
            for (int split = 1; split <= 8; split *= 2) {
                if (n_pair * n_part > BRIM_W4_GEMV_WARPS || n_part * split > (p.n_in + 127) / 128)
                    continue;
                brim_w4_gemv_plan plan = pinned(kernel, p.n_in, p.n_out, n_pair, n_part, split);
                plan.depth = n_done % 5;
                plan.release = (brim_w4_gemv_release)(n_done % 3);
                check(p, "gemv plan", F32_BOUND, plan, n_done++ % 2);
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

/* fp64 product of rows v[n_row][n_in], as the sum over what bf16 keeps of them, three times. */
static std::vector<double> product_of(problem &p, std::vector<double> v)
{
    std::vector<double> sum(p.n_row * p.n_out);
    for (int piece = 0; piece < 3; piece++) {
        std::vector<uint16_t> hx(p.x.n, 0xFFFF);
        for (int64_t i = 0; i < p.n_row * p.n_in; i++) {
            uint16_t part = brim_bf16_from_f32((float)v[i]);
            hx[i / p.n_in * p.x_stride + i % p.n_in] = part;
            v[i] -= (double)brim_f32_from_bf16(part);
        }
        p.x.from(hx);
        p.refer();
        std::vector<double> ref = p.ref.to_host();
        for (size_t i = 0; i < sum.size(); i++) sum[i] += ref[i];
    }
    return sum;
}

/* The norm in front, y f32. The kernel on bf16 rounds what it multiplies: it is held to the fp64
 * product of rounded numbers, but an input at a rounding boundary may go the other way, one of
 * thousands, 2^-9 relative. The kernel on integers does not round them. */
static void check_norm(int64_t rows, int64_t in, int64_t out, int group, brim_dtype dtype, int n_sm)
{
    problem p(rows, in, out, group, dtype, SPECIAL_NONE);
    brim_rng rng;
    brim_rng_seed(&rng, (uint64_t)(rows + in));
    int64_t stride = in + 4;
    std::vector<float> hx(rows * stride, NAN), hw(in);
    for (auto &w : hw) w = 1 + 0.5f * gaussian(&rng);
    const bool rounds = kernel == BRIM_W4_GEMV_BF16;
    std::vector<double> normed(rows * in);
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t k = 0; k < in; k++) {
            float v = 3 * gaussian(&rng) * (float)(r + 1);
            hx[r * stride + k] = v, sum += (double)v * v;
        }
        double inv = 1 / sqrt(sum / (double)in + 1e-6);
        for (int64_t k = 0; k < in; k++) {
            double v = (double)hx[r * stride + k] * inv * (double)hw[k];
            normed[r * in + k] =
                rounds ? (double)brim_f32_from_bf16(brim_bf16_from_f32((float)v)) : v;
        }
    }
    std::vector<double> want = product_of(p, normed);
    device_array<float> dx(hx.size()), dw(hw.size());
    dx.from(hx), dw.from(hw);
    p.args.epilogue = BRIM_W4_STORE_F32;
    p.args.x = nullptr;
    brim_cuda_w4_norm norm = {dx.ptr, stride, dw.ptr, 1e-6f};
    brim_w4_gemv_plan plans[2] = {plan_of(p, n_sm), pinned(kernel, in, out, 2, 2, 2)};
    for (int i = 0; i < 4; i++) {
        p.args.n_row = 1;
        if (!launch(p, plans[i / 2], &norm, i % 2)) return;
        std::vector<uint16_t> first = p.y.to_host();
        p.args.n_row = rows;
        if (!launch(p, plans[i / 2], &norm, i % 2)) return;
        std::vector<uint16_t> got = p.y.to_host();
        expect(!memcmp(&first[0], &got[0], out * 4), p.name("gemv norm, first row alone"));
        double err2 = 0, ref2 = 0;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t o = 0; o < out; o++) {
                double a = want[r * out + o], b = ((float *)got.data())[r * p.y_stride + o];
                err2 += (a - b) * (a - b), ref2 += a * a;
            }
        char text[64];
        snprintf(text, sizeof text, ": rms %.2e", sqrt(err2 / ref2));
        expect(sqrt(err2 / ref2) < (rounds ? 2e-4 : F32_BOUND), p.name("gemv norm") + text);
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
        p.refer();
        p.args.epilogue = BRIM_W4_STORE_F32;
        check(p, "gemv range", F32_BOUND, plan_of(p, n_sm), 0);
    }
}

/* ---- the integer kernel ---------------------------------------------------------------------- */

/* y exactly: every sum fits f32. `small`: x in multiples of 2^-21 beside +2 and -2 of equal codes,
 * which need all three digits; else multiples of 2^-8 up to 2. */
static void check_exact(int64_t rows, int group, brim_dtype dtype, bool small, int n_sm)
{
    problem p(rows, group == 128 ? 640 : 576, 80, group, dtype, SPECIAL_NONE);
    brim_rng rng;
    brim_rng_seed(&rng, (uint64_t)(rows * 7 + group + small));
    std::vector<uint16_t> hx = p.x.to_host();
    std::vector<uint32_t> hc = p.codes.to_host();
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < p.n_in; k++) {
            int in = (int)(k % group), i = (int)(brim_rng_u32(&rng) % 255) - 127;
            float v = small ? (in == 3   ? 2.0f
                               : in == 9 ? -2.0f
                                         : (float)i * 0x1p-21f)
                            : (float)i * (k % 3 ? 0x1p-8f : 0x1p-6f);
            hx[r * p.x_stride + k] = brim_bf16_from_f32(v);
        }
    /* Codes of inputs 3 and 9 of a group alike: nibbles 3 of a word and 1 of the next. */
    for (size_t i = 0; small && i < hc.size(); i += (size_t)group / 8)
        hc[i + 1] = (hc[i + 1] & ~0xF0u) | (hc[i] >> 8 & 0xF0u);
    p.x.from(hx), p.codes.from(hc);
    std::vector<float> fs = p.scales_f32.to_host(), fb = fs;
    for (size_t i = 0; i < fs.size(); i++) {
        fs[i] = (brim_rng_u32(&rng) & 1 ? 0.5f : -0.25f);
        fb[i] = (float)((int)(brim_rng_u32(&rng) % 15) - 7) * 0.25f;
    }
    p.set_params(fs, fb);
    p.pack();
    p.refer();
    p.args.epilogue = BRIM_W4_STORE_F32;
    if (!launch(p, plan_of(p, n_sm), nullptr, 0)) return;
    std::vector<uint16_t> hy = p.y.to_host();
    std::vector<double> want = p.ref.to_host();
    int n_off = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < p.n_out; o++)
            n_off += ((float *)hy.data())[r * p.y_stride + o] != want[r * p.n_out + o];
    expect(n_off == 0, p.name("gemv int8 is exact") + " off: " + std::to_string(n_off));
}

enum spread { SPREAD, OUTLIER, ALL_ONES, TINY, HUGE_X, SPREADS };

static float spread_value(spread kind, int64_t k, brim_rng *rng)
{
    float sign = brim_rng_u32(rng) & 1 ? 1.0f : -1.0f;
    switch (kind) {
    case SPREAD:
        return sign * ldexpf(1 + brim_rng_uniform(rng), -(int)(brim_rng_u32(rng) % 28));
    case OUTLIER:
        return k % 41 == 7 ? sign * 6e4f : gaussian(rng);
    case ALL_ONES: /* the largest of a binade: one more bit for the sign of the digits */
        return sign * ldexpf(1.9921875f, -(int)(brim_rng_u32(rng) % 3));
    case TINY:
        return gaussian(rng) * ldexpf(1, k / 128 % 2 ? -100 : -112);
    default:
        return gaussian(rng) * 0x1p117f;
    }
}

/* Every output within the bound of docs/numerics.md. Returns the largest share of it. */
static double share_of_bound(const problem &p, const brim_w4_gemv_plan &plan)
{
    std::vector<uint16_t> hx = p.x.to_host(), hy = p.y.to_host();
    std::vector<uint32_t> hc = p.codes.to_host();
    std::vector<float> fs = p.scales_f32.to_host(), fb = p.biases_f32.to_host();
    std::vector<double> ref = p.ref.to_host();
    const uint8_t *codes = (const uint8_t *)hc.data();
    int64_t parts = plan.split * plan.n_part, n_group = p.n_in / p.group;
    int64_t longest = (plan.n_unit + parts - 1) / parts * (128 / p.group);
    double roundings = (double)(longest + plan.n_part + plan.split + 14), worst = 0;
    for (int64_t r = 0; r < p.n_row; r++)
        for (int64_t o = 0; o < p.n_out; o++) {
            double rounded = 0, a = 0;
            for (int64_t i = 0; i < n_group; i++) {
                double most = 0, sum = 0, sum_qx = 0, sum_q = 0;
                for (int64_t k = i * p.group; k < (i + 1) * p.group; k++) {
                    double x = fabs((double)brim_f32_from_bf16(hx[r * p.x_stride + k]));
                    int q = codes[(o * p.n_in + k) / 2] >> (k % 2 ? 4 : 0) & 15;
                    most = std::max(most, x), sum += x, sum_qx += q * x, sum_q += q;
                }
                most = std::max(most, 0x1p-99) / (1 - 0x1p-8);
                double s = fabs((double)fs[o * n_group + i]), b = fabs((double)fb[o * n_group + i]);
                rounded += (s * sum_q + b) * most * 0x1p-23;
                a += s * (sum_qx + sum_q * most * 0x1p-6) + b * sum;
            }
            double bound = rounded + roundings * (a * 0x1p-24 + 0x1p-126);
            double off = fabs(((float *)hy.data())[r * p.y_stride + o] - ref[r * p.n_out + o]);
            worst = off <= bound ? std::max(worst, off / bound) : INFINITY; /* NaN as well */
            if (worst == INFINITY) return worst;
        }
    return worst;
}

static void check_bound(int64_t rows, int group, brim_dtype dtype, spread kind, int n_sm)
{
    problem p(rows, group == 128 ? 640 : 576, 80, group, dtype, SPECIAL_NONE);
    brim_rng rng;
    brim_rng_seed(&rng, (uint64_t)(rows * 11 + group + kind));
    std::vector<uint16_t> hx = p.x.to_host();
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < p.n_in; k++)
            hx[r * p.x_stride + k] = brim_bf16_from_f32(spread_value(kind, k, &rng));
    p.x.from(hx);
    p.refer();
    p.args.epilogue = BRIM_W4_STORE_F32;
    brim_w4_gemv_plan plan = plan_of(p, n_sm);
    if (!launch(p, plan, nullptr, 0)) return;
    double share = share_of_bound(p, plan);
    expect(share <= 1, p.name("gemv int8 bound") + " of x " + std::to_string(kind));
}

/* NaN or infinity in one group of a row: that row is NaN, the others keep their bits. */
static void check_not_finite(int64_t rows, uint16_t value, int n_sm)
{
    problem p(rows, 576, 80, 64, BRIM_DTYPE_F16, SPECIAL_NONE);
    p.args.epilogue = BRIM_W4_STORE_F32;
    if (!launch(p, plan_of(p, n_sm), nullptr, 0)) return;
    std::vector<uint16_t> before = p.y.to_host(), hx = p.x.to_host();
    const int64_t bad = rows / 2;
    hx[bad * p.x_stride + 500] = value;
    p.x.from(hx);
    if (!launch(p, plan_of(p, n_sm), nullptr, 0)) return;
    std::vector<uint16_t> after = p.y.to_host();
    bool good = true;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t at = r * p.y_stride * 2;
        for (int64_t o = 0; r == bad && o < p.n_out; o++)
            good &= (bool)isnan(((float *)&after[at])[o]);
        if (r != bad) good &= !memcmp(&before[at], &after[at], p.n_out * 4);
    }
    expect(good, p.name("gemv int8 beside a row that is not finite"));
}

static void check_int8(bool brief, int n_sm)
{
    static const brim_dtype dtypes[] = {BRIM_DTYPE_BF16, BRIM_DTYPE_F16, BRIM_DTYPE_F32};
    for (int64_t rows : {1, 2, 3, 8})
        for (int group : {32, 64, 128}) {
            if (brief && (rows > 2 || group != 64)) continue;
            for (brim_dtype dtype : dtypes)
                for (int small = 0; small < 2; small++)
                    check_exact(rows, group, dtype, small, n_sm);
            for (int kind = 0; kind < SPREADS; kind++)
                check_bound(rows, group, BRIM_DTYPE_F32, (spread)kind, n_sm);
        }
    for (uint16_t value : {0x7F80, 0xFF80, 0x7FC0, 0xFFFF}) {
        check_not_finite(1, value, n_sm);
        check_not_finite(5, value, n_sm);
    }
}

static void check_all(bool brief, bool small, int n_sm)
{
    if (kernel == BRIM_W4_GEMV_INT8) check_int8(brief, n_sm);
    if (brief) {
        for (int64_t r : {1, 5}) {
            problem p(r, 576, 208, 64, BRIM_DTYPE_BF16, SPECIAL_NONE);
            check_problem(p, n_sm);
        }
        check_norm(3, 576, 208, 32, BRIM_DTYPE_F16, n_sm);
        return;
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
        problem a(r, 576, small ? 304 : 1536, 32, BRIM_DTYPE_F16, SPECIAL_NONE); /* 4.5 units */
        check_problem(a, n_sm);
        problem b(r, 2560, small ? 71 : 1031, 128, BRIM_DTYPE_BF16, SPECIAL_NONE);
        check_problem(b, n_sm);
        problem c(r, 32, 5, 32, BRIM_DTYPE_BF16, SPECIAL_NONE);
        check_problem(c, n_sm);
    }
    for (special kind :
         {SPECIAL_NEGATIVE, SPECIAL_ZERO, SPECIAL_SUBNORMAL, SPECIAL_TINY, SPECIAL_LARGE_X})
        for (int64_t r : {1, 7}) {
            bool tiny = kind == SPECIAL_SUBNORMAL || kind == SPECIAL_TINY;
            problem p(r, 2560, small ? 80 : 1024, 128, tiny ? BRIM_DTYPE_F32 : BRIM_DTYPE_BF16,
                      kind);
            check_problem(p, n_sm);
        }
    static const int64_t model[][2] = {{2560, 4096}, {4096, 2560}, {2560, 9728},
                                       {9728, 2560}, {2560, 6144}, {2560, 19456}};
    for (auto &s : model)
        for (int64_t r : {1, 8}) {
            if (small) continue;
            problem p(r, s[0], s[1], 128, BRIM_DTYPE_BF16, SPECIAL_NONE);
            check_problem(p, n_sm);
            brim_w4_gemv_plan link = brim_w4_gemv_plan_chain(r, s[0], s[1], n_sm);
            if (link.kernel == kernel) check(p, "gemv in a chain", BF16_BOUND, link, 1);
        }
    /* x of 8 rows in several launches; in integers a row of 49152 does not fit one CTA. */
    problem wide(8, 49152, 64, 32, BRIM_DTYPE_F32, SPECIAL_NONE);
    check_problem(wide, n_sm);
    wide.args.epilogue = BRIM_W4_STORE_F32;
    brim_w4_gemv_plan one_cta = pinned(kernel, wide.n_in, wide.n_out, 2, 1, 1);
    if (kernel == BRIM_W4_GEMV_BF16) {
        check(wide, "gemv rows in turn", F32_BOUND, one_cta, 1);
    } else {
        brim_error err = {};
        brim_status status =
            brim_cuda_w4_gemv(&wide.args, &wide.packed, nullptr, &one_cta, 0, nullptr, &err);
        expect(status == BRIM_E_SHAPE && strstr(err.text, "n_in 49152"),
               wide.name("gemv int8 refuses"));
        one_cta.split = 2, one_cta.n_cta = 2;
        check(wide, "gemv rows in turn", F32_BOUND, one_cta, 1);
    }
    for (brim_dtype dtype : dtypes) check_row_bits(2560, small ? 80 : 1024, 128, dtype, n_sm);
    check_row_bits(576, 208, 32, BRIM_DTYPE_F16, n_sm);
    if (!small) check_row_bits(9728, 2560, 128, BRIM_DTYPE_BF16, n_sm);
    for (int64_t r : {1, 2, 5, 8}) {
        check_norm(r, 2560, small ? 96 : 6144, 128, BRIM_DTYPE_BF16, n_sm);
        check_norm(r, 576, 208, 32, BRIM_DTYPE_F16, n_sm);
        check_norm(r, 5120, small ? 96 : 2048, 64, BRIM_DTYPE_F32, n_sm);
    }
    check_range(n_sm);
}

int main(int argc, char **argv)
{
    std::vector<brim_w4_gemv_kernel> kernels = {BRIM_W4_GEMV_BF16, BRIM_W4_GEMV_INT8};
    const char *form = "";
    for (int i = 1; i < argc; i++) {
        brim_w4_gemv_plan named = {};
        if (brim_w4_gemv_plan_name(&named, argv[i]))
            kernels = {named.kernel};
        else
            form = argv[i];
    }
    bool sweep = !strcmp(form, "sweep"), timed = sweep || !strcmp(form, "bench");
    struct brim_cuda_device device;
    brim_error err = {};
    if (brim_cuda_device_get(0, &device, &err) != BRIM_OK) {
        printf("SKIP: %s\n0 passed, 0 failed, 1 skipped\n", err.text);
        return 77;
    }
    for (brim_w4_gemv_kernel one : kernels) {
        kernel = one;
        check_all(!strcmp(form, "short"), !strcmp(form, "small"), device.n_sm);
    }
    if (timed && n_failed == 0) bench(kernels, device.n_sm, sweep);
    fprintf(timed ? stderr : stdout, "%d passed, %d failed, 0 skipped\n", n_passed, n_failed);
    return n_failed != 0;
}
