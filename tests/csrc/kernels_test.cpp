// The native kernels against loops in double, with guard bytes around every buffer. Needs no torch, no Python.
//
// Inputs are small integers, so every sum is exact in float32 and results must be equal, not close. Built and run under
// AddressSanitizer and UndefinedBehaviorSanitizer by test_kernels.py.
#include <cstdlib>

#include "filtercov_native.h"
#include "guarded.h"
#include "matrix_test.h"

namespace {

constexpr double kHole = 1 << 20;  // what no sum of the integers below comes to

Guarded integers(int64_t count, int64_t largest) {
    Guarded buffer(count);
    for (int64_t i = 0; i < count; ++i) buffer[i] = static_cast<float>(draw(-largest, largest));
    return buffer;
}

std::string describe(const filtercov_geometry& g, int32_t isa) {
    std::string text = "isa " + std::to_string(isa) + " n " + std::to_string(g.batch) + " c " + std::to_string(g.channels);
    const auto list = [&](const char* name, const int64_t (&values)[3]) {
        text += std::string(" ") + name;
        for (const int64_t value : values) text += " " + std::to_string(value);
    };
    list("size", g.size);
    list("kernel", g.kernel);
    list("pad", g.pad);
    list("stride", g.stride);
    list("dilation", g.dilation);
    list("out", g.out);
    list("x strides", g.x.axis);
    return text + " channel strides " + std::to_string(g.x.channel) + " " + std::to_string(g.y.channel);
}

int64_t offset(const filtercov_strides& s, int64_t n, int64_t c, const int64_t (&at)[3]) {
    return n * s.image + c * s.channel + at[0] * s.axis[0] + at[1] * s.axis[1] + at[2] * s.axis[2];
}

// Call f(position) for every position in a box.
template <class F>
void for_box(const int64_t (&extent)[3], const F& f) {
    for (int64_t i = 0; i < extent[0]; ++i)
        for (int64_t j = 0; j < extent[1]; ++j)
            for (int64_t k = 0; k < extent[2]; ++k) f({i, j, k});
}

struct Results {
    std::vector<double> y, grad_x, grad_weight;  // y and grad_x with holes where the strides leave some
};

// The definition: every (output pixel, tap) that meets a pixel of the image.
Results by_definition(const filtercov_geometry& g, Guarded& x, Guarded& weight, Guarded& bias, Guarded& grad_y) {
    Results r{std::vector<double>(grad_y.size(), kHole), std::vector<double>(x.size(), kHole),
              std::vector<double>(weight.size())};
    for (int64_t n = 0; n < g.batch; ++n) {
        for (int64_t c = 0; c < g.channels; ++c) {
            for_box(g.size, [&](const int64_t(&at)[3]) { r.grad_x[offset(g.x, n, c, at)] = 0.0; });
            for_box(g.out, [&](const int64_t(&to)[3]) {
                const int64_t out = offset(g.y, n, c, to);
                r.y[out] = bias[c];
                for_box(g.kernel, [&](const int64_t(&tap)[3]) {
                    int64_t at[3];
                    bool inside = true;
                    for (int i = 0; i < 3; ++i) {
                        at[i] = to[i] * g.stride[i] - g.pad[i] + tap[i] * g.dilation[i];
                        inside = inside && at[i] >= 0 && at[i] < g.size[i];
                    }
                    if (!inside) return;
                    const int64_t in = offset(g.x, n, c, at);
                    const int64_t w = ((c * g.kernel[0] + tap[0]) * g.kernel[1] + tap[1]) * g.kernel[2] + tap[2];
                    r.y[out] += static_cast<double>(x[in]) * weight[w];
                    r.grad_x[in] += static_cast<double>(grad_y[out]) * weight[w];
                    r.grad_weight[w] += static_cast<double>(grad_y[out]) * x[in];
                });
            });
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

// Strides for an image tensor, either order of channels, with room between channels or rows now and then; and its size.
int64_t lay_out(const filtercov_geometry& g, const int64_t (&extent)[3], filtercov_strides& s) {
    const int64_t gap = draw(0, 2) == 0 ? draw(1, 5) : 0;  // as in a slice of a larger tensor
    if (draw(0, 1) == 0) {
        s.channel = 1;
        s.axis[2] = g.channels + gap;
        s.axis[1] = extent[2] * s.axis[2];
        s.axis[0] = extent[1] * s.axis[1];
        s.image = extent[0] * s.axis[0];
    } else {
        s.axis[2] = 1;
        s.axis[1] = extent[2] + gap;
        s.axis[0] = extent[1] * s.axis[1];
        s.channel = extent[0] * s.axis[0];
        s.image = g.channels * s.channel;
    }
    return g.batch * s.image;
}

Guarded holes(int64_t count) {
    Guarded buffer(count);
    for (int64_t i = 0; i < count; ++i) buffer[i] = static_cast<float>(kHole);
    return buffer;
}

void check_convolution(filtercov_geometry g, int32_t isa, int32_t threads) {
    Guarded x = integers(lay_out(g, g.size, g.x), 4);
    Guarded grad_y = integers(lay_out(g, g.out, g.y), 4);
    Guarded weight = integers(g.channels * g.kernel[0] * g.kernel[1] * g.kernel[2], 4);
    Guarded bias = integers(g.channels, 4);
    const Results wanted = by_definition(g, x, weight, bias, grad_y);
    Guarded y = holes(grad_y.size()), grad_x = holes(x.size()), grad_weight(weight.size());
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
    for (Guarded* input : {&x, &weight, &bias, &grad_y}) {
        if (!input->intact()) fail("an input's guard bytes changed: " + name);
    }
}

void check_channel_sum(int64_t rows, int64_t channels, int32_t isa, int32_t threads) {
    Guarded matrix = integers(rows * channels, 4), sums(channels);
    std::vector<double> wanted(channels);
    for (int64_t i = 0; i < matrix.size(); ++i) wanted[i % channels] += static_cast<double>(matrix[i]);
    expect_equal("channel_sum " + std::to_string(rows) + " x " + std::to_string(channels),
                 filtercov_channel_sum(rows, channels, matrix.data(), sums.data(), isa, threads), sums, wanted);
}

int64_t random_channels() {
    const int64_t channels[] = {1, 2, 4, 7, 8, 13, 15, 16, 17, 20, 31, 32, 33, 55};
    return channels[draw(0, 13)];
}

// In `dimensions` dimensions; strides and dilations for two in three.
filtercov_geometry random_geometry(int dimensions) {
    const int64_t most_size[] = {90, 20, 9}, most_kernel[] = {40, 16, 5};
    filtercov_geometry g{draw(0, 3), random_channels(), {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {}, {}};
    for (int i = 3 - dimensions; i < 3; ++i) {
        g.size[i] = draw(1, most_size[dimensions - 1]);
        g.kernel[i] = draw(1, most_kernel[dimensions - 1]);
        const int64_t kind = draw(0, 2);
        if (kind == 1) g.stride[i] = draw(2, 4);
        if (kind == 2) g.dilation[i] = draw(2, 5);
        g.pad[i] = draw(-2, (g.kernel[i] - 1) * g.dilation[i] + 2);  // crops, and windows wholly outside the image
        g.out[i] = draw(0, g.size[i] / g.stride[i] + 3);
    }
    return g;
}

// Padding that keeps the image's size, and widths that the kernels have code of their own for.
filtercov_geometry centred_geometry(int dimensions) {
    const int64_t widths[] = {4, 7, 8, 14, 16};
    filtercov_geometry g = random_geometry(dimensions);
    g.size[2] = widths[draw(0, 4)];
    for (int i = 3 - dimensions; i < 3; ++i) {
        g.stride[i] = g.dilation[i] = 1;
        g.out[i] = g.size[i];
        g.kernel[i] = 2 * draw(0, dimensions == 3 ? 2 : 5) + 1;
        g.pad[i] = g.kernel[i] / 2;
    }
    return g;
}

void expect_refusal(const char* what, int32_t got, int32_t wanted) {
    if (got != wanted) fail(std::string(what) + ": status " + std::to_string(got));
}

void check_refusals() {
    const int32_t bad = FILTERCOV_BAD_ARGUMENT;
    float v = 0.0f;
    filtercov_geometry g{1, 1, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, {1, 1, 1}}, {1, 1, {1, 1, 1}}};
    expect_refusal("isa 99", filtercov_depthwise_forward(&g, &v, &v, nullptr, &v, 99, 1), FILTERCOV_BAD_ISA);
    expect_refusal("no threads", filtercov_depthwise_forward(&g, &v, &v, nullptr, &v, 0, 0), bad);
    g.stride[1] = g.dilation[1] = 2;
    expect_refusal("stride with dilation", filtercov_depthwise_input_grad(&g, &v, &v, &v, 0, 1), bad);
    g.stride[1] = g.dilation[1] = 1;
    g.kernel[2] = 0;
    expect_refusal("empty kernel", filtercov_depthwise_weight_grad(&g, &v, &v, &v, 0, 1), bad);
    g.kernel[1] = g.kernel[2] = int64_t{1} << 21;
    expect_refusal("2^42 taps", filtercov_depthwise_forward(&g, &v, &v, nullptr, &v, 0, 1), FILTERCOV_NO_MEMORY);
    const auto norm = [&](int32_t activation, int32_t first, const float* residual) {
        return filtercov_batch_norm_forward(2, 1, activation, first, &v, &v, &v, residual, 1e-5, &v, &v, &v, &v, 0, 1);
    };
    expect_refusal("a seventh activation", norm(6, 0, nullptr), bad);
    expect_refusal("an activation below the first", norm(-1, 0, nullptr), bad);
    expect_refusal("a relu first", norm(FILTERCOV_RELU, 1, nullptr), bad);
    expect_refusal("a residual and the activation last", norm(FILTERCOV_GELU, 0, &v), bad);
    expect_refusal("negative rows", filtercov_channel_sum(-1, 1, &v, &v, 0, 1), bad);
    expect_refusal("an empty matrix", filtercov_channel_sum(0, 1, &v, &v, 0, 1), FILTERCOV_OK);
    expect_refusal("fewer than no numbers", filtercov_gelu_forward(-1, &v, &v, 0, 1), bad);
}

}  // namespace

int main(int argc, char** argv) {
    const int shapes = argc > 1 ? std::atoi(argv[1]) : 200;
    int convolutions = 0;
    for (int32_t isa = FILTERCOV_PORTABLE; isa <= FILTERCOV_NEON; ++isa) {
        if (!filtercov_isa_available(isa)) continue;
        std::printf("isa %d\n", isa);
        for (int i = 0; i < shapes; ++i, ++convolutions) {
            const int dimensions = 1 + i % 3;
            check_convolution(i % 4 == 0 ? centred_geometry(dimensions) : random_geometry(dimensions), isa, 1 + i % 5);
        }
        // More than one tile, along every axis.
        check_convolution({1, 17, {1, 70, 67}, {1, 3, 9}, {0, 1, 4}, {1, 1, 1}, {1, 1, 1}, {1, 70, 67}, {}, {}}, isa, 2);
        check_convolution({1, 3, {1, 9, 150}, {1, 5, 31}, {0, 2, 15}, {1, 2, 2}, {1, 1, 1}, {1, 5, 75}, {}, {}}, isa, 2);
        check_convolution({1, 17, {1, 1, 700}, {1, 1, 31}, {0, 0, 30}, {1, 1, 1}, {1, 1, 1}, {1, 1, 700}, {}, {}}, isa, 2);
        check_convolution({1, 3, {20, 21, 70}, {3, 5, 3}, {1, 2, 1}, {1, 1, 1}, {1, 1, 1}, {20, 21, 70}, {}, {}}, isa, 3);
        for (int64_t rows : {1, 2, 63, 700}) {
            for (int64_t channels : {1, 7, 16, 37, 101}) {
                check_channel_sum(rows, channels, isa, 3);
                check_matrices(rows, channels, isa);
            }
        }
    }
    check_refusals();
    std::printf("%d convolutions, %d failures\n", convolutions, failures);
    return failures == 0 ? 0 : 1;
}
