/* SPDX-License-Identifier: Apache-2.0
 * Sampling parameters and logits from anyone: refused by name, or a token that exists and is never
 * a padding row of the vocabulary; the same seed gives the same token. Input: the parameters, then
 * logits as floats, then the timeline as bytes. */
#include "fuzz/fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "run/engine.h"
#include "run/sampler.h"

enum { N_VOCAB = 24, FIRST_PADDING = 20, HOLE = 7 };

struct parameters {
    float temperature, top_p, min_p, repeat_penalty;
    int32_t top_k, repeat_window;
    uint32_t seed;
};

static bool exists(int32_t id)
{
    return id >= 0 && id < FIRST_PADDING && id != HOLE;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct parameters p;
    float logits[N_VOCAB] = {0};
    if (size < sizeof(p)) return 0;
    memcpy(&p, data, sizeof(p));
    data += sizeof(p);
    size -= sizeof(p);
    size_t n = size < sizeof(logits) ? size : sizeof(logits);
    memcpy(logits, data, n);
    data += n;
    size -= n;
    int32_t *tokens = malloc((size + 1) * sizeof(*tokens));
    FUZZ_REQUIRE(tokens);
    for (size_t i = 0; i < size; i++) tokens[i] = data[i] % N_VOCAB;

    struct brim_id_range ranges[] = {{0, HOLE}, {HOLE + 1, FIRST_PADDING}};
    struct brim_model model = {.config = {.n_vocab = N_VOCAB}};
    brim_engine engine = {.model = &model, .sampled = ranges, .n_sampled = 2};
    brim_sampling sampling;
    brim_sampling_default(&sampling);
    sampling.temperature = p.temperature;
    sampling.top_p = p.top_p;
    sampling.min_p = p.min_p;
    sampling.repeat_penalty = p.repeat_penalty;
    sampling.top_k = p.top_k;
    sampling.repeat_window = p.repeat_window;
    sampling.seed = p.seed;

    int32_t ids[2] = {-1, -1};
    brim_status status[2];
    for (int run = 0; run < 2; run++) {
        brim_sampler *sampler = NULL;
        brim_error err = {0};
        status[run] = brim_sampler_open(&sampler, &engine, &sampling, &err);
        bool valid = p.temperature >= 0 && isfinite(p.temperature) && p.top_p >= 0 &&
                     p.top_p <= 1 && p.min_p >= 0 && p.min_p <= 1 && p.repeat_penalty > 0 &&
                     isfinite(p.repeat_penalty) && p.repeat_window >= -1;
        FUZZ_REQUIRE((status[run] == BRIM_OK) == valid);
        if (status[run] != BRIM_OK) {
            FUZZ_REQUIRE(status[run] == BRIM_E_RANGE && err.text[0] && !sampler);
            break;
        }
        status[run] = brim_sample_logits(sampler, logits, tokens, (int64_t)size, &ids[run], &err);
        if (status[run] == BRIM_OK)
            FUZZ_REQUIRE(exists(ids[run]));
        else
            FUZZ_REQUIRE(status[run] == BRIM_E_NOT_FINITE && err.text[0]);
        brim_sampler_close(&sampler);
    }
    if (status[0] == BRIM_OK) FUZZ_REQUIRE(status[1] == BRIM_OK && ids[0] == ids[1]);
    free(tokens);
    return 0;
}
