// One instruction set's table of kernels, compiled with the flags of the file that includes this.
//
// That file defines FILTERCOV_NAMESPACE and, where its flags allow the instruction set, FILTERCOV_REGISTERS: how many
// vector registers there are. Each instruction set has a namespace of its own, and everything in it is local to its
// file: code shared between files with different flags could reach a machine that cannot run it.
#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "kernels.h"

namespace filtercov {
namespace FILTERCOV_NAMESPACE {
#if defined(FILTERCOV_REGISTERS)
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

// In this order: each uses those before it.
#include "vector.inl"
#include "tile.inl"
#include "convolve.inl"
#include "correlate.inl"
#include "rows.inl"
#include "activations.inl"
#include "batch_norm.inl"
#include "perceptron.inl"

const Kernels kTable = {
    plan_convolution, plan_correlation,   convolve,           correlate,
    gelu,             gelu_gradient,      sum_rows,           moments,
    normalise,        norm_gradient_sums, norm_gradient,      layer_moments,
    layer_normalise,  layer_gradient,     bias_gelu,          bias_gelu_gradient,
    scaled_residual,
};

}  // namespace

const Kernels* kernels() { return &kTable; }
#else
const Kernels* kernels() { return nullptr; }
#endif
}  // namespace FILTERCOV_NAMESPACE
}  // namespace filtercov
