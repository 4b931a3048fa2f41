// The C interface of filtercov's native kernels: what Python (through ctypes) and the test binary call.
//
// Numbers are float32. Images lie as their strides say, filters as (channels, depth, height, width), matrices as
// (rows, channels). Nothing here knows of Python or torch. Every function returns a filtercov_status, checks its
// geometry before it touches memory, and gives the same bits for every thread count.
#pragma once

#include <cstdint>

// Exported; everything else in the library is hidden.
#pragma GCC visibility push(default)
extern "C" {

// Where the numbers of an image tensor lie, in floats from its first: batch, channel, and depth, height, width.
struct filtercov_strides {
    int64_t image, channel;
    int64_t axis[3];
};

// A depthwise convolution in three dimensions; a missing one has extent 1. Along each axis output p sees the input at
// p * stride - pad + tap * dilation for each tap; whatever lies outside the image is zero. Padding may be negative (a
// crop). Stride and dilation may not both exceed 1 along one axis.
struct filtercov_geometry {
    int64_t batch, channels;
    int64_t size[3], kernel[3], pad[3], stride[3], dilation[3], out[3];
    filtercov_strides x, y;  // of the input, and its gradient; of the output, and its gradient
};

enum filtercov_isa : int32_t { FILTERCOV_PORTABLE = 0, FILTERCOV_AVX2 = 1, FILTERCOV_AVX512 = 2, FILTERCOV_NEON = 3 };

enum filtercov_status : int32_t {
    FILTERCOV_OK = 0,
    FILTERCOV_BAD_ARGUMENT = 1,  // negative extent, empty kernel, stride with dilation, no thread, unknown activation
    FILTERCOV_NO_MEMORY = 2,
    FILTERCOV_BAD_ISA = 3,  // this machine, or this build, cannot run that instruction set
};

enum filtercov_activation : int32_t {
    FILTERCOV_IDENTITY = 0,
    FILTERCOV_RELU = 1,
    FILTERCOV_RELU6 = 2,
    FILTERCOV_HARDSWISH = 3,
    FILTERCOV_SILU = 4,
    FILTERCOV_GELU = 5,  // the exact one
};

// Changes whenever a signature below does; the loader refuses any other number.
int32_t filtercov_abi_version();

// 1 if both the build and the machine can run `isa`, else 0.
int32_t filtercov_isa_available(int32_t isa);

// 1 if built with OpenMP, else 0 (then every call runs on the calling thread).
int32_t filtercov_has_openmp();

// y = x * weight + bias; `bias` may be null.
int32_t filtercov_depthwise_forward(const filtercov_geometry* geometry, const float* x, const float* weight,
                                    const float* bias, float* y, int32_t isa, int32_t threads);

// grad_x from grad_y; `geometry` is that of the forward pass.
int32_t filtercov_depthwise_input_grad(const filtercov_geometry* geometry, const float* grad_y, const float* weight,
                                       float* grad_x, int32_t isa, int32_t threads);

// grad_weight from grad_y and x; `geometry` is that of the forward pass.
int32_t filtercov_depthwise_weight_grad(const filtercov_geometry* geometry, const float* grad_y, const float* x,
                                        float* grad_weight, int32_t isa, int32_t threads);

// sums[c] = sum over the `rows` rows of a (rows, channels) matrix: the bias gradient.
int32_t filtercov_channel_sum(int64_t rows, int64_t channels, const float* matrix, float* sums, int32_t isa,
                              int32_t threads);

// BatchNorm of a (rows, channels) matrix with an activation (FILTERCOV_IDENTITY and so on) after it; or, with
// `activation_first`, GELU before it, and then a residual may be added, which may be null.
//
// In training, rows >= 1: also writes, per channel, the mean, the biased variance and 1 / sqrt(variance + eps) of what
// enters the norm.
int32_t filtercov_batch_norm_forward(int64_t rows, int64_t channels, int32_t activation, int32_t activation_first,
                                     const float* x, const float* weight, const float* bias, const float* residual,
                                     double eps, float* y, float* mean, float* variance, float* inverse_std,
                                     int32_t isa, int32_t threads);

// Its gradients with respect to x, weight and bias.
int32_t filtercov_batch_norm_backward(int64_t rows, int64_t channels, int32_t activation, int32_t activation_first,
                                      const float* grad_y, const float* x, const float* weight, const float* bias,
                                      const float* mean, const float* inverse_std, float* grad_x, float* grad_weight,
                                      float* grad_bias, int32_t isa, int32_t threads);

// In evaluation, by a mean and a variance that are given.
int32_t filtercov_batch_norm_eval(int64_t rows, int64_t channels, int32_t activation, int32_t activation_first,
                                  const float* x, const float* weight, const float* bias, const float* mean,
                                  const float* variance, const float* residual, double eps, float* y, int32_t isa,
                                  int32_t threads);

// GELU of `count` numbers, and the gradient of x.
int32_t filtercov_gelu_forward(int64_t count, const float* x, float* y, int32_t isa, int32_t threads);
int32_t filtercov_gelu_backward(int64_t count, const float* grad_y, const float* x, float* grad_x, int32_t isa,
                                int32_t threads);

// LayerNorm of the rows of a (rows, channels) matrix, channels >= 1: writes y and, per row, the mean and
// 1 / sqrt(variance + eps).
int32_t filtercov_layer_norm_forward(int64_t rows, int64_t channels, const float* x, const float* weight,
                                     const float* bias, double eps, float* y, float* mean, float* inverse_std,
                                     int32_t isa, int32_t threads);

// The same y once more, bit for bit, from what the forward pass wrote.
int32_t filtercov_layer_norm_again(int64_t rows, int64_t channels, const float* x, const float* mean,
                                   const float* inverse_std, const float* weight, const float* bias, float* y,
                                   int32_t isa, int32_t threads);

// Its gradients; grad_x may be grad_y.
int32_t filtercov_layer_norm_backward(int64_t rows, int64_t channels, const float* grad_y, const float* x,
                                      const float* mean, const float* inverse_std, const float* weight, float* grad_x,
                                      float* grad_weight, float* grad_bias, int32_t isa, int32_t threads);

// y = GELU(x + bias), bias per channel; y may be x.
int32_t filtercov_bias_gelu_forward(int64_t rows, int64_t channels, const float* x, const float* bias, float* y,
                                    int32_t isa, int32_t threads);

// The same y once more, and the gradients of x and bias; grad_x may be grad_y.
int32_t filtercov_bias_gelu_backward(int64_t rows, int64_t channels, const float* x, const float* bias,
                                     const float* grad_y, float* y, float* grad_x, float* grad_bias, int32_t isa,
                                     int32_t threads);

// y = (x + bias) * scale + shortcut, bias and scale per channel; scale and shortcut may be null, y may be x.
int32_t filtercov_scaled_residual(int64_t rows, int64_t channels, const float* x, const float* bias,
                                  const float* scale, const float* shortcut, float* y, int32_t isa, int32_t threads);
}
#pragma GCC visibility pop
