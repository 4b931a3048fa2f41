// Everything that works on a (rows, channels) matrix: the bias gradient, activations, BatchNorm, LayerNorm and what
// surrounds the matrix products of a ConvNeXt block. Rows are cut into ranges, and sums added up in a fixed order.
#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "parallel.h"

namespace filtercov {
namespace {

// A matrix, cut into ranges of rows: about 64 KiB of input for the cache's sake, and few enough rows that float32 sums
// over them stay exact to a few units in the last place.
struct Matrix {
    int64_t rows, channels, rows_per_range;
    int32_t threads, status;  // OK if all arguments are valid
    const Kernels* kernels;

    Matrix(int64_t rows, int64_t channels, int32_t isa, int32_t threads, bool valid = true)
        : rows(rows), channels(channels), threads(threads), kernels(kernels_for(isa)) {
        valid = valid && rows >= 0 && channels >= 0 && threads >= 1;
        status = kernels == nullptr ? FILTERCOV_BAD_ISA : valid ? FILTERCOV_OK : FILTERCOV_BAD_ARGUMENT;
        rows_per_range = std::clamp<int64_t>(16 * 1024 / std::max<int64_t>(1, channels), 16, 128);
    }
    int64_t ranges() const { return ceil_div(rows, rows_per_range); }
    Rows range(int64_t i) const {
        return {i * rows_per_range, std::min((i + 1) * rows_per_range, rows), channels};
    }
};

// Call run(i, rows) for each range i.
template <class Run> int32_t run_ranges(const Matrix& matrix, const Run& run) {
    if (matrix.status != FILTERCOV_OK) return matrix.status;
    return run_items(matrix.ranges(), 0, matrix.threads, [&](int64_t i, float*) { run(i, matrix.range(i)); });
}

// totals (sums, channels) becomes the sum of what run(rows, parts) adds to parts (sums, channels) for each range, in
// double: ranges are few, and their rounding should not matter.
template <class Run>
int32_t sum_ranges(const Matrix& matrix, int64_t sums, Buffer<double>& totals, const Run& run) {
    if (matrix.status != FILTERCOV_OK) return matrix.status;
    const int64_t size = sums * matrix.channels;
    const Buffer<float> parts = allocate<float>(matrix.ranges() * size);
    totals = allocate<double>(size);
    if (!parts || !totals) return FILTERCOV_NO_MEMORY;
    std::fill_n(parts.get(), matrix.ranges() * size, 0.0f);
    std::fill_n(totals.get(), size, 0.0);
    const int32_t status = run_ranges(matrix, [&](int64_t i, Rows rows) { run(rows, parts.get() + i * size); });
    if (status != FILTERCOV_OK) return status;
    for (int64_t i = 0; i < matrix.ranges(); ++i) {
        for (int64_t c = 0; c < size; ++c) totals[c] += static_cast<double>(parts[i * size + c]);
    }
    return FILTERCOV_OK;
}

// The same, rounded to float: the n-th sum to `to[n]`.
template <class Run> int32_t sum_ranges(const Matrix& matrix, std::initializer_list<float*> to, const Run& run) {
    Buffer<double> totals;
    const int32_t status = sum_ranges(matrix, static_cast<int64_t>(to.size()), totals, run);
    if (status != FILTERCOV_OK) return status;
    const double* from = totals.get();
    for (float* sums : to) {
        for (int64_t c = 0; c < matrix.channels; ++c) sums[c] = static_cast<float>(*from++);
    }
    return FILTERCOV_OK;
}

// Whether there is a norm with this activation, before it or after it, and this residual.
bool has_norm(int32_t activation, bool first, const float* residual) {
    if (first) return activation == FILTERCOV_GELU;
    return activation >= FILTERCOV_IDENTITY && activation <= FILTERCOV_GELU && residual == nullptr;
}

// Call run(kernels, first, numbers) for pieces of `count` numbers, which are taken as a matrix.
template <class Run> int32_t run_pieces(int64_t count, int32_t isa, int32_t threads, const Run& run) {
    constexpr int64_t kRow = 1024;
    const Matrix matrix(ceil_div(count, kRow), kRow, isa, threads, count >= 0);
    return run_ranges(matrix, [&](int64_t, Rows range) {
        const int64_t first = range.first * kRow;
        run(*matrix.kernels, first, std::min(range.last * kRow, count) - first);
    });
}

// Per channel, the mean and the biased variance of x, or if `activated` is not null of GELU(x), which is written there;
// combined in double from the mean and the sum of squared deviations of each range.
int32_t batch_moments(const Matrix& matrix, const float* x, float* activated, double* centre, double* spread) {
    const int64_t channels = matrix.channels, ranges = matrix.ranges();
    const double rows = static_cast<double>(matrix.rows);
    const Buffer<float> parts = allocate<float>(2 * ranges * channels);  // (ranges, 2, channels)
    if (!parts) return FILTERCOV_NO_MEMORY;
    std::fill_n(parts.get(), 2 * ranges * channels, 0.0f);
    const int32_t status = run_ranges(matrix, [&](int64_t i, Rows range) {
        float* part = parts.get() + 2 * i * channels;
        matrix.kernels->moments(range, x, activated, part, part + channels);
    });
    if (status != FILTERCOV_OK) return status;

    const auto for_each = [&](const auto& body) {  // body(channel, rows in a range, mean, squares)
        for (int64_t i = 0; i < ranges; ++i) {
            const double count = static_cast<double>(matrix.range(i).last - matrix.range(i).first);
            const float *mean = parts.get() + 2 * i * channels, *squares = mean + channels;
            for (int64_t c = 0; c < channels; ++c) {
                body(c, count, static_cast<double>(mean[c]), static_cast<double>(squares[c]));
            }
        }
    };
    for (int64_t c = 0; c < channels; ++c) centre[c] = spread[c] = 0.0;
    for_each([&](int64_t c, double count, double mean, double) { centre[c] += mean * count; });
    for (int64_t c = 0; c < channels; ++c) centre[c] /= rows;
    for_each([&](int64_t c, double count, double mean, double squares) {
        spread[c] += squares + (mean - centre[c]) * (mean - centre[c]) * count;
    });
    for (int64_t c = 0; c < channels; ++c) spread[c] = spread[c] < 0.0 ? 0.0 : spread[c] / rows;
    return FILTERCOV_OK;
}

}  // namespace
}  // namespace filtercov

using namespace filtercov;

int32_t filtercov_channel_sum(int64_t rows, int64_t channels, const float* matrix, float* sums, int32_t isa,
                              int32_t threads) {
    const Matrix m(rows, channels, isa, threads);
    return sum_ranges(m, {sums}, [&](Rows range, float* parts) { m.kernels->sum_rows(range, matrix, parts); });
}

int32_t filtercov_gelu_forward(int64_t count, const float* x, float* y, int32_t isa, int32_t threads) {
    return run_pieces(count, isa, threads, [&](const Kernels& kernels, int64_t first, int64_t numbers) {
        kernels.gelu(numbers, x + first, y + first);
    });
}

int32_t filtercov_gelu_backward(int64_t count, const float* grad_y, const float* x, float* grad_x, int32_t isa,
                                int32_t threads) {
    return run_pieces(count, isa, threads, [&](const Kernels& kernels, int64_t first, int64_t numbers) {
        kernels.gelu_gradient(numbers, grad_y + first, x + first, grad_x + first);
    });
}

int32_t filtercov_batch_norm_forward(int64_t rows, int64_t channels, int32_t activation, int32_t activation_first,
                                     const float* x, const float* weight, const float* bias, const float* residual,
                                     double eps, float* y, float* mean, float* variance, float* inverse_std,
                                     int32_t isa, int32_t threads) {
    const bool first = activation_first != 0;
    const Matrix matrix(rows, channels, isa, threads, rows >= 1 && has_norm(activation, first, residual));
    if (matrix.status != FILTERCOV_OK) return matrix.status;
    const Buffer<float> scale = allocate<float>(channels);
    const Buffer<double> centre = allocate<double>(channels), spread = allocate<double>(channels);
    if (!scale || !centre || !spread) return FILTERCOV_NO_MEMORY;
    const int32_t status = batch_moments(matrix, x, first ? y : nullptr, centre.get(), spread.get());
    if (status != FILTERCOV_OK) return status;
    for (int64_t c = 0; c < channels; ++c) {
        const double inverse = 1.0 / std::sqrt(spread[c] + eps);
        mean[c] = static_cast<float>(centre[c]);
        variance[c] = static_cast<float>(spread[c]);
        inverse_std[c] = static_cast<float>(inverse);
        scale[c] = static_cast<float>(static_cast<double>(weight[c]) * inverse);
    }
    const int32_t after = first ? static_cast<int32_t>(FILTERCOV_IDENTITY) : activation;
    return run_ranges(matrix, [&](int64_t, Rows range) {
        matrix.kernels->normalise(range, after, first ? y : x, mean, scale.get(), bias, residual, y);
    });
}

int32_t filtercov_batch_norm_backward(int64_t rows, int64_t channels, int32_t activation, int32_t activation_first,
                                      const float* grad_y, const float* x, const float* weight, const float* bias,
                                      const float* mean, const float* inverse_std, float* grad_x, float* grad_weight,
                                      float* grad_bias, int32_t isa, int32_t threads) {
    const bool first = activation_first != 0;
    const Matrix matrix(rows, channels, isa, threads, rows >= 1 && has_norm(activation, first, nullptr));
    if (matrix.status != FILTERCOV_OK) return matrix.status;
    const Buffer<float> coefficients = allocate<float>(3 * channels);
    if (!coefficients) return FILTERCOV_NO_MEMORY;
    float *scale = coefficients.get(), *shift = scale + channels, *tilt = shift + channels;
    const NormGradient job{activation, first, x, grad_y, mean, inverse_std, bias, scale, shift, tilt, grad_x};
    for (int64_t c = 0; c < channels; ++c) {
        scale[c] = static_cast<float>(static_cast<double>(weight[c]) * static_cast<double>(inverse_std[c]));
    }

    Buffer<double> totals;
    const int32_t status = sum_ranges(matrix, 2, totals, [&](Rows range, float* parts) {
        matrix.kernels->norm_gradient_sums(range, job, parts, parts + channels);
    });
    if (status != FILTERCOV_OK) return status;
    const double count = static_cast<double>(rows);
    for (int64_t c = 0; c < channels; ++c) {
        const double inverse = static_cast<double>(inverse_std[c]), to_bias = totals[c];
        double to_weight = totals[channels + c];
        if (first) {  // the centred input is already divided by its deviation
            const double factor = static_cast<double>(weight[c]) * inverse;
            shift[c] = static_cast<float>(factor * to_bias / count);
            tilt[c] = static_cast<float>(factor * to_weight / count);
        } else {
            const double factor = static_cast<double>(scale[c]) / count;
            to_weight *= inverse;
            shift[c] = static_cast<float>(factor * to_bias);
            tilt[c] = static_cast<float>(factor * to_weight * inverse);
        }
        grad_bias[c] = static_cast<float>(to_bias);
        grad_weight[c] = static_cast<float>(to_weight);
    }
    return run_ranges(matrix, [&](int64_t, Rows range) { matrix.kernels->norm_gradient(range, job); });
}

int32_t filtercov_batch_norm_eval(int64_t rows, int64_t channels, int32_t activation, int32_t activation_first,
                                  const float* x, const float* weight, const float* bias, const float* mean,
                                  const float* variance, const float* residual, double eps, float* y, int32_t isa,
                                  int32_t threads) {
    const bool first = activation_first != 0;
    const Matrix matrix(rows, channels, isa, threads, has_norm(activation, first, residual));
    if (matrix.status != FILTERCOV_OK) return matrix.status;
    const Buffer<float> scale = allocate<float>(channels);
    if (!scale) return FILTERCOV_NO_MEMORY;
    for (int64_t c = 0; c < channels; ++c) {
        const double deviation = std::sqrt(static_cast<double>(variance[c]) + eps);
        scale[c] = static_cast<float>(static_cast<double>(weight[c]) / deviation);
    }
    const int32_t after = first ? static_cast<int32_t>(FILTERCOV_IDENTITY) : activation;
    return run_ranges(matrix, [&](int64_t, Rows range) {
        const int64_t at = range.first * channels;
        // In place: the range is still in the cache when it is normalised.
        if (first) matrix.kernels->gelu(range.last * channels - at, x + at, y + at);
        matrix.kernels->normalise(range, after, first ? y : x, mean, scale.get(), bias, residual, y);
    });
}

int32_t filtercov_layer_norm_forward(int64_t rows, int64_t channels, const float* x, const float* weight,
                                     const float* bias, double eps, float* y, float* mean, float* inverse_std,
                                     int32_t isa, int32_t threads) {
    const Matrix matrix(rows, channels, isa, threads, channels >= 1);
    return run_ranges(matrix, [&](int64_t, Rows range) {
        matrix.kernels->layer_moments(range, x, static_cast<float>(eps), mean, inverse_std);
        matrix.kernels->layer_normalise(range, x, mean, inverse_std, weight, bias, y);
    });
}

int32_t filtercov_layer_norm_again(int64_t rows, int64_t channels, const float* x, const float* mean,
                                   const float* inverse_std, const float* weight, const float* bias, float* y,
                                   int32_t isa, int32_t threads) {
    const Matrix matrix(rows, channels, isa, threads, channels >= 1);
    return run_ranges(matrix, [&](int64_t, Rows range) {
        matrix.kernels->layer_normalise(range, x, mean, inverse_std, weight, bias, y);
    });
}

int32_t filtercov_layer_norm_backward(int64_t rows, int64_t channels, const float* grad_y, const float* x,
                                      const float* mean, const float* inverse_std, const float* weight, float* grad_x,
                                      float* grad_weight, float* grad_bias, int32_t isa, int32_t threads) {
    const Matrix matrix(rows, channels, isa, threads, channels >= 1);
    return sum_ranges(matrix, {grad_bias, grad_weight}, [&](Rows range, float* parts) {
        matrix.kernels->layer_gradient(range, grad_y, x, mean, inverse_std, weight, grad_x, parts, parts + channels);
    });
}

int32_t filtercov_bias_gelu_forward(int64_t rows, int64_t channels, const float* x, const float* bias, float* y,
                                    int32_t isa, int32_t threads) {
    const Matrix matrix(rows, channels, isa, threads);
    return run_ranges(matrix, [&](int64_t, Rows range) { matrix.kernels->bias_gelu(range, x, bias, y); });
}

int32_t filtercov_bias_gelu_backward(int64_t rows, int64_t channels, const float* x, const float* bias,
                                     const float* grad_y, float* y, float* grad_x, float* grad_bias, int32_t isa,
                                     int32_t threads) {
    const Matrix matrix(rows, channels, isa, threads);
    return sum_ranges(matrix, {grad_bias}, [&](Rows range, float* parts) {
        matrix.kernels->bias_gelu_gradient(range, x, bias, grad_y, y, grad_x, parts);
    });
}

int32_t filtercov_scaled_residual(int64_t rows, int64_t channels, const float* x, const float* bias,
                                  const float* scale, const float* shortcut, float* y, int32_t isa, int32_t threads) {
    const Matrix matrix(rows, channels, isa, threads);
    return run_ranges(matrix, [&](int64_t, Rows range) {
        matrix.kernels->scaled_residual(range, x, bias, scale, shortcut, y);
    });
}
