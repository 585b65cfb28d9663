/* SPDX-License-Identifier: Apache-2.0
 * The model's own kernels on the GPU against plain C in f64: every form, odd sizes, positions at
 * tile edges, poisoned outputs, cache and workspace. Ends with the line "N passed, N failed, N
 * skipped"; without a device all is skipped, with the reason. The sampler is in check_sample.cu.
 *   gpu_check_model [short | tiny [rows] [dense] [attention]]
 * tiny: each kernel's instances once or a few times, in parts, for racecheck. */
#include "model_attention.cuh"

static bool is_short;

/* ---- embedding, norm, SwiGLU, add ------------------------------------------------------------ */

static void check_embed(brim_weight_kind kind, brim_dtype dtype, int group, int64_t n_in)
{
    brim_rng rng;
    brim_rng_seed(&rng, (uint64_t)(kind * 100 + dtype * 10 + group + n_in));
    const int64_t n_out = 37, n_row = 5, stride = n_in + 3;
    std::vector<float> table((size_t)(n_out * n_in));
    std::vector<uint8_t> data, scales, biases;
    if (kind == BRIM_WEIGHT_DENSE) {
        data = narrow(randoms(table.size(), &rng, 1), dtype);
        table = widen(data, dtype);
    } else if (kind == BRIM_WEIGHT_AFFINE4) {
        data.resize(table.size() / 2);
        for (uint8_t &b : data) b = (uint8_t)brim_rng_u32(&rng);
        scales = narrow(randoms(table.size() / group, &rng, 0.1f), dtype);
        biases = narrow(randoms(table.size() / group, &rng, 0.5f), dtype);
        std::vector<float> s = widen(scales, dtype), b = widen(biases, dtype);
        for (size_t i = 0; i < table.size(); i++)
            table[i] = fmaf(s[i / group], (float)(i % 2 ? data[i / 2] >> 4 : data[i / 2] & 15),
                            b[i / group]);
    } else {
        std::vector<uint8_t> blocks(table.size() / 32 * 34);
        for (uint8_t &b : blocks) b = (uint8_t)brim_rng_u32(&rng);
        for (size_t i = 0; i < table.size() / 32; i++) {
            uint16_t d = brim_f16_from_f32(gaussian(&rng) * 0.02f);
            memcpy(&blocks[34 * i], &d, 2);
            for (int j = 0; j < 32; j++)
                table[32 * i + j] = brim_f32_from_f16(d) * (float)(int8_t)blocks[34 * i + 2 + j];
        }
        data.resize(table.size());
        scales.resize(table.size() / 16);
        brim_q8_split(blocks.data(), (int64_t)table.size() / 32, (int8_t *)data.data(),
                      (uint16_t *)scales.data());
    }
    device_array<uint8_t> d_data(data), d_scales(scales), d_biases(biases);
    std::vector<int32_t> ids = {0, 36, 7, 37, -1}; /* the last two are outside */
    device_array<int32_t> d_ids(ids);
    device_array<float> x((size_t)(n_row * stride));
    x.fill(0x5A);
    float poison;
    memset(&poison, 0x5A, 4);
    brim_cuda_embed_args a = {
        n_row,     {kind, dtype, group, n_out, n_in, d_data.ptr, d_scales.ptr, d_biases.ptr},
        d_ids.ptr, x.ptr,
        stride,    0};
    RUN(brim_cuda_embed(&a, NULL, &err));
    std::vector<float> got = x.to_host();
    bool ok = true;
    for (int64_t row = 0; row < n_row; row++)
        for (int64_t i = 0; i < stride; i++) {
            float v = got[(size_t)(row * stride + i)];
            if (i >= n_in)
                ok &= v == poison;
            else if (row >= 3)
                ok &= isnan(v);
            else
                ok &= v == table[(size_t)(ids[(size_t)row] * n_in + i)];
        }
    expect(ok, "embed kind " + std::to_string(kind) + " dtype " + std::to_string(dtype) + " n_in " +
                   std::to_string(n_in));
}

static void check_rmsnorm(int64_t n, int64_t n_row, int64_t stride, bool plain)
{
    brim_rng rng;
    brim_rng_seed(&rng, (uint64_t)(n * 7 + n_row));
    std::vector<float> x = randoms((size_t)(n_row * stride), &rng, 3),
                       w = randoms((size_t)n, &rng, 1);
    device_array<float> d_x(x), d_w(w), work((size_t)n_row);
    device_array<uint16_t> y((size_t)(n_row * stride));
    y.fill(0xFF);
    work.fill(0xFF);
    brim_cuda_rmsnorm_args a = {n_row, n,     d_x.ptr, stride, d_w.ptr,
                                1e-6f, y.ptr, stride,  0,      work.ptr};
    if (plain)
        RUN(brim_cuda_rmsnorm_plain(&a, NULL, &err));
    else
        RUN(brim_cuda_rmsnorm(&a, NULL, &err));
    std::vector<uint16_t> got = y.to_host();
    worst_error e;
    bool outside = true;
    for (int64_t row = 0; row < n_row; row++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += (double)x[(size_t)(row * stride + i)] * (double)x[(size_t)(row * stride + i)];
        double inv = 1 / sqrt(sum / (double)n + (double)1e-6f);
        for (int64_t i = 0; i < stride; i++) {
            size_t at = (size_t)(row * stride + i);
            if (i >= n) {
                outside &= got[at] == 0xFFFF;
                continue;
            }
            double want = (double)x[at] * inv * (double)w[(size_t)i];
            e.see((double)brim_f32_from_bf16(got[at]), want, fabs(want) * (BF16 / 2 * 1.01) + 1e-30,
                  at);
        }
    }
    expect(e.ratio <= 1 && outside,
           std::string(plain ? "rmsnorm plain " : "rmsnorm ") + std::to_string(n) + e.text());
}

static void check_swiglu(int64_t n_ff, int64_t n_row, brim_dtype dtype, int paired, bool plain)
{
    brim_rng rng;
    brim_rng_seed(&rng, (uint64_t)(n_ff * 3 + n_row + dtype + paired));
    int64_t stride = 2 * n_ff + 8, y_stride = n_ff + 8;
    std::vector<uint8_t> in = narrow(randoms((size_t)(n_row * stride), &rng, 4), dtype);
    std::vector<float> x = widen(in, dtype);
    device_array<uint8_t> d_in(in);
    device_array<uint16_t> y((size_t)(n_row * y_stride));
    device_array<float> work((size_t)(n_row * n_ff));
    y.fill(0xFF);
    brim_cuda_swiglu_args a = {n_row,  n_ff,  d_in.ptr, dtype, stride,
                               paired, y.ptr, y_stride, 0,     work.ptr};
    if (plain)
        RUN(brim_cuda_swiglu_plain(&a, NULL, &err));
    else
        RUN(brim_cuda_swiglu(&a, NULL, &err));
    std::vector<uint16_t> got = y.to_host();
    worst_error e;
    for (int64_t row = 0; row < n_row; row++)
        for (int64_t i = 0; i < n_ff; i++) {
            double g = (double)x[(size_t)(row * stride + (paired ? brim_w4_pair_row(i, 0) : i))];
            double up =
                (double)x[(size_t)(row * stride + (paired ? brim_w4_pair_row(i, 1) : i + n_ff))];
            double want = g / (1 + exp(-g)) * up;
            size_t at = (size_t)(row * y_stride + i);
            e.see((double)brim_f32_from_bf16(got[at]), want, fabs(want) * (BF16 / 2 * 1.01) + 1e-30,
                  at);
        }
    expect(e.ratio <= 1, "swiglu " + std::to_string(n_ff) + e.text());
}

static void check_add(int64_t n, brim_dtype dtype)
{
    brim_rng rng;
    brim_rng_seed(&rng, (uint64_t)n);
    std::vector<float> x = randoms((size_t)(3 * n), &rng, 1);
    std::vector<uint8_t> y = narrow(randoms((size_t)(3 * n), &rng, 1), dtype);
    std::vector<float> yf = widen(y, dtype);
    device_array<float> d_x(x);
    device_array<uint8_t> d_y(y);
    brim_cuda_add_args a = {3, n, d_x.ptr, n, d_y.ptr, dtype, n, 0};
    RUN(brim_cuda_add(&a, NULL, &err));
    std::vector<float> got = d_x.to_host();
    bool ok = true;
    for (size_t i = 0; i < x.size(); i++) ok &= got[i] == x[i] + yf[i];
    expect(ok, "add " + std::to_string(n));
}

/* ---- rotation -------------------------------------------------------------------------------- */

static void check_rotate(int n_head, int n_head_kv, int head_dim, brim_dtype in_dtype,
                         brim_dtype kv_dtype, bool norm, int64_t first_pos, int64_t n_row,
                         bool plain)
{
    brim_rng rng;
    brim_rng_seed(&rng, (uint64_t)(n_head * 1000 + head_dim * 10 + norm + first_pos));
    int64_t n_position = first_pos + n_row + 2,
            width = (int64_t)(n_head + 2 * n_head_kv) * head_dim;
    int64_t stride = width + 8;
    int n_pair = head_dim / 2;
    std::vector<double> inv_freq((size_t)n_pair);
    brim_rope_config config = {};
    double amplitude;
    brim_rope_frequencies(&config, 1e6, head_dim, inv_freq.data(), &amplitude);
    device_array<double> d_freq(inv_freq);
    device_array<float> table((size_t)(n_position * head_dim));
    brim_cuda_rope_table_args t = {n_position, n_pair, 1.25, d_freq.ptr, table.ptr};
    RUN(brim_cuda_rope_table(&t, NULL, &err));

    std::vector<uint8_t> qkv = narrow(randoms((size_t)(n_row * stride), &rng, 2), in_dtype);
    std::vector<float> x = widen(qkv, in_dtype), qn = randoms((size_t)head_dim, &rng, 1),
                       kn = randoms((size_t)head_dim, &rng, 1);
    device_array<uint8_t> d_qkv(qkv);
    device_array<float> d_qn(qn), d_kn(kn), work((size_t)(n_row * (n_head + n_head_kv) * head_dim));
    size_t kv_bytes = (size_t)(n_head_kv * n_position * head_dim) * brim_dtype_bytes(kv_dtype);
    device_array<uint8_t> k(kv_bytes), v(kv_bytes),
        q((size_t)(n_row * n_head * head_dim) * brim_dtype_bytes(kv_dtype));
    k.fill(0xFF), v.fill(0xFF), q.fill(0xFF), work.fill(0xFF);
    device_array<int64_t> pos(std::vector<int64_t>{first_pos});
    brim_cuda_rotate_args a = {};
    a.n_row = n_row, a.n_head = n_head, a.qkv = d_qkv.ptr, a.qkv_dtype = in_dtype,
    a.qkv_stride = stride;
    a.q_norm = norm ? d_qn.ptr : NULL, a.k_norm = norm ? d_kn.ptr : NULL, a.eps = 1e-6f;
    a.rope_table = table.ptr, a.first_pos = pos.ptr;
    a.kv = {k.ptr, v.ptr, kv_dtype, n_head_kv, head_dim, n_position};
    a.q = q.ptr, a.workspace = work.ptr;
    if (plain)
        RUN(brim_cuda_rotate_plain(&a, NULL, &err));
    else
        RUN(brim_cuda_rotate(&a, NULL, &err));
    std::vector<float> gq = widen(q.to_host(), kv_dtype), gk = widen(k.to_host(), kv_dtype),
                       gv = widen(v.to_host(), kv_dtype);
    double unit = kv_dtype == BRIM_DTYPE_F16 ? 1.0 / 1024 : 8 * U;
    worst_error e;
    bool outside = true;
    for (int64_t row = 0; row < n_row; row++)
        for (int64_t h = 0; h < n_head + 2 * n_head_kv; h++) {
            std::vector<double> in((size_t)head_dim);
            double sum = 0;
            for (int i = 0; i < head_dim; i++) {
                in[(size_t)i] = (double)x[(size_t)(row * stride + h * head_dim + i)];
                sum += in[(size_t)i] * in[(size_t)i];
            }
            bool is_v = h >= n_head + n_head_kv, is_q = h < n_head;
            if (norm && !is_v)
                for (int i = 0; i < head_dim; i++)
                    in[(size_t)i] *=
                        (double)(is_q ? qn : kn)[(size_t)i] / sqrt(sum / head_dim + (double)1e-6f);
            for (int i = 0; i < head_dim; i++) {
                int p = i % n_pair;
                double angle = (double)(first_pos + row) * inv_freq[(size_t)p];
                double lo = in[(size_t)p], hi = in[(size_t)(p + n_pair)];
                double want = is_v ? in[(size_t)i]
                                   : 1.25 * (i < n_pair ? lo * cos(angle) - hi * sin(angle)
                                                        : hi * cos(angle) + lo * sin(angle));
                size_t at =
                    is_q ? (size_t)((row * n_head + h) * head_dim + i)
                         : (size_t)((((h - n_head) % n_head_kv) * n_position + first_pos + row) *
                                        head_dim +
                                    i);
                const std::vector<float> &got = is_q ? gq : is_v ? gv : gk;
                e.see((double)got[at], want,
                      fabs(want) * unit / 2 * 1.05 + (fabs(lo) + fabs(hi)) * 8 * U + 1e-7, at);
            }
        }
    for (int64_t h = 0; h < n_head_kv; h++)
        for (int64_t p = 0; p < n_position; p++)
            if (p < first_pos || p >= first_pos + n_row)
                for (int i = 0; i < head_dim; i++)
                    outside &= isnan(gk[(size_t)((h * n_position + p) * head_dim + i)]) &&
                               isnan(gv[(size_t)((h * n_position + p) * head_dim + i)]);
    expect(e.ratio <= 1 && outside, std::string(plain ? "rotate plain" : "rotate") + " head_dim " +
                                        std::to_string(head_dim) + " norm " + std::to_string(norm) +
                                        " position " + std::to_string(first_pos) + e.text());
}

static void check_rope_table(void)
{
    int n_pair = 64;
    int64_t n_position = 40960;
    std::vector<double> inv_freq((size_t)n_pair);
    brim_rope_config config = {};
    double amplitude;
    brim_rope_frequencies(&config, 1e6, 128, inv_freq.data(), &amplitude);
    device_array<double> d_freq(inv_freq);
    device_array<float> table((size_t)(n_position * 128));
    brim_cuda_rope_table_args t = {n_position, n_pair, amplitude, d_freq.ptr, table.ptr};
    RUN(brim_cuda_rope_table(&t, NULL, &err));
    std::vector<float> got = table.to_host(), cosine(64), sine(64);
    worst_error e;
    for (int64_t p :
         {(int64_t)0, (int64_t)1, (int64_t)127, (int64_t)4096, (int64_t)32767, (int64_t)40959}) {
        brim_rope_table(inv_freq.data(), n_pair, amplitude, p, 1, cosine.data(), sine.data());
        for (int i = 0; i < n_pair; i++) {
            e.see((double)got[(size_t)(p * 128 + i)], (double)cosine[(size_t)i],
                  fabs((double)cosine[(size_t)i]) * 2 * U + 1e-12, (size_t)i);
            e.see((double)got[(size_t)(p * 128 + 64 + i)], (double)sine[(size_t)i],
                  fabs((double)sine[(size_t)i]) * 2 * U + 1e-12, (size_t)i);
        }
    }
    expect(e.ratio <= 1, "rope table" + e.text());
}

/* ---- dense products -------------------------------------------------------------------------- */

static void check_dense(brim_weight_kind kind, brim_dtype dtype, int64_t n_row, int64_t n_in,
                        int64_t n_out, brim_w4_epilogue epilogue)
{
    brim_rng rng;
    brim_rng_seed(&rng, (uint64_t)(n_row * 7 + n_in * 3 + n_out + dtype));
    int64_t x_stride = n_in % 8 ? n_in + 1 : n_in + 8,
            n_y = epilogue == BRIM_W4_SWIGLU ? n_out / 2 : n_out, y_stride = n_y + 2;
    std::vector<float> x = widen(
        narrow(randoms((size_t)(n_row * x_stride), &rng, 1), BRIM_DTYPE_BF16), BRIM_DTYPE_BF16);
    std::vector<float> w((size_t)(n_out * n_in)), bias = randoms((size_t)n_out, &rng, 1);
    std::vector<uint8_t> data, scales;
    if (kind == BRIM_WEIGHT_DENSE) {
        data = narrow(randoms(w.size(), &rng, 0.1f), dtype);
        w = widen(data, dtype);
    } else {
        data.resize(w.size());
        for (uint8_t &b : data) b = (uint8_t)brim_rng_u32(&rng);
        scales = narrow(randoms(w.size() / 32, &rng, 0.002f), BRIM_DTYPE_F16);
        std::vector<float> s = widen(scales, BRIM_DTYPE_F16);
        for (size_t i = 0; i < w.size(); i++) w[i] = s[i / 32] * (float)(int8_t)data[i];
    }
    device_array<uint8_t> d_w(data), d_s(scales), d_x(narrow(x, BRIM_DTYPE_BF16));
    device_array<float> d_bias(bias), y((size_t)(n_row * y_stride));
    bool f32 = epilogue == BRIM_W4_STORE_F32 || epilogue == BRIM_W4_ADD_F32;
    std::vector<float> before((size_t)(n_row * y_stride), 0.5f);
    if (epilogue == BRIM_W4_ADD_F32)
        y.from(before);
    else
        y.fill(0xFF);
    brim_cuda_dense_args a = {n_row,    {kind, dtype, 0, n_out, n_in, d_w.ptr, d_s.ptr, NULL},
                              d_x.ptr,  x_stride,
                              y.ptr,    y_stride,
                              epilogue, d_bias.ptr,
                              0};
    RUN(brim_cuda_dense(&a, NULL, &err));
    std::vector<float> y32 = y.to_host();
    const uint16_t *y16 = (const uint16_t *)y32.data();
    worst_error e;
    for (int64_t row = 0; row < n_row; row++)
        for (int64_t o = 0; o < n_y; o += 1 + n_y / 40) {
            double v[2] = {0, 0}, size[2] = {0, 0};
            for (int part = 0; part < (epilogue == BRIM_W4_SWIGLU ? 2 : 1); part++) {
                int64_t at = epilogue == BRIM_W4_SWIGLU ? brim_w4_pair_row(o, part) : o;
                for (int64_t i = 0; i < n_in; i++) {
                    double term = (double)w[(size_t)(at * n_in + i)] *
                                  (double)x[(size_t)(row * x_stride + i)];
                    v[part] += term, size[part] += term * term;
                }
                v[part] += (double)bias[(size_t)at];
            }
            /* bf16 weights: each term off by up to BF16 / 2 of itself, 6 deviations of their sum */
            double unit = n_row > 8 ? BF16 / 2 * 6 * 0.6 : 64 * U;
            double bound = unit * sqrt(size[0]) + fabs(v[0]) * 8 * U, want = v[0];
            if (epilogue == BRIM_W4_SWIGLU) {
                want = v[0] / (1 + exp(-v[0])) * v[1];
                bound = 1.1 * bound * fabs(v[1]) + unit * sqrt(size[1]) * fabs(v[0]) +
                        fabs(want) * 16 * U;
            }
            if (!f32) bound += fabs(want) * BF16 / 2;
            if (epilogue == BRIM_W4_ADD_F32) want += 0.5;
            size_t at = (size_t)(row * y_stride + o);
            e.see(f32 ? (double)y32[at] : (double)brim_f32_from_bf16(y16[at]), want, bound + 1e-6,
                  at);
        }
    expect(e.ratio <= 1, "dense kind " + std::to_string(kind) + " " + brim_dtype_name(dtype) +
                             " rows " + std::to_string(n_row) + " " + std::to_string(n_in) + "->" +
                             std::to_string(n_out) + " epilogue " + std::to_string(epilogue) +
                             e.text());
}

static void tiny_rows(void)
{
    for (brim_dtype d : {BRIM_DTYPE_F32, BRIM_DTYPE_F16, BRIM_DTYPE_BF16}) {
        check_embed(BRIM_WEIGHT_DENSE, d, 0, 96);
        check_embed(BRIM_WEIGHT_AFFINE4, d, 32, 96);
    }
    check_embed(BRIM_WEIGHT_Q8_0, BRIM_DTYPE_F16, 32, 96);
    for (int64_t n : {3, 80, 2560, 17000})
        for (bool plain : {false, true}) check_rmsnorm(n, 2, n + (n % 4 ? 1 : 4), plain);
    for (int paired : {0, 1})
        for (bool plain : {false, true}) check_swiglu(96, 2, BRIM_DTYPE_BF16, paired, plain);
    check_swiglu(13, 2, BRIM_DTYPE_F32, 0, false);
    check_add(77, BRIM_DTYPE_BF16);
    for (int dim : {24, 64, 128, 256})
        for (bool plain : {false, true}) {
            check_rotate(3, 1, dim, BRIM_DTYPE_BF16, BRIM_DTYPE_F16, true, 0, 2, plain);
            check_rotate(3, 1, dim, BRIM_DTYPE_F32, BRIM_DTYPE_F32, false, 3, 2, plain);
        }
}

static void tiny_dense(void)
{
    for (int64_t rows : {1, 3, 9})
        for (brim_dtype d : {BRIM_DTYPE_F32, BRIM_DTYPE_F16, BRIM_DTYPE_BF16}) {
            check_dense(BRIM_WEIGHT_DENSE, d, rows, 96, 48, BRIM_W4_SWIGLU);
            check_dense(BRIM_WEIGHT_DENSE, d, rows, 75, 17, BRIM_W4_STORE_BF16);
        }
    for (int64_t rows : {1, 3, 9})
        check_dense(BRIM_WEIGHT_Q8_0, BRIM_DTYPE_F16, rows, 96, 48, BRIM_W4_STORE_F32);
}

static void tiny_attention(void)
{
    struct {
        int n_head, n_head_kv, head_dim;
        brim_dtype dtype;
    } forms[] = {{8, 2, 128, BRIM_DTYPE_F16}, {9, 3, 64, BRIM_DTYPE_F16},
                 {4, 4, 64, BRIM_DTYPE_F16},  {4, 2, 24, BRIM_DTYPE_F16},
                 {4, 1, 40, BRIM_DTYPE_F32},  {3, 1, 128, BRIM_DTYPE_F32},
                 {2, 1, 256, BRIM_DTYPE_F16}};
    for (auto &f : forms) {
        attention_case c(f.n_head, f.n_head_kv, f.head_dim, f.dtype, 140);
        check_attention_rows(c, DECODE, 69, 1, 2);
        check_attention_rows(c, DECODE, 125, 8, 2);
        check_attention_rows(c, PREFILL, 0, 33, 2);
        check_attention_rows(c, PREFILL, 40, 90, 2);
        check_attention_rows(c, PLAIN, 20, 3, 2);
    }
    for (brim_dtype d : {BRIM_DTYPE_BF16, BRIM_DTYPE_F32}) {
        check_attention_rotating(8, 2, 128, d, true, 100, 1);
        check_attention_rotating(9, 3, 64, d, false, 127, 3);
    }
    /* Blocks of 128 rows: they need a multiprocessor for each. */
    attention_case many(68, 2, 64, BRIM_DTYPE_F16, 140);
    check_attention_rows(many, PREFILL, 0, 140, 2);
}

/* argv: parts, or none for all. */
static int tiny(int argc, char **argv)
{
    static const char *const names[] = {"rows", "dense", "attention"};
    void (*const parts[])(void) = {tiny_rows, tiny_dense, tiny_attention};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < argc || (i == 0 && argc == 0); i++)
            if (argc == 0 || !strcmp(argv[i], names[k])) parts[k]();
    printf("%d passed, %d failed, 0 skipped\n", n_passed, n_failed);
    return n_failed != 0;
}

int main(int argc, char **argv)
{
    is_short = argc > 1 && !strcmp(argv[1], "short");
    brim_cuda_device device;
    brim_error err = {};
    if (brim_cuda_device_get(0, &device, &err) != BRIM_OK) {
        printf("skipped: %s\n0 passed, 0 failed, 1 skipped\n", err.text);
        return 77;
    }
    if (argc > 1 && !strcmp(argv[1], "tiny")) return tiny(argc - 2, argv + 2);
    for (int64_t n : {32, 96, 2560}) {
        for (brim_dtype d : {BRIM_DTYPE_F32, BRIM_DTYPE_F16, BRIM_DTYPE_BF16}) {
            check_embed(BRIM_WEIGHT_DENSE, d, 0, n);
            check_embed(BRIM_WEIGHT_AFFINE4, d, 32, n);
        }
        check_embed(BRIM_WEIGHT_Q8_0, BRIM_DTYPE_F16, 32, n);
    }
    check_embed(BRIM_WEIGHT_AFFINE4, BRIM_DTYPE_BF16, 128, 2560);
    check_embed(BRIM_WEIGHT_AFFINE4, BRIM_DTYPE_F16, 64, 576);
    for (int64_t n : {1, 3, 64, 80, 576, 896, 2560, 2562, 4096, 16384, 17000})
        for (bool plain : {false, true}) check_rmsnorm(n, 3, n + (n % 4 ? 1 : 4), plain);
    for (int64_t n : {8, 96, 120, 1536, 9728})
        for (int paired : {0, 1})
            for (brim_dtype d : {BRIM_DTYPE_F32, BRIM_DTYPE_BF16})
                for (bool plain : {false, true}) check_swiglu(n, 3, d, paired, plain);
    check_swiglu(13, 3, BRIM_DTYPE_BF16, 0, false);
    check_add(577, BRIM_DTYPE_BF16);
    check_add(2560, BRIM_DTYPE_F32);
    check_rope_table();
    for (int dim : {8, 16, 24, 40, 64, 80, 128, 256})
        for (bool norm : {false, true})
            for (bool plain : {false, true}) {
                check_rotate(6, 2, dim, BRIM_DTYPE_BF16, BRIM_DTYPE_F16, norm, 0, 3, plain);
                check_rotate(5, 1, dim, BRIM_DTYPE_F32, BRIM_DTYPE_F32, norm, 3, 2, plain);
            }
    check_rotate(32, 8, 128, BRIM_DTYPE_BF16, BRIM_DTYPE_F16, true, 4096, 9, false);
    printf("rows: %d passed, %d failed\n", n_passed, n_failed);
    for (int64_t rows : {1, 3, 8, 9, 33, 70})
        for (brim_dtype d : {BRIM_DTYPE_F32, BRIM_DTYPE_F16, BRIM_DTYPE_BF16}) {
            check_dense(BRIM_WEIGHT_DENSE, d, rows, 576, 130, BRIM_W4_STORE_F32);
            check_dense(BRIM_WEIGHT_DENSE, d, rows, 75, 17, BRIM_W4_STORE_BF16);
            check_dense(BRIM_WEIGHT_DENSE, d, rows, 96, 48, BRIM_W4_SWIGLU);
            check_dense(BRIM_WEIGHT_DENSE, d, rows, 2560, 65, BRIM_W4_ADD_F32);
        }
    for (int64_t rows : {1, 5, 40})
        for (brim_w4_epilogue e : {BRIM_W4_STORE_F32, BRIM_W4_STORE_BF16, BRIM_W4_SWIGLU})
            check_dense(BRIM_WEIGHT_Q8_0, BRIM_DTYPE_F16, rows, 288, 96, e);
    printf("dense: %d passed, %d failed\n", n_passed, n_failed);
    check_attention(8, 2, 128, BRIM_DTYPE_F16, is_short ? 200 : 4110, !is_short);
    printf("gqa 4: %d passed, %d failed\n", n_passed, n_failed);
    check_attention(9, 3, 64, BRIM_DTYPE_F16, is_short ? 200 : 6000, !is_short);
    check_attention(4, 4, 64, BRIM_DTYPE_F16, 300, true);
    check_attention(8, 1, 128, BRIM_DTYPE_F16, 300, true);
    check_attention(16, 1, 64, BRIM_DTYPE_F16, 200, false);
    check_attention(4, 2, 24, BRIM_DTYPE_F16, 200, false);
    check_attention(4, 1, 40, BRIM_DTYPE_F32, 300, true);
    check_attention(3, 1, 128, BRIM_DTYPE_F32, 300, true);
    check_attention(2, 1, 256, BRIM_DTYPE_F16, 200, false);
    for (int64_t first : {0, 1, 15, 100, 120, 127, 128, 250, 2040, 2045, 2048})
        for (int64_t rows : {1, 3, 8})
            for (brim_dtype d : {BRIM_DTYPE_BF16, BRIM_DTYPE_F32}) {
                if (is_short && first > 1000) continue;
                check_attention_rotating(8, 2, 128, d, true, first, rows);
                check_attention_rotating(9, 3, 64, d, false, first, rows);
                check_attention_rotating(16, 8, 128, d, true, first, rows);
            }
    check_attention_nan(DECODE, 250, 8);
    check_attention_nan(DECODE, 3, 5);
    check_attention_nan(PREFILL, 60, 150);
    check_attention_bad_values(DECODE, 8, 128, BRIM_DTYPE_F16, 250, 8);
    check_attention_bad_values(DECODE, 10, 64, BRIM_DTYPE_F16, 3, 5);
    check_attention_bad_values(DECODE, 8, 64, BRIM_DTYPE_F16, 500, 1);
    check_attention_bad_values(DECODE, 4, 64, BRIM_DTYPE_F32, 40, 4);
    check_attention_bad_values(PREFILL, 4, 64, BRIM_DTYPE_F16, 60, 150);
    check_attention_bad_values(PREFILL, 2, 128, BRIM_DTYPE_F16, 0, 300);
    check_attention_bad_values(PREFILL, 4, 128, BRIM_DTYPE_F32, 30, 20);
    check_attention_bad_values(PREFILL, 4, 40, BRIM_DTYPE_F16, 30, 20);
    check_attention_bad_values(PLAIN, 4, 64, BRIM_DTYPE_F16, 60, 80);
    /* Blocks of 128 rows: they need a multiprocessor for each. */
    check_attention_bad_values(PREFILL, 68, 64, BRIM_DTYPE_F16, 100, 140);
    if (!is_short) check_attention_bad_values(PREFILL, 68, 128, BRIM_DTYPE_F16, 100, 390);
    /* The ring of two stages goes round, to whole tiles of 128 keys and to a part of one. */
    attention_case whole(2, 1, 64, BRIM_DTYPE_F16, 640), part(2, 1, 128, BRIM_DTYPE_F16, 600);
    check_attention_rows(whole, PREFILL, 560, 80, 4);
    check_attention_rows(part, PREFILL, 510, 90, 4);
    check_attention_rotating(6, 2, 24, BRIM_DTYPE_BF16, true, 30, 2);
    printf("%d passed, %d failed, 0 skipped\n", n_passed, n_failed);
    return n_failed != 0;
}
