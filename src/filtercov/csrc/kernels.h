// What one instruction set provides to the drivers: a table of functions that each do one item of work on one thread.
//
// No two items write to the same memory, and the list of items depends on the shape alone: the number of threads cannot
// change a result. Convolutions take channels in blocks of 16: a cache line of float32, one AVX-512 register, two AVX2
// registers. They copy what they need into scratch as (pixel, 16) with missing channels zero, so that the arithmetic
// never meets a ragged edge.
#pragma once

#include <cstddef>
#include <cstdint>

#include "filtercov_native.h"

namespace filtercov {

constexpr int64_t kBlock = 16;

// Functions in this file are static: see isa.inl.

// The least integer not below a / b, for b > 0; quickly for b = 1, as most strides are.
static constexpr int64_t ceil_div(int64_t a, int64_t b) {
    if (b == 1) return a;
    return a > 0 ? (a + b - 1) / b : -(-a / b);
}

static constexpr int64_t channel_blocks(int64_t channels) { return ceil_div(channels, kBlock); }

// One axis of a convolution without dilation: output p sees the input at p * stride - pad + tap, zero outside.
struct Axis {
    int64_t size, out, kernel, pad, stride;
};

struct Shape {
    Axis axis[3];  // depth, height, width
};

// An image tensor: its first number, and its strides.
template <class Float> struct Tensor {
    Float* data;
    filtercov_strides strides;
};

// Outputs are cut into `counts` tiles along each axis, of this extent; the last along an axis may be smaller.
struct Tiling {
    int64_t extent[3], counts[3];
};

static constexpr int64_t tiles(const Tiling& tiling) { return tiling.counts[0] * tiling.counts[1] * tiling.counts[2]; }

// How a convolution is cut up; the same for all of its items.
struct ConvolutionPlan {
    Tiling tiling;
    int64_t strip;         // index of one of the instruction set's strip widths
    int64_t run_columns;   // pixels in scratch of each of the `stride` runs that a row is sorted into
    int64_t source_floats, scratch_floats;
};

// Convolve one tile of one image's channel block.
struct Convolution {
    int64_t batch, channels;
    Shape shape;
    ConvolutionPlan plan;
    Tensor<const float> x;
    const float* packed_weight;  // (channel block, kernel pixel, 16), a kernel row's taps sorted into runs like pixels
    const float* bias;           // may be null
    Tensor<float> y;
    bool stream;  // write y past the caches: every pixel of it is on a 64-byte boundary
};

struct CorrelationPlan {
    Tiling tiling;
    int64_t grad_columns, run_columns;  // pixels of a row in scratch
    int64_t grad_floats, scratch_floats;
};

// Correlate one tile of one image's channel block. The sum is added to a (kernel pixel, 16) accumulator, whose taps
// are sorted into runs.
struct Correlation {
    int64_t batch, channels;
    Shape shape;
    CorrelationPlan plan;
    Tensor<const float> grad_y, x;
};

// Rows [first, last) of a matrix with so many columns, called channels.
struct Rows {
    int64_t first, last, channels;
};

// The gradient of a BatchNorm with an activation; vectors are per channel.
struct NormGradient {
    int32_t activation;
    bool activation_first;  // before the norm, and GELU, instead of after it
    const float *x, *grad_y;
    const float *mean, *inverse_std;    // of what enters the norm
    const float* bias;
    const float *scale, *shift, *tilt;  // see norm_gradient
    float* grad_x;
};

struct Kernels {
    ConvolutionPlan (*plan_convolution)(const Shape&, bool channels_last);
    CorrelationPlan (*plan_correlation)(const Shape&);
    void (*convolve)(const Convolution&, int64_t image, int64_t block, int64_t tile, float* scratch);
    void (*correlate)(const Correlation&, int64_t image, int64_t block, int64_t tile, float* accumulator,
                      float* scratch);

    void (*gelu)(int64_t count, const float* x, float* y);
    void (*gelu_gradient)(int64_t count, const float* grad_y, const float* x, float* grad_x);

    void (*sum_rows)(Rows, const float* x, float* sums);
    void (*moments)(Rows, const float* x, float* activated, float* mean, float* squares);
    void (*normalise)(Rows, int32_t activation, const float* x, const float* mean, const float* scale,
                      const float* bias, const float* residual, float* y);
    void (*norm_gradient_sums)(Rows, const NormGradient&, float* sums, float* weighted);
    void (*norm_gradient)(Rows, const NormGradient&);

    void (*layer_moments)(Rows, const float* x, float eps, float* mean, float* inverse_std);
    void (*layer_normalise)(Rows, const float* x, const float* mean, const float* inverse_std, const float* weight,
                            const float* bias, float* y);
    void (*layer_gradient)(Rows, const float* grad_y, const float* x, const float* mean, const float* inverse_std,
                           const float* weight, float* grad_x, float* sums, float* weighted);
    void (*bias_gelu)(Rows, const float* x, const float* bias, float* y);
    void (*bias_gelu_gradient)(Rows, const float* x, const float* bias, const float* grad_y, float* y, float* grad_x,
                               float* sums);
    void (*scaled_residual)(Rows, const float* x, const float* bias, const float* scale, const float* shortcut,
                            float* y);
};

// The table of each instruction set; null where the build's target or flags leave it out.
namespace portable { const Kernels* kernels(); }
namespace avx2 { const Kernels* kernels(); }
namespace avx512 { const Kernels* kernels(); }
namespace neon { const Kernels* kernels(); }

}  // namespace filtercov
