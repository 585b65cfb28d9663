/* SPDX-License-Identifier: Apache-2.0
 * Verdicts of the checks of the model's kernels: how many passed, and by how much the worst element
 * of an output misses its bound. */
#ifndef BRIM_TESTS_MODEL_JUDGE_CUH
#define BRIM_TESTS_MODEL_JUDGE_CUH

#include "model_device.h"

static int n_passed, n_failed;

static void expect(bool ok, const std::string &what)
{
    ok ? n_passed++ : n_failed++;
    if (!ok && n_failed < 40) printf("FAILED %s\n", what.c_str());
}

/* Largest |got - want| / (bound of the element); NaN counts as infinite. */
struct worst_error {
    double ratio = 0, got = 0, want = 0;
    size_t at = 0;
    void see(double value, double reference, double bound, size_t i)
    {
        double r = fabs(value - reference) / bound;
        if (!(r <= 1e30)) r = 1e30;
        if (r > ratio) ratio = r, got = value, want = reference, at = i;
    }
    std::string text() const
    {
        char buf[128];
        snprintf(buf, sizeof buf, " (element %zu: %.8g, not %.8g, %.2f of the bound)", at, got,
                 want, ratio);
        return buf;
    }
};

/* Rounding moves a bf16 by at most BF16 / 2 of itself, a float by U. */
static const double BF16 = 1.0 / 128, U = 1.0 / (1 << 24);

#endif
