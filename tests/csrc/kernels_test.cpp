// The native kernels against loops in double, with guard bytes around every buffer. Needs no torch, no Python.
//
// Inputs are small integers, so every sum is exact in float32 and results must be equal, not close. GELU + BatchNorm is
// compared within a tolerance. Built and run under AddressSanitizer and UndefinedBehaviorSanitizer by test_sanitized.py.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "filtercov_native.h"

namespace {

std::mt19937 random_engine(0);

int64_t draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_engine); }

int failures = 0;

void fail(const std::string& what) {
    ++failures;
    std::printf("FAILED: %s\n", what.c_str());
}

// Floats between two runs of guard bytes, deliberately on no boundary wider than a float's own.
class Guarded {
  public:
    explicit Guarded(int64_t count) : count_(count), bytes_(2 * kGuard + sizeof(float) * count, kMark) {}

    float* data() { return reinterpret_cast<float*>(bytes_.data() + kGuard); }
    float& operator[](int64_t i) { return data()[i]; }
    int64_t size() const { return count_; }

    bool intact() const {
        for (size_t i = 0; i < kGuard; ++i) {
            if (bytes_[i] != kMark || bytes_[bytes_.size() - 1 - i] != kMark) return false;
        }
        return true;
    }

  private:
    static constexpr size_t kGuard = 68;
    static constexpr unsigned char kMark = 0xA5;
    int64_t count_;
    std::vector<unsigned char> bytes_;
};

Guarded integers(int64_t count, int64_t largest) {
    Guarded buffer(count);
    for (int64_t i = 0; i < count; ++i) buffer[i] = static_cast<float>(draw(-largest, largest));
    return buffer;
}

std::string describe(const filtercov_geometry& g, int32_t isa) {
    char text[256];
    std::snprintf(text, sizeof text, "isa %d n %ld c %ld in %ldx%ld kernel %ldx%ld pad %ld,%ld out %ldx%ld", isa,
                  static_cast<long>(g.batch), static_cast<long>(g.channels), static_cast<long>(g.height),
                  static_cast<long>(g.width), static_cast<long>(g.kernel_height), static_cast<long>(g.kernel_width),
                  static_cast<long>(g.pad_top), static_cast<long>(g.pad_left), static_cast<long>(g.out_height),
                  static_cast<long>(g.out_width));
    return text;
}

struct Results {
    std::vector<double> y, grad_x, grad_weight;
};

// The definition: every (output pixel, tap) that meets a pixel of the image.
Results by_definition(const filtercov_geometry& g, Guarded& x, Guarded& weight, Guarded& bias, Guarded& grad_y) {
    Results r{std::vector<double>(grad_y.size()), std::vector<double>(x.size()), std::vector<double>(weight.size())};
    for (int64_t n = 0; n < g.batch; ++n)
        for (int64_t oy = 0; oy < g.out_height; ++oy)
            for (int64_t ox = 0; ox < g.out_width; ++ox)
                for (int64_t c = 0; c < g.channels; ++c) {
                    const int64_t out = ((n * g.out_height + oy) * g.out_width + ox) * g.channels + c;
                    r.y[out] = bias[c];
                    for (int64_t i = 0; i < g.kernel_height; ++i)
                        for (int64_t j = 0; j < g.kernel_width; ++j) {
                            const int64_t iy = oy + i - g.pad_top, ix = ox + j - g.pad_left;
                            if (iy < 0 || iy >= g.height || ix < 0 || ix >= g.width) continue;
                            const int64_t in = ((n * g.height + iy) * g.width + ix) * g.channels + c;
                            const int64_t tap = (c * g.kernel_height + i) * g.kernel_width + j;
                            r.y[out] += static_cast<double>(x[in]) * weight[tap];
                            r.grad_x[in] += static_cast<double>(grad_y[out]) * weight[tap];
                            r.grad_weight[tap] += static_cast<double>(grad_y[out]) * x[in];
                        }
                }
    return r;
}

void expect_equal(const std::string& what, int32_t status, Guarded& got, const std::vector<double>& wanted) {
    if (status != FILTERCOV_OK) return fail(what + ": status " + std::to_string(status));
    if (!got.intact()) fail(what + ": wrote outside its output");
    for (size_t i = 0; i < wanted.size(); ++i) {
        if (static_cast<double>(got[i]) != wanted[i]) {
            return fail(what + ": element " + std::to_string(i) + " is " + std::to_string(got[i]) + ", not " +
                        std::to_string(wanted[i]));
        }
    }
}

void check_convolution(const filtercov_geometry& g, int32_t isa, int32_t threads) {
    Guarded x = integers(g.batch * g.height * g.width * g.channels, 4);
    Guarded weight = integers(g.channels * g.kernel_height * g.kernel_width, 4);
    Guarded bias = integers(g.channels, 4);
    Guarded grad_y = integers(g.batch * g.out_height * g.out_width * g.channels, 4);
    const Results wanted = by_definition(g, x, weight, bias, grad_y);
    Guarded y(grad_y.size()), grad_x(x.size()), grad_weight(weight.size()), sums(g.channels);
    const std::string name = describe(g, isa);
    expect_equal("forward " + name,
                 filtercov_depthwise_forward(&g, x.data(), weight.data(), bias.data(), y.data(), isa, threads), y,
                 wanted.y);
    expect_equal("input_grad " + name,
                 filtercov_depthwise_input_grad(&g, grad_y.data(), weight.data(), grad_x.data(), isa, threads), grad_x,
                 wanted.grad_x);
    expect_equal("weight_grad " + name,
                 filtercov_depthwise_weight_grad(&g, grad_y.data(), x.data(), grad_weight.data(), isa, threads),
                 grad_weight, wanted.grad_weight);

    std::vector<double> column_sums(g.channels);
    for (int64_t i = 0; i < grad_y.size(); ++i) column_sums[i % g.channels] += static_cast<double>(grad_y[i]);
    const int64_t rows = g.batch * g.out_height * g.out_width;
    expect_equal("channel_sum " + name,
                 filtercov_channel_sum(rows, g.channels, grad_y.data(), sums.data(), isa, threads), sums, column_sums);
    for (Guarded* input : {&x, &weight, &bias, &grad_y}) {
        if (!input->intact()) fail("an input's guard bytes changed: " + name);
    }
}

filtercov_geometry random_geometry() {
    const int64_t channels[] = {1, 2, 4, 7, 8, 13, 15, 16, 17, 20, 31, 32, 33, 55};
    filtercov_geometry g{};
    g.batch = draw(0, 3);
    g.channels = channels[draw(0, 13)];
    g.height = draw(1, 20);
    g.width = draw(1, 20);
    g.kernel_height = draw(1, 12);
    g.kernel_width = draw(1, 22);
    g.pad_top = draw(-2, g.kernel_height + 1);  // crops, and windows wholly outside the image
    g.pad_left = draw(-2, g.kernel_width + 1);
    g.out_height = draw(0, g.height + 3);
    g.out_width = draw(0, g.width + 3);
    return g;
}

// Padding that keeps the image's size, and widths that the kernels have code of their own for.
filtercov_geometry centred_geometry() {
    const int64_t widths[] = {4, 7, 8, 14, 16};
    filtercov_geometry g = random_geometry();
    g.width = g.out_width = widths[draw(0, 4)];
    g.out_height = g.height;
    g.kernel_height = 2 * draw(0, 4) + 1;
    g.kernel_width = 2 * draw(0, 5) + 1;
    g.pad_top = g.kernel_height / 2;
    g.pad_left = g.kernel_width / 2;
    return g;
}

double normal_distribution(double x) { return 0.5 * std::erfc(-x * std::sqrt(0.5)); }
double normal_density(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::acos(-1.0)); }

void expect_close(const std::string& what, Guarded& got, const std::vector<double>& wanted,
                  const std::vector<double>& tolerance) {
    if (!got.intact()) fail(what + ": wrote outside its output");
    for (size_t i = 0; i < wanted.size(); ++i) {
        if (!(std::fabs(static_cast<double>(got[i]) - wanted[i]) <= tolerance[i % tolerance.size()])) {
            return fail(what + ": element " + std::to_string(i) + " is " + std::to_string(got[i]) + ", not " +
                        std::to_string(wanted[i]));
        }
    }
}

void check_gelu_batch_norm(int64_t rows, int64_t channels, int32_t isa, int32_t threads) {
    const double eps = 1e-5;
    std::normal_distribution<float> normal(0.3f, 2.0f);
    Guarded x(rows * channels), grad_y(rows * channels), weight(channels), bias(channels);
    for (Guarded* buffer : {&x, &grad_y, &weight, &bias}) {
        for (int64_t i = 0; i < buffer->size(); ++i) (*buffer)[i] = normal(random_engine);
    }
    Guarded y(rows * channels), mean(channels), variance(channels), inverse_std(channels);
    Guarded grad_x(rows * channels), grad_weight(channels), grad_bias(channels);
    const std::string name =
        "isa " + std::to_string(isa) + " rows " + std::to_string(rows) + " channels " + std::to_string(channels);
    if (filtercov_gelu_batch_norm_forward(rows, channels, x.data(), weight.data(), bias.data(), eps, y.data(),
                                          mean.data(), variance.data(), inverse_std.data(), isa, threads) ||
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
            out[r * channels + c] = normalised(r) * weight[c] + bias[c];
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
    std::vector<double> of_variance(channels);
    for (int64_t c = 0; c < channels; ++c) {
        // Squares are added about a range's first value, which may be as far from the mean as any.
        double furthest = 0.0;
        for (int64_t r = 0; r < rows; ++r) {
            const double v = x[r * channels + c];
            furthest = std::fmax(furthest, std::fabs(v * normal_distribution(v) - means[c]));
        }
        of_variance[c] = 4 * unit * (spread + furthest * furthest);
        const double scale = 1.0 / std::sqrt(variances[c] + eps);
        magnified[c] = 8 * unit * spread * (1.0 + std::fabs(weight[c]) * scale) * (1.0 + scale);
        of_sums[c] = 8 * unit * spread * spread * std::sqrt(count) * (1.0 + scale);
    }
    expect_close("gelu_batch_norm y " + name, y, out, magnified);
    expect_close("gelu_batch_norm mean " + name, mean, means, of_moments);
    expect_close("gelu_batch_norm variance " + name, variance, variances, of_variance);
    expect_close("gelu_batch_norm grad_x " + name, grad_x, to_x, magnified);
    expect_close("gelu_batch_norm grad_weight " + name, grad_weight, to_weight, of_sums);
    expect_close("gelu_batch_norm grad_bias " + name, grad_bias, to_bias, of_sums);
}

void check_refusals() {
    float value = 0.0f;
    filtercov_geometry g{1, 1, 1, 1, 1, 1, 0, 0, 1, 1};
    if (filtercov_depthwise_forward(&g, &value, &value, nullptr, &value, 99, 1) != FILTERCOV_BAD_ISA) fail("isa 99 taken");
    if (filtercov_depthwise_forward(&g, &value, &value, nullptr, &value, 0, 0) != FILTERCOV_BAD_ARGUMENT) {
        fail("no threads taken");
    }
    g.kernel_width = 0;
    if (filtercov_depthwise_weight_grad(&g, &value, &value, &value, 0, 1) != FILTERCOV_BAD_ARGUMENT) {
        fail("empty kernel taken");
    }
    g.kernel_height = g.kernel_width = int64_t{1} << 21;
    if (filtercov_depthwise_forward(&g, &value, &value, nullptr, &value, 0, 1) != FILTERCOV_NO_MEMORY) {
        fail("a filter of 2^42 taps found memory");
    }
    if (filtercov_channel_sum(-1, 1, &value, &value, 0, 1) != FILTERCOV_BAD_ARGUMENT) fail("negative rows taken");
}

}  // namespace

int main(int argc, char** argv) {
    const int shapes = argc > 1 ? std::atoi(argv[1]) : 200;
    int convolutions = 0;
    for (int32_t isa = FILTERCOV_PORTABLE; isa <= FILTERCOV_NEON; ++isa) {
        if (!filtercov_isa_available(isa)) continue;
        std::printf("isa %d\n", isa);
        for (int i = 0; i < shapes; ++i, ++convolutions) {
            check_convolution(i % 3 == 0 ? centred_geometry() : random_geometry(), isa, 1 + i % 4);
        }
        // More than one tile, in both directions.
        check_convolution({1, 17, 70, 67, 3, 9, 1, 4, 70, 67}, isa, 2);
        check_convolution({1, 3, 9, 150, 5, 31, 2, 15, 9, 150}, isa, 2);
        for (int64_t rows : {1, 2, 63, 700}) {
            for (int64_t channels : {1, 7, 16, 37}) check_gelu_batch_norm(rows, channels, isa, 2);
        }
    }
    check_refusals();
    std::printf("%d convolutions, %d failures\n", convolutions, failures);
    return failures == 0 ? 0 : 1;
}
