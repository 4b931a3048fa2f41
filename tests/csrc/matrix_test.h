// The kernels that work on (rows, channels) matrices: inside their buffers, the same bits for any number of threads, and
// on every instruction set what the portable one gives, which tests/nn compares with PyTorch.
#pragma once

#include <cstring>
#include <functional>

#include "filtercov_native.h"
#include "guarded.h"

namespace {

Guarded normals(int64_t count) {
    std::normal_distribution<float> normal(0.3f, 2.0f);
    Guarded buffer(count);
    for (int64_t i = 0; i < count; ++i) buffer[i] = normal(random_engine);
    return buffer;
}

using Outputs = std::vector<Guarded>;
using Run = std::function<int32_t(Outputs&, int32_t isa, int32_t threads)>;

Outputs outputs_of(const std::string& name, const std::vector<int64_t>& sizes, const Run& run, int32_t isa,
                   int32_t threads) {
    Outputs outputs(sizes.begin(), sizes.end());
    if (run(outputs, isa, threads) != FILTERCOV_OK) fail(name + ": status");
    for (const Guarded& output : outputs) {
        if (!output.intact()) fail(name + ": wrote outside its output");
    }
    return outputs;
}

void check(const std::string& name, const std::vector<int64_t>& sizes, int32_t isa, const Run& run) {
    Outputs ours = outputs_of(name, sizes, run, isa, 1), threaded = outputs_of(name, sizes, run, isa, 3);
    Outputs wanted = outputs_of(name, sizes, run, FILTERCOV_PORTABLE, 1);
    for (size_t i = 0; i < sizes.size(); ++i) {
        const std::string which = name + ": output " + std::to_string(i);
        if (std::memcmp(ours[i].data(), threaded[i].data(), sizeof(float) * sizes[i]) != 0) {
            fail(which + " depends on the number of threads");
        }
        double largest = 1.0;
        for (int64_t at = 0; at < sizes[i]; ++at) largest = std::fmax(largest, std::fabs(wanted[i][at]));
        for (int64_t at = 0; at < sizes[i]; ++at) {
            // Not >: nan must fail.
            if (!(std::fabs(ours[i][at] - wanted[i][at]) <= 1e-4 * largest)) {
                fail(which + ": element " + std::to_string(at) + " is " + std::to_string(ours[i][at]) + ", not " +
                     std::to_string(wanted[i][at]));
                break;
            }
        }
    }
}

void check_matrices(int64_t rows, int64_t channels, int32_t isa) {
    const int64_t size = rows * channels;
    const double eps = 1e-2;
    const std::string shape = " isa " + std::to_string(isa) + " " + std::to_string(rows) + " x " + std::to_string(channels);
    Guarded x = normals(size), grad = normals(size), other = normals(size), weight = normals(channels);
    Guarded bias = normals(channels), centre = normals(channels), spread = normals(channels);
    for (int64_t c = 0; c < channels; ++c) spread[c] = spread[c] * spread[c] + 0.1f;

    check("gelu" + shape, {size, size}, isa, [&](Outputs& out, int32_t i, int32_t threads) {
        return filtercov_gelu_forward(size, x.data(), out[0].data(), i, threads) ||
               filtercov_gelu_backward(size, grad.data(), x.data(), out[1].data(), i, threads);
    });
    for (int32_t activation = FILTERCOV_IDENTITY; activation <= FILTERCOV_GELU + 1; ++activation) {
        const bool first = activation > FILTERCOV_GELU;  // GELU once more, before the norm
        const int32_t which = first ? static_cast<int32_t>(FILTERCOV_GELU) : activation;
        const float* residual = first && rows > 1 ? other.data() : nullptr;
        const std::string name = "batch_norm, activation " + std::to_string(activation) + shape;
        check(name, {size, channels, channels, channels}, isa, [&](Outputs& out, int32_t i, int32_t threads) {
            return filtercov_batch_norm_forward(rows, channels, which, first, x.data(), weight.data(), bias.data(),
                                                residual, eps, out[0].data(), out[1].data(), out[2].data(),
                                                out[3].data(), i, threads);
        });
        check(name + " backward", {size, channels, channels}, isa, [&](Outputs& out, int32_t i, int32_t threads) {
            return filtercov_batch_norm_backward(rows, channels, which, first, grad.data(), x.data(), weight.data(),
                                                 bias.data(), centre.data(), spread.data(), out[0].data(),
                                                 out[1].data(), out[2].data(), i, threads);
        });
        check(name + " in evaluation", {size}, isa, [&](Outputs& out, int32_t i, int32_t threads) {
            return filtercov_batch_norm_eval(rows, channels, which, first, x.data(), weight.data(), bias.data(),
                                             centre.data(), spread.data(), residual, eps, out[0].data(), i, threads);
        });
    }
    check("layer_norm" + shape, {size, rows, rows, size, size, channels, channels}, isa,
          [&](Outputs& out, int32_t i, int32_t threads) {
              float *y = out[0].data(), *mean = out[1].data(), *inverse_std = out[2].data();
              return filtercov_layer_norm_forward(rows, channels, x.data(), weight.data(), bias.data(), eps, y, mean,
                                                  inverse_std, i, threads) ||
                     filtercov_layer_norm_again(rows, channels, x.data(), mean, inverse_std, weight.data(),
                                                bias.data(), out[3].data(), i, threads) ||
                     filtercov_layer_norm_backward(rows, channels, grad.data(), x.data(), mean, inverse_std,
                                                   weight.data(), out[4].data(), out[5].data(), out[6].data(), i,
                                                   threads);
          });
    check("bias_gelu" + shape, {size, size, size, channels}, isa, [&](Outputs& out, int32_t i, int32_t threads) {
        return filtercov_bias_gelu_forward(rows, channels, x.data(), bias.data(), out[0].data(), i, threads) ||
               filtercov_bias_gelu_backward(rows, channels, x.data(), bias.data(), grad.data(), out[1].data(),
                                            out[2].data(), out[3].data(), i, threads);
    });
    for (const float* scale : {weight.data(), static_cast<float*>(nullptr)}) {
        for (const float* shortcut : {other.data(), static_cast<float*>(nullptr)}) {
            check("scaled_residual" + shape, {size}, isa, [&](Outputs& out, int32_t i, int32_t threads) {
                return filtercov_scaled_residual(rows, channels, x.data(), bias.data(), scale, shortcut,
                                                 out[0].data(), i, threads);
            });
        }
    }
}

}  // namespace
