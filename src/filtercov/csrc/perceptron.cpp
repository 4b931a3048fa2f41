// What lies around the matrix products of a ConvNeXt block: LayerNorm, GELU with the bias before it, scaled residual.
#include "rows.h"

using namespace filtercov;

int32_t filtercov_layer_norm_forward(int64_t rows, int64_t channels, const float* x, const float* weight,
                                     const float* bias, double eps, float* y, float* mean, float* inverse_std,
                                     int32_t isa, int32_t threads) {
    LayerNorm job{};
    job.channels = channels;
    job.x = x;
    job.weight = weight;
    job.bias = bias;
    job.eps = static_cast<float>(eps);
    job.mean = mean;
    job.inverse_std = inverse_std;
    job.out = y;
    return run_rows(rows, channels, 1, isa, threads, [&](const Kernels& kernels, RowRange range) {
        kernels.layer_moments(job, range, mean, inverse_std);
        kernels.layer_normalise(job, range);
    });
}

int32_t filtercov_layer_norm_again(int64_t rows, int64_t channels, const float* x, const float* mean,
                                   const float* inverse_std, const float* weight, const float* bias, float* y,
                                   int32_t isa, int32_t threads) {
    LayerNorm job{};
    job.channels = channels;
    job.x = x;
    job.weight = weight;
    job.bias = bias;
    job.mean = mean;
    job.inverse_std = inverse_std;
    job.out = y;
    return run_rows(rows, channels, 1, isa, threads, [&](const Kernels& kernels, RowRange range) {
        kernels.layer_normalise(job, range);
    });
}

int32_t filtercov_layer_norm_backward(int64_t rows, int64_t channels, const float* grad_y, const float* x,
                                      const float* mean, const float* inverse_std, const float* weight, float* grad_x,
                                      float* grad_weight, float* grad_bias, int32_t isa, int32_t threads) {
    const Kernels* kernels = kernels_for(isa);
    if (kernels == nullptr) return FILTERCOV_BAD_ISA;
    if (!valid(rows, channels, threads) || channels < 1) return FILTERCOV_BAD_ARGUMENT;
    const Ranges ranges(rows, channels);
    const int64_t count = ranges.count();
    const Buffer<float> parts = allocate<float>(2 * count * channels);
    if (!parts) return FILTERCOV_NO_MEMORY;
    float* sums = parts.get();
    float* weighted = sums + count * channels;
    LayerNorm job{};
    job.channels = channels;
    job.x = x;
    job.weight = weight;
    job.mean = mean;
    job.inverse_std = inverse_std;
    job.grad_y = grad_y;
    job.out = grad_x;
    const int32_t status = run_items(count, 0, threads, [&](int64_t i, float*) {
        kernels->layer_norm_gradient(job, ranges[i], sums + i * channels, weighted + i * channels);
    });
    if (status != FILTERCOV_OK) return status;
    const Buffer<double> to_bias = totals(sums, count, channels), to_weight = totals(weighted, count, channels);
    if (!to_bias || !to_weight) return FILTERCOV_NO_MEMORY;
    for (int64_t c = 0; c < channels; ++c) {
        grad_bias[c] = static_cast<float>(to_bias[c]);
        grad_weight[c] = static_cast<float>(to_weight[c]);
    }
    return FILTERCOV_OK;
}

int32_t filtercov_bias_gelu_forward(int64_t rows, int64_t channels, const float* x, const float* bias, float* y,
                                    int32_t isa, int32_t threads) {
    BiasGelu job{};
    job.channels = channels;
    job.x = x;
    job.bias = bias;
    job.y = y;
    return run_rows(rows, channels, 0, isa, threads, [&](const Kernels& kernels, RowRange range) {
        kernels.bias_gelu(job, range);
    });
}

int32_t filtercov_bias_gelu_backward(int64_t rows, int64_t channels, const float* x, const float* bias,
                                     const float* grad_y, float* y, float* grad_x, float* grad_bias, int32_t isa,
                                     int32_t threads) {
    const Kernels* kernels = kernels_for(isa);
    if (kernels == nullptr) return FILTERCOV_BAD_ISA;
    if (!valid(rows, channels, threads)) return FILTERCOV_BAD_ARGUMENT;
    const Ranges ranges(rows, channels);
    const Buffer<float> sums = allocate<float>(ranges.count() * channels);
    if (!sums) return FILTERCOV_NO_MEMORY;
    BiasGelu job{};
    job.channels = channels;
    job.x = x;
    job.bias = bias;
    job.grad_y = grad_y;
    job.y = y;
    job.grad_x = grad_x;
    const int32_t status = run_items(ranges.count(), 0, threads, [&](int64_t i, float*) {
        kernels->bias_gelu_gradient(job, ranges[i], sums.get() + i * channels);
    });
    if (status != FILTERCOV_OK) return status;
    const Buffer<double> to_bias = totals(sums.get(), ranges.count(), channels);
    if (!to_bias) return FILTERCOV_NO_MEMORY;
    for (int64_t c = 0; c < channels; ++c) grad_bias[c] = static_cast<float>(to_bias[c]);
    return FILTERCOV_OK;
}

int32_t filtercov_scaled_residual(int64_t rows, int64_t channels, const float* x, const float* bias,
                                  const float* scale, const float* shortcut, float* y, int32_t isa, int32_t threads) {
    const Residual job{channels, x, bias, scale, shortcut, y};
    return run_rows(rows, channels, 0, isa, threads, [&](const Kernels& kernels, RowRange range) {
        kernels.scaled_residual(job, range);
    });
}
