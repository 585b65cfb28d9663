/* SPDX-License-Identifier: Apache-2.0
 * Decode attention: few query rows, a long cache in f16, head_dim 64 or 128.
 *
 * Grid: split x key head x tile. A tile is the heads of one group for one or more tokens, at most
 * 16 rows of an m16n8k16 product. Block of 8 warps; every step of 128 keys warp w takes 16 of them
 * through its own ring of shared memory (no block barrier in the loop), multiplies them with all
 * rows, and keeps its own online softmax. Then the warps are merged in order, and if the row has
 * more than one split the block that arrives last merges those in order.
 * Where a row's keys are cut follows from its own position (attn.h). Rows of one tile that are cut
 * differently are done in two passes. Keys no row may see are never read; their places hold zero.
 * Keys of earlier steps are requested before the predecessor has ended; it may write q and the
 * cache at first_pos and beyond, nothing else. */
#include "cuda/model/attn.cuh"
#include "cuda/model/rotate.cuh"
#include "cuda/ptx/mma.cuh"

/* Outside the namespace: the emulator gives it storage by this name. */
extern __shared__ __align__(128) uint8_t smem[];

namespace
{

enum { N_WARP = ATTN_DECODE_WARPS, N_THREAD = N_WARP * 32, N_STAGE = 2 };

/* What q and the new keys and values are made of. */
enum source { SOURCE_READY, SOURCE_BF16, SOURCE_F32 };

struct decode_params {
    brim_cuda_attention_args a;
    brim_cuda_rotate_args r; /* unless SOURCE_READY */
    int n_split;
    uint32_t *arrived; /* [n_tile][n_head_kv] */
    float *parts;      /* [n_tile][n_head_kv][n_split][part_floats]: largest, sum, then results */
};

template <int head_dim> struct layout {
    enum {
        PIECES = head_dim / 8, /* of 16 bytes in a row */
        ROW_BYTES = head_dim * 2,
        HALF_SLOT = ATTN_WARP_KEYS * ROW_BYTES, /* keys, or values, of a warp's step */
        SLOT = 2 * HALF_SLOT,
        SMEM_BYTES = N_STAGE * N_WARP * SLOT,
        PART_FLOATS = ATTN_TILE_ROWS * (head_dim + 2),
        FRESH_STRIDE = head_dim + 8 /* f16 elements: fragment loads without bank conflicts */
    };
};

/* A row of the tile: token and head; position -1 when there is none. */
struct tile_rows {
    int position0; /* of the tile's first token */
    int n_token, gqa;
};

BRIM_DEVICE int row_position(const tile_rows &t, int row)
{
    return row < t.n_token * t.gqa ? t.position0 + row / t.gqa : -1;
}

/* Request keys and values key0..key0 + 15 of those in [begin, end). With `fill` what lies at or
 * behind `end` becomes zero. */
template <int head_dim>
BRIM_DEVICE void load_keys(const brim_cuda_kv &kv, int64_t head_at, uint32_t slot, int key0,
                           int begin, int end, bool fill)
{
    typedef layout<head_dim> L;
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < ATTN_WARP_KEYS * L::PIECES / 32; i++) {
        int row = (i * 32 + lane) / L::PIECES, piece = (i * 32 + lane) % L::PIECES;
        int key = key0 + row;
        bool inside = key < end;
        if (key < begin || (!inside && !fill)) continue;
        int64_t at = head_at + (int64_t)(inside ? key : 0) * head_dim + piece * 8;
        uint32_t to = slot + attn_piece_at(row, piece, L::ROW_BYTES);
        cp_async_16(to, (const uint16_t *)kv.k + at, inside);
        cp_async_16(to + L::HALF_SLOT, (const uint16_t *)kv.v + at, inside);
    }
}

/* One warp's running state: rows lane / 4 and lane / 4 + 8. sum is of this lane's columns. */
template <int head_dim> struct warp_state {
    float acc[head_dim / 8][4];
    float largest[2], sum[2];
};

/* Values of 8 dimensions for a product, by this lane: keys lane % 4 * 2 + {0, 1}, the same + 8. */
template <int head_dim> BRIM_DEVICE void load_values(uint32_t (&b)[4], uint32_t slot, int d)
{
    typedef layout<head_dim> L;
    int lane = threadIdx.x % 32;
    ldmatrix_x4_trans(b, slot + L::HALF_SLOT +
                             attn_piece_at(lane % 16, d * 2 + lane / 16, L::ROW_BYTES));
}

/* The same with zero for NaN and infinity among keys behind `last`, counted from the slot's first.
 */
template <int head_dim>
BRIM_DEVICE void load_values_until(uint32_t (&b)[4], uint32_t slot, int d, int last)
{
    int key = threadIdx.x % 4 * 2;
    load_values<head_dim>(b, slot, d);
#pragma unroll
    for (int i = 0; i < 4; i++)
        b[i] = attn_finite(b[i], key + i % 2 * 8 > last, key + i % 2 * 8 + 1 > last);
}

/* Whether a value behind `last`, counted from the slot's first key, is NaN or infinite. */
template <int head_dim> BRIM_DEVICE bool hides_not_finite(uint32_t slot, int last)
{
    int key = threadIdx.x % 4 * 2;
    uint32_t bad[2] = {0, 0};
#pragma unroll
    for (int d = 0; d < head_dim / 16; d++) {
        uint32_t b[4];
        load_values<head_dim>(b, slot, d);
        bad[0] |= attn_not_finite(b[0]) | attn_not_finite(b[2]);
        bad[1] |= attn_not_finite(b[1]) | attn_not_finite(b[3]);
    }
    uint32_t looked[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        looked[i] = (key + 8 * i > last ? 0x8000u : 0) | (key + 8 * i + 1 > last ? 0x80000000u : 0);
    return __any_sync(0xFFFFFFFFu, ((bad[0] & looked[0]) | (bad[1] & looked[1])) != 0);
}

/* acc += p v where the tile's tokens see different keys of the slot and one that some do not see
 * has a value of NaN or infinity: a weight of zero does not hide it. The product is made for each
 * token without what it does not see, with the bits it has otherwise. first: the last key, from the
 * slot's first, that the tile's first token sees. */
template <int head_dim>
BRIM_DEVICE void multiply_seen(warp_state<head_dim> &w, const uint32_t (&p)[4], uint32_t slot,
                               int first, const tile_rows &rows)
{
    int row = threadIdx.x % 32 / 4;
#pragma unroll 1
    for (int token = 0; token < rows.n_token; token++) {
        bool take[2] = {row / rows.gqa == token, (row + 8) / rows.gqa == token};
        uint32_t b[4];
#pragma unroll
        for (int d = 0; d < head_dim / 8; d++) {
            if (d % 2 == 0) load_values_until<head_dim>(b, slot, d / 2, first + token);
            float sum[4] = {w.acc[d][0], w.acc[d][1], w.acc[d][2], w.acc[d][3]};
            mma_f16_16816(sum, p, b[d % 2 * 2], b[d % 2 * 2 + 1]);
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (take[e / 2]) w.acc[d][e] = sum[e];
        }
    }
}

/* 16 keys. limit[h]: the last key that row lane / 4 + 8 h sees. several: tiles may have more than
 * one token. */
template <int head_dim, bool several>
BRIM_DEVICE void attend(warp_state<head_dim> &w, const uint32_t (&q)[head_dim / 16][4],
                        uint32_t slot, int key0, const int (&limit)[2], float scale,
                        const tile_rows &rows)
{
    typedef layout<head_dim> L;
    int lane = threadIdx.x % 32;
    float s[2][4] = {};
#pragma unroll
    for (int k = 0; k < head_dim / 32; k++) {
#pragma unroll
        for (int t = 0; t < 2; t++) {
            uint32_t b[4];
            ldmatrix_x4(b, slot + attn_piece_at(t * 8 + lane % 8, k * 4 + lane / 8, L::ROW_BYTES));
            mma_f16_16816(s[t], q[2 * k], b[0], b[1]);
            mma_f16_16816(s[t], q[2 * k + 1], b[2], b[3]);
        }
    }
    uint32_t p[4];
    float weight[2][4];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float largest = w.largest[h];
#pragma unroll
        for (int t = 0; t < 2; t++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int key = key0 + t * 8 + lane % 4 * 2 + e;
                float x = key <= limit[h] ? s[t][2 * h + e] * scale : -CUDART_INF_F;
                weight[h][2 * t + e] = x;
                largest = fmaxf(largest, x);
            }
        largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 2));
        float keep = attn_keep(w.largest[h], largest), base = attn_base(largest);
        w.largest[h] = largest;
        w.sum[h] *= keep;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            weight[h][j] = ex2_approx(weight[h][j] - base);
            w.sum[h] += weight[h][j];
        }
#pragma unroll
        for (int d = 0; d < head_dim / 8; d++) w.acc[d][2 * h] *= keep, w.acc[d][2 * h + 1] *= keep;
    }
    p[0] = f16x2_pack(weight[0][0], weight[0][1]);
    p[1] = f16x2_pack(weight[1][0], weight[1][1]);
    p[2] = f16x2_pack(weight[0][2], weight[0][3]);
    p[3] = f16x2_pack(weight[1][2], weight[1][3]);
    if (several && rows.n_token > 1 && key0 + ATTN_WARP_KEYS - 1 > rows.position0 &&
        hides_not_finite<head_dim>(slot, rows.position0 - key0)) {
        multiply_seen<head_dim>(w, p, slot, rows.position0 - key0, rows);
        return;
    }
#pragma unroll
    for (int d = 0; d < head_dim / 16; d++) {
        uint32_t b[4];
        load_values<head_dim>(b, slot, d);
        mma_f16_16816(w.acc[2 * d], p, b[0], b[1]);
        mma_f16_16816(w.acc[2 * d + 1], p, b[2], b[3]);
    }
}

/* A row's four dimensions over several states: results times 2^(largest of the state - largest). */
struct merged {
    float4 value;
    float largest, sum;
};

BRIM_DEVICE void merge_state(merged &m, float4 v, float largest, float sum)
{
    float take = attn_keep(largest, m.largest);
    m.sum += sum * take;
    m.value.x += v.x * take, m.value.y += v.y * take;
    m.value.z += v.z * take, m.value.w += v.w * take;
}

BRIM_DEVICE void store_out(const brim_cuda_attention_args &a, int64_t token, int head, int d,
                           const merged &m)
{
    float inv = 1.0f / m.sum;
    *(uint2 *)((uint16_t *)a.out + token * a.out_stride + head * a.kv.head_dim + d) =
        make_uint2(bf16x2_pack(m.value.x * inv, m.value.y * inv),
                   bf16x2_pack(m.value.z * inv, m.value.w * inv));
}

/* Every row of the tile from the parts of all splits, in order. Results are requested before the
 * states that weigh them have come. s: shared, 2 * ATTN_TILE_ROWS * n_arrival floats. */
template <int head_dim>
BRIM_DEVICE void merge_parts(const decode_params &p, float *s, const float *parts,
                             const tile_rows &rows, int n_arrival, int token0, int head_kv)
{
    enum { BATCH = 16, PART_FLOATS = layout<head_dim>::PART_FLOATS };
    int n_row = rows.n_token * rows.gqa, n_item = n_row * head_dim / 4;
    float4 v[BATCH];
    for (int first = 0; first < n_item; first += N_THREAD) {
        int i = first + threadIdx.x, row = i / (head_dim / 4), d = i % (head_dim / 4) * 4;
        int n_key = i < n_item ? row_position(rows, row) + 1 : 1;
        int n_part = attn_n_part(n_key, attn_split_keys(n_key, p.n_split));
        const float *values = parts + 2 * ATTN_TILE_ROWS + row * head_dim + d;
#pragma unroll
        for (int j = 0; j < BATCH; j++)
            if (n_part > 1 && j < n_part)
                v[j] = __ldcg((const float4 *)(values + (int64_t)j * PART_FLOATS));
        if (first == 0) {
            /* [n_arrival][largest, sum][ATTN_TILE_ROWS], some never written nor used */
            for (int j = threadIdx.x; j < n_arrival * 2 * ATTN_TILE_ROWS; j += N_THREAD)
                s[j] = __ldcg(parts + (int64_t)(j / (2 * ATTN_TILE_ROWS)) * PART_FLOATS +
                              j % (2 * ATTN_TILE_ROWS));
            __syncthreads();
        }
        if (n_part == 1) continue; /* stored by its only split, or no row */
        merged m = {make_float4(0, 0, 0, 0), -CUDART_INF_F, 0};
        for (int j = 0; j < n_part; j++)
            m.largest = fmaxf(m.largest, s[j * 2 * ATTN_TILE_ROWS + row]);
#pragma unroll
        for (int j = 0; j < BATCH; j++)
            if (j < n_part)
                merge_state(m, v[j], s[j * 2 * ATTN_TILE_ROWS + row],
                            s[(j * 2 + 1) * ATTN_TILE_ROWS + row]);
#pragma unroll 4
        for (int j = BATCH; j < n_part; j++)
            merge_state(m, __ldcg((const float4 *)(values + (int64_t)j * PART_FLOATS)),
                        s[j * 2 * ATTN_TILE_ROWS + row], s[(j * 2 + 1) * ATTN_TILE_ROWS + row]);
        store_out(p.a, token0 + row / rows.gqa, head_kv * rows.gqa + row % rows.gqa, d, m);
    }
}

/* Queries of the tile, and keys and values of this step's tokens up to the tile's last, made here
 * from the projection. */
template <int head_dim> struct fresh_rows {
    uint16_t q[ATTN_TILE_ROWS][layout<head_dim>::FRESH_STRIDE];
    uint16_t kv[BRIM_CUDA_DECODE_ROWS][2][layout<head_dim>::FRESH_STRIDE];
};

template <int head_dim> BRIM_DEVICE void store_head(uint16_t *to, const head_pairs<1> &h)
{
    int i = 2 * (threadIdx.x % 32);
    if (i >= head_dim / 2) return;
    *(uint32_t *)(to + i) = f16x2_pack(h.low[0].x, h.low[0].y);
    *(uint32_t *)(to + head_dim / 2 + i) = f16x2_pack(h.high[0].x, h.high[0].y);
}

/* A warp a head. with_keys: this block sees keys of this step. The block whose split has a tile's
 * own token for that token's row also writes it to the cache. */
template <int head_dim, int source>
BRIM_DEVICE void make_fresh(const decode_params &p, fresh_rows<head_dim> &f, const tile_rows &rows,
                            int first_pos, int token0, bool with_keys)
{
    const brim_cuda_rotate_args &r = p.r;
    enum brim_dtype const in_dtype = source == SOURCE_F32 ? BRIM_DTYPE_F32 : BRIM_DTYPE_BF16;
    int warp = threadIdx.x / 32, head_kv = blockIdx.y, n_head_kv = p.a.kv.n_head_kv;
    for (int row = warp; row < rows.n_token * rows.gqa; row += N_WARP) {
        int64_t token = token0 + row / rows.gqa, head = head_kv * rows.gqa + row % rows.gqa;
        store_head<head_dim>(
            f.q[row], rotate_head<1, in_dtype>(r.qkv, token * r.qkv_stride + head * head_dim,
                                               head_dim, r.q_norm, r.eps,
                                               r.rope_table + (first_pos + token) * head_dim));
    }
    if (!with_keys) return;
    for (int i = warp; i < 2 * (token0 + rows.n_token); i += N_WARP) {
        int token = i / 2, is_v = i % 2, position = first_pos + token;
        int64_t head = p.a.n_head + is_v * n_head_kv + head_kv;
        head_pairs<1> h = rotate_head<1, in_dtype>(
            r.qkv, token * r.qkv_stride + head * head_dim, head_dim, is_v ? NULL : r.k_norm, r.eps,
            is_v ? NULL : r.rope_table + (int64_t)position * head_dim);
        store_head<head_dim>(f.kv[token][is_v], h);
        if (token >= token0 &&
            (int)blockIdx.x == position / attn_split_keys(position + 1, p.n_split)) {
            uint16_t *cache = (uint16_t *)(is_v ? p.a.kv.v : p.a.kv.k);
            store_head<head_dim>(
                cache + ((int64_t)head_kv * p.a.kv.n_position + position) * head_dim, h);
        }
    }
}

/* Fresh keys and values among key0..key0 + 15 and before `end` into a slot. */
template <int head_dim>
BRIM_DEVICE void place_fresh(const fresh_rows<head_dim> &f, uint8_t *slot, int key0, int first_pos,
                             int end)
{
    typedef layout<head_dim> L;
    int lane = threadIdx.x % 32, last = key0 + ATTN_WARP_KEYS < end ? key0 + ATTN_WARP_KEYS : end;
    for (int key = key0 > first_pos ? key0 : first_pos; key < last; key++) {
        int is_v = lane / L::PIECES, piece = lane % L::PIECES; /* a key and its value */
        if (is_v < 2)                                          /* all lanes with head_dim 128 */
            *(uint4 *)(slot + is_v * L::HALF_SLOT +
                       attn_piece_at(key - key0, piece, L::ROW_BYTES)) =
                *(const uint4 *)&f.kv[key - first_pos][is_v][piece * 8];
    }
    __syncwarp();
}

template <int head_dim, int source, bool several>
__global__ void __launch_bounds__(N_THREAD, 1) attn_decode(decode_params p)
{
    typedef layout<head_dim> L;
    __shared__ float s_largest[N_WARP][ATTN_TILE_ROWS], s_sum[N_WARP][ATTN_TILE_ROWS];
    __shared__ uint32_t s_arrived;
    __shared__ __align__(16) fresh_rows<head_dim> fresh;
    const brim_cuda_attention_args &a = p.a;
    griddepcontrol_launch_dependents();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int split = blockIdx.x, head_kv = blockIdx.y;
    int gqa = a.n_head / a.kv.n_head_kv, tile_tokens = attn_tile_tokens(gqa);
    int token0 = blockIdx.z * tile_tokens, left = (int)a.n_row - token0;
    int64_t first_key = *a.first_pos;
    if (first_key < 0 || first_key + a.n_row > a.kv.n_position) return;
    int first_pos = (int)first_key;
    tile_rows rows = {first_pos + token0, left < tile_tokens ? left : tile_tokens, gqa};
    int last = rows.position0 + rows.n_token - 1; /* the last position of the tile */
    int cut_first = attn_split_keys(rows.position0 + 1, p.n_split);
    int cut_last = attn_split_keys(last + 1, p.n_split);
    int n_pass = cut_first == cut_last ? 1 : 2, n_arrival = attn_n_part(last + 1, cut_last);
    if (n_pass == 2) n_arrival = p.n_split; /* rows cut the first way have any number of parts */
    int cut_most = cut_first > cut_last ? cut_first : cut_last;
    if (split >= n_arrival) return;

    int64_t head_at = (int64_t)head_kv * a.kv.n_position * head_dim;
    uint32_t ring = smem_u32(smem) + warp * L::SLOT;
    int n_row = rows.n_token * gqa;
    float *part = p.parts + (((int64_t)blockIdx.z * a.kv.n_head_kv + head_kv) * p.n_split + split) *
                                L::PART_FLOATS;
    uint32_t q[head_dim / 16][4];
    bool waited = false;
    for (int pass = 0; pass < n_pass; pass++) {
        int cut = pass == 0 ? cut_first : cut_last;
        /* The last position whose row is cut this way: the cut changes once at most. */
        int seen = last;
        if (pass + 1 < n_pass)
            while (attn_split_keys(seen + 1, p.n_split) != cut) seen--;
        int begin = split * cut, end = begin + cut < seen + 1 ? begin + cut : seen + 1;
        int n_step = end > begin ? (end - begin + ATTN_STEP_KEYS - 1) / ATTN_STEP_KEYS : 0;
        int key0 = begin + warp * ATTN_WARP_KEYS;

        /* The cache of earlier steps ends at first_pos: requested at once. What this step adds
         * comes from the predecessor, through memory or made here. */
        int stored = end < first_pos ? end : first_pos;
        if (!waited)
            for (int i = 0; i < N_STAGE && i < n_step; i++)
                load_keys<head_dim>(a.kv, head_at, ring + i * N_WARP * L::SLOT,
                                    key0 + i * ATTN_STEP_KEYS, 0, stored, source != SOURCE_READY);
        int from = source != SOURCE_READY || waited ? 0 : stored;
        int upto = source != SOURCE_READY ? stored : end;
        bool load_now = source == SOURCE_READY || waited;
        if (!waited) {
            griddepcontrol_wait();
            if constexpr (source != SOURCE_READY) {
                make_fresh<head_dim, source>(p, fresh, rows, first_pos, token0,
                                             (split + 1) * cut_most > first_pos);
                __syncthreads();
            }
            const uint16_t *q_rows =
                source == SOURCE_READY ? (const uint16_t *)a.q +
                                             ((int64_t)token0 * a.n_head + head_kv * gqa) * head_dim
                                       : fresh.q[0];
#pragma unroll
            for (int k = 0; k < head_dim / 16; k++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int row = lane / 4 + i % 2 * 8, col = k * 16 + lane % 4 * 2 + i / 2 * 8;
                    int64_t at = source == SOURCE_READY
                                     ? ((int64_t)(row / gqa) * a.n_head + row % gqa) * head_dim
                                     : row * L::FRESH_STRIDE;
                    q[k][i] = row < n_row ? *(const uint32_t *)(q_rows + at + col) : 0;
                }
            waited = true;
        }
        for (int i = 0; i < N_STAGE; i++) {
            if (load_now && i < n_step)
                load_keys<head_dim>(a.kv, head_at, ring + i * N_WARP * L::SLOT,
                                    key0 + i * ATTN_STEP_KEYS, from, upto, true);
            cp_async_commit();
        }

        int limit[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            limit[h] = row_position(rows, lane / 4 + 8 * h);
            if (n_pass > 1 && limit[h] >= 0 && attn_split_keys(limit[h] + 1, p.n_split) != cut)
                limit[h] = -1;
            if (limit[h] >= end) limit[h] = end - 1;
        }
        warp_state<head_dim> w = {};
        w.largest[0] = w.largest[1] = -CUDART_INF_F;
        for (int i = 0; i < n_step; i++) {
            cp_async_wait<N_STAGE - 1>();
            __syncwarp();
            uint32_t slot = ring + i % N_STAGE * N_WARP * L::SLOT;
            if (source != SOURCE_READY && key0 + i * ATTN_STEP_KEYS + ATTN_WARP_KEYS > first_pos)
                place_fresh<head_dim>(fresh, smem + (slot - smem_u32(smem)),
                                      key0 + i * ATTN_STEP_KEYS, first_pos, end);
            attend<head_dim, several>(w, q, slot, key0 + i * ATTN_STEP_KEYS, limit,
                                      a.scale * ATTN_LOG2E, rows);
            __syncwarp();
            if (i + N_STAGE < n_step)
                load_keys<head_dim>(a.kv, head_at, slot, key0 + (i + N_STAGE) * ATTN_STEP_KEYS, 0,
                                    end, true);
            cp_async_commit();
        }
        cp_async_wait<0>();
        __syncthreads(); /* the rings are dead: results of the warps go there */

        float *s_acc = (float *)smem; /* [N_WARP][ATTN_TILE_ROWS][head_dim] */
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = lane / 4 + 8 * h;
            float sum = w.sum[h] + __shfl_xor_sync(0xFFFFFFFFu, w.sum[h], 1);
            sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
            if (row >= n_row) continue;
            if (lane % 4 == 0) s_largest[warp][row] = w.largest[h], s_sum[warp][row] = sum;
            float *to = s_acc + (warp * ATTN_TILE_ROWS + row) * head_dim + lane % 4 * 2;
#pragma unroll
            for (int d = 0; d < head_dim / 8; d++)
                *(float2 *)(to + d * 8) = make_float2(w.acc[d][2 * h], w.acc[d][2 * h + 1]);
        }
        __syncthreads();
        for (int i = threadIdx.x; i < n_row * head_dim / 4; i += N_THREAD) {
            int row = i / (head_dim / 4), d = i % (head_dim / 4) * 4;
            int n_key = row_position(rows, row) + 1;
            if (n_pass > 1 && attn_split_keys(n_key, p.n_split) != cut) continue;
            merged m = {make_float4(0, 0, 0, 0), -CUDART_INF_F, 0};
            for (int j = 0; j < N_WARP; j++) m.largest = fmaxf(m.largest, s_largest[j][row]);
#pragma unroll
            for (int j = 0; j < N_WARP; j++)
                merge_state(m, *(const float4 *)(s_acc + (j * ATTN_TILE_ROWS + row) * head_dim + d),
                            s_largest[j][row], s_sum[j][row]);
            if (n_key <= cut) {
                if (split == 0) store_out(a, token0 + row / gqa, head_kv * gqa + row % gqa, d, m);
                continue;
            }
            *(float4 *)(part + 2 * ATTN_TILE_ROWS + row * head_dim + d) = m.value;
            if (d == 0) part[row] = m.largest, part[ATTN_TILE_ROWS + row] = m.sum;
        }
        __syncthreads(); /* before a second pass fills the rings */
    }
    if (n_arrival == 1) return;

    /* The barrier above and one thread's release publish the part; its acquire and the barrier
     * below make those of the other blocks visible. */
    uint32_t *arrived = p.arrived + (int64_t)blockIdx.z * a.kv.n_head_kv + head_kv;
    if (threadIdx.x == 0) s_arrived = atom_add_acq_rel_gpu(arrived, 1);
    __syncthreads();
    if (s_arrived != (uint32_t)n_arrival - 1) return;
    if (threadIdx.x == 0) *arrived = 0;
    merge_parts<head_dim>(p, (float *)smem, part - (int64_t)split * L::PART_FLOATS, rows, n_arrival,
                          token0, head_kv);
}

/* Tiles that BRIM_CUDA_DECODE_ROWS tokens need. */
int n_tile_max(int gqa)
{
    int tokens = attn_tile_tokens(gqa);
    return (BRIM_CUDA_DECODE_ROWS + tokens - 1) / tokens;
}

size_t counter_bytes(int n_tile, int n_head_kv)
{
    return ((size_t)n_tile * n_head_kv * sizeof(uint32_t) + 255) / 256 * 256;
}

bool has_tensor_form(const brim_cuda_attention_args *args)
{
    return args->kv.dtype == BRIM_DTYPE_F16 &&
           (args->kv.head_dim == 64 || args->kv.head_dim == 128) &&
           args->n_head / args->kv.n_head_kv <= ATTN_TILE_ROWS;
}

template <int head_dim, bool several>
brim_status launch(const decode_params &p, int source, brim_launch_shape shape, cudaStream_t stream,
                   brim_error *err)
{
    shape.smem_bytes = layout<head_dim>::SMEM_BYTES;
    if (source == SOURCE_BF16)
        return BRIM_LAUNCH((attn_decode<head_dim, SOURCE_BF16, several>), shape, stream, p, err);
    if (source == SOURCE_F32)
        return BRIM_LAUNCH((attn_decode<head_dim, SOURCE_F32, several>), shape, stream, p, err);
    return BRIM_LAUNCH((attn_decode<head_dim, SOURCE_READY, several>), shape, stream, p, err);
}

} // namespace

extern "C" size_t brim_cuda_attention_decode_bytes(int n_head, int n_head_kv, int head_dim)
{
    int gqa = n_head / n_head_kv;
    if (gqa > ATTN_TILE_ROWS) return 256;
    int n_tile = n_tile_max(gqa);
    return counter_bytes(n_tile, n_head_kv) + (size_t)n_tile * n_head_kv * attn_n_split(n_head_kv) *
                                                  ATTN_TILE_ROWS * (head_dim + 2) * sizeof(float);
}

extern "C" brim_status brim_cuda_attention_decode(const struct brim_cuda_attention_args *args,
                                                  void *stream, brim_error *err)
{
    BRIM_TRY(brim_cuda_attn_check(args, err));
    if (args->n_row == 0) return BRIM_OK;
    BRIM_REQUIRE(err, args->n_row <= BRIM_CUDA_DECODE_ROWS, BRIM_E_RANGE,
                 "attention: decode takes at most %d rows, not %lld", BRIM_CUDA_DECODE_ROWS,
                 (long long)args->n_row);
    if (!has_tensor_form(args)) {
        if (args->rotate) BRIM_TRY(brim_cuda_rotate(args->rotate, stream, err));
        return brim_cuda_attn_any(args, (cudaStream_t)stream, err);
    }
    int n_head_kv = args->kv.n_head_kv, gqa = args->n_head / n_head_kv;
    int tokens = attn_tile_tokens(gqa), n_split = attn_n_split(n_head_kv);
    decode_params p = {};
    p.a = *args;
    p.n_split = n_split;
    p.arrived = (uint32_t *)args->workspace;
    p.parts = (float *)((uint8_t *)args->workspace + counter_bytes(n_tile_max(gqa), n_head_kv));
    brim_launch_shape shape = {};
    shape.grid = dim3((unsigned)n_split, (unsigned)n_head_kv,
                      (unsigned)((args->n_row + tokens - 1) / tokens));
    shape.block = dim3(N_THREAD);
    shape.pdl = args->pdl;
    if (args->rotate) p.r = *args->rotate;
    int source = !args->rotate                               ? SOURCE_READY
                 : args->rotate->qkv_dtype == BRIM_DTYPE_F32 ? SOURCE_F32
                                                             : SOURCE_BF16;
    cudaStream_t s = (cudaStream_t)stream;
    bool several = args->n_row > 1;
    if (args->kv.head_dim == 64)
        return several ? launch<64, true>(p, source, shape, s, err)
                       : launch<64, false>(p, source, shape, s, err);
    return several ? launch<128, true>(p, source, shape, s, err)
                   : launch<128, false>(p, source, shape, s, err);
}
