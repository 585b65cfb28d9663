/* SPDX-License-Identifier: Apache-2.0
 * A weight of a Hugging Face directory: dense, or packed with scales and biases beside it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "load/checkpoint_impl.h"

static bool float_dtype(const struct brim_file_tensor *t, enum brim_dtype *out)
{
    switch (t->storage) {
    case BRIM_STORAGE_F32:
        *out = BRIM_DTYPE_F32;
        return true;
    case BRIM_STORAGE_F16:
        *out = BRIM_DTYPE_F16;
        return true;
    case BRIM_STORAGE_BF16:
        *out = BRIM_DTYPE_BF16;
        return true;
    default:
        return false;
    }
}

/* weight u32 [n_out][n_in/8], scales and biases [n_out][n_in/group] of one float type. */
static brim_status affine_weight(const struct brim_checkpoint *checkpoint,
                                 const struct brim_file_tensor *weight,
                                 const struct brim_file_tensor *scales, const char *module,
                                 size_t module_len, struct brim_weight *out, brim_error *err)
{
    const char *path = checkpoint->path;
    BRIM_REQUIRE(err, checkpoint->hf.is_quantized, BRIM_E_FORMAT,
                 "%s: tensor %s is there but config.json has no quantization", path, scales->name);
    char name[BRIM_MAX_NAME + 16];
    snprintf(name, sizeof name, "%.*s.biases", (int)module_len, module);
    const struct brim_file_tensor *biases = brim_table_find(&checkpoint->table, name);
    BRIM_REQUIRE(err, biases, BRIM_E_MISSING, "%s: tensor %s is missing", path, name);
    BRIM_REQUIRE(err, weight->storage == BRIM_STORAGE_U32 && weight->n_dim == 2, BRIM_E_FORMAT,
                 "%s: tensor %s is %s with %d dimensions, a packed matrix is U32 with 2", path,
                 weight->name, weight->type_name, weight->n_dim);
    enum brim_dtype dtype, biases_dtype;
    BRIM_REQUIRE(
        err,
        float_dtype(scales, &dtype) && float_dtype(biases, &biases_dtype) && dtype == biases_dtype,
        BRIM_E_FORMAT, "%s: tensors %s (%s) and biases (%s) must have one type, BF16, F16 or F32",
        path, scales->name, scales->type_name, biases->type_name);
    int group, bits;
    brim_hf_config_quant(&checkpoint->hf, module, module_len, &group, &bits);
    uint64_t n_in;
    BRIM_REQUIRE(err,
                 brim_mul_u64((uint64_t)weight->shape[1], 8, &n_in) && n_in <= INT64_MAX &&
                     n_in > 0 && weight->shape[0] > 0 && n_in % (uint64_t)group == 0,
                 BRIM_E_SHAPE,
                 "%s: tensor %s has %" PRId64 " words in a row: no multiple of its group of %d "
                 "values",
                 path, weight->name, weight->shape[1], group);
    int64_t n_group = (int64_t)n_in / group;
    const struct brim_file_tensor *both[] = {scales, biases};
    for (int i = 0; i < 2; i++)
        BRIM_REQUIRE(err,
                     both[i]->n_dim == 2 && both[i]->shape[0] == weight->shape[0] &&
                         both[i]->shape[1] == n_group,
                     BRIM_E_SHAPE,
                     "%s: tensor %s must have the shape [%" PRId64 ", %" PRId64
                     "] for %d bits in groups of %d",
                     path, both[i]->name, weight->shape[0], n_group, bits, group);
    *out = (struct brim_weight){.kind = BRIM_WEIGHT_AFFINE4,
                                .dtype = dtype,
                                .n_out = weight->shape[0],
                                .n_in = (int64_t)n_in,
                                .group = group,
                                .data = weight->data,
                                .data_bytes = (size_t)weight->n_bytes,
                                .scales = scales->data,
                                .biases = biases->data};
    return BRIM_OK;
}

brim_status brim_hf_weight(const struct brim_checkpoint *checkpoint, const char *name,
                           struct brim_weight *out, brim_error *err)
{
    const char *path = checkpoint->path;
    const struct brim_file_tensor *t = brim_table_find(&checkpoint->table, name);
    size_t len = strlen(name);
    BRIM_REQUIRE(err, t && len <= BRIM_MAX_NAME, BRIM_E_MISSING, "%s: tensor %s is missing", path,
                 name);
    if (len > 7 && strcmp(name + len - 7, ".weight") == 0) {
        char scales_name[BRIM_MAX_NAME + 16];
        snprintf(scales_name, sizeof scales_name, "%.*s.scales", (int)len - 7, name);
        const struct brim_file_tensor *scales = brim_table_find(&checkpoint->table, scales_name);
        if (scales) return affine_weight(checkpoint, t, scales, name, len - 7, out, err);
    }
    enum brim_dtype dtype;
    BRIM_REQUIRE(err, float_dtype(t, &dtype), BRIM_E_UNSUPPORTED,
                 "%s: tensor %s has type %s%s; BF16, F16 and F32 work, and U32 with scales", path,
                 name, t->type_name, t->storage == BRIM_STORAGE_U32 ? " without scales" : "");
    BRIM_REQUIRE(err, t->n_dim >= 1 && t->n_dim <= 2 && t->n_bytes > 0, BRIM_E_SHAPE,
                 "%s: tensor %s has %d dimensions or no elements, 1 or 2 work", path, name,
                 t->n_dim);
    *out = (struct brim_weight){.kind = BRIM_WEIGHT_DENSE,
                                .dtype = dtype,
                                .n_out = t->n_dim == 2 ? t->shape[0] : 1,
                                .n_in = t->shape[t->n_dim - 1],
                                .data = t->data,
                                .data_bytes = (size_t)t->n_bytes};
    return BRIM_OK;
}
