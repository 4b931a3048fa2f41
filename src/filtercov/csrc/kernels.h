// What one instruction set provides to the driver: a table of functions that each do one item of work on one thread.
//
// A work item never shares an output with another item, and the list of items depends on the shape alone. That is why
// the number of threads cannot change a result. Channels are processed in blocks of 16: one cache line of float32, one
// AVX-512 register, two AVX2 registers. Items copy what they need into scratch as (pixel, 16) with missing channels
// zero, so that the arithmetic never meets a ragged edge.
#pragma once

#include <cstddef>
#include <cstdint>

#include "filtercov_native.h"

namespace filtercov {

constexpr int64_t kBlock = 16;

inline constexpr int64_t channel_blocks(int64_t channels) { return (channels + kBlock - 1) / kBlock; }

// One axis of a convolution without dilation: output p sees the input at p * stride - pad + tap, zero outside.
struct Axis {
    int64_t size, out, kernel, pad, stride;
};

// Depth, height, width.
struct Shape {
    Axis axis[3];
};

// An image tensor: its first number, and where the others lie.
template <class Float>
struct Tensor {
    Float* data;
    filtercov_strides strides;
};

// Outputs are cut into tiles of this extent, all but the last along an axis; `counts` is how many there are.
struct Tiling {
    int64_t extent[3], counts[3];
};

inline constexpr int64_t tiles(const Tiling& tiling) { return tiling.counts[0] * tiling.counts[1] * tiling.counts[2]; }

// How a convolution is cut up; the same for all of its items.
struct ConvolutionPlan {
    Tiling tiling;
    int64_t strip;         // which of the instruction set's strips
    int64_t run_columns;   // pixels in scratch of each of the `stride` runs that a row is sorted into
    int64_t source_floats, scratch_floats;
};

// Convolve one tile of one image's channel block. `packed_weight` is (channel block, kernel pixel, 16), the taps of a
// kernel row sorted into runs as the pixels are.
struct Convolution {
    int64_t batch, channels;
    Shape shape;
    ConvolutionPlan plan;
    Tensor<const float> x;
    const float* packed_weight;
    const float* bias;  // may be null
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

// Rows [first, last) of a (rows, channels) matrix, or so many numbers.
struct RowRange {
    int64_t first, last;
};

struct GeluBatchNorm {
    int64_t channels;
    const float* x;
    const float* grad_y;                // backward only
    const float* residual;              // may be null
    const float *scale, *shift, *tilt;  // per channel; their use is told at each function that reads them
    const float *mean, *inverse_std;    // per channel, of GELU(x)
    float* out;                         // none of the others
};

struct BatchNormAct {
    int64_t channels;
    int32_t activation;
    const float *x, *bias;
    const float* grad_y;  // backward only
    const float *mean, *scale;
    const float *shift, *tilt;  // last pass of the backward only
    float* out;                 // none of the others
};

struct Activated {
    int32_t activation;
    const float* x;
    const float* grad_y;  // backward only
    float* out;
};

struct BiasGelu {
    int64_t channels;
    const float *x, *bias;
    const float* grad_y;  // backward only
    float* y;
    float* grad_x;  // backward only
};

struct LayerNorm {
    int64_t channels;
    const float *x, *weight, *bias;
    float eps;
    const float *mean, *inverse_std;  // per row
    const float* grad_y;              // backward only
    float* out;
};

struct Residual {
    int64_t channels;
    const float *x, *bias;
    const float* scale;     // per channel; may be null
    const float* shortcut;  // may be null
    float* out;
};

struct Kernels {
    ConvolutionPlan (*plan_convolution)(const Shape&, bool channels_last);
    CorrelationPlan (*plan_correlation)(const Shape&);

    void (*convolve)(const Convolution&, int64_t image, int64_t block, int64_t tile, float* scratch);
    void (*correlate)(const Correlation&, int64_t image, int64_t block, int64_t tile, float* accumulator,
                      float* scratch);

    void (*sum_rows)(const float* matrix, int64_t channels, RowRange, float* sums);
    void (*gelu_moments)(const GeluBatchNorm&, RowRange, float* mean, float* squares, float* origin);
    void (*gelu_normalise)(const GeluBatchNorm&, RowRange);
    void (*gelu_gradient_sums)(const GeluBatchNorm&, RowRange, float* sum_grad, float* sum_grad_normal);
    void (*gelu_gradient)(const GeluBatchNorm&, RowRange);

    void (*moments)(const BatchNormAct&, RowRange, float* mean, float* squares);
    void (*normalise_act)(const BatchNormAct&, RowRange);
    void (*act_gradient_sums)(const BatchNormAct&, RowRange, float* sums, float* weighted);
    void (*act_gradient)(const BatchNormAct&, RowRange);

    void (*bias_gelu)(const BiasGelu&, RowRange);
    void (*bias_gelu_gradient)(const BiasGelu&, RowRange, float* sums);
    void (*layer_moments)(const LayerNorm&, RowRange, float* mean, float* inverse_std);
    void (*layer_normalise)(const LayerNorm&, RowRange);
    void (*layer_norm_gradient)(const LayerNorm&, RowRange, float* sum_grad, float* sum_grad_normal);
    void (*scaled_residual)(const Residual&, RowRange);
    void (*activate)(const Activated&, RowRange);
    void (*activate_gradient)(const Activated&, RowRange);
};

// Null where the build's target or flags leave the instruction set out.
const Kernels* portable_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();
const Kernels* neon_kernels();

}  // namespace filtercov
