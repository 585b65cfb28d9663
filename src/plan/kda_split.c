/* SPDX-License-Identifier: Apache-2.0
 * Length of segments and windows, and where their workspace lies. */
#include "plan/kda_split.h"

#include "base/count.h"
#include "plan/kda_route_table.h"

enum {
    RECORD_BYTES = 12 * 4, /* src/cuda/kda/layout.h; a unit test compares them */
    STATE_BYTES = 128 * 128 * 4
};

/* A CTA's time is reckoned in halves of a chunk's: start, first preparation and drain take as long
 * as 1.5 chunks where another CTA has run before. */
enum { HALVES = 2, START_HALVES = 3 };

int64_t brim_kda_split_load(int64_t n_processor, int64_t n_first, int64_t first, int64_t n_rest,
                            int64_t rest)
{
    int64_t full = n_first / n_processor, more = n_first % n_processor;
    int64_t free_at = full * first, free_late = free_at + (more ? first : 0);
    int64_t even = brim_ceil_div(n_first * first + n_rest * rest, n_processor);
    int64_t low = even > free_late ? even : free_late;
    int64_t high = free_late + brim_ceil_div(n_rest, n_processor) * rest;
    while (low < high) { /* the least time in which so many are done */
        int64_t at = (low + high) / 2;
        int64_t n = (n_processor - more) * ((at - free_at) / rest);
        n += more * ((at - free_late) / rest);
        if (n >= n_rest)
            high = at;
        else
            low = at + 1;
    }
    return low;
}

enum { JOIN_BLOCKS = 8 }; /* CTAs that join one task's states */

brim_status brim_kda_split_check(int length, int first, int window, brim_error *err)
{
    BRIM_REQUIRE(err,
                 length >= 0 && length <= BRIM_KDA_SPLIT_MAX_LENGTH && window >= 0 &&
                     window <= BRIM_KDA_SPLIT_MAX_WINDOW,
                 BRIM_E_RANGE,
                 "kda: split_length %d lies outside [0, %d] or split_window %d outside [0, %d]",
                 length, BRIM_KDA_SPLIT_MAX_LENGTH, window, BRIM_KDA_SPLIT_MAX_WINDOW);
    BRIM_REQUIRE(err, length == 0 || window <= length, BRIM_E_RANGE,
                 "kda: split_window %d is longer than split_length %d", window, length);
    BRIM_REQUIRE(
        err, first == 0 || (length > 0 && first >= length && first <= BRIM_KDA_SPLIT_MAX_LENGTH),
        BRIM_E_RANGE,
        "kda: split_first %d needs a split_length, here %d, and is at least that, at most "
        "%d",
        first, length, BRIM_KDA_SPLIT_MAX_LENGTH);
    return BRIM_OK;
}

/* One chunk forgets everything under the gates of today's models; a longer segment can afford to
 * look back further, and is then cut under weaker gates too. */
static int choose_window(int length)
{
    int window = 1 + length / 64;
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

static int64_t longest_of(const struct brim_kda_split_call *call)
{
    return brim_ceil_div(call->max_tok > 0 ? call->max_tok : 1, BRIM_KDA_CHUNK);
}

/* Segments of a sequence of so many chunks, behind the first. */
static int64_t n_behind(int64_t chunks, int length, int first)
{
    return chunks > first ? brim_ceil_div(chunks - first, length) : 0;
}

/* Segments of all sequences of a packed call, whose lengths are not known, as if they were one. */
static int64_t n_packed(const struct brim_kda_split_call *call, int length)
{
    return brim_ceil_div(call->n_row, (int64_t)length * BRIM_KDA_CHUNK);
}

/* When the last processor is done where a CTA takes as long as its chunks, times `scale`, and
 * `start`. */
static int64_t load_of(const struct brim_kda_split_call *call, int length, int first, int window,
                       int64_t scale, int64_t start)
{
    int64_t n_task = call->n_seq * call->n_value_head, longest = longest_of(call);
    int64_t one = scale * brim_min_i64(first, longest) + start;
    int64_t each = scale * brim_min_i64(length + window, longest) + start;
    int64_t n_rest = n_task * n_behind(longest, length, first);
    if (call->packed) n_rest = n_packed(call, length) * call->n_value_head;
    if (call->packed && first == length)
        n_task = 0; /* all reckoned with a window, which is not far off */
    else if (call->packed)
        n_rest -= n_task * brim_ceil_div(first, length);
    return brim_kda_split_load(call->n_processor, n_task, one, n_rest > 0 ? n_rest : 0, each);
}

/* Offsets, sizes and load from the lengths. */
static void lay_out(struct brim_kda_split_plan *plan, const struct brim_kda_split_call *call)
{
    int64_t n_task = call->n_seq * call->n_value_head, longest = longest_of(call);
    int64_t behind = n_behind(longest, plan->length, plan->first);
    plan->n_slot = call->packed
                       ? call->n_row / ((int64_t)plan->length * BRIM_KDA_CHUNK) + call->n_seq
                       : call->n_seq * (1 + behind);
    plan->chunks = load_of(call, plan->length, plan->first, plan->window, 1, 0);
    plan->state_at = (size_t)(plan->n_slot * call->n_value_head) * RECORD_BYTES;
    plan->state_at = (plan->state_at + 127) / 128 * 128;
    plan->workspace_bytes = plan->state_at + (size_t)n_task * STATE_BYTES;
}

void brim_kda_split_plan_join(struct brim_kda_split_plan *plan, int64_t n_seq, int64_t n_value_head)
{
    size_t states = (size_t)(plan->n_slot * n_value_head) * STATE_BYTES;

    plan->join = true;
    plan->map_at = plan->state_at + (size_t)(n_seq * n_value_head) * STATE_BYTES;
    plan->written_at = plan->map_at + states;
    plan->workspace_bytes = plan->written_at + states;
}

/* Lengths of which the cheapest are taken. */
struct choice {
    int length, first, window;
    int64_t cost;
};

static void consider(struct choice *best, const struct brim_kda_split_call *call, int length,
                     int first)
{
    int window = call->window > 0 ? call->window : choose_window(length);
    if (window > length) {
        /* a pinned window stays as long as it is where a longer segment can be had */
        if (call->window > 0 && call->length == 0 && length < longest_of(call)) return;
        window = length;
    }
    int64_t cost = load_of(call, length, first, window, HALVES, START_HALVES);
    bool simpler = first == length && best->first > best->length;
    if (best->length == 0 || cost < best->cost || (cost == best->cost && simpler))
        *best = (struct choice){length, first, window, cost};
}

enum { MOST_ROUNDS = 4 }; /* short segments that a processor takes while others have a first one */

struct brim_kda_split_plan brim_kda_split_plan_make(const struct brim_kda_split_call *call)
{
    struct choice best = {0};
    int64_t longest = longest_of(call), n_task = call->n_seq * call->n_value_head;
    int64_t most = call->n_processor / (n_task > 0 && !call->packed ? n_task : 1) + 8;

    int whole = call->length > 0 ? call->length : (int)longest;
    consider(&best, call, whole, call->first > 0 ? call->first : whole);
    /* segments of a sequence: what one wave holds, and some more */
    for (int64_t n = 2; n <= most && n <= longest && call->length == 0; n++) {
        int equal = (int)brim_ceil_div(longest, n);
        consider(&best, call, equal, equal);
        int64_t n_round = n_task * n <= call->n_processor ? 1 : MOST_ROUNDS, behind = n - 1;
        for (int64_t round = 1; round <= n_round && !call->packed; round++) {
            /* such that a first one takes as long as `round` others, or one chunk less or more */
            int64_t window =
                call->window > 0 ? call->window : choose_window((int)(longest / (behind + round)));
            int64_t length = HALVES * (longest - round * window) - (round - 1) * START_HALVES;
            length /= HALVES * (behind + round);
            for (int more = 0; more < 2; more++, length++)
                if (length > 0 && longest - behind * length >= length)
                    consider(&best, call, (int)length, (int)(longest - behind * length));
        }
    }
    struct brim_kda_split_plan plan = {
        .length = best.length, .first = best.first, .window = best.window};
    lay_out(&plan, call);
    return plan;
}

struct brim_kda_split_plan brim_kda_split_plan_exact(const struct brim_kda_split_call *call)
{
    struct brim_kda_split_plan plan = {.length = call->length, .first = call->first};
    int64_t longest = longest_of(call);
    double best = 0;

    for (int64_t n = 1; n <= longest && n <= 4 * call->n_processor && call->length == 0; n++) {
        int length = (int)brim_ceil_div(longest, n);
        int64_t n_most = brim_ceil_div(longest, length);
        int64_t n_segment = call->packed ? n_packed(call, length) : call->n_seq * n_most;
        double cost = brim_kda_split_cost_exact(
            call->n_seq, n_segment < call->n_seq ? call->n_seq : n_segment, n_most,
            call->n_value_head, call->n_processor, length);
        if (plan.length == 0 || cost < best) {
            best = cost;
            plan.length = length;
        }
    }
    if (plan.first == 0) plan.first = plan.length;
    lay_out(&plan, call);
    brim_kda_split_plan_join(&plan, call->n_seq, call->n_value_head);
    return plan;
}
