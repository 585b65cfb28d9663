/* SPDX-License-Identifier: Apache-2.0
 * The unfused forms of the ladder's first levels: every step its own kernel, results between them
 * in memory as f32, attention with all scores in memory. Nothing here is tuned; it is what the
 * fused kernels are measured against, and an independent check of them. */
#include "cuda/model/attn.cuh"

namespace
{

/* ---- norm, SwiGLU ---------------------------------------------------------------------------- */

__global__ void __launch_bounds__(256) square_sum(brim_cuda_rmsnorm_args a)
{
    __shared__ float part[32];
    const float *x = a.x + (int64_t)blockIdx.x * a.x_stride;
    float sum = 0;
    for (int64_t i = threadIdx.x; i < a.n; i += 256) sum += x[i] * x[i];
    sum = block_sum(sum, part);
    if (threadIdx.x == 0) a.workspace[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(128) scale_row(brim_cuda_rmsnorm_args a)
{
    int64_t row = blockIdx.y, i = (int64_t)blockIdx.x * 128 + threadIdx.x;
    if (i >= a.n) return;
    float inv = 1.0f / sqrtf(a.workspace[row] / (float)a.n + a.eps);
    store_f32(a.y, BRIM_DTYPE_BF16, row * a.y_stride + i,
              a.x[row * a.x_stride + i] * inv * a.weight[i]);
}

BRIM_DEVICE int64_t half_at(const brim_cuda_swiglu_args &a, int64_t row, int64_t i, int up)
{
    int64_t in_row = a.paired ? i / 8 * 16 + up * 8 + i % 8 : i + up * a.n_ff;
    return row * a.gate_up_stride + in_row;
}

__global__ void __launch_bounds__(128) silu(brim_cuda_swiglu_args a)
{
    int64_t row = blockIdx.y, i = (int64_t)blockIdx.x * 128 + threadIdx.x;
    if (i >= a.n_ff) return;
    float gate = load_f32(a.gate_up, a.gate_up_dtype, half_at(a, row, i, 0));
    a.workspace[row * a.n_ff + i] = gate / (1.0f + expf(-gate));
}

__global__ void __launch_bounds__(128) times_up(brim_cuda_swiglu_args a)
{
    int64_t row = blockIdx.y, i = (int64_t)blockIdx.x * 128 + threadIdx.x;
    if (i >= a.n_ff) return;
    float up = load_f32(a.gate_up, a.gate_up_dtype, half_at(a, row, i, 1));
    store_f32(a.y, BRIM_DTYPE_BF16, row * a.y_stride + i, a.workspace[row * a.n_ff + i] * up);
}

/* ---- rotation -------------------------------------------------------------------------------- */

/* n_head heads from head `head0` of the projection; normed: their place in the workspace. */
struct heads_params {
    brim_cuda_rotate_args a;
    int head0, n_head, is_q;
    const float *norm;
    float *normed;
    int64_t normed_stride;
};

__global__ void __launch_bounds__(32) norm_head(heads_params p)
{
    int64_t row = blockIdx.y, head_dim = p.a.kv.head_dim;
    int64_t in = row * p.a.qkv_stride + (p.head0 + (int64_t)blockIdx.x) * head_dim;
    float *out = p.normed + row * p.normed_stride + blockIdx.x * head_dim;
    float sum = 0;
    for (int64_t i = threadIdx.x; i < head_dim; i += 32) {
        float x = load_f32(p.a.qkv, p.a.qkv_dtype, in + i);
        sum += x * x;
    }
    float inv = 1.0f / sqrtf(warp_sum(sum) / (float)head_dim + p.a.eps);
    for (int64_t i = threadIdx.x; i < head_dim; i += 32)
        out[i] = load_f32(p.a.qkv, p.a.qkv_dtype, in + i) * inv * p.norm[i];
}

__global__ void __launch_bounds__(128) turn_head(heads_params p)
{
    int64_t row = blockIdx.y, head_dim = p.a.kv.head_dim, half = head_dim / 2;
    int64_t at = (int64_t)blockIdx.x * 128 + threadIdx.x, head = at / half, i = at % half;
    int64_t position = *p.a.first_pos + row;
    if (head >= p.n_head || position < 0 || position >= p.a.kv.n_position) return;
    float low, high;
    if (p.norm) {
        const float *in = p.normed + row * p.normed_stride + head * head_dim;
        low = in[i], high = in[half + i];
    } else {
        int64_t in = row * p.a.qkv_stride + (p.head0 + head) * head_dim;
        low = load_f32(p.a.qkv, p.a.qkv_dtype, in + i);
        high = load_f32(p.a.qkv, p.a.qkv_dtype, in + half + i);
    }
    float c = p.a.rope_table[position * head_dim + i];
    float s = p.a.rope_table[position * head_dim + half + i];
    void *out = p.is_q ? p.a.q : p.a.kv.k;
    int64_t to = p.is_q ? (row * p.n_head + head) * head_dim
                        : (head * p.a.kv.n_position + position) * head_dim;
    store_f32(out, p.a.kv.dtype, to + i, low * c - high * s);
    store_f32(out, p.a.kv.dtype, to + half + i, high * c + low * s);
}

__global__ void __launch_bounds__(128) copy_values(heads_params p)
{
    int64_t row = blockIdx.y, head_dim = p.a.kv.head_dim;
    int64_t at = (int64_t)blockIdx.x * 128 + threadIdx.x, head = at / head_dim, i = at % head_dim;
    int64_t position = *p.a.first_pos + row;
    if (head >= p.n_head || position < 0 || position >= p.a.kv.n_position) return;
    store_f32(
        p.a.kv.v, p.a.kv.dtype, (head * p.a.kv.n_position + position) * head_dim + i,
        load_f32(p.a.qkv, p.a.qkv_dtype, row * p.a.qkv_stride + (p.head0 + head) * head_dim + i));
}

/* ---- attention ------------------------------------------------------------------------------- */

enum { TILE = 64, DEPTH = 16 };

/* One 64 x 64 tile of c[m][n] = sum over k of a[m][k] b[n][k]; a thread has 4 x 4 results.
 * get_a(m, k), get_b(n, k), put(m, n, value): zero outside is their business. */
template <typename A, typename B, typename C>
BRIM_DEVICE void tile_product(int n_k, const A &get_a, const B &get_b, const C &put)
{
    __shared__ float s_a[DEPTH][TILE + 1], s_b[DEPTH][TILE + 1];
    int t = threadIdx.x, m0 = t / 16 * 4, n0 = t % 16 * 4;
    float c[4][4] = {};
    for (int k0 = 0; k0 < n_k; k0 += DEPTH) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE * DEPTH / 256; i++) {
            int at = i * 256 + t;
            s_a[at % DEPTH][at / DEPTH] = get_a(at / DEPTH, k0 + at % DEPTH);
            s_b[at % DEPTH][at / DEPTH] = get_b(at / DEPTH, k0 + at % DEPTH);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    c[i][j] = __fmaf_rn(s_a[k][m0 + i], s_b[k][n0 + j], c[i][j]);
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) put(m0 + i, n0 + j, c[i][j]);
}

BRIM_DEVICE float *score_row(const brim_cuda_attention_args &a, int head, int64_t row)
{
    return (float *)a.workspace + (head * a.n_row + row) * a.n_key_max;
}

/* Scores of 64 rows and 64 keys; keys a row does not see are written too, and not read. */
__global__ void __launch_bounds__(256) attention_scores(brim_cuda_attention_args a)
{
    int head = blockIdx.z, head_kv = head / (a.n_head / a.kv.n_head_kv), head_dim = a.kv.head_dim;
    int64_t row0 = (int64_t)blockIdx.y * TILE, key0 = (int64_t)blockIdx.x * TILE;
    int64_t n_key = *a.first_pos + a.n_row;
    if (n_key > a.n_key_max || key0 >= n_key) return;
    int64_t keys = (int64_t)head_kv * a.kv.n_position;
    tile_product(
        head_dim,
        [&](int m, int k) {
            bool ok = row0 + m < a.n_row && k < head_dim;
            return ok ? load_f32(a.q, a.kv.dtype, ((row0 + m) * a.n_head + head) * head_dim + k)
                      : 0.0f;
        },
        [&](int n, int k) {
            bool ok = key0 + n < n_key && k < head_dim;
            return ok ? load_f32(a.kv.k, a.kv.dtype, (keys + key0 + n) * head_dim + k) : 0.0f;
        },
        [&](int m, int n, float c) {
            if (row0 + m < a.n_row && key0 + n < n_key)
                score_row(a, head, row0 + m)[key0 + n] = c * a.scale;
        });
}

/* Weights in place; 0 for what the row does not see. */
__global__ void __launch_bounds__(256) attention_softmax(brim_cuda_attention_args a)
{
    __shared__ float part[32], s_top[8];
    int64_t row = blockIdx.y, n_all = *a.first_pos + a.n_row, n_key = *a.first_pos + row + 1;
    if (n_all > a.n_key_max) return;
    float *s = score_row(a, blockIdx.x, row), top = -CUDART_INF_F, sum = 0;
    for (int64_t i = threadIdx.x; i < n_key; i += 256) top = fmaxf(top, s[i]);
    top = warp_max(top);
    if (threadIdx.x % 32 == 0) s_top[threadIdx.x / 32] = top;
    __syncthreads();
    for (int i = 0; i < 8; i++) top = fmaxf(top, s_top[i]);
    for (int64_t i = threadIdx.x; i < n_all; i += 256) {
        float w = i < n_key ? expf(s[i] - attn_base(top)) : 0.0f;
        s[i] = w;
        sum += w;
    }
    float inv = 1.0f / block_sum(sum, part);
    for (int64_t i = threadIdx.x; i < n_key; i += 256) s[i] *= inv;
}

__global__ void __launch_bounds__(256) attention_values(brim_cuda_attention_args a)
{
    int head = blockIdx.z, head_kv = head / (a.n_head / a.kv.n_head_kv), head_dim = a.kv.head_dim;
    int64_t row0 = (int64_t)blockIdx.y * TILE, d0 = (int64_t)blockIdx.x * TILE;
    int64_t first_pos = *a.first_pos, n_all = first_pos + a.n_row;
    if (n_all > a.n_key_max) return;
    int64_t n_key = first_pos + row0 + TILE < n_all ? first_pos + row0 + TILE : n_all;
    int64_t values = (int64_t)head_kv * a.kv.n_position;
    tile_product(
        (int)n_key,
        [&](int m, int k) {
            return row0 + m < a.n_row && k < n_key ? score_row(a, head, row0 + m)[k] : 0.0f;
        },
        [&](int n, int k) {
            bool ok = d0 + n < head_dim && k < n_key;
            return ok ? load_f32(a.kv.v, a.kv.dtype, (values + k) * head_dim + d0 + n) : 0.0f;
        },
        [&](int m, int n, float c) {
            if (row0 + m >= a.n_row || d0 + n >= head_dim) return;
            if (!(fabsf(c) < CUDART_INF_F)) { /* perhaps by 0 times a value this row does not see */
                c = 0;
                for (int64_t k = 0; k <= first_pos + row0 + m; k++)
                    c = __fmaf_rn(score_row(a, head, row0 + m)[k],
                                  load_f32(a.kv.v, a.kv.dtype, (values + k) * head_dim + d0 + n),
                                  c);
            }
            store_f32(a.out, BRIM_DTYPE_BF16, (row0 + m) * a.out_stride + head * head_dim + d0 + n,
                      c);
        });
}

brim_launch_shape grid_shape(int64_t x, int64_t y, int64_t z, int n_thread)
{
    brim_launch_shape shape = {};
    shape.grid = dim3((unsigned)x, (unsigned)y, (unsigned)z);
    shape.block = dim3((unsigned)n_thread);
    return shape;
}

brim_status check_rows(int64_t n_row, brim_error *err)
{
    BRIM_REQUIRE(err, n_row >= 0 && n_row <= BRIM_GRID_Y_MAX, BRIM_E_RANGE,
                 "%lld rows in one step, at most %d", (long long)n_row, BRIM_GRID_Y_MAX);
    return BRIM_OK;
}

} // namespace

extern "C" brim_status brim_cuda_rmsnorm_plain(const struct brim_cuda_rmsnorm_args *args,
                                               void *stream, brim_error *err)
{
    BRIM_TRY(check_rows(args->n_row, err));
    cudaStream_t s = (cudaStream_t)stream;
    BRIM_TRY(BRIM_LAUNCH(square_sum, grid_shape(args->n_row, 1, 1, 256), s, *args, err));
    return BRIM_LAUNCH(scale_row, elementwise_shape(args->n_row, args->n, 1, false), s, *args, err);
}

extern "C" brim_status brim_cuda_swiglu_plain(const struct brim_cuda_swiglu_args *args,
                                              void *stream, brim_error *err)
{
    BRIM_TRY(check_rows(args->n_row, err));
    brim_launch_shape shape = elementwise_shape(args->n_row, args->n_ff, 1, false);
    BRIM_TRY(BRIM_LAUNCH(silu, shape, (cudaStream_t)stream, *args, err));
    return BRIM_LAUNCH(times_up, shape, (cudaStream_t)stream, *args, err);
}

extern "C" brim_status brim_cuda_rotate_plain(const struct brim_cuda_rotate_args *args,
                                              void *stream, brim_error *err)
{
    BRIM_TRY(check_rows(args->n_row, err));
    cudaStream_t s = (cudaStream_t)stream;
    int n_head = args->n_head, n_head_kv = args->kv.n_head_kv, head_dim = args->kv.head_dim;
    int64_t stride = (int64_t)(n_head + n_head_kv) * head_dim;
    heads_params q = {*args, 0, n_head, 1, args->q_norm, args->workspace, stride};
    heads_params k = {
        *args, n_head,       n_head_kv,
        0,     args->k_norm, args->workspace ? args->workspace + (int64_t)n_head * head_dim : NULL,
        stride};
    heads_params v = {*args, n_head + n_head_kv, n_head_kv, 0, NULL, NULL, 0};
    if (args->q_norm) {
        BRIM_TRY(BRIM_LAUNCH(norm_head, grid_shape(n_head, args->n_row, 1, 32), s, q, err));
        BRIM_TRY(BRIM_LAUNCH(norm_head, grid_shape(n_head_kv, args->n_row, 1, 32), s, k, err));
    }
    int64_t n_pair = head_dim / 2;
    BRIM_TRY(BRIM_LAUNCH(turn_head, elementwise_shape(args->n_row, n_head * n_pair, 1, false), s, q,
                         err));
    BRIM_TRY(BRIM_LAUNCH(turn_head, elementwise_shape(args->n_row, n_head_kv * n_pair, 1, false), s,
                         k, err));
    return BRIM_LAUNCH(copy_values,
                       elementwise_shape(args->n_row, (int64_t)n_head_kv * head_dim, 1, false), s,
                       v, err);
}

extern "C" size_t brim_cuda_attention_plain_bytes(int64_t n_row, int n_head, int64_t n_key_max)
{
    return (size_t)n_row * (size_t)n_head * (size_t)n_key_max * sizeof(float);
}

extern "C" brim_status brim_cuda_attention_plain(const struct brim_cuda_attention_args *args,
                                                 void *stream, brim_error *err)
{
    BRIM_TRY(brim_cuda_attn_check(args, err));
    BRIM_REQUIRE(err, args->n_key_max >= 1 && args->n_key_max <= args->kv.n_position, BRIM_E_RANGE,
                 "attention: n_key_max %lld is not 1..%lld", (long long)args->n_key_max,
                 (long long)args->kv.n_position);
    if (args->n_row == 0) return BRIM_OK;
    cudaStream_t s = (cudaStream_t)stream;
    int64_t n_tile = (args->n_row + TILE - 1) / TILE;
    int64_t key_tiles = (args->n_key_max + TILE - 1) / TILE;
    BRIM_TRY(BRIM_LAUNCH(attention_scores, grid_shape(key_tiles, n_tile, args->n_head, 256), s,
                         *args, err));
    BRIM_TRY(BRIM_LAUNCH(attention_softmax, grid_shape(args->n_head, args->n_row, 1, 256), s, *args,
                         err));
    return BRIM_LAUNCH(attention_values,
                       grid_shape((args->kv.head_dim + TILE - 1) / TILE, n_tile, args->n_head, 256),
                       s, *args, err);
}
