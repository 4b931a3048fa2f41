// Forward pass: y[p] = bias + sum over taps of w[tap] * x[p + tap]. The input gradient is this with flipped filters.
//
// A strip of `Outputs` neighbouring pixels stays in registers while the filter passes over it. Taps are taken `Taps` at
// a time with their weights in registers, so each input pixel is loaded once and used by up to `Taps` outputs. Where the
// strip is a whole row of the image and the taps a whole row of the filter, the pixels known to be padding are left out.

template <int Outputs, int Taps, bool WholeRow>
FILTERCOV_INLINE void add_taps(Vec (&sums)[Outputs], const float* weight, const float* pixels) {
    constexpr int margin = WholeRow ? Taps / 2 : 0;
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

// Kernel rows or columns [first, last) that see the image from any of `outputs` outputs starting at `at`.
struct Span {
    int64_t first, last;
};

FILTERCOV_INLINE Span taps_inside(int64_t at, int64_t outputs, int64_t pad, int64_t extent, int64_t kernel) {
    const int64_t first = clamp(pad - (at + outputs - 1), 0, kernel);
    return {first, clamp(extent + pad - at, first, kernel)};
}

// Strips one below the other: `outputs` columns of output rows [top, top + rows).
struct Strips {
    const filtercov_geometry& geometry;
    const float* weight;  // the first kernel column used, kernel row 0
    const float* pixels;  // the pixel under it for the first output of row `top`
    int64_t pixel_row_floats;
    int64_t tap_columns;  // how many kernel columns are used
    int64_t top, rows, left, outputs, lanes;
    Vec start;
    float* y;
    bool stream;
    const Image& next;  // what the next item reads
};

template <int Outputs>
FILTERCOV_INLINE void store_strip(const Strips& s, const Vec (&sums)[Outputs], float* y) {
    const int64_t stride = s.geometry.channels;
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

template <int Outputs, int TapsAtOnce, bool WholeRow>
void convolve_strips(const Strips& s) {
    const filtercov_geometry& g = s.geometry;
    for (int64_t row = 0; row < s.rows; ++row) {
        float* y = s.y + row * g.out_width * g.channels;
        if (!s.stream) prefetch_output(y, s.outputs, g.channels);
        prefetch_input(s.next, s.top + row, s.left, s.outputs);
        Vec sums[Outputs];
        unroll<Outputs>([&](auto o) { sums[o.value] = s.start; });
        const Span down = taps_inside(s.top + row, 1, g.pad_top, g.height, g.kernel_height);
        for (int64_t tap = down.first; tap < down.last; ++tap) {
            const float* weight = s.weight + tap * g.kernel_width * kBlock;
            const float* pixels = s.pixels + (row + tap) * s.pixel_row_floats;
            int64_t column = 0;
            for (; column + TapsAtOnce <= s.tap_columns; column += TapsAtOnce) {
                add_taps<Outputs, TapsAtOnce, WholeRow>(sums, weight + column * kBlock, pixels + column * kBlock);
            }
            for (; column < s.tap_columns; ++column) {
                add_taps<Outputs, 1, false>(sums, weight + column * kBlock, pixels + column * kBlock);
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

#if FILTERCOV_REGISTERS >= 32
constexpr int64_t kTapsAtOnce[] = {9, 7, 5, 3, 1};
template <int Outputs, bool WholeRow>
constexpr StripFunction kStrips[] = {
    convolve_strips<Outputs, 9, WholeRow>, convolve_strips<Outputs, 7, WholeRow>, convolve_strips<Outputs, 5, WholeRow>,
    convolve_strips<Outputs, 3, WholeRow>, convolve_strips<Outputs, 1, WholeRow>};
constexpr StripChoice kStripChoices[] = {{16, kStrips<16, false>, kStrips<16, true>},
                                         {14, kStrips<14, false>, kStrips<14, true>},
                                         {8, kStrips<8, false>, kStrips<8, true>},
                                         {4, kStrips<4, false>, kStrips<4, true>}};
#else
constexpr int64_t kTapsAtOnce[] = {5, 3, 1};
template <int Outputs, bool WholeRow>
constexpr StripFunction kStrips[] = {convolve_strips<Outputs, 5, WholeRow>, convolve_strips<Outputs, 3, WholeRow>,
                                     convolve_strips<Outputs, 1, WholeRow>};
constexpr StripChoice kStripChoices[] = {{8, kStrips<8, false>, kStrips<8, true>},
                                         {7, kStrips<7, false>, kStrips<7, true>},
                                         {4, kStrips<4, false>, kStrips<4, true>}};
#endif

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

inline int64_t cheapest_strip(const filtercov_geometry& g) {
    int64_t best = -1, lowest = 0;
    for (int64_t i = 0; i < static_cast<int64_t>(sizeof(kStripChoices) / sizeof(StripChoice)); ++i) {
        const StripChoice& choice = kStripChoices[i];
        int64_t cost = 0;
        for (int64_t x = 0; x < g.out_width; x += choice.outputs) {
            const Span span = taps_inside(x, choice.outputs, g.pad_left, g.width, g.kernel_width);
            cost += (span.last - span.first) * (2 * choice.outputs + 3);  // 3: the loads a strip cannot share
        }
        if (best < 0 || cost < lowest) best = i, lowest = cost;
    }
    return best;
}

ConvolutionPlan plan_convolution(const filtercov_geometry& g) {
    ConvolutionPlan plan{};
    plan.strip = cheapest_strip(g);
    plan.tile_columns = tile_columns(g);
    const int64_t outputs = kStripChoices[plan.strip].outputs;
    const int64_t whole_strips = (plan.tile_columns + outputs - 1) / outputs * outputs;
    plan.row_floats = larger(1, whole_strips + g.kernel_width - 1) * kBlock;  // 1: an image without columns
    plan.tile_rows = tile_rows(g, plan.row_floats);
    plan.scratch_floats = (plan.tile_rows + g.kernel_height - 1) * plan.row_floats;
    return plan;
}

// One tile, already in scratch: `rows` x `columns` outputs starting at (top, left). `next` is what the next item reads.
inline void convolve_tile(const Convolution& job, int64_t image, int64_t block, int64_t top, int64_t left, int64_t rows,
                          int64_t columns, const float* scratch, const Image& next) {
    const filtercov_geometry& g = job.geometry;
    const StripChoice& strip = kStripChoices[job.plan.strip];
    const int64_t first_channel = block * kBlock;
    const float* weight = job.packed_weight + first_channel * g.kernel_height * g.kernel_width;
    float* y = job.y + ((image * g.out_height + top) * g.out_width + left) * g.channels + first_channel;
    for (int64_t x = 0; x < columns; x += strip.outputs) {
        const int64_t outputs = smaller(strip.outputs, columns - x);
        const Span across = taps_inside(left + x, outputs, g.pad_left, g.width, g.kernel_width);
        const int at_once = taps_at_once(across.last - across.first);
        const bool whole_row =
            keeps_width(g) && g.width == strip.outputs && g.kernel_width == kTapsAtOnce[at_once];
        const StripFunction convolve = (whole_row ? strip.whole_row_by_taps : strip.by_taps)[at_once];
        for (int v = 0; v < kVectors; ++v) {
            const int64_t lane = v * kLanes, lanes = g.channels - first_channel - lane;
            if (lanes <= 0) break;
            convolve({g,
                      weight + across.first * kBlock + lane,
                      scratch + (x + across.first) * kBlock + lane,
                      job.plan.row_floats,
                      across.last - across.first,
                      top,
                      rows,
                      left + x,
                      outputs,
                      lanes,
                      job.bias != nullptr ? load_first(job.bias + first_channel + lane, lanes) : Vec{},
                      y + x * g.channels + lane,
                      job.stream,
                      next});
        }
    }
}

// Items come image by image and in each block by block: this is the one after the given one, without data if none is.
FILTERCOV_INLINE Image next_item(const Convolution& job, int64_t image, int64_t block) {
    const filtercov_geometry& g = job.geometry;
    const bool last_block = block + 1 == channel_blocks(g.channels);
    if (last_block && image + 1 == g.batch) return Image{};
    if (last_block) return image_block(job.x, image + 1, g.height, g.width, g.channels, 0);
    return image_block(job.x, image, g.height, g.width, g.channels, block + 1);
}

void convolve(const Convolution& job, int64_t image, int64_t block, float* scratch) {
    const filtercov_geometry& g = job.geometry;
    const ConvolutionPlan& plan = job.plan;
    const Image x = image_block(job.x, image, g.height, g.width, g.channels, block);
    const Image next = next_item(job, image, block);
    for (int64_t top = 0; top < g.out_height; top += plan.tile_rows) {
        const int64_t rows = smaller(plan.tile_rows, g.out_height - top);
        for (int64_t left = 0; left < g.out_width; left += plan.tile_columns) {
            const int64_t columns = smaller(plan.tile_columns, g.out_width - left);
            copy_tile(x, top - g.pad_top, left - g.pad_left, rows + g.kernel_height - 1, plan.row_floats / kBlock,
                      scratch);
            convolve_tile(job, image, block, top, left, rows, columns, scratch, next);
        }
    }
    if (job.stream) done_streaming();
}
