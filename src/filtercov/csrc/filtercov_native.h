// The C interface of filtercov's native kernels: what Python (through ctypes) and the test binary call.
//
// Tensors are dense float32 in channels-last order: images (batch, height, width, channels), filters
// (channels, kernel_height, kernel_width). Nothing here knows of Python or torch. Every function returns a
// filtercov_status, checks its geometry before it touches memory, and gives the same bits for every thread count.
#pragma once

#include <cstdint>

// Exported; everything else in the library is hidden.
#pragma GCC visibility push(default)
extern "C" {

// A stride-1, dilation-1 depthwise convolution. Output pixel (y, x) sees input rows y - pad_top ... y - pad_top +
// kernel_height - 1 and columns likewise; whatever lies outside the image is zero. Padding may be negative (a crop).
struct filtercov_geometry {
    int64_t batch, channels;
    int64_t height, width;
    int64_t kernel_height, kernel_width;
    int64_t pad_top, pad_left;
    int64_t out_height, out_width;
};

enum filtercov_isa : int32_t { FILTERCOV_PORTABLE = 0, FILTERCOV_AVX2 = 1, FILTERCOV_AVX512 = 2, FILTERCOV_NEON = 3 };

enum filtercov_status : int32_t {
    FILTERCOV_OK = 0,
    FILTERCOV_BAD_ARGUMENT = 1,  // negative extent, empty kernel or no thread
    FILTERCOV_NO_MEMORY = 2,
    FILTERCOV_BAD_ISA = 3,  // this machine, or this build, cannot run that instruction set
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

// Training-mode BatchNorm of GELU(x) over a (rows, channels) matrix, rows >= 1: writes y and, per channel, the mean,
// the biased variance and 1 / sqrt(variance + eps) of GELU(x).
int32_t filtercov_gelu_batch_norm_forward(int64_t rows, int64_t channels, const float* x, const float* weight,
                                          const float* bias, double eps, float* y, float* mean, float* variance,
                                          float* inverse_std, int32_t isa, int32_t threads);

// Its gradients with respect to x, weight and bias.
int32_t filtercov_gelu_batch_norm_backward(int64_t rows, int64_t channels, const float* grad_y, const float* x,
                                           const float* weight, const float* mean, const float* inverse_std,
                                           float* grad_x, float* grad_weight, float* grad_bias, int32_t isa,
                                           int32_t threads);
}
#pragma GCC visibility pop
