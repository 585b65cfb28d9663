/* SPDX-License-Identifier: Apache-2.0
 * Attention of check_model.cu: decode, prefill and plain C forms against f64, rows together and one
 * by one, values that are not finite, rotation inside. */
#ifndef BRIM_TESTS_MODEL_ATTENTION_CUH
#define BRIM_TESTS_MODEL_ATTENTION_CUH

#include <algorithm>

#include "cuda/model/attn.h"
#include "model_judge.cuh"

extern "C" {
#include "tensor/rope.h"
}

enum form { DECODE, PREFILL, PLAIN };
static const char *const form_name[] = {"decode", "prefill", "plain"};

struct attention_case {
    int n_head, n_head_kv, head_dim;
    brim_dtype dtype;
    int64_t n_position;
    std::vector<float> k, v, q_all; /* as stored; q of every position */
    std::vector<uint8_t> k_bytes, v_bytes;
    device_array<uint8_t> d_k, d_v, d_q, d_work;
    device_array<int64_t> d_pos;
    size_t unit;

    attention_case(int heads, int heads_kv, int dim, brim_dtype dt, int64_t n)
        : n_head(heads), n_head_kv(heads_kv), head_dim(dim), dtype(dt), n_position(n),
          d_k((size_t)(heads_kv * n * dim) * brim_dtype_bytes(dt)), d_v(d_k.n),
          d_q((size_t)(heads * n * dim) * brim_dtype_bytes(dt)),
          d_work(std::max(brim_cuda_attention_decode_bytes(heads, heads_kv, dim),
                          brim_cuda_attention_plain_bytes(160, heads, n))),
          d_pos(1), unit(brim_dtype_bytes(dt))
    {
        brim_rng rng;
        brim_rng_seed(&rng, (uint64_t)(heads * 100 + dim + n));
        k_bytes = narrow(randoms((size_t)(heads_kv * n * dim), &rng, 1), dt);
        v_bytes = narrow(randoms((size_t)(heads_kv * n * dim), &rng, 1), dt);
        k = widen(k_bytes, dt), v = widen(v_bytes, dt);
        q_all = widen(narrow(randoms((size_t)(heads * n * dim), &rng, 1.5f), dt), dt);
        d_q.from(narrow(q_all, dt));
    }

    /* The cache with n_key positions stored, NaN behind them. */
    void store(int64_t n_key)
    {
        std::vector<uint8_t> pk = k_bytes, pv = v_bytes;
        size_t head_bytes = (size_t)(n_position * head_dim) * unit,
               kept = (size_t)(n_key * head_dim) * unit;
        for (size_t h = 0; h < (size_t)n_head_kv; h++) {
            memset(&pk[h * head_bytes] + kept, 0xFF, head_bytes - kept);
            memset(&pv[h * head_bytes] + kept, 0xFF, head_bytes - kept);
        }
        d_k.from(pk);
        d_v.from(pv);
    }

    std::vector<uint16_t> run(form f, int64_t first_pos, int64_t n_row)
    {
        int64_t stride = (int64_t)n_head * head_dim + 8;
        device_array<uint16_t> out((size_t)(n_row * stride));
        out.fill(0xFF);
        d_pos.from({first_pos});
        brim_cuda_attention_args a = {};
        a.n_row = n_row, a.n_head = n_head, a.first_pos = d_pos.ptr;
        a.q = d_q.ptr + (size_t)(first_pos * n_head * head_dim) * unit;
        a.kv = {d_k.ptr, d_v.ptr, dtype, n_head_kv, head_dim, n_position};
        a.scale = 1 / sqrtf((float)head_dim);
        a.out = out.ptr, a.out_stride = stride, a.workspace = d_work.ptr;
        a.n_key_max = std::min(n_position, first_pos + n_row + 3);
        if (f == DECODE)
            RUN(brim_cuda_attention_decode(&a, NULL, &err));
        else if (f == PREFILL)
            RUN(brim_cuda_attention_prefill(&a, NULL, &err));
        else
            RUN(brim_cuda_attention_plain(&a, NULL, &err));
        return out.to_host();
    }

    /* Decode's counters are zero, the rest of its workspace is poison. */
    void poison_workspace(form f)
    {
        d_work.fill(0xFF);
        if (f == DECODE) CHECK(cudaMemset(d_work.ptr, 0, 4096));
    }

    /* One row and head in f64; bound: what the form may differ by. */
    void reference(int64_t position, int head, std::vector<double> &out, double *bound) const
    {
        int64_t hkv = head / (n_head / n_head_kv), base = hkv * n_position * head_dim;
        const float *q = &q_all[(size_t)((position * n_head + head) * head_dim)];
        std::vector<double> s((size_t)position + 1);
        double top = -1e300, sum = 0, size = 0;
        for (int64_t j = 0; j <= position; j++) {
            double dot = 0;
            for (int d = 0; d < head_dim; d++)
                dot += (double)q[d] * (double)k[(size_t)(base + j * head_dim + d)];
            s[(size_t)j] = dot / sqrt((double)head_dim);
            top = std::max(top, s[(size_t)j]);
        }
        out.assign((size_t)head_dim, 0);
        for (int64_t j = 0; j <= position; j++) {
            double w = exp(s[(size_t)j] - top);
            sum += w;
            for (int d = 0; d < head_dim; d++)
                out[(size_t)d] += w * (double)v[(size_t)(base + j * head_dim + d)];
            size = std::max(size, w);
        }
        for (double &o : out) o /= sum;
        /* weights rounded to f16 (2^-11 of their sum of squares, by the root), scores in f32 */
        *bound = 4 * (1.0 / 2048 + 64 * U);
    }
};

static void check_attention_rows(attention_case &c, form f, int64_t first_pos, int64_t n_row,
                                 int n_look)
{
    c.store(first_pos + n_row);
    c.poison_workspace(f);
    std::vector<uint16_t> got = c.run(f, first_pos, n_row);
    int64_t stride = (int64_t)c.n_head * c.head_dim + 8;
    std::string what = std::string("attention ") + form_name[f] + " heads " +
                       std::to_string(c.n_head) + "/" + std::to_string(c.n_head_kv) + " dim " +
                       std::to_string(c.head_dim) + " " + brim_dtype_name(c.dtype) + " position " +
                       std::to_string(first_pos) + " rows " + std::to_string(n_row);
    worst_error e;
    bool whole = true;
    brim_rng rng;
    brim_rng_seed(&rng, (uint64_t)(first_pos * 31 + n_row));
    for (int i = 0; i < n_look; i++) {
        int64_t row = i == 0   ? 0
                      : i == 1 ? n_row - 1
                               : (int64_t)(brim_rng_u32(&rng) % (uint32_t)n_row);
        int head = (int)(brim_rng_u32(&rng) % (uint32_t)c.n_head);
        std::vector<double> want;
        double bound;
        c.reference(first_pos + row, head, want, &bound);
        for (int d = 0; d < c.head_dim; d++) {
            size_t at = (size_t)(row * stride + head * c.head_dim + d);
            e.see((double)brim_f32_from_bf16(got[at]), want[(size_t)d],
                  fabs(want[(size_t)d]) * BF16 / 2 + bound, at);
        }
    }
    for (int64_t row = 0; row < n_row; row++)
        for (int64_t i = 0; i < stride; i++) {
            uint16_t v = got[(size_t)(row * stride + i)];
            whole &= i < stride - 8 ? !isnan(brim_f32_from_bf16(v)) : v == 0xFFFF;
        }
    expect(e.ratio <= 1, what + e.text());
    expect(whole, what + ": every result is a number, nothing else is written");
    expect(got == c.run(f, first_pos, n_row), what + ": the same bits again");
}

/* Each row alone, or in other pieces, has the bits it has among its neighbours. */
static void check_attention_pieces(attention_case &c, form f, int64_t first_pos, int64_t n_row,
                                   int64_t piece)
{
    c.store(first_pos + n_row);
    c.poison_workspace(f);
    std::vector<uint16_t> got = c.run(f, first_pos, n_row);
    bool same = true;
    size_t stride = (size_t)c.n_head * (size_t)c.head_dim + 8;
    for (int64_t row = 0; row < n_row; row += piece) {
        int64_t n = std::min(piece, n_row - row);
        std::vector<uint16_t> alone = c.run(f, first_pos + row, n);
        same &=
            std::equal(alone.begin(), alone.end(), got.begin() + (int64_t)((size_t)row * stride));
    }
    expect(same, std::string("attention ") + form_name[f] + " dim " + std::to_string(c.head_dim) +
                     " position " + std::to_string(first_pos) + ": pieces of " +
                     std::to_string(piece) + " have the bits of the whole");
}

/* Decode, prefill and plain of the same row lie within twice the bound of each other. */
static void check_attention_forms(attention_case &c, int64_t first_pos, int64_t n_row)
{
    c.store(first_pos + n_row);
    c.poison_workspace(DECODE);
    std::vector<uint16_t> a = c.run(DECODE, first_pos, n_row), b = c.run(PREFILL, first_pos, n_row),
                          p = c.run(PLAIN, first_pos, n_row);
    worst_error e;
    size_t stride = (size_t)c.n_head * (size_t)c.head_dim + 8;
    for (size_t i = 0; i < a.size(); i++) {
        if (i % stride >= stride - 8) continue;
        double x = (double)brim_f32_from_bf16(a[i]), y = (double)brim_f32_from_bf16(b[i]),
               z = (double)brim_f32_from_bf16(p[i]);
        double bound = fabs(x) * BF16 + 8 * (1.0 / 2048 + 64 * U);
        e.see(y, x, bound, i);
        e.see(z, x, bound, i);
    }
    expect(e.ratio <= 1,
           "attention: decode, prefill and plain agree at " + std::to_string(first_pos) + e.text());
}

/* A NaN in one query makes that row's head NaN and changes no other; a NaN among the keys reaches
 * the rows that see it, through the heads that share it. */
static void check_attention_nan(form f, int64_t first_pos, int64_t n_row)
{
    attention_case c(8, 2, 64, BRIM_DTYPE_F16, 400);
    c.store(first_pos + n_row);
    c.poison_workspace(f);
    std::vector<uint16_t> clean = c.run(f, first_pos, n_row);
    size_t stride = 8 * 64 + 8, bad_row = (size_t)n_row / 2, bad_head = 5;
    const uint16_t nan = 0x7E00;
    size_t at = (((size_t)first_pos + bad_row) * 8 + bad_head) * 64 + 17;
    CHECK(cudaMemcpy(c.d_q.ptr + 2 * at, &nan, 2, cudaMemcpyHostToDevice));
    std::vector<uint16_t> got = c.run(f, first_pos, n_row);
    bool ok = true;
    for (size_t i = 0; i < got.size(); i++) {
        bool bad = i / stride == bad_row && i % stride / 64 == bad_head;
        ok &= bad ? isnan(brim_f32_from_bf16(got[i])) : got[i] == clean[i];
    }
    expect(ok, std::string("attention ") + form_name[f] + ": a NaN in a query stays in its row");
    c.d_q.from(narrow(c.q_all, BRIM_DTYPE_F16));
    size_t key = (size_t)first_pos + bad_row; /* of key head 1: query heads 4..7 */
    CHECK(cudaMemcpy(c.d_k.ptr + 2 * ((400 + key) * 64 + 3), &nan, 2, cudaMemcpyHostToDevice));
    got = c.run(f, first_pos, n_row);
    ok = true;
    for (size_t i = 0; i < got.size(); i++) {
        size_t head = i % stride / 64;
        bool bad = i / stride >= bad_row && head >= 4 && head < 8;
        ok &= bad ? isnan(brim_f32_from_bf16(got[i])) : got[i] == clean[i];
    }
    expect(ok,
           std::string("attention ") + form_name[f] + ": a NaN in a key reaches those who see it");
}

/* NaN and infinities among the values of one position, in three dimensions: they are in those
 * dimensions of the rows that see it, and every other result keeps its bits. */
static void check_attention_bad_values(form f, int n_head, int head_dim, brim_dtype dtype,
                                       int64_t first_pos, int64_t n_row)
{
    const float bad[3] = {NAN, INFINITY, -INFINITY};
    const int dims[3] = {5, 22, head_dim - 1};
    attention_case c(n_head, 2, head_dim, dtype, first_pos + n_row + 9);
    c.store(first_pos + n_row);
    c.poison_workspace(f);
    std::vector<uint16_t> clean = c.run(f, first_pos, n_row);
    size_t stride = (size_t)n_head * (size_t)head_dim + 8, gqa = (size_t)n_head / 2;
    size_t bad_rows[] = {0, (size_t)n_row / 2, (size_t)n_row - 1};
    for (size_t bad_row : bad_rows) {
        c.store(first_pos + n_row);
        for (int i = 0; i < 3; i++) { /* of key head 1 */
            std::vector<uint8_t> v = narrow({bad[i]}, dtype);
            size_t at = (size_t)(c.n_position + first_pos) + bad_row;
            CHECK(cudaMemcpy(c.d_v.ptr + c.unit * (at * (size_t)head_dim + (size_t)dims[i]), &v[0],
                             c.unit, cudaMemcpyHostToDevice));
        }
        std::vector<uint16_t> got = c.run(f, first_pos, n_row);
        size_t n_wrong = 0;
        for (size_t i = 0; i < got.size(); i++) {
            size_t head = i % stride / (size_t)head_dim;
            int d = (int)(i % stride % (size_t)head_dim);
            bool seen = i / stride >= bad_row && head >= gqa && head < 2 * gqa;
            bool hit = seen && (d == dims[0] || d == dims[1] || d == dims[2]);
            n_wrong += hit ? isfinite(brim_f32_from_bf16(got[i])) : got[i] != clean[i];
        }
        expect(n_wrong == 0, std::string("attention ") + form_name[f] + " heads " +
                                 std::to_string(n_head) + " dim " + std::to_string(head_dim) + " " +
                                 brim_dtype_name(dtype) + " position " + std::to_string(first_pos) +
                                 ": NaN in the values of row " + std::to_string(bad_row) + " of " +
                                 std::to_string(n_row) + ": " + std::to_string(n_wrong) +
                                 " results are not what they should be");
    }
}

/* Decode that rotates on the way has the bits of rotation, then decode: results and cache. */
static void check_attention_rotating(int n_head, int n_head_kv, int head_dim, brim_dtype in_dtype,
                                     bool norm, int64_t first_pos, int64_t n_row)
{
    brim_rng rng;
    brim_rng_seed(&rng, (uint64_t)(first_pos * 3 + n_row + head_dim));
    int64_t n_position = first_pos + n_row + 5,
            stride = (int64_t)(n_head + 2 * n_head_kv) * head_dim;
    size_t n_kv = (size_t)(n_head_kv * n_position * head_dim);
    std::vector<uint8_t> cache = narrow(randoms(2 * n_kv, &rng, 1), BRIM_DTYPE_F16);
    for (int64_t i = 0; i < 2 * n_head_kv; i++)
        memset(&cache[(size_t)((i * n_position + first_pos) * head_dim * 2)], 0xFF,
               (size_t)((n_position - first_pos) * head_dim * 2));
    device_array<uint8_t> qkv(narrow(randoms((size_t)(n_row * stride), &rng, 2), in_dtype));
    device_array<uint8_t> work(brim_cuda_attention_decode_bytes(n_head, n_head_kv, head_dim));
    device_array<float> table(randoms((size_t)(n_position * head_dim), &rng, 1));
    device_array<float> qn(randoms((size_t)head_dim, &rng, 1)),
        kn(randoms((size_t)head_dim, &rng, 1));
    device_array<uint16_t> q((size_t)(n_row * n_head * head_dim));
    device_array<int64_t> pos(std::vector<int64_t>{first_pos});
    std::vector<uint16_t> out[2];
    std::vector<uint8_t> after[2];
    for (int fused = 0; fused < 2; fused++) {
        device_array<uint8_t> kv(cache);
        device_array<uint16_t> y((size_t)(n_row * n_head * head_dim));
        y.fill(0xFF), q.fill(0xFF), work.fill(0);
        brim_cuda_rotate_args r = {};
        r.n_row = n_row, r.n_head = n_head, r.qkv = qkv.ptr, r.qkv_dtype = in_dtype;
        r.qkv_stride = stride, r.eps = 1e-6f, r.rope_table = table.ptr, r.first_pos = pos.ptr;
        if (norm) r.q_norm = qn.ptr, r.k_norm = kn.ptr;
        r.kv = {kv.ptr, kv.ptr + n_kv * 2, BRIM_DTYPE_F16, n_head_kv, head_dim, n_position};
        r.q = q.ptr;
        brim_cuda_attention_args a = {};
        a.n_row = n_row, a.n_head = n_head, a.q = q.ptr, a.first_pos = pos.ptr, a.kv = r.kv;
        a.scale = 1 / sqrtf((float)head_dim), a.out = y.ptr, a.out_stride = n_head * head_dim;
        a.workspace = work.ptr, a.n_key_max = n_position;
        if (fused)
            a.rotate = &r;
        else
            RUN(brim_cuda_rotate(&r, NULL, &err));
        RUN(brim_cuda_attention_decode(&a, NULL, &err));
        out[fused] = y.to_host(), after[fused] = kv.to_host();
    }
    expect(out[0] == out[1] && after[0] == after[1],
           "attention with rotation: dim " + std::to_string(head_dim) + " position " +
               std::to_string(first_pos) + " rows " + std::to_string(n_row) +
               (after[0] == after[1] ? ": results" : ": cache"));
}

static void check_attention(int n_head, int n_head_kv, int head_dim, brim_dtype dtype,
                            int64_t n_position, bool full)
{
    attention_case c(n_head, n_head_kv, head_dim, dtype, n_position);
    std::vector<int64_t> edges = {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129};
    if (full)
        for (int64_t n : {255, 256, 257, 2047, 2048, 2049, 4095, 4096, 4097}) edges.push_back(n);
    for (int64_t n_key : edges) {
        if (n_key > n_position) break;
        int64_t rows = std::min(n_key, (int64_t)(1 + n_key % 8));
        check_attention_rows(c, DECODE, n_key - 1, 1, 4);
        check_attention_rows(c, DECODE, n_key - rows, rows, 4);
        check_attention_rows(c, PREFILL, 0, n_key, 6);
        if (n_key > 100) check_attention_rows(c, PREFILL, n_key - 90, 90, 6);
        if (n_key < 300) check_attention_rows(c, PLAIN, n_key - rows, rows, 4);
    }
    int64_t most = std::min(n_position, (int64_t)150);
    check_attention_pieces(c, PREFILL, 0, most, 47);
    check_attention_pieces(c, PREFILL, 5, most - 5, 130);
    check_attention_pieces(c, DECODE, std::min((int64_t)56, n_position - 8), 8, 1);
    check_attention_forms(c, std::min((int64_t)120, n_position - 8), 8);
    if (n_position >= 4100) {
        check_attention_pieces(c, PREFILL, 3900, 180, 77);
        /* where the split's length changes between two rows of a tile */
        int64_t edge = (int64_t)attn_n_split(n_head_kv) * ATTN_STEP_KEYS;
        for (int64_t first : {edge - 8, edge - 5, edge - 1, edge})
            if (first + 8 <= n_position) {
                check_attention_rows(c, DECODE, first, 8, 6);
                check_attention_pieces(c, DECODE, first, 8, 1);
            }
        check_attention_forms(c, 4000, 8);
    }
}

#endif
