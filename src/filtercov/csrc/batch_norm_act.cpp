// BatchNorm followed by an activation: cut the rows into ranges, run them, add up in a fixed order.
#include "activations.h"
#include "moments.h"

using namespace filtercov;

int32_t filtercov_batch_norm_act_forward(int64_t rows, int64_t channels, int32_t activation, const float* x,
                                         const float* weight, const float* bias, double eps, float* y, float* mean,
                                         float* variance, float* inverse_std, int32_t isa, int32_t threads) {
    const Kernels* kernels = kernels_for(isa);
    if (kernels == nullptr) return FILTERCOV_BAD_ISA;
    if (!valid(rows, channels, threads) || rows < 1 || !is_activation(activation)) return FILTERCOV_BAD_ARGUMENT;
    const Ranges ranges(rows, channels);
    const int64_t count = ranges.count();
    const Buffer<float> parts = allocate<float>((2 * count + 1) * channels);
    if (!parts) return FILTERCOV_NO_MEMORY;
    float* means = parts.get();
    float* squares = means + count * channels;
    float* scale = squares + count * channels;

    BatchNormAct job{};
    job.channels = channels;
    job.activation = activation;
    job.x = x;
    job.bias = bias;
    job.mean = mean;
    job.scale = scale;
    job.out = y;
    int32_t status = run_items(count, 0, threads, [&](int64_t i, float*) {
        kernels->moments(job, ranges[i], means + i * channels, squares + i * channels);
    });
    if (status != FILTERCOV_OK) return status;
    status = batch_moments(ranges, channels, means, squares, weight, eps, {mean, variance, inverse_std, scale});
    if (status != FILTERCOV_OK) return status;
    return run_items(count, 0, threads, [&](int64_t i, float*) { kernels->normalise_act(job, ranges[i]); });
}

int32_t filtercov_batch_norm_act_backward(int64_t rows, int64_t channels, int32_t activation, const float* grad_y,
                                          const float* x, const float* weight, const float* bias, const float* mean,
                                          const float* inverse_std, float* grad_x, float* grad_weight,
                                          float* grad_bias, int32_t isa, int32_t threads) {
    const Kernels* kernels = kernels_for(isa);
    if (kernels == nullptr) return FILTERCOV_BAD_ISA;
    if (!valid(rows, channels, threads) || rows < 1 || !is_activation(activation)) return FILTERCOV_BAD_ARGUMENT;
    const Ranges ranges(rows, channels);
    const int64_t count = ranges.count();
    const Buffer<float> parts = allocate<float>((2 * count + 3) * channels);
    if (!parts) return FILTERCOV_NO_MEMORY;
    float* sums = parts.get();
    float* weighted = sums + count * channels;
    float* scale = weighted + count * channels;
    float* shift = scale + channels;
    float* tilt = shift + channels;
    for (int64_t c = 0; c < channels; ++c) {
        scale[c] = static_cast<float>(static_cast<double>(weight[c]) * static_cast<double>(inverse_std[c]));
    }

    BatchNormAct job{};
    job.channels = channels;
    job.activation = activation;
    job.x = x;
    job.bias = bias;
    job.grad_y = grad_y;
    job.mean = mean;
    job.scale = scale;
    job.shift = shift;
    job.tilt = tilt;
    job.out = grad_x;
    const int32_t status = run_items(count, 0, threads, [&](int64_t i, float*) {
        kernels->act_gradient_sums(job, ranges[i], sums + i * channels, weighted + i * channels);
    });
    if (status != FILTERCOV_OK) return status;

    const Buffer<double> to_bias = totals(sums, count, channels), to_centred = totals(weighted, count, channels);
    if (!to_bias || !to_centred) return FILTERCOV_NO_MEMORY;
    for (int64_t c = 0; c < channels; ++c) {
        const double inverse = static_cast<double>(inverse_std[c]), to_weight = to_centred[c] * inverse;
        const double factor = static_cast<double>(scale[c]) / static_cast<double>(rows);
        grad_bias[c] = static_cast<float>(to_bias[c]);
        grad_weight[c] = static_cast<float>(to_weight);
        shift[c] = static_cast<float>(factor * to_bias[c]);
        tilt[c] = static_cast<float>(factor * to_weight * inverse);
    }
    return run_items(count, 0, threads, [&](int64_t i, float*) { kernels->act_gradient(job, ranges[i]); });
}
