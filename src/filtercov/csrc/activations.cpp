// An activation by itself: cut the numbers into pieces, and run them.
#include "activations.h"

#include "parallel.h"

using namespace filtercov;

namespace {

constexpr int64_t kPiece = 16 * 1024;

template <class Run>
int32_t run_pieces(int64_t count, int32_t activation, int32_t isa, int32_t threads, const Run& run) {
    const Kernels* kernels = kernels_for(isa);
    if (kernels == nullptr) return FILTERCOV_BAD_ISA;
    if (count < 0 || !is_activation(activation)) return FILTERCOV_BAD_ARGUMENT;
    return run_items(ceil_div(count, kPiece), 0, threads, [&](int64_t i, float*) {
        run(*kernels, RowRange{i * kPiece, smaller_of((i + 1) * kPiece, count)});
    });
}

}  // namespace

int32_t filtercov_activation_forward(int64_t count, int32_t activation, const float* x, float* y, int32_t isa,
                                     int32_t threads) {
    const Activated job{activation, x, nullptr, y};
    return run_pieces(count, activation, isa, threads,
                      [&](const Kernels& kernels, RowRange range) { kernels.activate(job, range); });
}

int32_t filtercov_activation_backward(int64_t count, int32_t activation, const float* grad_y, const float* x,
                                      float* grad_x, int32_t isa, int32_t threads) {
    const Activated job{activation, x, grad_y, grad_x};
    return run_pieces(count, activation, isa, threads,
                      [&](const Kernels& kernels, RowRange range) { kernels.activate_gradient(job, range); });
}
