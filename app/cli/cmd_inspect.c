/* SPDX-License-Identifier: Apache-2.0
 * brim inspect: what a model's files hold, without reading the weights. */
#include <inttypes.h>
#include <stdio.h>

#include "brim/tools.h"
#include "cli.h"
#include "commands.h"
#include "json.h"

static struct {
    bool tensors, json;
} args;

static const struct args_option options[] = {
    {"tensors", 0, ARGS_FLAG, &args.tensors, NULL, "list every tensor", 0, 0},
    {"json", 0, ARGS_FLAG, &args.json, NULL, "print one JSON object; lists every tensor", 0, 0},
};

static void print_text(const brim_inspection *inspection, const brim_inspect_summary *s)
{
    printf("format           %s\n", s->format);
    printf("family           %s\n", s->family);
    printf("chat template    %s\n", s->chat ? s->chat : "none");
    printf("layers           %" PRId64 "\n", s->n_layer);
    printf("embedding        %" PRId64 "\n", s->n_embd);
    printf("feed forward     %" PRId64 "\n", s->n_ff);
    printf("heads            %" PRId64 " of %" PRId64 ", %" PRId64 " for keys and values\n",
           s->n_head, s->head_dim, s->n_head_kv);
    printf("vocabulary       %" PRId64 "%s\n", s->n_vocab,
           s->tie_embeddings ? ", output tied to the embedding" : "");
    printf("context          %" PRId64 "\n", s->n_context);
    printf("rope             theta %g, scaling %s", s->rope_theta, s->rope_scaling);
    if (s->rope_factor != 1 && s->rope_factor != 0) printf(" by %g", s->rope_factor);
    printf("\nnorm epsilon     %g\n", s->norm_eps);
    if (s->quant_group) printf("quantization     MLX affine, 4 bits, group %d\n", s->quant_group);
    printf("end tokens      ");
    for (int i = 0; i < s->n_eos; i++) printf(" %d", (int)s->eos[i]);
    printf("%s\n", s->n_eos ? "" : " none");
    printf("parameters       %" PRIu64 "\n", s->n_parameter);
    printf("tensors          %zu, %" PRIu64 " bytes\n", s->n_tensor, s->tensor_bytes);
    printf("files            %" PRIu64 " bytes\n", s->file_bytes);
    for (size_t i = 0; args.tensors && i < s->n_tensor; i++) {
        brim_inspect_tensor t;
        brim_inspect_get_tensor(inspection, i, &t);
        printf("%s%-6s %12" PRIu64 "  %s [", i ? "" : "\ntype        bytes  name [shape]\n", t.type,
               t.n_bytes, t.name);
        for (int d = 0; d < t.n_dim; d++) printf("%s%" PRId64, d ? ", " : "", t.shape[d]);
        printf("]\n");
    }
}

static void print_json(const brim_inspection *inspection, const brim_inspect_summary *s)
{
    struct json json;
    jw_begin(&json, stdout);
    jw_object(&json);
    jw_text_at(&json, "format", s->format);
    jw_text_at(&json, "family", s->family);
    if (s->chat) jw_text_at(&json, "chat_template", s->chat);
    jw_int_at(&json, "n_layer", s->n_layer);
    jw_int_at(&json, "n_embd", s->n_embd);
    jw_int_at(&json, "n_ff", s->n_ff);
    jw_int_at(&json, "n_head", s->n_head);
    jw_int_at(&json, "n_head_kv", s->n_head_kv);
    jw_int_at(&json, "head_dim", s->head_dim);
    jw_int_at(&json, "n_vocab", s->n_vocab);
    jw_int_at(&json, "n_context", s->n_context);
    jw_real_at(&json, "norm_eps", s->norm_eps);
    jw_real_at(&json, "rope_theta", s->rope_theta);
    jw_text_at(&json, "rope_scaling", s->rope_scaling);
    jw_real_at(&json, "rope_factor", s->rope_factor);
    jw_bool_at(&json, "tie_embeddings", s->tie_embeddings);
    jw_bool_at(&json, "qkv_bias", s->qkv_bias);
    jw_bool_at(&json, "add_bos", s->add_bos);
    jw_int_at(&json, "bos", s->bos);
    jw_key(&json, "eos");
    jw_array(&json);
    for (int i = 0; i < s->n_eos; i++) jw_int(&json, s->eos[i]);
    jw_close(&json);
    jw_int_at(&json, "quantization_group", s->quant_group);
    jw_int_at(&json, "parameters", (int64_t)s->n_parameter);
    jw_int_at(&json, "tensor_bytes", (int64_t)s->tensor_bytes);
    jw_int_at(&json, "file_bytes", (int64_t)s->file_bytes);
    jw_key(&json, "tensors");
    jw_array(&json);
    for (size_t i = 0; i < s->n_tensor; i++) {
        brim_inspect_tensor t;
        brim_inspect_get_tensor(inspection, i, &t);
        jw_object(&json);
        jw_text_at(&json, "name", t.name);
        jw_text_at(&json, "type", t.type);
        jw_key(&json, "shape");
        jw_array(&json);
        for (int d = 0; d < t.n_dim; d++) jw_int(&json, t.shape[d]);
        jw_close(&json);
        jw_int_at(&json, "bytes", (int64_t)t.n_bytes);
        jw_close(&json);
    }
    jw_close(&json);
    jw_close(&json);
    jw_end(&json);
}

int cmd_inspect(int argc, char **argv)
{
    const struct args_command command = {
        .name = "inspect",
        .positional = "MODEL",
        .about = "Show what a model's files hold: configuration, sizes, tensors. Everything that "
                 "opening the model\n"
                 "checks is checked; the weights are not read.",
        .groups = {{"Options", options, sizeof(options) / sizeof(*options)}},
        .min_positional = 1,
        .max_positional = 1,
    };
    struct args_list words = {0};
    int exit_code;
    if (args_parse(&command, argc, argv, &words, &exit_code)) {
        brim_inspection *inspection = NULL;
        brim_error err = {0};
        if (brim_inspect_open(&inspection, words.items[0], cli_log_warning, NULL, &err) !=
            BRIM_OK) {
            exit_code = cli_fail(&err);
        } else {
            brim_inspect_summary summary;
            brim_inspect_get(inspection, &summary);
            if (args.json)
                print_json(inspection, &summary);
            else
                print_text(inspection, &summary);
            exit_code = cli_close_stdout(CLI_OK);
        }
        brim_inspect_close(&inspection);
    }
    args_list_free(&words);
    return exit_code;
}
