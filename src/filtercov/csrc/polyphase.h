// Polyphase decomposition: dilation, and the stride of an input gradient, as plain convolutions on every n-th pixel.
//
// With dilation d, outputs p, p + d, ... see only inputs that are d apart: d convolutions without dilation, each on
// every d-th input and output. With stride s, the inputs u, u + s, ... get their gradient through every s-th tap alone:
// s convolutions of stride 1 from grad_y, each with its own phase of the filter, each into every s-th input. Along each
// axis a convolution becomes such a list of phases; all combinations of the three axes' phases are computed.
#pragma once

#include <algorithm>
#include <utility>

#include "parallel.h"

namespace filtercov {

// Every `step`-th from `first` on.
struct Every {
    int64_t first, step;
};

// One phase along one axis: which inputs of the source it sees, which outputs of the target it computes, by which taps.
struct AxisPhase {
    Axis axis;
    Every source, target;
    int64_t filter;  // phases with the same number have the same taps
    Every taps;
};

// One phase along each axis.
struct Phase {
    AxisPhase along[3];

    Shape shape() const { return {{along[0].axis, along[1].axis, along[2].axis}}; }
    int64_t taps() const { return along[0].axis.kernel * along[1].axis.kernel * along[2].axis.kernel; }

    // The pixels of a tensor that belong to this phase's &AxisPhase::source or &AxisPhase::target.
    template <class Float> Tensor<Float> view(Tensor<Float> tensor, Every AxisPhase::*pixels) const {
        for (int i = 0; i < 3; ++i) {
            tensor.data += (along[i].*pixels).first * tensor.strides.axis[i];
            tensor.strides.axis[i] *= (along[i].*pixels).step;
        }
        return tensor;
    }
};

// The phases of the forward pass, or of the input gradient, whose source is grad_y and whose target is grad_x.
class Phases {
  public:
    Phases(const filtercov_geometry& geometry, bool input_grad) : g(geometry), input_grad(input_grad) {
        for (int i = 0; i < 3; ++i) {
            const int64_t targets = input_grad ? g.size[i] : g.out[i];
            const int64_t phases = input_grad && g.stride[i] > 1 ? g.stride[i] : std::min(g.dilation[i], targets);
            counts[i] = std::max<int64_t>(1, phases);
        }
    }

    int64_t count() const { return counts[0] * counts[1] * counts[2]; }

    Phase operator[](int64_t index) const {
        return {{along(0, index / (counts[1] * counts[2])), along(1, index / counts[2] % counts[1]),
                 along(2, index % counts[2])}};
    }

    // The first phase with the same taps.
    int64_t first_of_filter(const Phase& phase) const {
        return (phase.along[0].filter * counts[1] + phase.along[1].filter) * counts[2] + phase.along[2].filter;
    }

  private:
    filtercov_geometry g;
    bool input_grad;
    int64_t counts[3];

    // Of first, first + step, ... below `end`.
    static int64_t how_many(int64_t first, int64_t end, int64_t step) {
        return std::max<int64_t>(0, ceil_div(end - first, step));
    }

    AxisPhase along(int i, int64_t index) const {
        const int64_t kernel = g.kernel[i], stride = g.stride[i];
        if (!input_grad) return dilated({g.size[i], g.out[i], kernel, g.pad[i], stride}, g.dilation[i], index);
        if (stride == 1) {  // a convolution of grad_y with the mirrored filter
            const int64_t span = (kernel - 1) * g.dilation[i];
            AxisPhase phase = dilated({g.out[i], g.size[i], kernel, span - g.pad[i], 1}, g.dilation[i], index);
            phase.taps = {kernel - 1, -1};
            return phase;
        }
        // Inputs stride * j + index - pad get grad_y[j - m] * w[index + stride * m] for each m of `taps`.
        const int64_t taps = how_many(index, kernel, stride);
        const int64_t first_j = ceil_div(g.pad[i] - index, stride), first = stride * first_j + index - g.pad[i];
        const Axis axis{g.out[i], how_many(first, g.size[i], stride), taps, taps - 1 - first_j, 1};
        return {axis, {0, 1}, {first, stride}, index, {index + stride * (taps - 1), -stride}};
    }

    // Every `dilation`-th output from `index` on, and what it sees.
    static AxisPhase dilated(const Axis& whole, int64_t dilation, int64_t index) {
        if (dilation == 1) return {whole, {0, 1}, {0, 1}, 0, {0, 1}};
        // index - pad = first - dilation * pad of the phase
        const int64_t pad = ceil_div(whole.pad - index, dilation), first = index - whole.pad + dilation * pad;
        const int64_t inputs = how_many(first, whole.size, dilation), outputs = how_many(index, whole.out, dilation);
        return {{inputs, outputs, whole.kernel, pad, 1}, {first, dilation}, {index, dilation}, 0, {0, 1}};
    }
};

// The same convolution with its taps along rows, if its filters are columns or stacks. The inner loops hold a row of
// taps at a time; where pixels are copied one by one, that is channels last, any axis may be called a row.
inline filtercov_geometry by_rows(const filtercov_geometry& geometry) {
    filtercov_geometry g = geometry;
    const int axis = g.kernel[1] > 1 ? 1 : 0;  // axes between it and the rows have one tap, so taps keep their order
    if (g.kernel[2] > 1 || g.kernel[axis] == 1 || g.x.channel != 1 || g.y.channel != 1) return g;
    for (int64_t* extents : {g.size, g.kernel, g.pad, g.stride, g.dilation, g.out, g.x.axis, g.y.axis}) {
        std::swap(extents[axis], extents[2]);
    }
    return g;
}

}  // namespace filtercov
