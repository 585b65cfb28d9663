/* SPDX-License-Identifier: Apache-2.0
 * Length of segments and windows, and where their workspace lies. */
#include "plan/kda_split.h"

#include "base/count.h"
#include "plan/kda_route_table.h"

enum {
    RECORD_BYTES = 12 * 4, /* src/cuda/kda/layout.h; a unit test compares them */
    STATE_BYTES = 128 * 128 * 4
};

/* Before the first and after the last chunk of a CTA: start, first preparation, drain. */
static const double fixed_chunks = 4;

double brim_kda_split_cost(int64_t n_segment, int64_t n_processor, int length, int window)
{
    int64_t n_wave = brim_ceil_div(n_segment, n_processor);
    return (double)n_wave * (length + window + fixed_chunks);
}

enum { JOIN_BLOCKS = 8 }; /* CTAs that join one task's states */

brim_status brim_kda_split_check(int length, int window, brim_error *err)
{
    BRIM_REQUIRE(err,
                 length >= 0 && length <= BRIM_KDA_SPLIT_MAX_LENGTH && window >= 0 &&
                     window <= BRIM_KDA_SPLIT_MAX_WINDOW,
                 BRIM_E_RANGE,
                 "kda: split_length %d lies outside [0, %d] or split_window %d outside [0, %d]",
                 length, BRIM_KDA_SPLIT_MAX_LENGTH, window, BRIM_KDA_SPLIT_MAX_WINDOW);
    BRIM_REQUIRE(err, length == 0 || window <= length, BRIM_E_RANGE,
                 "kda: split_window %d is longer than split_length %d", window, length);
    return BRIM_OK;
}

/* One chunk forgets everything under the gates of today's models; a longer segment can afford to
 * look back further, and is then cut under weaker gates too. */
static int choose_window(int length)
{
    int window = 1 + length / 32;
    return window < BRIM_KDA_SPLIT_MAX_WINDOW ? window : BRIM_KDA_SPLIT_MAX_WINDOW;
}

double brim_kda_split_cost_exact(int64_t n_seq, int64_t n_segment, int64_t n_most,
                                 int64_t n_value_head, int64_t n_processor, int length)
{
    /* a sequence's last segment has neither map nor written state, its first no map */
    int64_t n_map = 2 * n_segment - 3 * n_seq, n_join = n_most > 2 ? n_most - 2 : 0;
    if (n_map < n_segment - n_seq) n_map = n_segment - n_seq;
    const struct brim_kda_join_cost *c = &brim_kda_join_cost;
    int64_t n_wave = brim_ceil_div(n_map * n_value_head, n_processor) +
                     brim_ceil_div(n_segment * n_value_head, n_processor);
    int64_t n_behind = n_join * brim_ceil_div(n_seq * n_value_head * JOIN_BLOCKS, n_processor);
    return (double)n_wave * (length * c->chunk_us + c->fixed_us) + (double)n_behind * c->join_us +
           c->call_us;
}

/* Offsets and sizes from length, window and join. */
static void lay_out(struct brim_kda_split_plan *plan, int64_t n_seq, int64_t n_row, int64_t longest,
                    int64_t n_value_head, bool packed)
{
    plan->n_slot = packed ? n_row / ((int64_t)plan->length * BRIM_KDA_CHUNK) + n_seq
                          : n_seq * brim_ceil_div(longest, plan->length);
    plan->state_at = (size_t)(plan->n_slot * n_value_head) * RECORD_BYTES;
    plan->state_at = (plan->state_at + 127) / 128 * 128;
    plan->workspace_bytes = plan->state_at + (size_t)(n_seq * n_value_head) * STATE_BYTES;
}

void brim_kda_split_plan_join(struct brim_kda_split_plan *plan, int64_t n_seq, int64_t n_value_head)
{
    size_t states = (size_t)(plan->n_slot * n_value_head) * STATE_BYTES;

    plan->join = true;
    plan->map_at = plan->state_at + (size_t)(n_seq * n_value_head) * STATE_BYTES;
    plan->written_at = plan->map_at + states;
    plan->workspace_bytes = plan->written_at + states;
}

/* The length of least cost, each with its window; exact: the joined chain, without windows. */
static struct brim_kda_split_plan choose(int64_t n_seq, int64_t n_row, int64_t max_tok,
                                         int64_t n_value_head, bool packed, int64_t n_processor,
                                         int length, int window, bool exact)
{
    struct brim_kda_split_plan plan = {0};
    int64_t longest = brim_ceil_div(max_tok > 0 ? max_tok : 1, BRIM_KDA_CHUNK);
    double best = 0;

    for (int64_t n = 1; n == 1 || (n <= longest && n <= 4 * n_processor); n++) {
        int l = length > 0 ? length : (int)brim_ceil_div(longest, n);
        int w = window > 0 ? window : choose_window(l);
        int64_t n_most = brim_ceil_div(longest, l);
        int64_t n_segment =
            packed ? brim_ceil_div(n_row, (int64_t)l * BRIM_KDA_CHUNK) : n_seq * n_most;
        double cost = exact
                          ? brim_kda_split_cost_exact(n_seq, n_segment < n_seq ? n_seq : n_segment,
                                                      n_most, n_value_head, n_processor, l)
                          : brim_kda_split_cost(n_segment * n_value_head, n_processor, l, w);
        if (plan.length == 0 || cost < best) {
            best = cost;
            plan.length = l;
            plan.window = exact ? 0 : w;
        }
        if (length > 0) break;
    }
    if (plan.window > plan.length) plan.window = plan.length;
    lay_out(&plan, n_seq, n_row, longest, n_value_head, packed);
    return plan;
}

struct brim_kda_split_plan brim_kda_split_plan_make(int64_t n_seq, int64_t n_row, int64_t max_tok,
                                                    int64_t n_value_head, bool packed,
                                                    int64_t n_processor, int length, int window)
{
    return choose(n_seq, n_row, max_tok, n_value_head, packed, n_processor, length, window, false);
}

struct brim_kda_split_plan brim_kda_split_plan_exact(int64_t n_seq, int64_t n_row, int64_t max_tok,
                                                     int64_t n_value_head, bool packed,
                                                     int64_t n_processor, int length)
{
    struct brim_kda_split_plan plan =
        choose(n_seq, n_row, max_tok, n_value_head, packed, n_processor, length, 0, true);
    brim_kda_split_plan_join(&plan, n_seq, n_value_head);
    return plan;
}
