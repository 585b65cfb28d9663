/* SPDX-License-Identifier: Apache-2.0
 * One W4 product on the device with its fp64 reference: what the checks and the timings of
 * check_w4.cu share. Inputs are seeded; what lies between rows is NaN, outputs are poisoned. */
#ifndef BRIM_TESTS_W4_PROBLEM_CUH
#define BRIM_TESTS_W4_PROBLEM_CUH

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <string>
#include <vector>

#include <cuda_bf16.h>

#include "base/rng.h"
#include "cuda/w4/cluster.h"
#include "cuda/w4/gemv.h"
#include "cuda/w4/stream.h"
#include "cuda/w4/w4.h"
#include "device_array.cuh"
#include "plan/w4_hopper.h"
#include "tensor/dtype.h"

static int n_passed, n_failed;

static void expect(bool ok, const std::string &what)
{
    ok ? n_passed++ : n_failed++;
    if (!ok) printf("FAILED %s\n", what.c_str());
}

/* fp64 product, one thread an output; independent of the kernels' own unpacking. */
struct ref_params {
    const uint16_t *x;
    const uint8_t *codes;
    const float *scales, *biases;
    double *y;
    int64_t n_row, n_in, n_out, x_stride;
    int group;
};
static __global__ void ref_kernel(ref_params p)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= p.n_row * p.n_out) return;
    int64_t row = i / p.n_out, out = i % p.n_out;
    double sum = 0;
    for (int64_t k = 0; k < p.n_in; k++) {
        int64_t at = out * p.n_in + k;
        int q = k % 2 ? p.codes[at / 2] >> 4 : p.codes[at / 2] & 15;
        double w = (double)p.scales[at / p.group] * q + (double)p.biases[at / p.group];
        sum += w * (double)__uint_as_float((uint32_t)p.x[row * p.x_stride + k] << 16);
    }
    p.y[i] = sum;
}

static float gaussian(brim_rng *rng)
{
    float sum = 0;
    for (int i = 0; i < 12; i++) sum += brim_rng_uniform(rng);
    return sum - 6;
}

/* Words between output rows. Times are of rows without any, as callers lay them out: `stream`
 * stores through TMA only at strides of 16 bytes. */
enum { GUARDED = 2, DENSE = 0 };

/* SUBNORMAL: scales alone. TINY: every weight is, so that one flushed to zero shows in y. */
enum special {
    SPECIAL_NONE,
    SPECIAL_NEGATIVE,
    SPECIAL_ZERO,
    SPECIAL_SUBNORMAL,
    SPECIAL_TINY,
    SPECIAL_LARGE_X
};
static const char *const special_names[] = {
    "", ", scales negative", ", scales zero", ", subnormal", ", weights subnormal", ", large x"};

struct problem {
    int64_t n_row, n_in, n_out, x_stride, y_stride;
    int group;
    brim_dtype dtype;
    special kind;
    device_array<uint16_t> x, y;
    device_array<uint32_t> codes;
    device_array<uint8_t> scales, biases;
    device_array<float> scales_f32, biases_f32;
    device_array<double> ref;
    device_array<float> out_bias;
    device_array<uint8_t> packed_codes, packed_params;
    brim_cuda_w4 args;
    brim_cuda_w4_packed packed;

    problem(int64_t rows, int64_t in, int64_t out, int grp, brim_dtype dt, special kind_,
            bool with_ref = true, int y_pad = GUARDED)
        : n_row(rows), n_in(in), n_out(out), x_stride(in + 8), y_stride(out + y_pad), group(grp),
          dtype(dt), kind(kind_), x(rows * (in + 8)), y(rows * (out + y_pad) * 2),
          codes(out * in / 8), scales(out * in / grp * brim_dtype_bytes(dt)),
          biases(out * in / grp * brim_dtype_bytes(dt)), scales_f32(out * in / grp),
          biases_f32(out * in / grp), ref(with_ref ? rows * out : 0), out_bias(out),
          packed_codes(brim_cuda_w4_packed_codes_bytes(out, in)),
          packed_params(brim_cuda_w4_packed_params_bytes(out, in, grp, dt))
    {
        brim_rng rng;
        brim_rng_seed(&rng, (uint64_t)(rows * 131 + in * 17 + out + grp * 7 + dt + kind));
        std::vector<uint16_t> hx(x.n, 0xFFFF); /* NaN between the rows */
        for (int64_t r = 0; r < n_row; r++)
            for (int64_t k = 0; k < n_in; k++)
                hx[r * x_stride + k] =
                    brim_bf16_from_f32(kind == SPECIAL_LARGE_X && k == 5 ? 6e4f
                                       : kind == SPECIAL_TINY            ? 4096 * gaussian(&rng)
                                                                         : gaussian(&rng));
        x.from(hx);
        std::vector<uint32_t> hc(codes.n);
        for (auto &c : hc) c = brim_rng_u32(&rng);
        codes.from(hc);
        size_t n_group = n_out * n_in / group;
        std::vector<float> fs(n_group), fb(n_group);
        for (size_t i = 0; i < n_group; i++) {
            float s = (brim_rng_uniform(&rng) < 0.5f ? -1.0f : 1.0f) *
                      (0.1f + 0.1f * brim_rng_uniform(&rng));
            if (kind == SPECIAL_NEGATIVE) s = -fabsf(s);
            if (kind == SPECIAL_ZERO) s = 0;
            if (kind == SPECIAL_SUBNORMAL) s = 1e-40f;
            float b = -7.5f * s + 0.05f * gaussian(&rng);
            if (kind == SPECIAL_TINY) s *= 2e-38f, b = -7.5f * s;
            fs[i] = s, fb[i] = b;
        }
        set_params(fs, fb);
        std::vector<float> ho(n_out);
        for (auto &b : ho) b = 4 * gaussian(&rng);
        out_bias.from(ho);
        args = {};
        args.n_row = n_row, args.n_in = n_in, args.n_out = n_out, args.group = group;
        args.param_dtype = dtype;
        args.x = x.ptr, args.x_stride = x_stride, args.codes = codes.ptr;
        args.scales = scales.ptr, args.biases = biases.ptr, args.y = y.ptr;
        args.y_stride = y_stride;
        packed = {};
        packed.codes = packed_codes.ptr, packed.params = packed_params.ptr;
        pack();
        if (with_ref) refer();
    }

    /* Rounded to the parameters' type. */
    void set_params(std::vector<float> s, std::vector<float> b)
    {
        const size_t width = brim_dtype_bytes(dtype);
        std::vector<uint8_t> hs(scales.n), hb(biases.n);
        for (size_t i = 0; i < s.size(); i++)
            for (int which = 0; which < 2; which++) {
                float &v = which ? b[i] : s[i];
                uint8_t *at = (which ? hb : hs).data() + i * width;
                if (dtype == BRIM_DTYPE_F32) {
                    memcpy(at, &v, 4);
                    continue;
                }
                uint16_t h = dtype == BRIM_DTYPE_F16 ? brim_f16_from_f32(v) : brim_bf16_from_f32(v);
                memcpy(at, &h, 2);
                v = dtype == BRIM_DTYPE_F16 ? brim_f32_from_f16(h) : brim_f32_from_bf16(h);
            }
        scales.from(hs), biases.from(hb), scales_f32.from(s), biases_f32.from(b);
    }

    /* Packed order again, after a change of codes or parameters. */
    void pack()
    {
        packed_codes.fill(0xFF), packed_params.fill(0xFF);
        brim_error err = {};
        if (brim_cuda_w4_pack(&args, &packed, nullptr, &err) != BRIM_OK) {
            printf("%s\n", err.text);
            exit(1);
        }
    }

    /* The reference again, after a change of anything. */
    void refer()
    {
        ref_params p = {x.ptr,          (const uint8_t *)codes.ptr,
                        scales_f32.ptr, biases_f32.ptr,
                        ref.ptr,        n_row,
                        n_in,           n_out,
                        x_stride,       group};
        brim_launch_shape shape = {};
        shape.grid = dim3((unsigned)((n_row * n_out + 127) / 128));
        shape.block = dim3(128);
        brim_error err = {};
        if (BRIM_LAUNCH(ref_kernel, shape, nullptr, p, &err) != BRIM_OK) exit(1);
        CHECK(cudaDeviceSynchronize());
    }

    std::string name(const char *form) const
    {
        char text[200];
        snprintf(text, sizeof text, "%s rows %lld in %lld out %lld group %d %s%s", form,
                 (long long)n_row, (long long)n_in, (long long)n_out, group, brim_dtype_name(dtype),
                 special_names[kind]);
        return text;
    }

    /* Outputs of a row under the epilogue of `args`. */
    int64_t n_y() const { return args.epilogue == BRIM_W4_SWIGLU ? n_out / 2 : n_out; }
    bool wide() const
    {
        return args.epilogue == BRIM_W4_STORE_F32 || args.epilogue == BRIM_W4_ADD_F32;
    }
    static float residual(int64_t row, int64_t o) { return (float)((row * 31 + o * 7) % 64) - 32; }

    /* Before a launch: NaN everywhere, but the residual where one is added to. */
    void poison()
    {
        y.fill(0xFF);
        if (args.epilogue != BRIM_W4_ADD_F32) return;
        std::vector<uint16_t> hy(y.n, 0xFFFF);
        for (int64_t r = 0; r < n_row; r++)
            for (int64_t o = 0; o < n_out; o++)
                ((float *)hy.data())[r * y_stride + o] = residual(r, o);
        y.from(hy);
    }

    /* rms error over the output's rms; checks guards and finiteness. */
    double error(bool *clean) const
    {
        std::vector<uint16_t> hy = y.to_host();
        std::vector<double> hr = ref.to_host();
        std::vector<float> hb = out_bias.to_host();
        const float *wide_y = (const float *)hy.data();
        double err2 = 0, ref2 = 0;
        *clean = true;
        for (int64_t r = 0; r < n_row; r++) {
            auto sum = [&](int64_t o) { return hr[r * n_out + o] + (args.out_bias ? hb[o] : 0); };
            for (int64_t o = 0; o < n_y(); o++) {
                double got, want;
                if (args.epilogue == BRIM_W4_SWIGLU) {
                    double gate = sum(brim_w4_pair_row(o, 0));
                    want = gate / (1 + exp(-gate)) * sum(brim_w4_pair_row(o, 1));
                } else {
                    want = sum(o);
                }
                got = wide() ? wide_y[r * y_stride + o] : brim_f32_from_bf16(hy[r * y_stride + o]);
                if (args.epilogue == BRIM_W4_ADD_F32) got -= residual(r, o);
                if (!isfinite(got)) *clean = false;
                err2 += (got - want) * (got - want), ref2 += want * want;
            }
            for (int64_t o = n_y(); o < y_stride; o++)
                if (wide() ? !isnan(wide_y[r * y_stride + o]) : hy[r * y_stride + o] != 0xFFFF)
                    *clean = false;
        }
        return sqrt(err2 / (ref2 > 0 ? ref2 : 1));
    }
};

#endif
