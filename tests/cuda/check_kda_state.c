/* SPDX-License-Identifier: Apache-2.0
 * Where KDA states come from and go to on the GPU, for every route named (those that cut are pinned
 * to segments of two chunks): pools in place and apart, fresh slots that hold NaN, index -1, empty
 * sequences, padded strides; a sequence carried on by calls cut off the chunk grid, by single
 * steps, and by CPU and GPU in turn. check_kda_state [route[,route...]] [short] Exit status 1 on
 * any failure. */
#include "cuda/kda_judge.h"

enum { N_SEQ = 6, N_SLOT = 8, N_HEAD = 2, PAD = 64 };

static struct kda_spec spec_of(int64_t n_tok)
{
    struct kda_spec spec = kda_plain(n_tok, N_HEAD, KDA_TYPICAL);
    spec.seed = (uint64_t)n_tok;
    return spec;
}

/* Two sequences are empty: one passes its slot on, one makes a fresh slot zero. */
static const int64_t lengths[N_SEQ] = {65, 0, 97, 33, 0, 1};
static const int32_t slots[N_SEQ] = {4, 1, -1, 0, 7, 5};
static const uint8_t fresh[N_SEQ] = {0, 0, 0, 1, 1, 0};

/* The states of the sequences, in a pool of NaN otherwise; a fresh sequence's slot is NaN too. */
static char *pool_of(const struct kda_case *c, size_t state, size_t stride)
{
    char *states = kda_alloc(N_SLOT * stride);
    memset(states, 0xFF, N_SLOT * stride);
    for (int n = 0; n < N_SEQ; n++)
        if (slots[n] >= 0 && !fresh[n])
            memcpy(states + (size_t)slots[n] * stride, (char *)c->initial + (size_t)n * state,
                   state);
    return states;
}

/* In a pool and without one the same bits; what belongs to no sequence stays as it was. */
static void check_pool(int form)
{
    struct kda_spec spec = spec_of(0);
    struct kda_case c;
    struct kda_device d;
    brim_error err = {0};
    char what[64];
    bool in_place = form & 1, bf16 = form & 2;
    snprintf(what, sizeof what, "%s: pool, %s, %s", route, in_place ? "in place" : "apart",
             bf16 ? "bf16, K first" : "fp32");
    spec.n_seq = N_SEQ, spec.lengths = lengths;
    if (bf16) spec.state_dtype = BRIM_KERNEL_BF16, spec.flags |= BRIM_KDA_STATE_K_FIRST;
    kda_case_make(&c, &spec);
    size_t element = bf16 ? 2 : 4, state = N_HEAD * 16384 * element,
           stride = (N_HEAD * 16384 + PAD) * element;
    for (int n = 0; n < N_SEQ; n++) /* what a pool's call starts such a sequence from */
        if (fresh[n] || slots[n] < 0) memset((char *)c.initial + (size_t)n * state, 0, state);
    kda_device_make(&d, &c, route);
    run_and_fetch(&d, what);
    judge(&c, &spec, what);
    struct outputs plain = outputs_keep(&c);

    char *before = pool_of(&c, state, stride), *after = kda_alloc(N_SLOT * stride),
         *want = kda_alloc(N_SLOT * stride);
    brim_kda_args a = d.args;
    a.route = route, a.n_slot = N_SLOT, a.state_stride = N_HEAD * 16384 + PAD;
    a.state_index = kda_upload_input(&d, slots, sizeof slots);
    a.fresh = kda_upload_input(&d, fresh, sizeof fresh);
    a.final_state = kda_upload(&d, before, N_SLOT * stride);
    a.initial_state = in_place ? a.final_state : kda_upload_input(&d, before, N_SLOT * stride);
    if (!in_place) CUDA_OK(cudaMemset(a.final_state, 0xFF, N_SLOT * stride));
    CUDA_OK(cudaMemset(d.args.out, 0xFF, c.v_bytes));
    verdict(brim_kda_prefill(&a, &err) == BRIM_OK, what, err.text);
    verdict(kda_device_fetch(&d), what, "a byte outside a buffer changed");
    verdict(kda_device_inputs_kept(&d), what, "an input changed");
    verdict(!memcmp(plain.out, c.out, c.v_bytes), what, "outputs differ from those without a pool");
    CUDA_OK(cudaMemcpy(after, a.final_state, N_SLOT * stride, cudaMemcpyDeviceToHost));
    memset(want, 0xFF, N_SLOT * stride);
    if (in_place) memcpy(want, before, N_SLOT * stride);
    for (int n = 0; n < N_SEQ; n++)
        if (slots[n] >= 0)
            memcpy(want + (size_t)slots[n] * stride, plain.final + (size_t)n * state, state);
    for (int s = 0; s < N_SLOT; s++) {
        char text[48];
        snprintf(text, sizeof text, "slot %d is not what it should be", s);
        verdict(!memcmp(after + (size_t)s * stride, want + (size_t)s * stride, stride), what, text);
    }
    free(before), free(after), free(want);
    outputs_drop(&plain);
    kda_device_free(&d);
    kda_case_free(&c);
}

/* An index outside of the pool on the device, which no host can look at: no state. */
static void check_bad_index(void)
{
    static const int32_t bad[N_SEQ] = {N_SLOT, 1, -2, INT32_MIN, 7, INT32_MAX};
    struct kda_spec spec = spec_of(0);
    struct kda_case c;
    struct kda_device d;
    brim_error err = {0};
    char what[48];
    snprintf(what, sizeof what, "%s: slots outside of the pool", route);
    spec.n_seq = N_SEQ, spec.lengths = lengths;
    kda_case_make(&c, &spec);
    size_t state = N_HEAD * 65536;
    char *states = pool_of(&c, state, state), *after = kda_alloc(N_SLOT * state);
    kda_device_make(&d, &c, route);
    brim_kda_args a = d.args;
    a.route = route, a.n_slot = N_SLOT;
    a.state_index = kda_upload_input(&d, bad, sizeof bad);
    a.initial_state = a.final_state = kda_upload(&d, states, N_SLOT * state);
    verdict(brim_kda_prefill(&a, &err) == BRIM_OK, what, err.text);
    verdict(kda_device_fetch(&d), what, "a byte outside a buffer changed");
    CUDA_OK(cudaMemcpy(after, a.final_state, N_SLOT * state, cudaMemcpyDeviceToHost));
    verdict(!memcmp(states, after, N_SLOT * state), what, "the pool changed");
    free(states), free(after);
    kda_device_free(&d);
    kda_case_free(&c);
}

/* States come and go by copies on the call's stream, with one wait behind all of them: the bits of
 * a call whose states had been there. */
static void check_stream_order(void)
{
    struct kda_spec spec = spec_of(97);
    struct kda_case c;
    struct kda_device d;
    cudaStream_t stream;
    brim_error err = {0};
    char what[48];
    snprintf(what, sizeof what, "%s: states by copies on the stream", route);
    kda_case_make(&c, &spec);
    kda_device_make(&d, &c, route);
    run_and_fetch(&d, what);
    struct outputs want = outputs_keep(&c);
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    outputs_poison(&d);
    char *arrives = kda_upload(&d, c.initial, c.state_bytes), *leaves = device_alloc(c.state_bytes);
    char *slot = kda_upload(&d, NULL, c.state_bytes);
    CUDA_OK(cudaDeviceSynchronize());
    brim_kda_args a = d.args;
    a.route = route, a.stream = stream, a.initial_state = a.final_state = slot;
    for (int i = 0; i < 3; i++) {
        CUDA_OK(cudaMemsetAsync(slot, 0xFF, c.state_bytes, stream));
        CUDA_OK(cudaMemcpyAsync(slot, arrives, c.state_bytes, cudaMemcpyDeviceToDevice, stream));
        verdict(brim_kda_prefill(&a, &err) == BRIM_OK, what, err.text);
        CUDA_OK(cudaMemcpyAsync(leaves, slot, c.state_bytes, cudaMemcpyDeviceToDevice, stream));
        CUDA_OK(cudaMemsetAsync(slot, 0xFF, c.state_bytes, stream));
    }
    CUDA_OK(cudaStreamSynchronize(stream));
    verdict(kda_device_fetch(&d), what, "a byte outside a buffer changed");
    CUDA_OK(cudaMemcpy(c.final, leaves, c.state_bytes, cudaMemcpyDeviceToHost));
    verdict(outputs_same(&want, &c), what, "bits differ");
    CUDA_OK(cudaFree(leaves));
    CUDA_OK(cudaStreamDestroy(stream));
    outputs_drop(&want);
    kda_device_free(&d);
    kda_case_free(&c);
}

/* Tokens [from, to) of a fixed batch of one, on either machine; the state is in place. */
static void part(struct kda_device *d, int64_t from, int64_t to, bool cpu, const char *what)
{
    struct kda_case *c = d->host;
    brim_kda_args a = cpu ? c->args : d->args;
    brim_error err = {0};
    int64_t row = N_HEAD * 128;
    if (cpu)
        CUDA_OK(cudaMemcpy(c->final, d->args.final_state, c->state_bytes, cudaMemcpyDeviceToHost));
    a.n_tok = to - from, a.initial_state = a.final_state, a.checkpoints = NULL;
    a.route = cpu ? NULL : route;
    a.q = (const uint16_t *)a.q + from * row, a.k = (const uint16_t *)a.k + from * row;
    a.v = (const uint16_t *)a.v + from * row, a.g = (const uint16_t *)a.g + from * row;
    a.beta = (const uint16_t *)a.beta + from * N_HEAD, a.out = (uint16_t *)a.out + from * row;
    verdict(brim_kda_prefill(&a, &err) == BRIM_OK, what, err.text);
    if (!cpu) return;
    CUDA_OK(cudaMemcpy((uint16_t *)d->args.out + from * row, a.out, (size_t)((to - from) * row) * 2,
                       cudaMemcpyHostToDevice));
    CUDA_OK(cudaMemcpy(d->args.final_state, c->final, c->state_bytes, cudaMemcpyHostToDevice));
}

/* The cuts lie off the grid of chunks, so the bits are not those of one call; the error is within
 * what one call may have. `who`: a letter a part, G or C. */
static void check_parts(const char *who, const int64_t *cuts, int state_form)
{
    int n = (int)strlen(who);
    struct kda_spec spec = spec_of(cuts[n]);
    struct kda_case c;
    struct kda_device d;
    char what[64];
    snprintf(what, sizeof what, "%s: in parts, %s", route, who);
    if (state_form) spec.flags |= BRIM_KDA_STATE_K_FIRST;
    kda_case_make(&c, &spec);
    kda_device_make(&d, &c, route);
    outputs_poison(&d);
    CUDA_OK(cudaMemcpy(d.args.final_state, c.initial, c.state_bytes, cudaMemcpyHostToDevice));
    for (int i = 0; i < n; i++) part(&d, cuts[i], cuts[i + 1], who[i] == 'C', what);
    verdict(kda_device_fetch(&d), what, "a byte outside a buffer changed");
    verdict(kda_device_inputs_kept(&d), what, "an input changed");
    judge(&c, &spec, what);
    kda_device_free(&d);
    kda_case_free(&c);
}

static void check_route(void)
{
    static const int64_t by_turns[] = {0, 37, 103, 104, 150}, prefix[] = {0, 70, 71, 72, 73},
                         odd[] = {0, 1, 34, 97, 130}, steps[] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (int form = 0; form < 4; form += brief ? 3 : 1) check_pool(form);
    check_bad_index();
    check_stream_order();
    check_parts("CGCG", by_turns, 1);
    check_parts("GGGG", prefix, 0);
    if (brief) return;
    check_parts("GCGC", by_turns, 0);
    check_parts("GGGG", odd, 1);
    check_parts("GGGGGGG", steps, 0);
}

int main(int argc, char **argv)
{
    int status = kda_begin(argc, argv, "m128,split,split-join");
    if (status) return status;
    for (int i = 0; i < n_route; i++) {
        route = routes[i];
        check_route();
    }
    return kda_end("states");
}
