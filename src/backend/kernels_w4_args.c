/* SPDX-License-Identifier: Apache-2.0
 * Every refusal of the W4 operator. */
#include "backend/kernels_w4.h"

#include "base/checked.h"

static bool is_float(brim_kernel_dtype dtype)
{
    return dtype == BRIM_KERNEL_F32 || dtype == BRIM_KERNEL_BF16 || dtype == BRIM_KERNEL_F16;
}

static bool is_f32_or_bf16(brim_kernel_dtype dtype)
{
    return dtype == BRIM_KERNEL_F32 || dtype == BRIM_KERNEL_BF16;
}

/* Bytes from the first element of n_row rows to the last; false when no memory could hold them. */
static bool span_bytes(int64_t n_row, int64_t stride, int64_t width, size_t element, uint64_t *out)
{
    uint64_t rows;
    return brim_mul_u64((uint64_t)(n_row - 1), (uint64_t)stride, &rows) &&
           brim_add_u64(rows, (uint64_t)width, &rows) && brim_mul_u64(rows, element, out) &&
           *out <= INT64_MAX;
}

brim_status brim_w4_check_matrix(const brim_w4_args *args, brim_error *err)
{
    BRIM_REQUIRE(err, args->device == BRIM_KERNEL_CUDA || args->device == BRIM_KERNEL_CPU,
                 BRIM_E_ARGUMENT, "w4: device %d is neither CPU nor CUDA", (int)args->device);
    BRIM_REQUIRE(err, args->group == 32 || args->group == 64 || args->group == 128, BRIM_E_RANGE,
                 "w4: group is %d; 32, 64 or 128 is taken", args->group);
    BRIM_REQUIRE(err, args->n_out >= 0, BRIM_E_SHAPE, "w4: n_out %lld must not be negative",
                 (long long)args->n_out);
    BRIM_REQUIRE(err, args->n_in > 0 && args->n_in % args->group == 0, BRIM_E_SHAPE,
                 "w4: n_in %lld is not a positive multiple of the group, %d", (long long)args->n_in,
                 args->group);
    uint64_t weights;
    BRIM_REQUIRE(err,
                 brim_mul_u64((uint64_t)args->n_in, (uint64_t)args->n_out, &weights) &&
                     weights <= INT64_MAX / 4,
                 BRIM_E_SHAPE, "w4: n_out %lld times n_in %lld weights are too many",
                 (long long)args->n_out, (long long)args->n_in);
    BRIM_REQUIRE(err, is_float(args->param_dtype), BRIM_E_DTYPE,
                 "w4: param_dtype %d is none of F32, F16 and BF16", (int)args->param_dtype);
    return BRIM_OK;
}

brim_status brim_w4_check_shape(const brim_w4_args *args, brim_error *err)
{
    bool cuda = args->device == BRIM_KERNEL_CUDA;
    BRIM_TRY(brim_w4_check_matrix(args, err));
    BRIM_REQUIRE(err, args->n_thread >= 0 && args->n_thread <= 4096, BRIM_E_RANGE,
                 "w4: n_thread %d lies outside [0, 4096]", args->n_thread);
    BRIM_REQUIRE(err, args->n_row >= 0, BRIM_E_SHAPE, "w4: n_row %lld must not be negative",
                 (long long)args->n_row);
    BRIM_REQUIRE(err, is_f32_or_bf16(args->plane_dtype), BRIM_E_DTYPE,
                 "w4: plane_dtype %d is neither BF16 nor F32", (int)args->plane_dtype);
    BRIM_REQUIRE(err,
                 args->x_dtype == BRIM_KERNEL_BF16 || (!cuda && args->x_dtype == BRIM_KERNEL_F32),
                 BRIM_E_DTYPE, "w4: x must be bf16, or f32 on the CPU");
    BRIM_REQUIRE(err,
                 args->y_dtype == BRIM_KERNEL_BF16 || (!cuda && args->y_dtype == BRIM_KERNEL_F32),
                 BRIM_E_DTYPE, "w4: y must be bf16, or f32 on the CPU");
    BRIM_REQUIRE(err, args->level >= BRIM_W4_AUTO && args->level <= BRIM_W4_HOPPER, BRIM_E_ARGUMENT,
                 "w4: level %d is unknown", (int)args->level);
    BRIM_REQUIRE(err, cuda || args->level != BRIM_W4_HOPPER, BRIM_E_UNSUPPORTED,
                 "w4: the Hopper kernels belong to CUDA");
    BRIM_REQUIRE(err, cuda || !args->packed, BRIM_E_ARGUMENT,
                 "w4: packed weights belong to CUDA; the CPU reads codes, scales and biases");
    BRIM_REQUIRE(err, args->split >= BRIM_W4_SPLIT_AUTO && args->split <= BRIM_W4_SPLIT_PINNED,
                 BRIM_E_ARGUMENT, "w4: split %d is unknown", (int)args->split);
    BRIM_REQUIRE(err,
                 args->policy == BRIM_W4_POLICY_DEVICE || args->policy == BRIM_W4_POLICY_COURSE,
                 BRIM_E_ARGUMENT, "w4: policy %d is unknown", (int)args->policy);
    BRIM_REQUIRE(err, (args->split == BRIM_W4_SPLIT_PINNED) == (args->pinned != NULL),
                 BRIM_E_ARGUMENT, "w4: split %s but `pinned` is %s",
                 args->split == BRIM_W4_SPLIT_PINNED ? "is pinned" : "is not pinned",
                 args->pinned ? "given" : "null");
    BRIM_REQUIRE(err, !args->pinned || args->level == BRIM_W4_AUTO || args->level == BRIM_W4_TILED,
                 BRIM_E_ARGUMENT, "w4: a pinned split belongs to the level tiled");
    return BRIM_OK;
}

brim_status brim_w4_check_pinned(const brim_w4_args *args, brim_error *err)
{
    const brim_split_plan *plan = args->pinned;
    BRIM_REQUIRE(err, plan->split >= 1 && plan->split <= 65535, BRIM_E_RANGE,
                 "w4: the pinned split %lld lies outside [1, 65535]", (long long)plan->split);
    BRIM_REQUIRE(err,
                 args->n_in % plan->split == 0 && args->n_in / plan->split % args->group == 0 &&
                     plan->partition_inputs == args->n_in / plan->split,
                 BRIM_E_SHAPE,
                 "w4: the pinned split %lld with partitions of %lld inputs does not cut %lld "
                 "inputs into equal parts of whole groups",
                 (long long)plan->split, (long long)plan->partition_inputs, (long long)args->n_in);
    BRIM_REQUIRE(err, !plan->matvec || (plan->split == 1 && args->n_row <= 8), BRIM_E_SHAPE,
                 "w4: the pinned plan asks for the matvec, which takes 8 rows and no split, not "
                 "%lld rows",
                 (long long)args->n_row);
    return BRIM_OK;
}

brim_status brim_w4_check_weights(const brim_w4_args *args, brim_error *err)
{
    unsigned code_align = args->device == BRIM_KERNEL_CUDA ? 16 : 4;
    unsigned param_align = args->param_dtype == BRIM_KERNEL_F32 ? 4 : 2;
    BRIM_REQUIRE(err, args->codes && args->scales && args->biases, BRIM_E_ARGUMENT,
                 "w4: %s is null",
                 !args->codes    ? "codes"
                 : !args->scales ? "scales"
                                 : "biases");
    BRIM_REQUIRE(err, (uintptr_t)args->codes % code_align == 0, BRIM_E_ALIGNMENT,
                 "w4: codes is not %u-byte aligned", code_align);
    BRIM_REQUIRE(err,
                 (uintptr_t)args->scales % param_align == 0 &&
                     (uintptr_t)args->biases % param_align == 0,
                 BRIM_E_ALIGNMENT, "w4: scales or biases is not aligned to its elements");
    return BRIM_OK;
}

static brim_status check_rows(const char *name, const void *data, int64_t stride, int64_t width,
                              unsigned align, unsigned unit, brim_error *err)
{
    BRIM_REQUIRE(err, data, BRIM_E_ARGUMENT, "w4: %s is null", name);
    BRIM_REQUIRE(err, (uintptr_t)data % align == 0, BRIM_E_ALIGNMENT,
                 "w4: %s is not %u-byte aligned", name, align);
    BRIM_REQUIRE(err, stride >= width && stride % unit == 0, BRIM_E_STRIDE,
                 "w4: the stride of %s is %lld; at least %lld and a multiple of %u is taken", name,
                 (long long)stride, (long long)width, unit);
    return BRIM_OK;
}

static brim_status check_apart(const brim_w4_args *args, uint64_t y_bytes, const char *name,
                               const void *data, uint64_t bytes, brim_error *err)
{
    uintptr_t y = (uintptr_t)args->y, other = (uintptr_t)data;
    BRIM_REQUIRE(err, !data || y + y_bytes <= other || other + bytes <= y, BRIM_E_ARGUMENT,
                 "w4: y overlaps %s", name);
    return BRIM_OK;
}

static unsigned element_bytes(brim_kernel_dtype dtype)
{
    return dtype == BRIM_KERNEL_F32 ? 4 : 2;
}

brim_status brim_w4_check_spans(const brim_w4_args *args, uint64_t *x_bytes, uint64_t *y_bytes,
                                brim_error *err)
{
    BRIM_REQUIRE(err,
                 span_bytes(args->n_row, args->x_stride, args->n_in, element_bytes(args->x_dtype),
                            x_bytes) &&
                     span_bytes(args->n_row, args->y_stride, args->n_out,
                                element_bytes(args->y_dtype), y_bytes),
                 BRIM_E_SHAPE, "w4: %lld rows of these strides are more than memory can hold",
                 (long long)args->n_row);
    return BRIM_OK;
}

brim_status brim_w4_check_data(const brim_w4_args *args, bool packed, size_t packed_bytes,
                               brim_error *err)
{
    bool cuda = args->device == BRIM_KERNEL_CUDA;
    unsigned x_bytes = element_bytes(args->x_dtype), y_bytes = element_bytes(args->y_dtype);
    BRIM_TRY(check_rows("x", args->x, args->x_stride, args->n_in, cuda ? 16 : x_bytes, cuda ? 8 : 1,
                        err));
    BRIM_TRY(check_rows("y", args->y, args->y_stride, args->n_out, y_bytes, 1, err));
    uint64_t x_span = 0, y_span = 0, n_weight = (uint64_t)args->n_in * (uint64_t)args->n_out;
    BRIM_TRY(brim_w4_check_spans(args, &x_span, &y_span, err));
    BRIM_TRY(check_apart(args, y_span, "x", args->x, x_span, err));
    if (packed) {
        BRIM_REQUIRE(err, args->packed, BRIM_E_ARGUMENT,
                     "w4: the Hopper kernels need `packed`, from brim_w4_pack");
        BRIM_REQUIRE(err, (uintptr_t)args->packed % 256 == 0, BRIM_E_ALIGNMENT,
                     "w4: packed is not 256-byte aligned");
        BRIM_TRY(check_apart(args, y_span, "packed", args->packed, packed_bytes, err));
    } else {
        uint64_t n_param = n_weight / (unsigned)args->group;
        uint64_t param_bytes = n_param * (args->param_dtype == BRIM_KERNEL_F32 ? 4 : 2);
        BRIM_TRY(brim_w4_check_weights(args, err));
        BRIM_TRY(check_apart(args, y_span, "codes", args->codes, n_weight / 2, err));
        BRIM_TRY(check_apart(args, y_span, "scales", args->scales, param_bytes, err));
        BRIM_TRY(check_apart(args, y_span, "biases", args->biases, param_bytes, err));
    }
    return check_apart(args, y_span, "the workspace", args->workspace, args->workspace_bytes, err);
}
