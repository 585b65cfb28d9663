/* SPDX-License-Identifier: Apache-2.0
 * The inputs of check/kda_odd.h on the GPU, for every route named: the first is held against fp64,
 * the others, those that cut apart, must have its bits; and a single empty sequence.
 *     check_kda_inputs [route[,route...]] [short]
 * Exit status 1 on any failure. */
#include "check/kda_odd.h"
#include "cuda/kda_judge.h"

/* The first route against fp64 (judged by the bars of `bars`), the others against it; those that
 * cut within 1.2 times its error. */
static void check_case(struct kda_case *c, const struct kda_spec *spec, enum kda_regime bars,
                       const char *what)
{
    struct outputs first = {0};
    struct kda_spec judged = *spec;
    int n_task = (int)(c->args.n_seq * c->args.n_value_head);
    struct kda_error *base = kda_alloc((size_t)n_task * sizeof *base);
    judged.regime = bars;
    for (int i = 0; i < n_route; i++) {
        struct kda_device d;
        char text[96];
        route = routes[i];
        kda_device_make(&d, c, route);
        run_and_fetch(&d, what);
        if (i == 0) {
            judge(c, &judged, what);
            first = outputs_keep(c);
            for (int j = 0; j < n_task; j++)
                base[j] = kda_measure(&c->args, j / c->args.n_value_head, j % c->args.n_value_head);
        } else if (kda_cuts(route)) {
            for (int j = 0; j < n_task; j++) {
                struct kda_error e =
                    kda_measure(&c->args, j / c->args.n_value_head, j % c->args.n_value_head);
                snprintf(text, sizeof text, "%s, task %d: %.2e %.2e beside %.2e %.2e", route, j,
                         e.out, e.state, base[j].out, base[j].state);
                verdict(e.finite && e.out <= 1.2 * base[j].out + 1e-7 &&
                            e.window <= 1.2 * base[j].window + 1e-7 &&
                            e.state <= 1.2 * base[j].state + 1e-7,
                        what, text);
            }
        } else {
            snprintf(text, sizeof text, "%s differs from %s", route, routes[0]);
            verdict(outputs_same(&first, c), what, text);
        }
        kda_device_free(&d);
    }
    free(base);
    outputs_drop(&first);
}

static void check_odd(void)
{
    static struct kda_odd o;
    for (int i = 0; i < KDA_N_ODD; i++) {
        kda_odd_make(&o, i, brief);
        check_case(&o.c, &o.spec, o.bars, o.what);
        kda_case_free(&o.c);
    }
}

static void check_not_finite(void)
{
    for (int where = 0; where < KDA_N_POISON; where++)
        for (int x = 0; x < 3; x++) {
            struct kda_case c, clean;
            char what[48];
            if (brief && (where + x) % 2) continue;
            kda_poison_make(&c, &clean, (enum kda_poison)where, x, what);
            for (int i = 0; i < n_route; i++) {
                struct kda_device d;
                route = routes[i];
                kda_device_make(&d, &clean, route);
                run_and_fetch(&d, what);
                kda_device_free(&d);
                kda_device_make(&d, &c, route);
                run_and_fetch(&d, what);
                kda_device_free(&d);
                const char *fault = kda_poison_fault(&c, &clean, (enum kda_poison)where);
                verdict(!fault, what, fault);
            }
            kda_case_free(&c);
            kda_case_free(&clean);
        }
}

/* One sequence of no tokens: its state passes through, as the only thing there is. */
static void check_empty(void)
{
    static const int64_t none[] = {0};
    for (int form = 0; form < 3; form++) {
        static const char *const names[] = {"empty, fixed", "empty, packed", "empty, rows behind"};
        struct kda_spec spec = kda_odd_spec(0, KDA_TYPICAL);
        struct kda_case c;
        if (form > 0) spec.lengths = none;
        if (form == 2) spec.n_tok = 3;
        kda_case_make(&c, &spec);
        for (int i = 0; i < n_route; i++) {
            struct kda_device d;
            route = routes[i];
            kda_device_make(&d, &c, route);
            run_and_fetch(&d, names[form]);
            verdict(!memcmp(c.initial, c.final, c.state_bytes), names[form], "the state changed");
            bool zero = true;
            for (size_t j = 0; j < c.v_bytes / 2; j++) zero = zero && c.out[j] == 0;
            verdict(zero, names[form], "rows behind the last offset are not zero");
            kda_device_free(&d);
        }
        kda_case_free(&c);
    }
}

int main(int argc, char **argv)
{
    int status = kda_begin(argc, argv, "m128,split,split-join");
    if (status) return status;
    check_odd();
    check_not_finite();
    check_empty();
    return kda_end("odd inputs");
}
