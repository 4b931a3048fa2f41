// BatchNorm by statistics that are given, as in evaluation, with an activation before or after it.
#include <cmath>

#include "activations.h"
#include "rows.h"

using namespace filtercov;

int32_t filtercov_settled_norm(int64_t rows, int64_t channels, int32_t activation, int32_t activation_first,
                               const float* x, const float* weight, const float* bias, const float* mean,
                               const float* variance, const float* residual, double eps, float* y, int32_t isa,
                               int32_t threads) {
    const bool first = activation_first != 0;
    if (!valid(rows, channels, threads) || !is_activation(activation)) return FILTERCOV_BAD_ARGUMENT;
    if (residual != nullptr && !first) return FILTERCOV_BAD_ARGUMENT;
    const Buffer<float> scale = allocate<float>(channels);
    if (!scale) return FILTERCOV_NO_MEMORY;
    for (int64_t c = 0; c < channels; ++c) {
        scale[c] = static_cast<float>(static_cast<double>(weight[c]) / std::sqrt(static_cast<double>(variance[c]) + eps));
    }

    Activated activated{};
    activated.activation = activation;
    activated.x = x;
    activated.out = y;
    GeluBatchNorm after{};  // of what is in y already
    after.channels = channels;
    after.residual = residual;
    after.scale = scale.get();
    after.shift = bias;
    after.mean = mean;
    after.out = y;
    BatchNormAct before{};
    before.channels = channels;
    before.activation = activation;
    before.x = x;
    before.bias = bias;
    before.mean = mean;
    before.scale = scale.get();
    before.out = y;
    return run_rows(rows, channels, 0, isa, threads, [&](const Kernels& kernels, RowRange range) {
        if (!first) return kernels.normalise_act(before, range);
        // A range is still in the cache when it is normalised.
        kernels.activate(activated, {range.first * channels, range.last * channels});
        kernels.gelu_normalise(after, range);
    });
}
