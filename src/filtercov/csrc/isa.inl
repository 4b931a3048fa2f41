// Every kernel, compiled once per instruction set in a namespace of its own.
#include "kernels.h"

namespace filtercov {
namespace FILTERCOV_NAMESPACE {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

#include "vector.inl"
// After vector.inl, which they all use:
#include "together.inl"
#include "transpose.inl"
#include "tile.inl"
#include "convolve.inl"
#include "correlate.inl"
#include "gelu.inl"
#include "gelu_batch_norm.inl"
#include "activations.inl"
#include "batch_norm_act.inl"
#include "layer_norm.inl"

const Kernels kTable = {
    plan_convolution,  plan_correlation,   convolve,        correlate,           sum_rows,        gelu_moments,
    gelu_normalise,    gelu_gradient_sums, gelu_gradient,   moments,             normalise_act,   act_gradient_sums,
    act_gradient,      bias_gelu,          bias_gelu_gradient, layer_moments,    layer_normalise, layer_norm_gradient,
    scaled_residual,   activate,           activate_gradient,
};

}  // namespace
}  // namespace FILTERCOV_NAMESPACE
}  // namespace filtercov
