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

// How a convolution is cut up; the same for all of its items.
struct ConvolutionPlan {
    int64_t strip;  // which of the instruction set's strips
    int64_t tile_rows, tile_columns;
    int64_t row_floats, scratch_floats;
};

// Convolve one image's channel block. `packed_weight` is (channel block, kernel pixel, 16).
struct Convolution {
    filtercov_geometry geometry;
    ConvolutionPlan plan;
    const float* x;
    const float* packed_weight;
    const float* bias;  // may be null
    float* y;
    bool stream;  // write y past the caches: every pixel of it is on a 64-byte boundary
};

// Correlate one image's channel block. The sum is added to a (kernel pixel, 16) accumulator.
struct Correlation {
    filtercov_geometry geometry;
    const float* grad_y;
    const float* x;
};

// Rows [first, last) of a (rows, channels) matrix.
struct RowRange {
    int64_t first, last;
};

struct GeluBatchNorm {
    int64_t channels;
    const float* x;
    const float* grad_y;                     // backward only
    const float *scale, *shift, *tilt;       // per channel; their use is told at each function that reads them
    const float *mean, *inverse_std;         // per channel, of GELU(x)
    float* out;
};

struct Kernels {
    ConvolutionPlan (*plan_convolution)(const filtercov_geometry&);
    int64_t (*correlation_scratch)(const filtercov_geometry&);  // in floats

    void (*convolve)(const Convolution&, int64_t image, int64_t block, float* scratch);
    void (*correlate)(const Correlation&, int64_t image, int64_t block, float* accumulator, float* scratch);

    void (*sum_rows)(const float* matrix, int64_t channels, RowRange, float* sums);
    void (*gelu_moments)(const GeluBatchNorm&, RowRange, float* mean, float* squares, float* origin);
    void (*gelu_normalise)(const GeluBatchNorm&, RowRange);
    void (*gelu_gradient_sums)(const GeluBatchNorm&, RowRange, float* sum_grad, float* sum_grad_normal);
    void (*gelu_gradient)(const GeluBatchNorm&, RowRange);
};

// Null where the build's target or flags leave the instruction set out.
const Kernels* portable_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();
const Kernels* neon_kernels();

}  // namespace filtercov
