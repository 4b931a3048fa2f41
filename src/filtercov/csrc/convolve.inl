// Forward pass: y[p] = bias + sum over taps of w[tap] * x[p + tap]. The input gradient is this with flipped filters.
//
// A strip of `Outputs` neighbouring pixels stays in registers while the filter passes over it. Taps are taken `Taps` at
// a time with their weights in registers, so each input pixel is loaded once and used by up to `Taps` outputs. If the
// strip is a whole row of the image and the taps a whole row of the filter, pixels known to be padding are left out.

template <int Outputs, int Taps, bool WholeRow>
FILTERCOV_INLINE void add_taps(Vec (&sums)[Outputs], const float* weight, const float* pixels) {
    constexpr int margin = WholeRow ? Taps / 2 : 0;
    pixels = anew(pixels);
    Vec w[Taps];
    unroll<Taps>([&](auto t) { w[t.value] = load(weight + t.value * kBlock); });
    unroll_from<margin, Outputs + Taps - 1 - margin>([&](auto s) {
        const Vec pixel = load(pixels + s.value * kBlock);
        unroll<Taps>([&](auto t) {
            constexpr int output = decltype(s)::value - decltype(t)::value;
            if constexpr (output >= 0 && output < Outputs) sums[output] += w[t.value] * pixel;
        });
    });
}

// Taps [first, last) along an axis that see the image from any of `outputs` outputs from `at` on; more than one only
// where the stride is 1.
struct Span {
    int64_t first, last;
};

FILTERCOV_INLINE Span taps_inside(const Axis& axis, int64_t at, int64_t outputs) {
    const int64_t start = at * axis.stride - axis.pad;
    const int64_t first = clamp(-(start + outputs - 1), 0, axis.kernel);
    return {first, clamp(axis.size - start, first, axis.kernel)};
}

FILTERCOV_INLINE int64_t taps_in_run(const Axis& across, int64_t run) {
    return ceil_div(across.kernel - run, across.stride);
}

// Strips one below the other: `outputs` columns of output rows [top, top + rows) of one plane.
struct Strips {
    const Shape& shape;
    const float* weight;  // the first kernel column used of kernel plane and row 0
    const float* pixels;  // the pixel under it for the first output of row `top`
    int64_t row_floats, plane_floats, run_floats;  // of the pixels
    int64_t tap_columns;  // how many kernel columns are used, if there is one run; all are if there are more
    Span deep;            // kernel planes inside the image
    int64_t top, rows, left, outputs, lanes;
    Vec start;
    float* y;
    int64_t y_row, y_pixel;  // strides
    bool stream;
    const Block& next;  // what the next item reads
};

template <int Outputs> FILTERCOV_INLINE void store_strip(const Strips& s, const Vec (&sums)[Outputs], float* y) {
    const int64_t stride = s.y_pixel;
    if (s.stream) {
        unroll<Outputs>([&](auto o) {
            if (o.value < s.outputs) stream(y + o.value * stride, sums[o.value]);
        });
    } else if (s.outputs == Outputs && s.lanes >= kLanes) {
        unroll<Outputs>([&](auto o) { store(y + o.value * stride, sums[o.value]); });
    } else {
        unroll<Outputs>([&](auto o) {
            if (o.value < s.outputs) store_first(y + o.value * stride, sums[o.value], s.lanes);
        });
    }
}

template <int Outputs, int TapsAtOnce, bool WholeRow> void convolve_strips(const Strips& s) {
    const Axis &down = s.shape.axis[1], &across = s.shape.axis[2];
    const int64_t weight_row = across.kernel * kBlock, weight_plane = down.kernel * weight_row;
    for (int64_t row = 0; row < s.rows; ++row) {
        float* y = s.y + row * s.y_row;
        for (int64_t i = 0; !s.stream && i < s.outputs; ++i) __builtin_prefetch(y + i * s.y_pixel, 1);
        for (int64_t i = 0; i < down.stride; ++i) {
            prefetch_row(s.next, s.shape, (s.top + row) * down.stride + i, s.left * across.stride,
                         s.outputs * across.stride);
        }
        Vec sums[Outputs];
        unroll<Outputs>([&](auto o) { sums[o.value] = s.start; });
        const Span rows = taps_inside(down, s.top + row, 1);
        for (int64_t plane_tap = s.deep.first; plane_tap < s.deep.last; ++plane_tap) {
            for (int64_t row_tap = rows.first; row_tap < rows.last; ++row_tap) {
                const float* weight = s.weight + plane_tap * weight_plane + row_tap * weight_row;
                const float* pixels =
                    s.pixels + plane_tap * s.plane_floats + (row * down.stride + row_tap) * s.row_floats;
                for (int64_t run = 0; run < across.stride; ++run, pixels += s.run_floats) {
                    const int64_t taps = across.stride == 1 ? s.tap_columns : taps_in_run(across, run);
                    int64_t column = 0;
                    for (; column + TapsAtOnce <= taps; column += TapsAtOnce) {
                        add_taps<Outputs, TapsAtOnce, WholeRow>(sums, weight + column * kBlock,
                                                                pixels + column * kBlock);
                    }
                    for (; column < taps; ++column) {
                        add_taps<Outputs, 1, false>(sums, weight + column * kBlock, pixels + column * kBlock);
                    }
                    weight += taps * kBlock;
                }
            }
        }
        store_strip(s, sums, y);
    }
}

using StripFunction = void (*)(const Strips&);

// A choice of strip: how many outputs, and the functions for each number of taps at once in kTapsAtOnce. With 32
// registers 16 outputs, 9 weights and a pixel fit; with 16 registers 8, 5 and a pixel.
struct StripChoice {
    int64_t outputs;
    const StripFunction *by_taps, *whole_row_by_taps;
};

template <int Outputs, bool WholeRow, int... Taps>
constexpr StripFunction kStrips[] = {convolve_strips<Outputs, Taps, WholeRow && Taps % 2 == 1>...};
template <int Outputs, int... Taps>
constexpr StripChoice kStripChoice = {Outputs, kStrips<Outputs, false, Taps...>, kStrips<Outputs, true, Taps...>};

#if FILTERCOV_REGISTERS >= 32
#define FILTERCOV_TAPS 9, 7, 5, 4, 3, 2, 1
constexpr StripChoice kStripChoices[] = {kStripChoice<16, FILTERCOV_TAPS>, kStripChoice<14, FILTERCOV_TAPS>,
                                         kStripChoice<8, FILTERCOV_TAPS>, kStripChoice<4, FILTERCOV_TAPS>};
#else
#define FILTERCOV_TAPS 5, 4, 3, 2, 1
constexpr StripChoice kStripChoices[] = {kStripChoice<8, FILTERCOV_TAPS>, kStripChoice<7, FILTERCOV_TAPS>,
                                         kStripChoice<4, FILTERCOV_TAPS>};
#endif
constexpr int64_t kTapsAtOnce[] = {FILTERCOV_TAPS};

// The position in kTapsAtOnce that leaves the fewest taps to be taken singly.
FILTERCOV_INLINE int taps_at_once(int64_t columns) {
    constexpr int last = sizeof(kTapsAtOnce) / sizeof(int64_t) - 1;
    int best = last;
    int64_t fewest = columns;
    unroll<last>([&](auto i) {
        constexpr int64_t taps = kTapsAtOnce[decltype(i)::value];
        if (columns >= taps && columns % taps < fewest) best = i.value, fewest = columns % taps;
    });
    return best;
}

inline int64_t cheapest_strip(const Axis& across) {
    int64_t best = -1, lowest = 0;
    for (int64_t i = 0; i < static_cast<int64_t>(sizeof(kStripChoices) / sizeof(StripChoice)); ++i) {
        const StripChoice& choice = kStripChoices[i];
        int64_t cost = 0;
        for (int64_t x = 0; x < across.out; x += choice.outputs) {
            const Span span = across.stride == 1 ? taps_inside(across, x, choice.outputs) : Span{0, across.kernel};
            cost += (span.last - span.first) * (2 * choice.outputs + 3);  // 3: the loads a strip cannot share
        }
        if (best < 0 || cost < lowest) best = i, lowest = cost;
    }
    return best;
}

ConvolutionPlan plan_convolution(const Shape& shape, bool channels_last) {
    const Axis &deep = shape.axis[0], &down = shape.axis[1], &across = shape.axis[2];
    ConvolutionPlan plan{};
    plan.strip = cheapest_strip(across);
    const int64_t whole_strips = round_up(tile_columns(shape), kStripChoices[plan.strip].outputs);
    plan.run_columns = whole_strips + larger(1, taps_in_run(across, 0)) - 1;
    const int64_t row_floats = across.stride * plan.run_columns * kBlock;
    plan.tiling = choose_tiling(shape, row_floats);
    const int64_t* extent = plan.tiling.extent;
    plan.source_floats = inputs_seen(deep, extent[0]) * inputs_seen(down, extent[1]) * row_floats;
    const int64_t target_floats = channels_last ? 0 : extent[0] * extent[1] * whole_strips * kBlock;
    plan.scratch_floats = plan.source_floats + target_floats;
    return plan;
}

// Where a tile's outputs go: into y itself, or dense as (plane, row, column, 16) into scratch first.
struct Target {
    float* data;
    int64_t plane, row, pixel;  // strides
    bool is_scratch;
};

// One tile, its inputs already in scratch. `next` is what the next item reads.
inline void convolve_tile(const Convolution& job, const Box& box, int64_t block, const float* scratch,
                          const Target& target, const Block& next) {
    const Axis &deep = job.shape.axis[0], &down = job.shape.axis[1], &across = job.shape.axis[2];
    const StripChoice& strip = kStripChoices[job.plan.strip];
    const int64_t first_channel = block * kBlock;
    const float* weight = job.packed_weight + first_channel * deep.kernel * down.kernel * across.kernel;
    const int64_t run_floats = job.plan.run_columns * kBlock, row_floats = across.stride * run_floats;
    const int64_t plane_floats = inputs_seen(down, box.extent[1]) * row_floats;
    for (int64_t x = 0; x < box.extent[2]; x += strip.outputs) {
        const int64_t outputs = smaller(strip.outputs, box.extent[2] - x);
        const bool one_run = across.stride == 1;
        const Span columns = one_run ? taps_inside(across, box.first[2] + x, outputs) : Span{0, across.kernel};
        const int at_once = taps_at_once(one_run ? columns.last - columns.first : taps_in_run(across, 0));
        const bool whole_row =
            keeps_width(across) && across.size == strip.outputs && across.kernel == kTapsAtOnce[at_once];
        const StripFunction convolve = (whole_row ? strip.whole_row_by_taps : strip.by_taps)[at_once];
        for (int v = 0; v < kVectors; ++v) {
            const int64_t lane = v * kLanes, lanes = job.channels - first_channel - lane;
            if (lanes <= 0) break;
            const Vec start = job.bias != nullptr ? load_first(job.bias + first_channel + lane, lanes) : Vec{};
            const float* first_plane = scratch + (x + columns.first) * kBlock + lane;
            for (int64_t plane = 0; plane < box.extent[0]; ++plane) {
                const float* pixels = first_plane + plane * deep.stride * plane_floats;
                float* y = target.data + plane * target.plane + x * target.pixel + lane;
                convolve({job.shape, weight + columns.first * kBlock + lane, pixels, row_floats, plane_floats,
                          run_floats, columns.last - columns.first, taps_inside(deep, box.first[0] + plane, 1),
                          box.first[1], box.extent[1], box.first[2] + x, target.is_scratch ? strip.outputs : outputs,
                          target.is_scratch ? kLanes : lanes, start, y, target.row, target.pixel, job.stream, next});
            }
        }
    }
}

// Write `count` pixels from scratch to where channels are `channel` floats apart, pixels `stride`.
FILTERCOV_INLINE void write_pixels(const float* from, int64_t lanes, int64_t count, float* to, int64_t channel,
                                   int64_t stride) {
    int64_t x = 0;
    if (stride == 1) {
        for (; x + kLanes <= count; x += kLanes) {
            for (int v = 0; v < kVectors; ++v) {
                Vec rows[kLanes];
                unroll<kLanes>([&](auto i) { rows[i.value] = load(from + (x + i.value) * kBlock + v * kLanes); });
                transpose(rows);
                unroll<kLanes>([&](auto i) {
                    const int64_t lane = v * kLanes + i.value;
                    if (lane < lanes) store(to + lane * channel + x, rows[i.value]);
                });
            }
        }
    }
    for (; x < count; ++x) {
        for (int64_t lane = 0; lane < lanes; ++lane) to[lane * channel + x * stride] = from[x * kBlock + lane];
    }
}

void convolve(const Convolution& job, int64_t image, int64_t block, int64_t tile, float* scratch) {
    const ConvolutionPlan& plan = job.plan;
    const Box box = tile_box(plan.tiling, job.shape, tile);
    const Block x = channel_block(job.x, job.channels, image, block);
    copy_tile(x, job.shape, box, plan.run_columns, scratch);
    const filtercov_strides& y = job.y.strides;
    float* first = job.y.data + image * y.image + block * kBlock * y.channel + box.first[0] * y.axis[0] +
                   box.first[1] * y.axis[1] + box.first[2] * y.axis[2];
    // Items come image by image and in each block by block.
    const int64_t blocks = channel_blocks(job.channels), item = image * blocks + block + 1;
    const Block next =
        item < job.batch * blocks ? channel_block(job.x, job.channels, item / blocks, item % blocks) : Block{};
    if (y.channel == 1) {
        convolve_tile(job, box, block, scratch, {first, y.axis[0], y.axis[1], y.axis[2], false}, next);
    } else {
        const int64_t columns = round_up(box.extent[2], kStripChoices[plan.strip].outputs);
        const int64_t row = columns * kBlock, plane = box.extent[1] * row;
        float* outputs = scratch + plan.source_floats;
        convolve_tile(job, box, block, scratch, {outputs, plane, row, kBlock, true}, next);
        for (int64_t i = 0; i < box.extent[0]; ++i) {
            for (int64_t j = 0; j < box.extent[1]; ++j) {
                write_pixels(outputs + i * plane + j * row, x.lanes, box.extent[2],
                             first + i * y.axis[0] + j * y.axis[1], y.channel, y.axis[2]);
            }
        }
    }
    if (job.stream) done_streaming();
}
