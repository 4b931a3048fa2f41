// Mean and variance of a matrix's columns, put together from those of ranges of its rows.
#pragma once

#include <cmath>

#include "rows.h"

namespace filtercov {

// What normalising takes, per channel; scale is weight / sqrt(variance + eps).
struct BatchMoments {
    float *mean, *variance, *inverse_std, *scale;
};

// `means` and `squares`, (ranges, channels), are each range's mean and sum of squared deviations from it.
inline int32_t batch_moments(const Ranges& ranges, int64_t channels, const float* means, const float* squares,
                             const float* weight, double eps, const BatchMoments& moments) {
    const double rows = static_cast<double>(ranges.rows);
    const Buffer<double> centre = allocate<double>(channels), spread = allocate<double>(channels);
    if (!centre || !spread) return FILTERCOV_NO_MEMORY;
    for (int64_t c = 0; c < channels; ++c) centre[c] = spread[c] = 0.0;
    const auto for_each = [&](const auto& body) {  // body(channel, rows in a range, mean, squares)
        for (int64_t i = 0; i < ranges.count(); ++i) {
            const double count = static_cast<double>(ranges[i].last - ranges[i].first);
            const float *mean = means + i * channels, *square = squares + i * channels;
            for (int64_t c = 0; c < channels; ++c) {
                body(c, count, static_cast<double>(mean[c]), static_cast<double>(square[c]));
            }
        }
    };
    for_each([&](int64_t c, double count, double mean, double) { centre[c] += mean * count; });
    for (int64_t c = 0; c < channels; ++c) centre[c] /= rows;
    for_each([&](int64_t c, double count, double mean, double square) {
        spread[c] += square + (mean - centre[c]) * (mean - centre[c]) * count;
    });
    for (int64_t c = 0; c < channels; ++c) {
        const double variance = spread[c] < 0.0 ? 0.0 : spread[c] / rows, inverse = 1.0 / std::sqrt(variance + eps);
        moments.mean[c] = static_cast<float>(centre[c]);
        moments.variance[c] = static_cast<float>(variance);
        moments.inverse_std[c] = static_cast<float>(inverse);
        moments.scale[c] = static_cast<float>(static_cast<double>(weight[c]) * inverse);
    }
    return FILTERCOV_OK;
}

}  // namespace filtercov
