// Dilation, the stride of an input gradient and filters that are columns, folded into where tensors lie: what is left are
// plain convolutions, by rows.
//
// With dilation d, outputs p, p + d, ... see only inputs that are d apart: d convolutions without dilation, each on every
// d-th input and output. With stride s, the inputs u, u + s, ... get their gradient through every s-th tap alone: s
// convolutions of stride 1 from grad_y, each with its own part of the filter, each into every s-th input. Along each axis
// a convolution becomes such a list of parts; all combinations of the three axes' parts are done.
#pragma once

#include "kernels.h"

namespace filtercov {

// The same convolution with taps in a row, if its filters are columns or stacks: inner loops hold a row of taps at a time,
// and which axis is called a row is free where pixels are copied one by one, that is channels last.
filtercov_geometry by_rows(const filtercov_geometry& geometry);

// One part of a convolution along one axis.
struct Part {
    Axis axis;
    int64_t source_first, source_step;  // its inputs, among all
    int64_t target_first, target_step;  // its outputs, among all
    int64_t filter;                     // parts with the same number have the same taps
    int64_t tap_first, tap_step;        // its taps, among all
};

// How many parts the forward pass has along an axis, and which they are.
int64_t forward_parts(const filtercov_geometry& geometry, int axis);
Part forward_part(const filtercov_geometry& geometry, int axis, int64_t index);

// The same for the input gradient, whose inputs are grad_y.
int64_t input_grad_parts(const filtercov_geometry& geometry, int axis);
Part input_grad_part(const filtercov_geometry& geometry, int axis, int64_t index);

}  // namespace filtercov
