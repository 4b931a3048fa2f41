// The kernels that work on the rows of a matrix, against loops in double.
#pragma once

#include "filtercov_native.h"
#include "guarded.h"

namespace {

Guarded normals(int64_t count) {
    std::normal_distribution<float> normal(0.3f, 2.0f);
    Guarded buffer(count);
    for (int64_t i = 0; i < count; ++i) buffer[i] = normal(random_engine);
    return buffer;
}

std::string describe_rows(const char* kernel, int64_t rows, int64_t channels, int32_t isa) {
    return std::string(kernel) + " isa " + std::to_string(isa) + " rows " + std::to_string(rows) + " channels " +
           std::to_string(channels) + " ";
}

void check_gelu_batch_norm(int64_t rows, int64_t channels, int32_t isa, int32_t threads, bool added) {
    const double eps = 1e-5;
    std::normal_distribution<float> normal(0.3f, 2.0f);
    Guarded x(rows * channels), grad_y(rows * channels), residual(rows * channels), weight(channels), bias(channels);
    for (Guarded* buffer : {&x, &grad_y, &residual, &weight, &bias}) {
        for (int64_t i = 0; i < buffer->size(); ++i) (*buffer)[i] = normal(random_engine);
    }
    Guarded y(rows * channels), mean(channels), variance(channels), inverse_std(channels);
    Guarded grad_x(rows * channels), grad_weight(channels), grad_bias(channels);
    const std::string name =
        "isa " + std::to_string(isa) + " rows " + std::to_string(rows) + " channels " + std::to_string(channels);
    if (filtercov_gelu_batch_norm_forward(rows, channels, x.data(), weight.data(), bias.data(),
                                          added ? residual.data() : nullptr, eps, y.data(), mean.data(),
                                          variance.data(), inverse_std.data(), isa, threads) ||
        filtercov_gelu_batch_norm_backward(rows, channels, grad_y.data(), x.data(), weight.data(), mean.data(),
                                           inverse_std.data(), grad_x.data(), grad_weight.data(), grad_bias.data(), isa,
                                           threads)) {
        return fail("gelu_batch_norm " + name + ": status");
    }

    const double count = static_cast<double>(rows);
    std::vector<double> out(x.size()), to_x(x.size()), means(channels), variances(channels), to_weight(channels),
        to_bias(channels);
    for (int64_t c = 0; c < channels; ++c) {
        auto activation = [&](int64_t r) {
            const double v = x[r * channels + c];
            return v * normal_distribution(v);
        };
        for (int64_t r = 0; r < rows; ++r) means[c] += activation(r) / count;
        for (int64_t r = 0; r < rows; ++r) variances[c] += std::pow(activation(r) - means[c], 2) / count;
        const double scale = 1.0 / std::sqrt(variances[c] + eps);
        auto normalised = [&](int64_t r) { return (activation(r) - means[c]) * scale; };
        for (int64_t r = 0; r < rows; ++r) {
            out[r * channels + c] = normalised(r) * weight[c] + bias[c] + (added ? residual[r * channels + c] : 0.0f);
            to_bias[c] += grad_y[r * channels + c];
            to_weight[c] += grad_y[r * channels + c] * normalised(r);
        }
        for (int64_t r = 0; r < rows; ++r) {
            const double v = x[r * channels + c];
            const double inner = grad_y[r * channels + c] - to_bias[c] / count - normalised(r) * to_weight[c] / count;
            to_x[r * channels + c] =
                inner * weight[c] * scale * (normal_distribution(v) + v * normal_density(v));
        }
    }
    // Absolute tolerances: a few rounding errors of what enters each sum, times how far normalising magnifies them.
    const double unit = std::ldexp(1.0, -23), spread = 8.0;  // |x| and the other inputs stay below `spread`
    std::vector<double> magnified(channels), of_moments(channels, 8 * unit * spread), of_sums(channels);
    std::vector<double> of_variance(channels), of_grad(channels);
    for (int64_t c = 0; c < channels; ++c) {
        // Squares are added about a range's first value, which may be as far from the mean as any.
        double furthest = 0.0;
        for (int64_t r = 0; r < rows; ++r) {
            const double v = x[r * channels + c];
            furthest = std::fmax(furthest, std::fabs(v * normal_distribution(v) - means[c]));
        }
        of_variance[c] = 16 * unit * (spread + furthest * furthest);
        const double scale = 1.0 / std::sqrt(variances[c] + eps);
        magnified[c] = 32 * unit * spread * (1.0 + std::fabs(weight[c]) * scale) * (1.0 + scale);
        of_grad[c] = spread * magnified[c];  // what was normalised, times a gradient
        of_sums[c] = 8 * unit * spread * spread * std::sqrt(count) * (1.0 + scale);
    }
    expect_close("gelu_batch_norm y " + name, y, out, magnified);
    expect_close("gelu_batch_norm mean " + name, mean, means, of_moments);
    expect_close("gelu_batch_norm variance " + name, variance, variances, of_variance);
    expect_close("gelu_batch_norm grad_x " + name, grad_x, to_x, of_grad);
    expect_close("gelu_batch_norm grad_weight " + name, grad_weight, to_weight, of_sums);
    expect_close("gelu_batch_norm grad_bias " + name, grad_bias, to_bias, of_sums);
}

// A few rounding errors of numbers up to 10, their products and their sums over channels or rows.
std::vector<double> rounding(double terms, double magnified = 1.0) {
    return {64 * std::ldexp(1.0, -23) * 10 * std::sqrt(terms) * magnified};
}

double activated(double z, int32_t activation) {
    switch (activation) {
        case FILTERCOV_RELU: return std::fmax(z, 0.0);
        case FILTERCOV_RELU6: return std::fmin(std::fmax(z, 0.0), 6.0);
        case FILTERCOV_HARDSWISH: return z * std::fmin(std::fmax(z + 3.0, 0.0), 6.0) / 6.0;
        case FILTERCOV_SILU: return z / (1.0 + std::exp(-z));
        case FILTERCOV_GELU: return z * normal_distribution(z);
        default: return z;
    }
}

double slope(double z, int32_t activation) {
    const double logistic = 1.0 / (1.0 + std::exp(-z));
    switch (activation) {
        case FILTERCOV_RELU: return z > 0.0 ? 1.0 : 0.0;
        case FILTERCOV_RELU6: return z > 0.0 && z < 6.0 ? 1.0 : 0.0;
        case FILTERCOV_HARDSWISH: return z <= -3.0 ? 0.0 : z >= 3.0 ? 1.0 : z / 3.0 + 0.5;
        case FILTERCOV_SILU: return logistic * (1.0 + z * (1.0 - logistic));
        case FILTERCOV_GELU: return normal_distribution(z) + z * normal_density(z);
        default: return 1.0;
    }
}

void check_batch_norm_act(int64_t rows, int64_t channels, int32_t activation, int32_t isa, int32_t threads) {
    const double eps = 1e-2, count = static_cast<double>(rows), unit = std::ldexp(1.0, -23);
    Guarded x = normals(rows * channels), grad_y = normals(rows * channels), weight = normals(channels);
    Guarded bias = normals(channels), y(rows * channels), mean(channels), variance(channels), inverse_std(channels);
    Guarded grad_x(rows * channels), grad_weight(channels), grad_bias(channels);
    const std::string name =
        describe_rows("batch_norm_act", rows, channels, isa) + "activation " + std::to_string(activation) + " ";
    // What enters the activation stays away from where its slope jumps: rounding may put it on the other side.
    std::vector<double> z(x.size()), means(channels), scales(channels), variances(channels), of_variance(channels);
    for (int64_t c = 0; c < channels; ++c) {
        for (int64_t r = 0; r < rows; ++r) means[c] += x[r * channels + c] / count;
        for (int64_t r = 0; r < rows; ++r) variances[c] += std::pow(x[r * channels + c] - means[c], 2) / count;
        scales[c] = 1.0 / std::sqrt(variances[c] + eps);
        for (int64_t r = 0; r < rows; ++r) {  // squares are added about a range's first value, as far from the mean as any
            of_variance[c] = std::fmax(of_variance[c], 16 * unit * (1.0 + std::pow(x[r * channels + c] - means[c], 2)));
            z[r * channels + c] = (x[r * channels + c] - means[c]) * scales[c] * weight[c] + bias[c];
            for (double jump : {-3.0, 0.0, 3.0, 6.0}) {
                if (std::fabs(z[r * channels + c] - jump) < 1e-4) grad_y[r * channels + c] = 0.0f;
            }
        }
    }
    if (filtercov_batch_norm_act_forward(rows, channels, activation, x.data(), weight.data(), bias.data(), eps,
                                         y.data(), mean.data(), variance.data(), inverse_std.data(), isa, threads) ||
        filtercov_batch_norm_act_backward(rows, channels, activation, grad_y.data(), x.data(), weight.data(),
                                          bias.data(), mean.data(), inverse_std.data(), grad_x.data(),
                                          grad_weight.data(), grad_bias.data(), isa, threads)) {
        return fail(name + "status");
    }
    std::vector<double> out(x.size()), to_x(x.size()), to_weight(channels), to_bias(channels);
    for (int64_t c = 0; c < channels; ++c) {
        const auto normalised = [&](int64_t r) { return (x[r * channels + c] - means[c]) * scales[c]; };
        const auto grad = [&](int64_t r) {
            return grad_y[r * channels + c] * slope(z[r * channels + c], activation);
        };
        for (int64_t r = 0; r < rows; ++r) {
            out[r * channels + c] = activated(z[r * channels + c], activation);
            to_bias[c] += grad(r);
            to_weight[c] += grad(r) * normalised(r);
        }
        for (int64_t r = 0; r < rows; ++r) {
            const double inner = grad(r) - to_bias[c] / count - normalised(r) * to_weight[c] / count;
            to_x[r * channels + c] = inner * weight[c] * scales[c];
        }
    }
    const double most = 1.0 / std::sqrt(eps);
    expect_close(name + "y", y, out, rounding(1.0, most));
    expect_close(name + "mean", mean, means, {64 * unit});
    expect_close(name + "variance", variance, variances, of_variance);
    expect_close(name + "grad_x", grad_x, to_x, rounding(1.0, most));
    expect_close(name + "grad_weight", grad_weight, to_weight, rounding(count, most));
    expect_close(name + "grad_bias", grad_bias, to_bias, rounding(count));
}

void check_settled_norm(int64_t rows, int64_t channels, int32_t activation, bool first, bool added, int32_t isa,
                        int32_t threads) {
    const double eps = 1e-2;
    Guarded x = normals(rows * channels), weight = normals(channels), bias = normals(channels);
    Guarded mean = normals(channels), variance = normals(channels), residual = normals(rows * channels);
    Guarded y(rows * channels);
    for (int64_t c = 0; c < channels; ++c) variance[c] *= variance[c];
    const std::string name = describe_rows("settled_norm", rows, channels, isa) + "activation " +
                             std::to_string(activation) + (first ? " first " : " after ");
    if (filtercov_settled_norm(rows, channels, activation, first, x.data(), weight.data(), bias.data(), mean.data(),
                               variance.data(), added ? residual.data() : nullptr, eps, y.data(), isa, threads)) {
        return fail(name + "status");
    }
    std::vector<double> out(x.size());
    for (int64_t i = 0; i < rows * channels; ++i) {
        const int64_t c = i % channels;
        const double entered = first ? activated(x[i], activation) : static_cast<double>(x[i]);
        const double z = (entered - mean[c]) / std::sqrt(variance[c] + eps) * weight[c] + bias[c];
        out[i] = (first ? z : activated(z, activation)) + (added ? residual[i] : 0.0);
    }
    expect_close(name + "y", y, out, rounding(1.0, 1.0 / std::sqrt(eps)));
}

void check_layer_norm(int64_t rows, int64_t channels, int32_t isa, int32_t threads) {
    const double eps = 1e-3, count = static_cast<double>(channels), most = 1.0 / std::sqrt(eps);
    Guarded x = normals(rows * channels), grad = normals(rows * channels), weight = normals(channels);
    Guarded bias = normals(channels), y(rows * channels), again(rows * channels), mean(rows), inverse_std(rows);
    Guarded grad_x(rows * channels), grad_weight(channels), grad_bias(channels);
    const std::string name = describe_rows("layer_norm", rows, channels, isa);
    if (filtercov_layer_norm_forward(rows, channels, x.data(), weight.data(), bias.data(), eps, y.data(), mean.data(),
                                     inverse_std.data(), isa, threads) ||
        filtercov_layer_norm_again(rows, channels, x.data(), mean.data(), inverse_std.data(), weight.data(),
                                   bias.data(), again.data(), isa, threads) ||
        filtercov_layer_norm_backward(rows, channels, grad.data(), x.data(), mean.data(), inverse_std.data(),
                                      weight.data(), grad_x.data(), grad_weight.data(), grad_bias.data(), isa,
                                      threads)) {
        return fail(name + "status");
    }
    std::vector<double> out(x.size()), to_x(x.size()), to_weight(channels), to_bias(channels), means(rows), scales(rows);
    for (int64_t r = 0; r < rows; ++r) {
        double variance = 0.0, level = 0.0, tilt = 0.0;
        for (int64_t c = 0; c < channels; ++c) means[r] += x[r * channels + c] / count;
        for (int64_t c = 0; c < channels; ++c) variance += std::pow(x[r * channels + c] - means[r], 2) / count;
        scales[r] = 1.0 / std::sqrt(variance + eps);
        const auto normalised = [&](int64_t c) { return (x[r * channels + c] - means[r]) * scales[r]; };
        for (int64_t c = 0; c < channels; ++c) {
            const double g = grad[r * channels + c];
            out[r * channels + c] = normalised(c) * weight[c] + bias[c];
            to_weight[c] += g * normalised(c);
            to_bias[c] += g;
            level += g * weight[c] / count;
            tilt += g * weight[c] * normalised(c) / count;
        }
        for (int64_t c = 0; c < channels; ++c) {
            to_x[r * channels + c] =
                (static_cast<double>(grad[r * channels + c]) * weight[c] - level - tilt * normalised(c)) * scales[r];
        }
    }
    const double all = static_cast<double>(rows);
    expect_close(name + "y", y, out, rounding(count, most));
    expect_close(name + "y once more", again, out, rounding(count, most));
    expect_close(name + "mean", mean, means, rounding(count));
    expect_close(name + "inverse_std", inverse_std, scales, rounding(count, most));
    expect_close(name + "grad_x", grad_x, to_x, rounding(count, 10 * most));
    expect_close(name + "grad_weight", grad_weight, to_weight, rounding(all, most));
    expect_close(name + "grad_bias", grad_bias, to_bias, rounding(all));
}

void check_bias_gelu(int64_t rows, int64_t channels, int32_t isa, int32_t threads) {
    Guarded x = normals(rows * channels), grad = normals(rows * channels), bias = normals(channels);
    Guarded y(rows * channels), again(rows * channels), grad_x(rows * channels), grad_bias(channels);
    const std::string name = describe_rows("bias_gelu", rows, channels, isa);
    if (filtercov_bias_gelu_forward(rows, channels, x.data(), bias.data(), y.data(), isa, threads) ||
        filtercov_bias_gelu_backward(rows, channels, x.data(), bias.data(), grad.data(), again.data(), grad_x.data(),
                                     grad_bias.data(), isa, threads)) {
        return fail(name + "status");
    }
    std::vector<double> out(x.size()), to_x(x.size()), to_bias(channels);
    for (int64_t i = 0; i < x.size(); ++i) {
        const double v = static_cast<double>(x[i]) + bias[i % channels];
        out[i] = v * normal_distribution(v);
        to_x[i] = grad[i] * (normal_distribution(v) + v * normal_density(v));
        to_bias[i % channels] += to_x[i];
    }
    expect_close(name + "y", y, out, rounding(1));
    expect_close(name + "y once more", again, out, rounding(1));
    expect_close(name + "grad_x", grad_x, to_x, rounding(1));
    expect_close(name + "grad_bias", grad_bias, to_bias, rounding(static_cast<double>(rows)));
}

void check_scaled_residual(int64_t rows, int64_t channels, int32_t isa, int32_t threads) {
    Guarded x = normals(rows * channels), shortcut = normals(rows * channels), bias = normals(channels);
    Guarded scale = normals(channels), y(rows * channels);
    for (const bool scaled : {true, false}) {
        for (const bool added : {true, false}) {
            const std::string name = describe_rows("scaled_residual", rows, channels, isa);
            if (filtercov_scaled_residual(rows, channels, x.data(), bias.data(), scaled ? scale.data() : nullptr,
                                          added ? shortcut.data() : nullptr, y.data(), isa, threads)) {
                return fail(name + "status");
            }
            std::vector<double> out(x.size());
            for (int64_t i = 0; i < x.size(); ++i) {
                const double branch = static_cast<double>(x[i]) + bias[i % channels];
                out[i] = branch * (scaled ? scale[i % channels] : 1.0) + (added ? shortcut[i] : 0.0);
            }
            expect_close(name, y, out, rounding(1));
        }
    }
}

}  // namespace
