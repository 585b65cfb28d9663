/* SPDX-License-Identifier: Apache-2.0
 * The same numbers in other places, for every route named: heads before tokens, views of one packed
 * projection, beta shared by heads or tokens, states far apart, no state at all. Bits are those of
 * the plain layout.
 *     check_kda_layout [route[,route...]] [short]
 * Exit status 1 on any failure. */
#include "cuda/kda_judge.h"

enum { N_SEQ = 2, N_TOK = 65, N_HEAD = 2, N_VALUE_HEAD = 4, STATE_GAP = 24 };

enum layout { HEADS_FIRST, PACKED_ROWS, PADDED_BATCH, N_LAYOUT };

static struct kda_spec spec_of(bool given)
{
    struct kda_spec spec = kda_plain(N_TOK, N_HEAD, KDA_TYPICAL);
    spec.n_seq = N_SEQ, spec.n_value_head = N_VALUE_HEAD,
    spec.gate = given ? BRIM_KDA_GATE_GIVEN : BRIM_KDA_GATE_LOWER_BOUND, spec.f32_decay = given,
    spec.checkpoints = 1, spec.seed = 41;
    return spec;
}

/* One operand: its rows of `width` elements, where they are and where they shall be. */
struct operand {
    const char *from;
    brim_kda_stride was, is;
    int64_t n_head, width, element, at; /* at: elements before the first in the common rows */
};

static void place(char *to, const struct operand *o, bool back, char *plain)
{
    for (int64_t n = 0; n < N_SEQ; n++)
        for (int64_t t = 0; t < N_TOK; t++)
            for (int64_t h = 0; h < o->n_head; h++) {
                int64_t was = n * o->was.batch + t * o->was.token + h * o->was.head;
                int64_t is = o->at + n * o->is.batch + t * o->is.token + h * o->is.head;
                size_t size = (size_t)(o->width * o->element);
                if (back)
                    memcpy(plain + was * o->element, to + is * o->element, size);
                else
                    memcpy(to + is * o->element, o->from + was * o->element, size);
            }
}

/* The strides of `layout` for an operand of n_head heads; row: elements from token to token. */
static brim_kda_stride strides(enum layout layout, int64_t n_head, int64_t width, int64_t row)
{
    if (layout == HEADS_FIRST)
        return (brim_kda_stride){n_head * N_TOK * width, width, N_TOK * width};
    if (layout == PACKED_ROWS) return (brim_kda_stride){N_TOK * row, row, width};
    return (brim_kda_stride){(N_TOK + 3) * n_head * width, n_head * width, width};
}

static void check_layout(enum layout layout, bool given)
{
    static const char *const names[] = {"heads first", "one packed projection", "padded batch"};
    struct kda_spec spec = spec_of(given);
    struct kda_case c;
    struct kda_device d;
    brim_error err = {0};
    char what[64];
    snprintf(what, sizeof what, "%s: %s, %s", route, names[layout], given ? "given" : "bounded");
    kda_case_make(&c, &spec);
    kda_device_make(&d, &c, route);
    run_and_fetch(&d, what);
    struct outputs want = outputs_keep(&c);

    /* all inputs but g, whose elements may be larger, in one buffer of rows */
    int64_t row = (2 * N_HEAD + N_VALUE_HEAD) * 128 + 8, g_element = given ? 4 : 2;
    enum { Q, K, V, BETA, N_TOGETHER, G = N_TOGETHER, OUT, N };
    const brim_kda_args *a = &c.args;
    struct operand o[N] = {
        [Q] = {(char *)c.q, a->q_stride, {0}, N_HEAD, 128, 2, 0},
        [K] = {(char *)c.k, a->k_stride, {0}, N_HEAD, 128, 2, N_HEAD * 128},
        [V] = {(char *)c.v, a->v_stride, {0}, N_VALUE_HEAD, 128, 2, 2 * N_HEAD * 128},
        [G] = {c.g, a->g_stride, {0}, N_VALUE_HEAD, 128, g_element, 0},
        [BETA] = {c.beta, a->beta_stride, {0}, N_VALUE_HEAD, 1, 2, row - 8},
        [OUT] = {(char *)c.out, a->out_stride, {0}, N_VALUE_HEAD, 128, 2, 0}};
    char *at[N];
    size_t bytes = (size_t)(N_SEQ * (N_TOK + 3) * row) * 4;
    char *host = kda_alloc(bytes);
    for (int i = 0; i < N; i++) {
        bool together = layout == PACKED_ROWS && i < N_TOGETHER;
        if (!together) o[i].at = 0;
        o[i].is = strides(layout, o[i].n_head, o[i].width,
                          together ? row : o[i].n_head * o[i].width + 16);
        if (!together || i == 0) memset(host, 0xFF, bytes); /* NaN between the rows */
        if (i != OUT) place(host, &o[i], false, NULL);
        if (!together) at[i] = kda_upload(&d, host, bytes);
        if (together && i == N_TOGETHER - 1) {
            char *all = kda_upload(&d, host, bytes);
            for (int j = 0; j < N_TOGETHER; j++) at[j] = all + o[j].at * o[j].element;
        }
    }
    brim_kda_args b = d.args;
    b.route = route;
    b.q = at[Q], b.k = at[K], b.v = at[V], b.g = at[G], b.beta = at[BETA], b.out = at[OUT];
    b.q_stride = o[Q].is, b.k_stride = o[K].is, b.v_stride = o[V].is, b.g_stride = o[G].is;
    b.beta_stride = o[BETA].is, b.out_stride = o[OUT].is;
    outputs_poison(&d);
    verdict(brim_kda_prefill(&b, &err) == BRIM_OK, what, err.text);
    verdict(kda_device_fetch(&d), what, "a byte outside a buffer changed");
    CUDA_OK(cudaMemcpy(host, at[OUT], bytes, cudaMemcpyDeviceToHost));
    place(host, &o[OUT], true, (char *)c.out);
    verdict(outputs_same(&want, &c), what, "bits differ");
    /* between the rows of the output all is as it was */
    char *clean = kda_alloc(bytes);
    memset(clean, 0xFF, bytes);
    o[OUT].from = (char *)c.out;
    place(clean, &o[OUT], false, NULL);
    verdict(!memcmp(clean, host, bytes), what, "something between the rows changed");
    free(host), free(clean);
    outputs_drop(&want);
    kda_device_free(&d);
    kda_case_free(&c);
}

/* beta with strides of 0, beside the same numbers written out. */
static void check_shared_beta(bool heads)
{
    struct kda_spec spec = spec_of(false);
    struct kda_case c;
    struct kda_device d;
    char what[64];
    snprintf(what, sizeof what, "%s: beta shared by %s", route, heads ? "heads" : "tokens");
    kda_case_make(&c, &spec);
    uint16_t *beta = c.beta;
    for (int64_t t = 0; t < N_SEQ * N_TOK; t++)
        for (int h = 0; h < N_VALUE_HEAD; h++)
            beta[t * N_VALUE_HEAD + h] = heads ? beta[t * N_VALUE_HEAD] : beta[h];
    kda_device_make(&d, &c, route);
    run_and_fetch(&d, what);
    struct outputs want = outputs_keep(&c);
    if (heads)
        d.args.beta_stride.head = 0;
    else
        d.args.beta_stride.token = d.args.beta_stride.batch = 0;
    run_and_fetch(&d, what);
    verdict(outputs_same(&want, &c), what, "bits differ");
    outputs_drop(&want);
    kda_device_free(&d);
    kda_case_free(&c);
}

/* States far apart; no final state, no initial one, neither, no checkpoints: the rest stays. */
static void check_states(void)
{
    struct kda_spec spec = spec_of(false);
    struct kda_case c;
    struct kda_device d;
    brim_error err = {0};
    char what[64];
    snprintf(what, sizeof what, "%s: states", route);
    kda_case_make(&c, &spec);
    kda_device_make(&d, &c, route);
    run_and_fetch(&d, what);
    struct outputs want = outputs_keep(&c);
    size_t state = N_VALUE_HEAD * 65536, stride = state + STATE_GAP * 4;
    char *host = kda_alloc(N_SEQ * stride), *got = kda_alloc(N_SEQ * stride);
    memset(host, 0xFF, N_SEQ * stride);
    for (int n = 0; n < N_SEQ; n++)
        memcpy(host + (size_t)n * stride, (char *)c.initial + (size_t)n * state, state);
    brim_kda_args a = d.args;
    a.route = route, a.state_stride = N_VALUE_HEAD * 16384 + STATE_GAP;
    a.initial_state = a.final_state = kda_upload(&d, host, N_SEQ * stride);
    outputs_poison(&d);
    verdict(brim_kda_prefill(&a, &err) == BRIM_OK, what, err.text);
    verdict(kda_device_fetch(&d), what, "a byte outside a buffer changed");
    CUDA_OK(cudaMemcpy(got, a.final_state, N_SEQ * stride, cudaMemcpyDeviceToHost));
    for (int n = 0; n < N_SEQ; n++)
        memcpy(host + (size_t)n * stride, want.final + (size_t)n * state, state);
    verdict(!memcmp(host, got, N_SEQ * stride), what, "far apart and in place: not the same");
    verdict(!memcmp(want.out, c.out, c.v_bytes), what, "far apart: outputs differ");
    free(host), free(got);

    for (int form = 0; form < 4; form++) {
        static const char *const names[] = {"no final state", "no checkpoints", "neither",
                                            "none at all"};
        a = d.args;
        a.route = route;
        if (form != 1) a.final_state = NULL;
        if (form > 0) a.checkpoints = NULL;
        if (form == 3) { /* beside an initial state of zeros */
            CUDA_OK(cudaMemset((void *)a.initial_state, 0, c.state_bytes));
            outputs_poison(&d);
            verdict(run(&d, what) && kda_device_fetch(&d), what, "zeros");
            outputs_drop(&want);
            want = outputs_keep(&c);
            a.initial_state = NULL;
        }
        outputs_poison(&d);
        verdict(brim_kda_prefill(&a, &err) == BRIM_OK, what, err.text);
        verdict(kda_device_fetch(&d), what, "a byte outside a buffer changed");
        verdict(!memcmp(want.out, c.out, c.v_bytes), what, names[form]);
        bool nan = true;
        for (size_t i = 0; i < c.state_bytes; i++)
            nan = nan && ((unsigned char *)c.final)[i] == 0xFF;
        verdict(nan == (form != 1), what, names[form]);
    }
    outputs_drop(&want);
    kda_device_free(&d);
    kda_case_free(&c);
}

int main(int argc, char **argv)
{
    int status = kda_begin(argc, argv, "m128,split,split-join");
    if (status) return status;
    for (int i = 0; i < n_route; i++) {
        route = routes[i];
        for (int layout = 0; layout < N_LAYOUT; layout++) {
            if (!brief || layout == HEADS_FIRST) check_layout((enum layout)layout, false);
            if (!brief || layout == PACKED_ROWS) check_layout((enum layout)layout, true);
        }
        check_shared_beta(true);
        if (!brief) check_shared_beta(false);
        check_states();
    }
    return kda_end("layouts");
}
