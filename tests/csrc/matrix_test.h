// The kernels that work on (rows, channels) matrices, against loops in double.
#pragma once

#include "filtercov_native.h"
#include "guarded.h"

namespace {

using Doubles = std::vector<double>;

// The shape and how to run it, which every check takes.
struct Call {
    int64_t rows, channels;
    int32_t isa, threads;

    std::string name(const char* kernel) const {
        return std::string(kernel) + " isa " + std::to_string(isa) + " rows " + std::to_string(rows) + " channels " +
               std::to_string(channels) + " ";
    }
    int64_t size() const { return rows * channels; }
};

Guarded normals(int64_t count) {
    std::normal_distribution<float> normal(0.3f, 2.0f);
    Guarded buffer(count);
    for (int64_t i = 0; i < count; ++i) buffer[i] = normal(random_engine);
    return buffer;
}

// A few rounding errors of numbers up to 10, their products and their sums over channels or rows.
Doubles rounding(double terms, double magnified = 1.0) {
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

void check_activation(const Call& call, int32_t activation) {
    Guarded x = normals(call.size()), grad_y = normals(call.size()), y(call.size()), grad_x(call.size());
    const std::string name = call.name("activation") + std::to_string(activation) + " ";
    if (filtercov_activation_forward(call.size(), activation, x.data(), y.data(), call.isa, call.threads) ||
        filtercov_activation_backward(call.size(), activation, grad_y.data(), x.data(), grad_x.data(), call.isa,
                                      call.threads)) {
        return fail(name + "status");
    }
    Doubles out(call.size()), to_x(call.size());
    for (int64_t i = 0; i < call.size(); ++i) {
        out[i] = activated(x[i], activation);
        to_x[i] = grad_y[i] * slope(x[i], activation);
    }
    expect_close(name + "y", y, out, rounding(1));
    expect_close(name + "grad_x", grad_x, to_x, rounding(1));
}

// Training: an activation after the norm, or, `first`, GELU before it and then perhaps a residual.
void check_batch_norm(const Call& call, int32_t activation, bool first, bool added) {
    const int64_t rows = call.rows, channels = call.channels;
    const double eps = 1e-2, count = static_cast<double>(rows), unit = std::ldexp(1.0, -23);
    Guarded x = normals(call.size()), grad_y = normals(call.size()), residual = normals(call.size());
    Guarded weight = normals(channels), bias = normals(channels);
    Guarded y(call.size()), mean(channels), variance(channels), inverse_std(channels);
    Guarded grad_x(call.size()), grad_weight(channels), grad_bias(channels);
    const std::string name =
        call.name("batch_norm") + "activation " + std::to_string(activation) + (first ? " first " : " after ");

    Doubles entered(call.size()), normalised(call.size()), z(call.size()), out(call.size()), to_x(call.size());
    Doubles means(channels), variances(channels), scales(channels), furthest(channels), to_weight(channels), to_bias(channels);
    const auto for_each = [&](const auto& body) {  // body(element, channel)
        for (int64_t i = 0; i < call.size(); ++i) body(i, i % channels);
    };
    for_each([&](int64_t i, int64_t) { entered[i] = first ? activated(x[i], activation) : static_cast<double>(x[i]); });
    for_each([&](int64_t i, int64_t c) { means[c] += entered[i] / count; });
    for_each([&](int64_t i, int64_t c) {
        variances[c] += std::pow(entered[i] - means[c], 2) / count;
        furthest[c] = std::fmax(furthest[c], std::fabs(entered[i] - means[c]));
    });
    for (int64_t c = 0; c < channels; ++c) scales[c] = 1.0 / std::sqrt(variances[c] + eps);
    for_each([&](int64_t i, int64_t c) {
        normalised[i] = (entered[i] - means[c]) * scales[c];
        z[i] = normalised[i] * weight[c] + bias[c];
        out[i] = first ? z[i] + (added ? residual[i] : 0.0) : activated(z[i], activation);
        // Rounding may put what enters the activation on the other side of a place where its slope jumps.
        for (double jump : {-3.0, 0.0, 3.0, 6.0}) {
            if (std::fabs(z[i] - jump) < 1e-4) grad_y[i] = 0.0f;
        }
    });
    const auto grad = [&](int64_t i) { return grad_y[i] * (first ? 1.0 : slope(z[i], activation)); };
    for_each([&](int64_t i, int64_t c) {
        to_bias[c] += grad(i);
        to_weight[c] += grad(i) * normalised[i];
    });
    for_each([&](int64_t i, int64_t c) {
        const double inner = grad(i) - to_bias[c] / count - normalised[i] * to_weight[c] / count;
        to_x[i] = inner * weight[c] * scales[c] * (first ? slope(x[i], activation) : 1.0);
    });

    const int32_t status =
        first ? filtercov_gelu_batch_norm_forward(rows, channels, x.data(), weight.data(), bias.data(),
                                                  added ? residual.data() : nullptr, eps, y.data(), mean.data(),
                                                  variance.data(), inverse_std.data(), call.isa, call.threads) ||
                    filtercov_gelu_batch_norm_backward(rows, channels, grad_y.data(), x.data(), weight.data(),
                                                       mean.data(), inverse_std.data(), grad_x.data(),
                                                       grad_weight.data(), grad_bias.data(), call.isa, call.threads)
              : filtercov_batch_norm_act_forward(rows, channels, activation, x.data(), weight.data(), bias.data(), eps,
                                                 y.data(), mean.data(), variance.data(), inverse_std.data(), call.isa,
                                                 call.threads) ||
                    filtercov_batch_norm_act_backward(rows, channels, activation, grad_y.data(), x.data(),
                                                      weight.data(), bias.data(), mean.data(), inverse_std.data(),
                                                      grad_x.data(), grad_weight.data(), grad_bias.data(), call.isa,
                                                      call.threads);
    if (status != FILTERCOV_OK) return fail(name + "status");
    // Squares are added about a range's first value, which may be as far from the mean as any.
    Doubles of_variance(channels);
    for (int64_t c = 0; c < channels; ++c) of_variance[c] = 16 * unit * (8.0 + furthest[c] * furthest[c]);
    const double most = 1.0 / std::sqrt(eps);
    expect_close(name + "y", y, out, rounding(1.0, most));
    expect_close(name + "mean", mean, means, {64 * unit});
    expect_close(name + "variance", variance, variances, of_variance);
    expect_close(name + "inverse_std", inverse_std, scales, rounding(1.0, most));
    expect_close(name + "grad_x", grad_x, to_x, rounding(1.0, most));
    expect_close(name + "grad_weight", grad_weight, to_weight, rounding(count, most));
    expect_close(name + "grad_bias", grad_bias, to_bias, rounding(count));
}

// Evaluation: an activation after the norm, or before it and then perhaps a residual.
void check_settled_norm(const Call& call, int32_t activation, bool first, bool added) {
    const double eps = 1e-2;
    Guarded x = normals(call.size()), weight = normals(call.channels), bias = normals(call.channels);
    Guarded mean = normals(call.channels), variance = normals(call.channels), residual = normals(call.size());
    Guarded y(call.size());
    for (int64_t c = 0; c < call.channels; ++c) variance[c] *= variance[c];
    const std::string name =
        call.name("settled_norm") + "activation " + std::to_string(activation) + (first ? " first " : " after ");
    if (filtercov_settled_norm(call.rows, call.channels, activation, first, x.data(), weight.data(), bias.data(),
                               mean.data(), variance.data(), added ? residual.data() : nullptr, eps, y.data(), call.isa,
                               call.threads)) {
        return fail(name + "status");
    }
    Doubles out(call.size());
    for (int64_t i = 0; i < call.size(); ++i) {
        const int64_t c = i % call.channels;
        const double entered = first ? activated(x[i], activation) : static_cast<double>(x[i]);
        const double z = (entered - mean[c]) / std::sqrt(variance[c] + eps) * weight[c] + bias[c];
        out[i] = (first ? z : activated(z, activation)) + (added ? residual[i] : 0.0);
    }
    expect_close(name + "y", y, out, rounding(1.0, 1.0 / std::sqrt(eps)));
}

void check_layer_norm(const Call& call) {
    const int64_t rows = call.rows, channels = call.channels;
    const double eps = 1e-3, count = static_cast<double>(channels), most = 1.0 / std::sqrt(eps);
    Guarded x = normals(call.size()), grad = normals(call.size()), weight = normals(channels), bias = normals(channels);
    Guarded y(call.size()), again(call.size()), mean(rows), inverse_std(rows);
    Guarded grad_x(call.size()), grad_weight(channels), grad_bias(channels);
    const std::string name = call.name("layer_norm");
    if (filtercov_layer_norm_forward(rows, channels, x.data(), weight.data(), bias.data(), eps, y.data(), mean.data(),
                                     inverse_std.data(), call.isa, call.threads) ||
        filtercov_layer_norm_again(rows, channels, x.data(), mean.data(), inverse_std.data(), weight.data(),
                                   bias.data(), again.data(), call.isa, call.threads) ||
        filtercov_layer_norm_backward(rows, channels, grad.data(), x.data(), mean.data(), inverse_std.data(),
                                      weight.data(), grad_x.data(), grad_weight.data(), grad_bias.data(), call.isa,
                                      call.threads)) {
        return fail(name + "status");
    }
    Doubles out(call.size()), to_x(call.size()), to_weight(channels), to_bias(channels), means(rows), scales(rows);
    for (int64_t r = 0; r < rows; ++r) {
        const int64_t at = r * channels;
        double variance = 0.0, level = 0.0, tilt = 0.0;
        for (int64_t c = 0; c < channels; ++c) means[r] += x[at + c] / count;
        for (int64_t c = 0; c < channels; ++c) variance += std::pow(x[at + c] - means[r], 2) / count;
        scales[r] = 1.0 / std::sqrt(variance + eps);
        const auto normalised = [&](int64_t c) { return (x[at + c] - means[r]) * scales[r]; };
        const auto weighted = [&](int64_t c) { return static_cast<double>(grad[at + c]) * weight[c]; };
        for (int64_t c = 0; c < channels; ++c) {
            out[at + c] = normalised(c) * weight[c] + bias[c];
            to_weight[c] += grad[at + c] * normalised(c);
            to_bias[c] += grad[at + c];
            level += weighted(c) / count;
            tilt += weighted(c) * normalised(c) / count;
        }
        for (int64_t c = 0; c < channels; ++c) to_x[at + c] = (weighted(c) - level - tilt * normalised(c)) * scales[r];
    }
    expect_close(name + "y", y, out, rounding(count, most));
    expect_close(name + "y once more", again, out, rounding(count, most));
    expect_close(name + "mean", mean, means, rounding(count));
    expect_close(name + "inverse_std", inverse_std, scales, rounding(count, most));
    expect_close(name + "grad_x", grad_x, to_x, rounding(count, 10 * most));
    expect_close(name + "grad_weight", grad_weight, to_weight, rounding(static_cast<double>(rows), most));
    expect_close(name + "grad_bias", grad_bias, to_bias, rounding(static_cast<double>(rows)));
}

void check_bias_gelu(const Call& call) {
    Guarded x = normals(call.size()), grad = normals(call.size()), bias = normals(call.channels);
    Guarded y(call.size()), again(call.size()), grad_x(call.size()), grad_bias(call.channels);
    const std::string name = call.name("bias_gelu");
    if (filtercov_bias_gelu_forward(call.rows, call.channels, x.data(), bias.data(), y.data(), call.isa,
                                    call.threads) ||
        filtercov_bias_gelu_backward(call.rows, call.channels, x.data(), bias.data(), grad.data(), again.data(),
                                     grad_x.data(), grad_bias.data(), call.isa, call.threads)) {
        return fail(name + "status");
    }
    Doubles out(call.size()), to_x(call.size()), to_bias(call.channels);
    for (int64_t i = 0; i < call.size(); ++i) {
        const double z = static_cast<double>(x[i]) + bias[i % call.channels];
        out[i] = activated(z, FILTERCOV_GELU);
        to_x[i] = grad[i] * slope(z, FILTERCOV_GELU);
        to_bias[i % call.channels] += to_x[i];
    }
    expect_close(name + "y", y, out, rounding(1));
    expect_close(name + "y once more", again, out, rounding(1));
    expect_close(name + "grad_x", grad_x, to_x, rounding(1));
    expect_close(name + "grad_bias", grad_bias, to_bias, rounding(static_cast<double>(call.rows)));
}

void check_scaled_residual(const Call& call, bool scaled, bool added) {
    Guarded x = normals(call.size()), shortcut = normals(call.size()), bias = normals(call.channels);
    Guarded scale = normals(call.channels), y(call.size());
    if (filtercov_scaled_residual(call.rows, call.channels, x.data(), bias.data(), scaled ? scale.data() : nullptr,
                                  added ? shortcut.data() : nullptr, y.data(), call.isa, call.threads)) {
        return fail(call.name("scaled_residual") + "status");
    }
    Doubles out(call.size());
    for (int64_t i = 0; i < call.size(); ++i) {
        const double branch = static_cast<double>(x[i]) + bias[i % call.channels];
        out[i] = branch * (scaled ? scale[i % call.channels] : 1.0) + (added ? shortcut[i] : 0.0);
    }
    expect_close(call.name("scaled_residual"), y, out, rounding(1));
}

}  // namespace
