/* SPDX-License-Identifier: Apache-2.0
 * kernels.h described at run time, for callers that do not read C headers. */
#include <stdio.h>
#include <string.h>

#include "brim/kernels.h"

struct member {
    const char *name;
    size_t offset, size;
    char kind;
};

#define AT(type, member, kind)                                             \
    {                                                                      \
#member, offsetof(type, member), sizeof(((type *)0)->member), kind \
    }
#define KDA_P(m) AT(brim_kda_args, m, 'p')
#define KDA_I(m) AT(brim_kda_args, m, 'i')
#define KDA_F(m) AT(brim_kda_args, m, 'f')
#define KDA_STRIDE(m) KDA_I(m.batch), KDA_I(m.token), KDA_I(m.head)

static const struct member kda_args[] = {
    KDA_I(device),
    KDA_P(stream),
    KDA_I(n_thread),
    KDA_P(workspace),
    KDA_I(workspace_bytes),
    KDA_P(route),
    KDA_I(allow_split),
    KDA_I(split_length),
    KDA_I(split_first),
    KDA_I(split_window),
    KDA_I(split_exact),
    KDA_I(n_seq),
    KDA_I(n_tok),
    KDA_I(max_tok),
    KDA_I(n_head),
    KDA_I(n_value_head),
    KDA_I(head_dim),
    KDA_P(cu_seqlens),
    KDA_I(offset_bytes),
    KDA_P(q),
    KDA_P(k),
    KDA_P(v),
    KDA_P(g),
    KDA_P(beta),
    KDA_P(out),
    KDA_STRIDE(q_stride),
    KDA_STRIDE(k_stride),
    KDA_STRIDE(v_stride),
    KDA_STRIDE(g_stride),
    KDA_STRIDE(out_stride),
    KDA_STRIDE(beta_stride),
    KDA_I(qkv_dtype),
    KDA_I(g_dtype),
    KDA_I(beta_dtype),
    KDA_I(gate),
    KDA_F(lower_bound),
    KDA_P(a_log),
    KDA_P(dt_bias),
    KDA_F(scale),
    KDA_I(flags),
    KDA_P(initial_state),
    KDA_P(final_state),
    KDA_I(state_dtype),
    KDA_I(state_stride),
    KDA_P(state_index),
    KDA_I(n_slot),
    KDA_P(fresh),
    KDA_P(checkpoints),
};

static const struct member kda_plan[] = {
    AT(brim_kda_plan, route, 's'),
    AT(brim_kda_plan, reason, 's'),
    AT(brim_kda_plan, workspace_bytes, 'i'),
};

#define W4_P(m) AT(brim_w4_args, m, 'p')
#define W4_I(m) AT(brim_w4_args, m, 'i')

static const struct member w4_args[] = {
    W4_I(device), W4_P(stream),   W4_I(n_thread), W4_P(workspace),   W4_I(workspace_bytes),
    W4_I(n_row),  W4_I(n_in),     W4_I(n_out),    W4_I(group),       W4_P(x),
    W4_P(y),      W4_I(x_stride), W4_I(y_stride), W4_I(x_dtype),     W4_I(y_dtype),
    W4_P(codes),  W4_P(scales),   W4_P(biases),   W4_I(param_dtype), W4_P(packed),
    W4_I(level),  W4_I(split),    W4_I(policy),   W4_P(pinned),      W4_I(plane_dtype),
};

static const struct member w4_plan[] = {
    AT(brim_w4_plan, kernel, 's'),
    AT(brim_w4_plan, split.split, 'i'),
    AT(brim_w4_plan, workspace_bytes, 'i'),
};

static const struct member split_plan[] = {
    AT(brim_split_plan, matvec, 'i'),           AT(brim_split_plan, split, 'i'),
    AT(brim_split_plan, base_groups, 'i'),      AT(brim_split_plan, launched_groups, 'i'),
    AT(brim_split_plan, partition_inputs, 'i'),
};

static const struct {
    const char *name;
    size_t size, n_member;
    const struct member *members;
} structs[] = {
#define STRUCT(type, members)                                          \
    {                                                                  \
#type, sizeof(type), sizeof members / sizeof *members, members \
    }
    STRUCT(brim_kda_args, kda_args),     STRUCT(brim_kda_plan, kda_plan),
    STRUCT(brim_w4_args, w4_args),       STRUCT(brim_w4_plan, w4_plan),
    STRUCT(brim_split_plan, split_plan),
};

size_t brim_struct_layout(const char *name, char *text, size_t capacity)
{
    for (size_t s = 0; name && s < sizeof structs / sizeof *structs; s++) {
        if (strcmp(name, structs[s].name)) continue;
        size_t len = (size_t)snprintf(text, capacity, "%zu\n", structs[s].size);
        for (size_t i = 0; i < structs[s].n_member; i++) {
            const struct member *m = &structs[s].members[i];
            len += (size_t)snprintf(len < capacity ? text + len : NULL,
                                    len < capacity ? capacity - len : 0, "%s %zu %zu %c\n", m->name,
                                    m->offset, m->size, m->kind);
        }
        return len;
    }
    return 0;
}
