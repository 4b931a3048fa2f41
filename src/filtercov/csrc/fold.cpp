#include "fold.h"

#include <utility>

#include "parallel.h"

namespace filtercov {
namespace {

int64_t positive(int64_t count) { return count > 0 ? count : 0; }

// Every `dilation`-th output from `index` on, and what it sees.
Part dilated_part(const Axis& whole, int64_t dilation, int64_t index) {
    // index - pad = first - dilation * pad of the part
    const int64_t pad = ceil_div(whole.pad - index, dilation), first = index - whole.pad + dilation * pad;
    const Axis axis{positive(ceil_div(whole.size - first, dilation)), positive(ceil_div(whole.out - index, dilation)),
                    whole.kernel, pad, 1};
    return {axis, first, dilation, index, dilation, 0, 0, 1};
}

// A filter of one axis turned round: what was output is input.
Axis mirrored(const filtercov_geometry& g, int axis) {
    const int64_t span = (g.kernel[axis] - 1) * g.dilation[axis];
    return {g.out[axis], g.size[axis], g.kernel[axis], span - g.pad[axis], 1};
}

}  // namespace

filtercov_geometry by_rows(const filtercov_geometry& geometry) {
    filtercov_geometry g = geometry;
    const int row = g.kernel[1] > 1 ? 1 : 0;  // with one tap along what lies between, so that taps keep their order
    if (g.kernel[2] > 1 || g.kernel[row] == 1 || g.x.channel != 1 || g.y.channel != 1) return g;
    for (int64_t* extents : {g.size, g.kernel, g.pad, g.stride, g.dilation, g.out, g.x.axis, g.y.axis}) {
        std::swap(extents[row], extents[2]);
    }
    return g;
}

int64_t forward_parts(const filtercov_geometry& g, int axis) { return smaller_of(g.dilation[axis], positive(g.out[axis])); }

Part forward_part(const filtercov_geometry& g, int axis, int64_t index) {
    const Axis whole{g.size[axis], g.out[axis], g.kernel[axis], g.pad[axis], g.stride[axis]};
    if (g.dilation[axis] == 1) return {whole, 0, 1, 0, 1, 0, 0, 1};
    return dilated_part(whole, g.dilation[axis], index);
}

int64_t input_grad_parts(const filtercov_geometry& g, int axis) {
    return g.stride[axis] > 1 ? g.stride[axis] : smaller_of(g.dilation[axis], g.size[axis]);
}

Part input_grad_part(const filtercov_geometry& g, int axis, int64_t index) {
    const int64_t kernel = g.kernel[axis], stride = g.stride[axis];
    if (stride == 1) {
        Part part = g.dilation[axis] == 1 ? Part{mirrored(g, axis), 0, 1, 0, 1, 0, 0, 1}
                                          : dilated_part(mirrored(g, axis), g.dilation[axis], index);
        part.tap_first = kernel - 1;
        part.tap_step = -1;
        return part;
    }
    // Inputs stride * j + index - pad get grad_y[j - m] * w[index + stride * m] for each m of `taps`.
    const int64_t taps = positive(ceil_div(kernel - index, stride));
    const int64_t first_j = ceil_div(g.pad[axis] - index, stride), first = stride * first_j + index - g.pad[axis];
    const Axis axis_of_part{g.out[axis], positive(ceil_div(g.size[axis] - first, stride)), taps, taps - 1 - first_j, 1};
    return {axis_of_part, 0, 1, first, stride, index, index + stride * (taps - 1), -stride};
}

}  // namespace filtercov
