// The bias gradient and the fused GELU + BatchNorm: cut the rows into ranges, run them, add up in a fixed order.
#include "moments.h"

using namespace filtercov;

int32_t filtercov_channel_sum(int64_t rows, int64_t channels, const float* matrix, float* sums, int32_t isa,
                              int32_t threads) {
    const Kernels* kernels = kernels_for(isa);
    if (kernels == nullptr) return FILTERCOV_BAD_ISA;
    if (!valid(rows, channels, threads)) return FILTERCOV_BAD_ARGUMENT;
    const Ranges ranges(rows, channels);
    const Buffer<float> parts = allocate<float>(ranges.count() * channels);
    if (!parts) return FILTERCOV_NO_MEMORY;
    const int32_t status = run_items(ranges.count(), 0, threads, [&](int64_t i, float*) {
        kernels->sum_rows(matrix, channels, ranges[i], parts.get() + i * channels);
    });
    if (status != FILTERCOV_OK) return status;
    const Buffer<double> all = totals(parts.get(), ranges.count(), channels);
    if (!all) return FILTERCOV_NO_MEMORY;
    for (int64_t c = 0; c < channels; ++c) sums[c] = static_cast<float>(all[c]);
    return FILTERCOV_OK;
}

int32_t filtercov_gelu_batch_norm_forward(int64_t rows, int64_t channels, const float* x, const float* weight,
                                          const float* bias, const float* residual, double eps, float* y, float* mean,
                                          float* variance, float* inverse_std, int32_t isa, int32_t threads) {
    const Kernels* kernels = kernels_for(isa);
    if (kernels == nullptr) return FILTERCOV_BAD_ISA;
    if (!valid(rows, channels, threads) || rows < 1) return FILTERCOV_BAD_ARGUMENT;
    const Ranges ranges(rows, channels);
    const int64_t count = ranges.count();
    const Buffer<float> parts = allocate<float>((2 * count + 1) * channels);
    if (!parts) return FILTERCOV_NO_MEMORY;
    float* means = parts.get();
    float* squares = means + count * channels;
    float* scale = squares + count * channels;

    GeluBatchNorm job{};
    job.channels = channels;
    job.x = x;
    job.residual = residual;
    job.scale = scale;
    job.shift = bias;
    job.mean = mean;
    job.out = y;
    int32_t status = run_items(count, channels, threads, [&](int64_t i, float* scratch) {
        kernels->gelu_moments(job, ranges[i], means + i * channels, squares + i * channels, scratch);
    });
    if (status != FILTERCOV_OK) return status;

    status = batch_moments(ranges, channels, means, squares, weight, eps, {mean, variance, inverse_std, scale});
    if (status != FILTERCOV_OK) return status;
    return run_items(count, 0, threads, [&](int64_t i, float*) { kernels->gelu_normalise(job, ranges[i]); });
}

int32_t filtercov_gelu_batch_norm_backward(int64_t rows, int64_t channels, const float* grad_y, const float* x,
                                           const float* weight, const float* mean, const float* inverse_std,
                                           float* grad_x, float* grad_weight, float* grad_bias, int32_t isa,
                                           int32_t threads) {
    const Kernels* kernels = kernels_for(isa);
    if (kernels == nullptr) return FILTERCOV_BAD_ISA;
    if (!valid(rows, channels, threads) || rows < 1) return FILTERCOV_BAD_ARGUMENT;
    const Ranges ranges(rows, channels);
    const int64_t count = ranges.count();
    const Buffer<float> parts = allocate<float>((2 * count + 3) * channels);
    if (!parts) return FILTERCOV_NO_MEMORY;
    float* sums = parts.get();
    float* weighted = sums + count * channels;
    float* scale = weighted + count * channels;
    float* shift = scale + channels;
    float* tilt = shift + channels;

    GeluBatchNorm job{};
    job.channels = channels;
    job.x = x;
    job.grad_y = grad_y;
    job.scale = scale;
    job.shift = shift;
    job.tilt = tilt;
    job.mean = mean;
    job.inverse_std = inverse_std;
    job.out = grad_x;
    const int32_t status = run_items(count, 0, threads, [&](int64_t i, float*) {
        kernels->gelu_gradient_sums(job, ranges[i], sums + i * channels, weighted + i * channels);
    });
    if (status != FILTERCOV_OK) return status;

    const Buffer<double> to_bias = totals(sums, count, channels), to_weight = totals(weighted, count, channels);
    if (!to_bias || !to_weight) return FILTERCOV_NO_MEMORY;
    for (int64_t c = 0; c < channels; ++c) {
        const double factor = static_cast<double>(weight[c]) * static_cast<double>(inverse_std[c]);
        grad_bias[c] = static_cast<float>(to_bias[c]);
        grad_weight[c] = static_cast<float>(to_weight[c]);
        scale[c] = static_cast<float>(factor);
        shift[c] = static_cast<float>(factor * to_bias[c] / static_cast<double>(rows));
        tilt[c] = static_cast<float>(factor * to_weight[c] / static_cast<double>(rows));
    }
    return run_items(count, 0, threads, [&](int64_t i, float*) { kernels->gelu_gradient(job, ranges[i]); });
}
