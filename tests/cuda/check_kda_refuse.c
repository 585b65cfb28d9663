/* SPDX-License-Identifier: Apache-2.0
 * What KDA on CUDA refuses, how, and that nothing is touched then; and what only the device could
 * see, offsets that fall, are negative or lie beyond the rows: such a call ends, writes nothing
 * outside of its buffers and leaves its workspace fit for the next.
 *     check_kda_refuse [route[,route...]] [short]
 * Exit status 1 on any failure. */
#include "cuda/kda_judge.h"
#include "plan/kda_route.h"

static struct kda_spec spec_of(int64_t n_tok)
{
    struct kda_spec spec = kda_plain(n_tok, 1, KDA_TYPICAL);
    spec.checkpoints = 1, spec.seed = 9;
    return spec;
}

/* All of a device's buffers as they are now, one after the other. */
static char *snapshot(const struct kda_device *d, size_t *n)
{
    *n = 0;
    for (int i = 0; i < d->n_block; i++) *n += d->bytes[i] + 2 * KDA_GUARD;
    char *all = kda_alloc(*n), *at = all;
    CUDA_OK(cudaDeviceSynchronize());
    for (int i = 0; i < d->n_block; i++) {
        size_t size = d->bytes[i] + 2 * KDA_GUARD;
        CUDA_OK(cudaMemcpy(at, d->block[i], size, cudaMemcpyDeviceToHost));
        at += size;
    }
    return all;
}

/* The call fails with `want` and a sentence that contains `says`, as does _supported where the
 * workspace is not the reason; no byte of any buffer changes. */
static void refused(struct kda_device *d, const brim_kda_args *a, brim_status want,
                    const char *says, const char *what)
{
    brim_error err = {0}, other = {0};
    size_t n, m;
    char text[600];
    char *before = snapshot(d, &n);
    brim_status got = brim_kda_prefill(a, &err);
    char *after = snapshot(d, &m);
    snprintf(text, sizeof text, "status %d, not %d: %s", (int)got, (int)want, err.text);
    verdict(got == want && strstr(err.text, says), what, text);
    verdict(n == m && !memcmp(before, after, n), what, "memory was touched");
    bool supported = brim_kda_supported(a, &other) == BRIM_OK;
    verdict(supported == !strcmp(says, "workspace"), what, "_supported says otherwise");
    free(before), free(after);
}

static void check_workspace(void)
{
    struct kda_spec spec = spec_of(100);
    struct kda_case c;
    struct kda_device d;
    char what[64];
    kda_case_make(&c, &spec);
    kda_device_make(&d, &c, route);
    size_t n = d.args.workspace_bytes;
    snprintf(what, sizeof what, "%s: workspace", route);
    for (int form = 0; form < 6 && n > 0; form++) {
        brim_kda_args a = d.args;
        if (form == 0) a.workspace_bytes = n - 1;
        if (form == 1) a.workspace_bytes = 0;
        if (form == 2) a.workspace = NULL;
        if (form == 3) a.workspace = (char *)a.workspace + 64, a.workspace_bytes = n + 64;
        if (form == 4) a.workspace = (char *)a.workspace + 16, a.workspace_bytes = n + 64;
        if (form == 5) a.workspace = (char *)a.workspace + 1, a.workspace_bytes = n + 64;
        refused(&d, &a, form < 3 ? BRIM_E_WORKSPACE : BRIM_E_ALIGNMENT, "workspace", what);
    }
    /* one that is larger, on another boundary of 128 bytes, is as good */
    run_and_fetch(&d, what);
    struct outputs want = outputs_keep(&c);
    if (n > 0) {
        brim_error err = {0};
        d.args.workspace = (char *)kda_upload(&d, NULL, n + 256) + 128;
        d.args.workspace_bytes = n + 128;
        verdict(brim_kda_workspace_init(BRIM_KERNEL_CUDA, d.args.workspace, n + 128, NULL, &err) ==
                    BRIM_OK,
                what, err.text);
        run_and_fetch(&d, what);
        verdict(outputs_same(&want, &c), what, "another place for it, other bits");
    }
    outputs_drop(&want);
    kda_device_free(&d);
    kda_case_free(&c);
}

/* 257 sequences of one token: too many for control words, not for a route that needs none. */
static void check_tasks(void)
{
    int64_t ones[257];
    for (int i = 0; i < 257; i++) ones[i] = 1;
    bool serial = !strcmp(route, "m128") || !strcmp(route, "m64") || !strcmp(route, "pair") ||
                  !strcmp(route, "queue");
    for (int n = brief ? 257 : 256; n <= 257 && !(brief && serial); n++) {
        struct kda_spec spec = spec_of(0);
        struct kda_case c;
        struct kda_device d;
        char what[64];
        snprintf(what, sizeof what, "%s: %d tasks", route, n);
        spec.n_seq = n, spec.lengths = ones, spec.checkpoints = 0;
        kda_case_make(&c, &spec);
        kda_device_make(&d, &c, route);
        if (n == 256 || serial)
            run_and_fetch(&d, what);
        else
            refused(&d, &d.args, BRIM_E_SHAPE, "at most 256 tasks", what);
        kda_device_free(&d);
        kda_case_free(&c);
    }
}

/* Rows that no 31 bits count, by addresses that nobody may look at. */
static void check_rows(struct kda_device *d, bool packed)
{
    brim_kda_args a = d->args;
    char what[64];
    snprintf(what, sizeof what, "%s: 2^31 rows%s", route, packed ? ", packed" : "");
    const uintptr_t apart = (uintptr_t)1 << 44;
    a.q = (void *)apart, a.k = (void *)(2 * apart), a.v = (void *)(3 * apart);
    a.g = (void *)(4 * apart), a.beta = (void *)(5 * apart), a.out = (void *)(6 * apart);
    a.checkpoints = NULL, a.n_tok = (int64_t)1 << 31;
    if (packed) a.cu_seqlens = (void *)(7 * apart), a.offset_bytes = 8, a.max_tok = 100;
    /* the workspace is large enough for anything: it is not the reason */
    refused(d, &a, BRIM_E_SHAPE, "31 bits", what);
}

static void check_arguments(void)
{
    struct kda_spec spec = spec_of(100);
    struct kda_case c;
    struct kda_device d;
    spec.n_head = spec.n_value_head = 2;
    kda_case_make(&c, &spec);
    route = NULL;
    kda_device_make(&d, &c, "m128");
    for (int form = 0; form < 20; form++) {
        brim_kda_args a = d.args;
        brim_status want = BRIM_E_ARGUMENT;
        const char *says = "";
        char what[32];
        switch (form) {
        case 0:
            a.route = "m256", want = BRIM_E_UNSUPPORTED, says = "m256";
            break;
        case 1:
            a.route = "", want = BRIM_E_UNSUPPORTED;
            break;
        case 2:
            a.route = "cpu-chunk", want = BRIM_E_UNSUPPORTED, says = "cpu-chunk";
            break;
        case 3:
            a.head_dim = 64, want = BRIM_E_SHAPE, says = "head_dim";
            break;
        case 4:
            a.qkv_dtype = BRIM_KERNEL_F16, want = BRIM_E_DTYPE;
            break;
        case 5:
            a.q = (const char *)a.q + 8, want = BRIM_E_ALIGNMENT, says = "q is not";
            break;
        case 6:
            a.lower_bound = -5.01f, want = BRIM_E_RANGE, says = "lower_bound";
            break;
        case 7:
            a.lower_bound = 0, want = BRIM_E_RANGE, says = "lower_bound";
            break;
        case 8:
            a.v_stride.token = 132, want = BRIM_E_STRIDE, says = "stride of v";
            break;
        case 9:
            a.out_stride.token = 64, want = BRIM_E_STRIDE, says = "stride of out";
            break;
        case 10:
            a.out = (void *)a.v, says = "out overlaps v";
            break;
        case 11:
            a.beta = NULL, says = "beta";
            break;
        case 12:
            a.state_stride = 16384, want = BRIM_E_STRIDE, says = "state_stride";
            break;
        case 13:
            a.flags |= 64, says = "flags";
            break;
        case 14:
            a.scale = NAN, want = BRIM_E_RANGE, says = "scale";
            break;
        case 15:
            a.n_value_head = 3, want = BRIM_E_SHAPE, says = "multiple";
            break;
        case 16:
            a.split_length = 2, a.split_window = 3, want = BRIM_E_RANGE, says = "split_window";
            break;
        case 17:
            a.split_window = 9, want = BRIM_E_RANGE, says = "split_window";
            break;
        case 18:
            a.state_index = (const int32_t *)a.initial_state, says = "n_slot";
            break;
        default:
            a.checkpoints = a.final_state, says = "overlaps checkpoints";
        }
        snprintf(what, sizeof what, "argument %d", form);
        refused(&d, &a, want, says, what);
    }
    kda_device_free(&d);
    kda_case_free(&c);
}

/* Offsets as no caller may give them. The call ends (a watchdog is the caller's), guards, inputs
 * and the rest stay; then proper offsets give the bits of a clean workspace. */
static void check_offsets(int bytes)
{
    enum { N = 5, ROWS = 200 };
    static const int64_t proper[N + 1] = {0, 65, 65, 160, 161, 190},
                                    bad[][N + 1] = {
                                        {0, 100, 50, 150, 20, 190},
                                        {0, -1, -40, 60, -3, 190},
                                        {-7, 20, 30, 500, 600, 700},
                                        {190, 160, 100, 50, 20, 0},
                                        {0, INT32_MAX, INT32_MIN, 0, INT32_MAX, INT32_MAX},
                                        {64, 64, 200, 0, 200, 200}};
    static const int64_t lengths[N] = {65, 0, 95, 1, 29};
    struct kda_spec spec = spec_of(ROWS);
    struct kda_case c;
    struct kda_device d;
    char what[64];
    snprintf(what, sizeof what, "%s: bad offsets of %d bytes", route, bytes);
    spec.n_seq = N, spec.lengths = lengths, spec.offset_bytes = bytes;
    kda_case_make(&c, &spec);
    kda_device_make(&d, &c, route);
    run_and_fetch(&d, what);
    struct outputs want = outputs_keep(&c);
    for (size_t i = 0; i <= sizeof bad / sizeof *bad; i++) {
        const int64_t *from = i < sizeof bad / sizeof *bad ? bad[i] : proper;
        for (int n = 0; n <= N; n++)
            if (bytes == 8)
                ((int64_t *)c.offsets)[n] = from[n];
            else
                ((int32_t *)c.offsets)[n] = (int32_t)from[n];
        CUDA_OK(cudaMemcpy((void *)d.args.cu_seqlens, c.offsets, c.offset_bytes,
                           cudaMemcpyHostToDevice));
        run_and_fetch(&d, what);
        if (from == proper) verdict(outputs_same(&want, &c), what, "the next call's bits differ");
    }
    d.args.max_tok = 1; /* a lie about the longest changes the plan, not the bits */
    run_and_fetch(&d, what);
    verdict(outputs_same(&want, &c), what, "max_tok changes bits");
    outputs_drop(&want);
    kda_device_free(&d);
    kda_case_free(&c);
}

/* No sequence: a fixed batch has no rows at all, a packed one rows that become zero. */
static void check_nothing(void)
{
    for (int packed = 0; packed < 2; packed++) {
        struct kda_spec spec = spec_of(40);
        struct kda_case c;
        struct kda_device d;
        char what[48];
        snprintf(what, sizeof what, "%s: no sequence%s", route, packed ? ", packed" : "");
        kda_case_make(&c, &spec);
        kda_device_make(&d, &c, route);
        int64_t zero = 0;
        d.args.n_seq = 0, d.args.checkpoints = NULL;
        if (packed)
            d.args.cu_seqlens = kda_upload_input(&d, &zero, sizeof zero), d.args.offset_bytes = 8;
        CUDA_OK(cudaMemset(d.args.out, 0xFF, c.v_bytes));
        CUDA_OK(cudaMemset(d.args.final_state, 0xFF, c.state_bytes));
        verdict(run(&d, what), what, "was refused");
        verdict(kda_device_fetch(&d), what, "a byte outside a buffer changed");
        bool right = true;
        for (int i = 0; i < 40 * 128; i++) right = right && c.out[i] == (packed ? 0 : 0xFFFF);
        verdict(right, what, packed ? "rows are not zero" : "rows of no sequence changed");
        right = true;
        for (size_t i = 0; i < c.state_bytes; i++)
            right = right && ((unsigned char *)c.final)[i] == 0xFF;
        verdict(right, what, "a state of no sequence changed");
        kda_device_free(&d);
        kda_case_free(&c);
    }
}

int main(int argc, char **argv)
{
    int status = kda_begin(argc, argv, "m128,c4-m128,split,split-join");
    if (status) return status;
    check_arguments();
    for (int i = 0; i < n_route; i++) {
        route = routes[i];
        check_workspace();
        check_tasks();
        check_offsets(4);
        check_offsets(8);
        check_nothing();
        struct kda_spec spec = spec_of(40);
        struct kda_case c;
        struct kda_device d;
        kda_case_make(&c, &spec);
        kda_device_make(&d, &c, route);
        d.args.workspace_bytes = (size_t)1 << 60; /* not the reason */
        check_rows(&d, false);
        check_rows(&d, true);
        kda_device_free(&d);
        kda_case_free(&c);
    }
    return kda_end("refusals");
}
