/* SPDX-License-Identifier: Apache-2.0
 * The sampler on the GPU against the definition in plain C: penalty, temperature, top-k, top-p,
 * min-p and the draw on sorted candidates in f64; a different token passes only where the draw or a
 * cut lies within 1e-6 of the sum from a boundary. Ends with "N passed, N failed, N skipped".
 *   gpu_check_sample [short | tiny PART | one SETTING [equal]]
 * tiny: each setting of a small vocabulary once, for compute-sanitizer; PART: a third of them,
 * 0..2. one: a single call, for racecheck, in blocks of 64 threads (the source compiled here once
 * more), which a call that looks for keys bit by bit would not end without; equal: with many equal
 * logits and two ranges. */
#include <algorithm>

#include "model_judge.cuh"

#define BRIM_SAMPLE_THREADS 64
#define brim_cuda_sample small_sample
#include "cuda/model/sample.cu"
#undef brim_cuda_sample

struct setting {
    float temperature, top_p, min_p, penalty;
    int32_t top_k;
};

struct choice {
    int32_t id;
    bool near_tie;
};

/* ranges: pairs begin, end. */
static choice reference(std::vector<float> logits, const std::vector<int32_t> &ranges,
                        const std::vector<int32_t> &recent, const setting &s, float uniform)
{
    std::vector<bool> seen(logits.size());
    if (s.penalty != 1)
        for (int32_t id : recent) {
            if (seen[(size_t)id]) continue;
            seen[(size_t)id] = true;
            float &x = logits[(size_t)id];
            x = x > 0 ? x / s.penalty : x * s.penalty;
        }
    std::vector<int32_t> ids;
    for (size_t r = 0; r < ranges.size(); r += 2)
        for (int32_t id = ranges[r]; id < ranges[r + 1]; id++) {
            if (!(logits[(size_t)id] < INFINITY)) return {-1, false};
            ids.push_back(id);
        }
    std::stable_sort(ids.begin(), ids.end(),
                     [&](int32_t a, int32_t b) { return logits[(size_t)a] > logits[(size_t)b]; });
    float largest = logits[(size_t)ids[0]];
    if (largest == -INFINITY) return {-1, false};
    if (s.temperature < 1e-5f) return {ids[0], false};
    bool by_rank = s.top_p < 1;
    if (s.top_k > 0 && (size_t)s.top_k < logits.size()) {
        by_rank = true;
        if ((size_t)s.top_k < ids.size()) ids.resize((size_t)s.top_k);
    }
    std::vector<double> weight;
    double sum = 0;
    for (int32_t id : ids) {
        weight.push_back((double)expf((logits[(size_t)id] - largest) / s.temperature));
        sum += weight.back();
    }
    bool near = false;
    if (s.top_p < 1) {
        double enough = (double)s.top_p * sum, upto = 0;
        size_t n = 0;
        while (n < ids.size() && (n == 0 || upto < enough)) {
            upto += weight[n++];
            near |= fabs(upto - enough) < 1e-6 * sum;
        }
        ids.resize(n);
        weight.resize(n);
    }
    for (size_t i = 1; i < weight.size(); i++)
        if (weight[i] < (double)s.min_p) weight[i] = 0;
    if (!by_rank) { /* from the highest id down */
        std::vector<std::pair<int32_t, double>> both;
        for (size_t i = 0; i < ids.size(); i++) both.push_back({ids[i], weight[i]});
        std::sort(both.rbegin(), both.rend());
        for (size_t i = 0; i < ids.size(); i++) ids[i] = both[i].first, weight[i] = both[i].second;
    }
    sum = 0;
    for (double w : weight) sum += w;
    double target = (double)uniform * sum, upto = 0;
    int32_t chosen = ids[0];
    for (size_t i = 0; i < ids.size(); i++) {
        if (weight[i] <= 0) continue;
        chosen = ids[i];
        upto += weight[i];
        near |= fabs(upto - target) < 1e-6 * sum;
        if (upto > target) break;
    }
    return {chosen, near};
}

static bool is_one; /* a call in small blocks */

static void check(const std::vector<float> &logits, const std::vector<int32_t> &ranges,
                  const std::vector<int32_t> &recent, const setting &s, float uniform,
                  const std::string &what)
{
    device_array<float> d_logits(logits), d_uniform(std::vector<float>{uniform});
    device_array<int32_t> d_ranges(ranges), d_recent(recent), id(std::vector<int32_t>{-7});
    device_array<int64_t> advance(std::vector<int64_t>{41});
    brim_cuda_sample_args a = {};
    a.n_vocab = (int64_t)logits.size(), a.logits = d_logits.ptr;
    a.ranges = d_ranges.ptr, a.n_range = (int)ranges.size() / 2;
    a.temperature = s.temperature, a.top_p = s.top_p, a.min_p = s.min_p, a.top_k = s.top_k;
    a.repeat_penalty = s.penalty, a.recent = d_recent.ptr, a.n_recent = (int64_t)recent.size();
    a.uniform = d_uniform.ptr, a.id = id.ptr, a.advance = advance.ptr;
    static device_array<uint8_t> work(BRIM_CUDA_SAMPLE_BYTES); /* zeroed once */
    static bool ready;
    if (!ready) CHECK(cudaMemset(work.ptr, 0, work.n));
    ready = true;
    a.workspace = work.ptr;
    RUN((is_one ? small_sample : brim_cuda_sample)(&a, NULL, &err));
    int32_t got = id.to_host()[0];
    choice want = reference(logits, ranges, recent, s, uniform);
    expect(got == want.id || (want.near_tie && got >= 0),
           what + ": token " + std::to_string(got) + ", not " + std::to_string(want.id));
    expect(advance.to_host()[0] == 42, what + ": the position moves on by one");
}

int main(int argc, char **argv)
{
    is_one = argc > 2 && !strcmp(argv[1], "one");
    bool equal = is_one && argc > 3;
    bool is_tiny = is_one || (argc > 2 && !strcmp(argv[1], "tiny"));
    int part = is_tiny ? atoi(argv[2]) : 0;
    bool is_short = is_tiny || (argc > 1 && !strcmp(argv[1], "short"));
    brim_cuda_device device;
    brim_error err = {};
    if (brim_cuda_device_get(0, &device, &err) != BRIM_OK) {
        printf("skipped: %s\n0 passed, 0 failed, 1 skipped\n", err.text);
        return 77;
    }
    brim_rng rng;
    brim_rng_seed(&rng, 7);
    const setting settings[] = {
        {0, 1, 0, 1, 0},         {0, 1, 0, 1.3f, 0},      {1, 1, 0, 1, 0},
        {0.7f, 1, 0.05f, 1, 0},  {1, 1, 0, 1, 1},         {0.8f, 1, 0, 1, 40},
        {1.5f, 1, 0, 1, 5000},   {1, 0.9f, 0, 1, 0},      {0.6f, 0.95f, 0, 1.1f, 20},
        {2, 0.99f, 0.02f, 1, 0}, {1, 0, 0, 1, 0},         {1, 0.5f, 0.3f, 1, 7},
        {100, 1, 0, 1, 0},       {0.05f, 0.9f, 0, 1, 50}, {1, 1, 1, 1, 0}};
    for (int64_t n_vocab : {1, 7, 512, 4099, 49152, 151936}) {
        if (is_short && n_vocab > 5000) break;
        if (is_tiny && n_vocab != 512) continue;
        std::vector<float> logits = randoms((size_t)n_vocab, &rng, 3), coarse = logits;
        for (float &x : coarse) x = floorf(x); /* many equal logits */
        int32_t end = (int32_t)(n_vocab > 100 ? n_vocab - 30 : n_vocab);
        std::vector<int32_t> ranges = {0, end}, holes = ranges, recent;
        if (n_vocab > 100) holes = {3, 50, 60, end};
        logits[(size_t)end - 1] += 1;
        for (int i = 0; i < 70; i++)
            recent.push_back((int32_t)(brim_rng_u32(&rng) % (uint32_t)n_vocab));
        std::vector<float> padded = logits;
        for (size_t i = (size_t)end; i < padded.size(); i++) padded[i] = i % 2 ? NAN : 1e30f;
        for (const setting &s : settings) {
            if (is_tiny && (&s - settings) % (is_one ? 15 : 3) != part) continue;
            std::string what = "vocabulary " + std::to_string(n_vocab) + " setting " +
                               std::to_string(&s - settings);
            for (float u : {0.0f, brim_rng_uniform(&rng), brim_rng_uniform(&rng), 0.99999994f}) {
                /* the reference sorts: of large vocabularies the middle is enough */
                if ((n_vocab > 50000 || is_tiny) && (u == 0 || u > 0.9999f)) continue;
                if (!equal) check(padded, ranges, recent, s, u, what);
                if (!is_one || equal)
                    check(coarse, holes, recent, s, u, what + " with equal logits");
                if (is_tiny) break;
            }
        }
        if (is_one || (is_tiny && part > 0)) continue;
        for (float bad : {NAN, INFINITY}) {
            std::vector<float> x = logits;
            x[(size_t)(end / 2)] = bad;
            for (int i : {0, 5})
                check(x, ranges, {}, settings[i], 0.5f, "a logit that is not finite");
        }
        std::vector<float> none((size_t)n_vocab, -INFINITY), one = none;
        one[(size_t)end - 1] = -5;
        check(none, ranges, {}, settings[0], 0.5f, "nothing but -infinity");
        for (int i : {0, 2, 5, 7}) check(one, ranges, {}, settings[i], 0.5f, "one candidate");
    }
    if (!is_short) { /* more than the likeliest's blocks look at in one round */
        std::vector<float> logits = randoms(300001, &rng, 3);
        for (float &x : logits) x = floorf(x * 4);
        check(logits, {5, 290000, 290007, 300001}, {}, settings[0], 0.5f, "a long vocabulary");
        logits[300000] = 1e9f;
        check(logits, {5, 290000, 290007, 300001}, {}, settings[0], 0.5f, "the last of many");
    }
    printf("%d passed, %d failed, 0 skipped\n", n_passed, n_failed);
    return n_failed != 0;
}
