/* SPDX-License-Identifier: Apache-2.0
 * Kernels for other engines: raw pointers, strides, caller-owned workspace, opaque stream.
 *
 * Every operator is one struct of arguments and calls derived from it: _supported (would it run,
 * and if not, why), _workspace_bytes, _plan (which schedule) and the call itself. A call never
 * allocates device memory, never waits for the device, compiles nothing and keeps no global state;
 * on a refusal no output is touched. Work on CUDA is ordered by the given stream and may be
 * captured in a graph. */
#ifndef BRIM_KERNELS_H
#define BRIM_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "brim/plan.h"
#include "brim/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero is no type on purpose: a forgotten field is refused, never guessed. */
typedef enum brim_kernel_dtype {
    BRIM_KERNEL_F32 = 1,
    BRIM_KERNEL_BF16 = 2,
    BRIM_KERNEL_F16 = 3
} brim_kernel_dtype;

typedef enum brim_kernel_device {
    BRIM_KERNEL_CPU = 1, /* all pointers are host memory; stream is ignored */
    BRIM_KERNEL_CUDA = 2 /* all data pointers are device memory of the current device */
} brim_kernel_device;

/* ---- Kimi Delta Attention, prefill ----------------------------------------------------------- */

/* Per sequence and value head, with a state S [K = 128][V = 128], for each token t in order:
 *     S <- Diag(exp(g_t)) S;   u = beta_t (v_t - S^T k_t);   S <- S + k_t u^T
 *     o_t = scale S^T q_t
 * The query/key head of value head hv is hv / (n_value_head / n_head). */

enum { BRIM_KDA_DIM = 128, BRIM_KDA_CHECKPOINT = 64 };

/* What `g` holds. exp(A_log) is 1 where a_log is NULL, dt_bias is 0 where NULL. */
typedef enum brim_kda_gate {
    /* log decay = lower_bound * sigmoid(exp(A_log) * (g + dt_bias)) */
    BRIM_KDA_GATE_LOWER_BOUND = 1,
    /* log decay = -exp(A_log) * softplus(g + dt_bias): unbounded; lower_bound must be 0 */
    BRIM_KDA_GATE_SOFTPLUS = 2,
    /* g is the log decay, at most 0. lower_bound in [-5, 0) is the caller's promise that no value
     * lies below it; 0 promises nothing. a_log and dt_bias must be NULL. */
    BRIM_KDA_GATE_GIVEN = 3
} brim_kda_gate;

/* Any other bit is refused. */
enum {
    BRIM_KDA_L2NORM = 1,     /* q and k are divided by sqrt(sum of squares + 1e-6) */
    BRIM_KDA_BETA_LOGIT = 2, /* beta = sigmoid(input); otherwise the input is beta, of any value */
    BRIM_KDA_STATE_K_FIRST = 4, /* states are [K][V]; otherwise [V][K] */
    BRIM_KDA_CHECKED = 8 /* also check values in host memory (CPU): a given decay is at most 0 and
                            in bounds, no two sequences share a slot */
};

/* Elements between neighbours; the innermost stride (within a head) is 1. */
typedef struct brim_kda_stride {
    int64_t batch, token, head; /* batch is ignored for packed input */
} brim_kda_stride;

typedef struct brim_kda_args {
    brim_kernel_device device;
    void *stream; /* cudaStream_t, or NULL for the default stream */
    int n_thread; /* CPU: threads over sequences and heads, and where these are few over value
                     columns and preparation too; same bits for any number; 0 or 1: the calling
                     thread alone. Ignored on CUDA. */
    void *workspace;
    size_t workspace_bytes;
    const char *route; /* NULL: chosen from the shape; else a route's name, refused if impossible */
    /* Nonzero admits route "split" (CUDA): segments of a sequence run at once where the gates are
     * proved to have forgotten what lies before (docs/kernels/kda_split.md). Its bits differ from
     * the other routes', which agree among themselves, and depend on the plan: pin it by the
     * chunks (of 32 tokens) of a segment, of a sequence's first segment (with split_length alone,
     * and no shorter; 0: as long) and of a window (at most 8, and no longer than the segment);
     * all 0: chosen from the shape. What may not be cut a serial route computes. Route
     * "split-join", by name alone, joins it from the segments' state maps instead. split_exact:
     * nothing is skipped; every segment is joined, without windows. With allow_split that is chosen
     * where it is expected to be faster than the serial routes; by the name of one of the two
     * routes anywhere. */
    int allow_split, split_length, split_first, split_window, split_exact;

    /* Fixed batch: n_seq sequences of n_tok tokens each, cu_seqlens NULL.
     * Packed: cu_seqlens[n_seq + 1] non-decreasing offsets from 0 into n_tok rows, in memory of the
     * device; rows at and after the last offset are written as zero. */
    int64_t n_seq, n_tok;
    int64_t max_tok;      /* packed: no sequence is longer than this; ignored otherwise */
    int64_t n_head;       /* of q and k, at least 1 */
    int64_t n_value_head; /* of v, g, beta, out: a multiple of n_head */
    int64_t head_dim;     /* 128 */
    const void *cu_seqlens;
    int offset_bytes; /* 4 or 8: int32 or int64 offsets; 0 without cu_seqlens */

    /* q, k: bf16 [.., n_tok, n_head, 128]; v, out: bf16 [.., n_tok, n_value_head, 128]; g like v,
     * bf16, or F32 with BRIM_KDA_GATE_GIVEN. 16-byte aligned; their strides are multiples of 8
     * elements (4 for F32), so views of a packed projection are taken as they are. beta: [..,
     * n_tok, n_value_head], any strides, bf16 or F32. out must not overlap an input. */
    const void *q, *k, *v, *g, *beta;
    void *out;
    brim_kda_stride q_stride, k_stride, v_stride, g_stride, out_stride,
        beta_stride;             /* beta: 1 value a head */
    brim_kernel_dtype qkv_dtype; /* BF16 */
    brim_kernel_dtype g_dtype, beta_dtype;

    brim_kda_gate gate;
    float lower_bound;    /* no default: in [-5, 0) for the lower-bound gate */
    const float *a_log;   /* [n_value_head] or NULL */
    const float *dt_bias; /* [n_value_head][128] or NULL */
    float scale;          /* finite; brim_kda_args_init sets 128^-1/2 */
    uint32_t flags;

    /* States: [n][n_value_head][128][128], `state_stride` elements from sequence to sequence (or
     * slot to slot; at least n_value_head * 16384, a multiple of 8). initial NULL: zero. final
     * NULL: not written. final == initial is allowed, other overlap is not. */
    const void *initial_state;
    void *final_state;
    brim_kernel_dtype state_dtype; /* F32 or BF16, of initial, final and checkpoints */
    int64_t state_stride;
    /* NULL: sequence n uses state n. Else its slot in pools of n_slot states; -1: no state is read
     * (it starts from zero) or written. Two sequences must not share a slot. */
    const int32_t *state_index;
    int64_t n_slot;
    /* NULL, or per sequence: nonzero starts from zero whatever the initial state holds. */
    const uint8_t *fresh;
    /* NULL, or states after every 64 completed tokens of each sequence, contiguous, of state_dtype
     * and layout: fixed batch [n_seq][n_tok / 64][n_value_head][128][128]; packed [n_tok /
     * 64][n_value_head] [128][128] where the one after token 64 (j + 1) of sequence n is at
     * cu_seqlens[n] / 64 + j. */
    void *checkpoints;
} brim_kda_args;

/* A route that was not taken. */
typedef struct brim_kda_alternative {
    const char *route;   /* static */
    double expected_us;  /* 0: the shape lies outside of what was measured */
    const char *why_not; /* static */
} brim_kda_alternative;

enum { BRIM_KDA_MAX_ALTERNATIVE = 16 };

/* How a call would run. */
typedef struct brim_kda_plan {
    char route[16];               /* "m128", "c4-m128", ..., "cpu-chunk" */
    char reason[112];             /* why this one */
    int64_t grid;                 /* thread groups (CUDA) or tasks (CPU); split: segments' */
    int cluster, owners, helpers; /* CTAs that work on one task (split: segment; CPU: threads, of
                                     a task that is shared): all, with state, preparing */
    int instances;                /* preparation groups a task has */
    int depth;                    /* packets of the ring; 0: packets stay where they are made */
    /* "split", "split-join": chunks of a segment, of a sequence's first one, of a window (0:
     * split_exact), and of all that the busiest processor works through; else 0 */
    int split_length, split_first, split_window;
    int64_t split_chunks;
    char serial[16];     /* "split": the route that computes what must not be cut; else empty */
    int64_t split_slots; /* of either: segments, those that may turn out empty included */
    size_t workspace_bytes;
    /* CUDA: from times measured on an H200 with bounded gates that forget, 0 outside of what was
     * measured; then every other route of the build that may be compared. */
    double expected_us;
    double uncut_us; /* split: the same where gates do not forget and the serial route runs after
                        the segments, at most; 0: not known */
    int n_alternative;
    brim_kda_alternative alternative[BRIM_KDA_MAX_ALTERNATIVE];
} brim_kda_plan;

/* Zero everything, then set scale = 128^-1/2, head_dim = 128 and qkv_dtype = BF16. */
BRIM_API void brim_kda_args_init(brim_kda_args *args);
/* BRIM_OK if brim_kda_prefill would start, apart from the size of the workspace; else the reason.
 * This, _workspace_bytes and _plan_make also bring the code of what such a call launches onto the
 * current device, so that the first call is as fast as the second and needs no memory but the
 * workspace; who does not ask has that done by the first call. */
BRIM_API BRIM_MUST_USE brim_status brim_kda_supported(const brim_kda_args *args, brim_error *err);
/* For these arguments alone: fewer tokens, sequences or heads may take another route and need more.
 * A workspace for several calls has the most that any of them needs. */
BRIM_API BRIM_MUST_USE brim_status brim_kda_workspace_bytes(const brim_kda_args *args,
                                                            size_t *n_bytes, brim_error *err);
BRIM_API BRIM_MUST_USE brim_status brim_kda_plan_make(const brim_kda_args *args,
                                                      brim_kda_plan *plan, brim_error *err);
/* What brim_kda_plan_make would choose on a GPU of n_processor SMs, without a device or data: reads
 * n_seq, n_tok, n_value_head, offset_bytes (not 0: packed), max_tok (packed; 0 or n_tok: not
 * known), route, allow_split, split_length, split_first, split_window and split_exact, nothing
 * else. */
BRIM_API BRIM_MUST_USE brim_status brim_kda_plan_gpu(const brim_kda_args *args, int64_t n_processor,
                                                     brim_kda_plan *plan, brim_error *err);
/* What brim_kda_plan_make would choose on the CPU, without data: reads n_seq, n_tok, n_value_head,
 * offset_bytes (not 0: packed), max_tok (packed), n_thread and route. */
BRIM_API BRIM_MUST_USE brim_status brim_kda_plan_cpu(const brim_kda_args *args, brim_kda_plan *plan,
                                                     brim_error *err);
/* The same as brim_kda_plan_gpu from sequences, rows of all together and heads, without the split.
 */
BRIM_API BRIM_MUST_USE brim_status brim_kda_plan_shape(int64_t n_seq, int64_t n_tok_total,
                                                       int64_t n_value_head, int packed,
                                                       int64_t n_processor, const char *route,
                                                       brim_kda_plan *plan, brim_error *err);
/* One line of JSON without newline; returns its length, also when `capacity` is too small. */
BRIM_API size_t brim_kda_plan_print(const brim_kda_plan *plan, char *text, size_t capacity);
/* Prepare a block of workspace, stream-ordered, once per block of memory (not per call). A
 * workspace serves one call at a time: one per device and stream. Does nothing for n_bytes == 0. */
BRIM_API BRIM_MUST_USE brim_status brim_kda_workspace_init(brim_kernel_device device,
                                                           void *workspace, size_t n_bytes,
                                                           void *stream, brim_error *err);
/* Enqueue (CUDA) or run (CPU). */
BRIM_API BRIM_MUST_USE brim_status brim_kda_prefill(const brim_kda_args *args, brim_error *err);

/* ---- Products with 4-bit weights ------------------------------------------------------------- */

/* y[n_row][n_out] = x[n_row][n_in] W^T, W[o][i] = scale q + bias with a code q of 0..15 for each
 * weight, scale and bias for each `group` weights along n_in: the order and the meaning of MLX's
 * affine 4-bit checkpoints. Scales of any sign. */

/* Which kernels may run. One to eight rows take a matvec at every level below HOPPER. */
typedef enum brim_w4_level {
    /* CUDA: HOPPER where `packed` is given and `split` is automatic, else TILED. CPU: its own
     * kernel, as at every level. */
    BRIM_W4_AUTO = 0,
    BRIM_W4_MATVEC = 1, /* more rows: one thread an output */
    BRIM_W4_TILED = 2,  /* more rows: 32 x 32 tiles on tensor cores, split as `split` says */
    BRIM_W4_HOPPER = 3  /* the kernels that read `packed` */
} brim_w4_level;

/* How the reduction of the tiled kernel is cut. Split 1 is the unsplit kernel, bit for bit. */
typedef enum brim_w4_split {
    BRIM_W4_SPLIT_AUTO = 0,  /* by `policy` */
    BRIM_W4_SPLIT_OFF = 1,   /* never */
    BRIM_W4_SPLIT_PINNED = 2 /* as `pinned` says: its kernel (plan.matvec) and its split */
} brim_w4_split;

typedef enum brim_w4_policy {
    /* From the number of processors. On the CPU never split: results do not depend on n_thread. */
    BRIM_W4_POLICY_DEVICE = 0,
    BRIM_W4_POLICY_COURSE = 1 /* brim_split_policy_course, aligned to the group */
} brim_w4_policy;

typedef struct brim_w4_args {
    brim_kernel_device device;
    void *stream; /* cudaStream_t, or NULL for the default stream */
    int n_thread; /* CPU: threads over outputs, same bits for any number; 0 or 1: the calling thread
                     alone. Ignored on CUDA. */
    void *workspace; /* 256-byte aligned */
    size_t workspace_bytes;

    int64_t n_row;       /* 0: success, nothing is touched and no pointer is looked at */
    int64_t n_in, n_out; /* n_in: a positive multiple of group */
    int group;           /* 32, 64 or 128 */

    /* x [n_row][x_stride], y [n_row][y_stride]: strides in elements, at least n_in and n_out. bf16;
     * on the CPU each may be f32 as well. On CUDA rows of x start on 16 bytes, and more than 112
     * rows of y are stored fastest where they do too. */
    const void *x;
    void *y;
    int64_t x_stride, y_stride;
    brim_kernel_dtype x_dtype, y_dtype;

    /* codes: u32 [n_out][n_in / 8], value j of a word in bits 4j..4j+3; 16-byte aligned on CUDA.
     * scales, biases: [n_out][n_in / group], F32, F16 or BF16, used at that precision. Not looked
     * at by the kernels of HOPPER. */
    const void *codes, *scales, *biases;
    brim_kernel_dtype param_dtype;
    /* CUDA: the same weights in the order of the Hopper kernels, from brim_w4_pack, or NULL. */
    const void *packed;

    brim_w4_level level;
    brim_w4_split split;
    brim_w4_policy policy;
    const brim_split_plan *pinned; /* BRIM_W4_SPLIT_PINNED: a plan of this shape; else NULL */
    brim_kernel_dtype plane_dtype; /* partial sums of a split: BF16, or F32 */
} brim_w4_args;

/* How a call would run. */
typedef struct brim_w4_plan {
    char kernel[16];       /* "none", "matvec", "naive", "tiled", "split-k", "cpu", or of the Hopper
                              kernels "gemv", "cluster", "stream" */
    brim_split_plan split; /* of the tiled kernels; split 1 elsewhere */
    int64_t grid;          /* thread groups of the first kernel (CUDA) or pieces of work (CPU) */
    int tile_rows, tile_outs, cluster; /* rows and outputs of a thread group; groups that share a
                                          tile's reduction */
    int accumulates, reduces; /* kernels launched: with a plane or y as target; summing planes */
    size_t workspace_bytes;
    char schedule[64]; /* Hopper kernels: kernel, tile, parts and split as the committed results
                          name them; else empty */
} brim_w4_plan;

/* Zero everything, then set x_dtype, y_dtype, param_dtype and plane_dtype to BF16, group to 128. */
BRIM_API void brim_w4_args_init(brim_w4_args *args);
/* BRIM_OK if brim_w4_matmul would start, apart from the size of the workspace; else the reason. */
BRIM_API BRIM_MUST_USE brim_status brim_w4_supported(const brim_w4_args *args, brim_error *err);
BRIM_API BRIM_MUST_USE brim_status brim_w4_workspace_bytes(const brim_w4_args *args,
                                                           size_t *n_bytes, brim_error *err);
BRIM_API BRIM_MUST_USE brim_status brim_w4_plan_make(const brim_w4_args *args, brim_w4_plan *plan,
                                                     brim_error *err);
/* What brim_w4_plan_make chooses at level HOPPER on a GPU of n_processor SMs, without a device or
 * data: reads n_row, n_in, n_out and group, nothing else. */
BRIM_API BRIM_MUST_USE brim_status brim_w4_plan_hopper(const brim_w4_args *args,
                                                       int64_t n_processor, brim_w4_plan *plan,
                                                       brim_error *err);
/* One line of JSON without newline; returns its length, also when `capacity` is too small. "split"
 * is of the kernel that runs: planes of the tiled ones, or CTAs of a Hopper kernel's cluster, whose
 * stretches of the reduction need not be equal (no "partition_inputs"). */
BRIM_API size_t brim_w4_plan_print(const brim_w4_plan *plan, char *text, size_t capacity);
/* Prepare a block of workspace, stream-ordered, once per block of memory (not per call). A
 * workspace serves one call at a time, of any shapes in turn: one per device and stream. */
BRIM_API BRIM_MUST_USE brim_status brim_w4_workspace_init(brim_kernel_device device,
                                                          void *workspace, size_t n_bytes,
                                                          void *stream, brim_error *err);
/* Bytes of the packed form of a matrix: from device, n_in, n_out, group and param_dtype alone. */
BRIM_API BRIM_MUST_USE brim_status brim_w4_pack_bytes(const brim_w4_args *args, size_t *n_bytes,
                                                      brim_error *err);
/* Repack codes, scales and biases of `args` into `packed` (256-byte aligned, brim_w4_pack_bytes of
 * it), stream-ordered: once, when weights are loaded. CUDA only. Looks at what brim_w4_pack_bytes
 * looks at, at the three arrays and at the stream. bf16 scales must stay below 2^34 in magnitude
 * (kernel "cluster" multiplies them by 2^93, and keeps no weight below 2^-86 of a bf16 matrix);
 * they are device memory and not read here. */
BRIM_API BRIM_MUST_USE brim_status brim_w4_pack(const brim_w4_args *args, void *packed,
                                                brim_error *err);
/* Enqueue (CUDA) or run (CPU). y must not overlap what is read. */
BRIM_API BRIM_MUST_USE brim_status brim_w4_matmul(const brim_w4_args *args, brim_error *err);

/* ---- For other languages --------------------------------------------------------------------- */

/* The layout of "brim_kda_args", "brim_kda_plan", "brim_w4_args", "brim_w4_plan" or
 * "brim_split_plan": a line with its size, then one for each member, "name offset size kind" with
 * kind p (pointer), i (integer or enum), f (float) or s (text); members of members as
 * "q_stride.token". A binding that fills members by name after the _args_init call stays right when
 * members are added. Returns the length, also when `capacity` is too small; 0: no such struct. */
BRIM_API size_t brim_struct_layout(const char *name, char *text, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
