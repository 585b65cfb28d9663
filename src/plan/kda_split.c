/* SPDX-License-Identifier: Apache-2.0
 * Length of segments and windows. */
#include "plan/kda_split.h"

enum {
    CHUNK = 32,
    RECORD_BYTES = 48 * 4, /* src/cuda/kda/layout.h; a unit test compares them */
    STATE_BYTES = 128 * 128 * 4
};

/* Before the first and after the last chunk of a CTA: start, first preparation, drain. */
static const double fixed_chunks = 4;

double brim_kda_split_cost(int64_t n_segment, int64_t n_processor, int length, int window)
{
    int64_t n_wave = (n_segment + n_processor - 1) / n_processor;
    return (double)n_wave * (length + window + fixed_chunks);
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* One chunk forgets everything under the gates of today's models; a longer segment can afford to
 * look back further, and is then cut under weaker gates too. */
static int choose_window(int length)
{
    int window = 1 + length / 16;
    return window < BRIM_KDA_SPLIT_MAX_WINDOW ? window : BRIM_KDA_SPLIT_MAX_WINDOW;
}

struct brim_kda_split_plan brim_kda_split_plan_make(int64_t n_seq, int64_t n_row, int64_t max_tok,
                                                    int64_t n_value_head, bool packed,
                                                    int64_t n_processor, int length, int window)
{
    struct brim_kda_split_plan plan = {0};
    int64_t longest = ceil_div(max_tok > 0 ? max_tok : 1, CHUNK);
    double best = 0;

    for (int64_t n = 1; n == 1 || (n <= longest && n <= 4 * n_processor); n++) {
        int l = length > 0 ? length : (int)ceil_div(longest, n);
        int w = window > 0 ? window : choose_window(l);
        int64_t n_segment =
            packed ? ceil_div(n_row, (int64_t)l * CHUNK) : n_seq * ceil_div(longest, l);
        double cost = brim_kda_split_cost(n_segment * n_value_head, n_processor, l, w);
        if (plan.length == 0 || cost < best) {
            best = cost;
            plan.length = l;
            plan.window = w;
        }
        if (length > 0) break;
    }
    if (plan.window > plan.length) plan.window = plan.length;
    plan.n_slot = packed ? n_row / ((int64_t)plan.length * CHUNK) + n_seq
                         : n_seq * ceil_div(longest, plan.length);
    plan.workspace_bytes = (size_t)(plan.n_slot * n_value_head) * RECORD_BYTES;
    plan.workspace_bytes = (plan.workspace_bytes + 127) / 128 * 128;
    plan.workspace_bytes += (size_t)(n_seq * n_value_head) * STATE_BYTES;
    return plan;
}
