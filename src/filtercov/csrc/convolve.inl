// Forward pass: y[p] = bias + sum over taps of w[tap] * x[p + tap]. The input gradient is this with flipped filters.
//
// A strip of `Outputs` neighbouring pixels stays in registers while the filter passes over it. Taps are taken `Taps` at
// a time with their weights in registers, so each input pixel is loaded once and used by up to `Taps` outputs.

template <int Outputs, int Taps>
FILTERCOV_INLINE void add_taps(Vec (&sums)[Outputs], const float* weight, const float* pixels) {
    Vec w[Taps];
    unroll<Taps>([&](auto t) { w[t.value] = load(weight + t.value * kBlock); });
    unroll<Outputs + Taps - 1>([&](auto s) {
        const Vec pixel = load(pixels + s.value * kBlock);
        unroll<Taps>([&](auto t) {
            constexpr int output = decltype(s)::value - decltype(t)::value;
            if constexpr (output >= 0 && output < Outputs) sums[output] += w[t.value] * pixel;
        });
    });
}

struct Taps {
    const float* weight;  // the first tap used
    const float* pixels;  // the pixel under it for the strip's first output
    int64_t weight_row_floats, pixel_row_floats;
    int64_t rows, columns;  // how many are used
};

struct StripOutput {
    float* y;
    int64_t stride;  // floats between neighbouring outputs
    int64_t outputs, lanes;
};

template <int Outputs, int TapsAtOnce>
void convolve_strip(const Taps& taps, Vec start, const StripOutput& out) {
    Vec sums[Outputs];
    unroll<Outputs>([&](auto o) { sums[o.value] = start; });
    for (int64_t row = 0; row < taps.rows; ++row) {
        const float* weight = taps.weight + row * taps.weight_row_floats;
        const float* pixels = taps.pixels + row * taps.pixel_row_floats;
        int64_t column = 0;
        for (; column + TapsAtOnce <= taps.columns; column += TapsAtOnce) {
            add_taps<Outputs, TapsAtOnce>(sums, weight + column * kBlock, pixels + column * kBlock);
        }
        for (; column < taps.columns; ++column) {
            add_taps<Outputs, 1>(sums, weight + column * kBlock, pixels + column * kBlock);
        }
    }
    unroll<Outputs>([&](auto o) {
        if (o.value < out.outputs) store_first(out.y + o.value * out.stride, sums[o.value], out.lanes);
    });
}

using StripFunction = void (*)(const Taps&, Vec, const StripOutput&);

// A choice of strip: how many outputs, and the function for each number of taps at once in kTapsAtOnce. With 32
// registers 16 outputs, 9 weights and a pixel fit; with 16 registers 8, 5 and a pixel.
struct StripChoice {
    int64_t outputs;
    const StripFunction* by_taps;
};

#if FILTERCOV_REGISTERS >= 32
constexpr int64_t kTapsAtOnce[] = {9, 7, 5, 3, 1};
template <int Outputs>
constexpr StripFunction kStrips[] = {convolve_strip<Outputs, 9>, convolve_strip<Outputs, 7>, convolve_strip<Outputs, 5>,
                                     convolve_strip<Outputs, 3>, convolve_strip<Outputs, 1>};
constexpr StripChoice kStripChoices[] = {{16, kStrips<16>}, {14, kStrips<14>}, {8, kStrips<8>}, {4, kStrips<4>}};
#else
constexpr int64_t kTapsAtOnce[] = {5, 3, 1};
template <int Outputs>
constexpr StripFunction kStrips[] = {convolve_strip<Outputs, 5>, convolve_strip<Outputs, 3>,
                                     convolve_strip<Outputs, 1>};
constexpr StripChoice kStripChoices[] = {{8, kStrips<8>}, {7, kStrips<7>}, {4, kStrips<4>}};
#endif

// The position in kTapsAtOnce that leaves the fewest taps to be taken singly.
FILTERCOV_INLINE int taps_at_once(int64_t columns) {
    int last = 0;
    while (kTapsAtOnce[last] > 1) ++last;
    int best = last;
    int64_t fewest = columns;
    for (int i = 0; i < last; ++i) {
        if (columns >= kTapsAtOnce[i] && columns % kTapsAtOnce[i] < fewest) best = i, fewest = columns % kTapsAtOnce[i];
    }
    return best;
}

// Kernel columns [first, last) that see the image from any of `outputs` output columns starting at `x`.
struct Span {
    int64_t first, last;
};

FILTERCOV_INLINE Span taps_inside(int64_t x, int64_t outputs, int64_t pad, int64_t extent, int64_t kernel) {
    const int64_t first = clamp(pad - (x + outputs - 1), 0, kernel);
    return {first, clamp(extent + pad - x, first, kernel)};
}

FILTERCOV_INLINE const StripChoice& cheapest_strip(const filtercov_geometry& g) {
    const StripChoice* best = nullptr;
    int64_t lowest = 0;
    for (const StripChoice& choice : kStripChoices) {
        int64_t cost = 0;
        for (int64_t x = 0; x < g.out_width; x += choice.outputs) {
            const Span span = taps_inside(x, choice.outputs, g.pad_left, g.width, g.kernel_width);
            cost += (span.last - span.first) * (2 * choice.outputs + 3);  // 3: the loads a strip cannot share
        }
        if (best == nullptr || cost < lowest) best = &choice, lowest = cost;
    }
    return *best;
}

FILTERCOV_INLINE int64_t convolution_row_floats(const filtercov_geometry& g, const StripChoice& strip) {
    const int64_t strips = (tile_columns(g) + strip.outputs - 1) / strip.outputs;
    return (strips * strip.outputs + g.kernel_width - 1) * kBlock;
}

int64_t convolution_scratch(const filtercov_geometry& g) {
    const int64_t row_floats = convolution_row_floats(g, cheapest_strip(g));
    return (tile_rows(g, row_floats) + g.kernel_height - 1) * row_floats;
}

// One tile, already in scratch: `rows` x `columns` outputs starting at (top, left). `next` is what the next item reads.
inline void convolve_tile(const Convolution& job, int64_t image, int64_t block, const StripChoice& strip, int64_t top,
                          int64_t left, int64_t rows, int64_t columns, const float* scratch, const Image& next) {
    const filtercov_geometry& g = job.geometry;
    const int64_t row_floats = convolution_row_floats(g, strip);
    const int64_t first_channel = block * kBlock;
    const float* weight = job.packed_weight + first_channel * g.kernel_height * g.kernel_width;
    for (int64_t y = 0; y < rows; ++y) {
        const Span down = taps_inside(top + y, 1, g.pad_top, g.height, g.kernel_height);
        float* y_row = job.y + ((image * g.out_height + top + y) * g.out_width + left) * g.channels + first_channel;
        for (int64_t x = 0; x < columns; x += strip.outputs) {
            const int64_t outputs = smaller(strip.outputs, columns - x);
            const Span across = taps_inside(left + x, outputs, g.pad_left, g.width, g.kernel_width);
            Taps taps{weight + (down.first * g.kernel_width + across.first) * kBlock,
                      scratch + (y + down.first) * row_floats + (x + across.first) * kBlock,
                      g.kernel_width * kBlock,
                      row_floats,
                      down.last - down.first,
                      across.last - across.first};
            if (taps.columns == 0) taps.rows = 0;
            prefetch_output(y_row + x * g.channels, outputs, g.channels);
            prefetch_input(next, top + y, left + x, outputs);
            const StripFunction convolve = strip.by_taps[taps_at_once(taps.columns)];
            for (int v = 0; v < kVectors; ++v, taps.weight += kLanes, taps.pixels += kLanes) {
                const int64_t channel = first_channel + v * kLanes;
                const int64_t lanes = g.channels - channel;
                if (lanes <= 0) break;
                const Vec start = job.bias != nullptr ? load_first(job.bias + channel, lanes) : Vec{};
                convolve(taps, start, {y_row + x * g.channels + v * kLanes, g.channels, outputs, lanes});
            }
        }
    }
}

// Items come image by image and in each block by block: this is the one after the given one, without data if none is.
FILTERCOV_INLINE Image next_item(const Convolution& job, int64_t image, int64_t block) {
    const filtercov_geometry& g = job.geometry;
    const bool last_block = block + 1 == channel_blocks(g.channels);
    if (last_block && image + 1 == g.batch) return Image{};
    return image_block(job.x, last_block ? image + 1 : image, g.height, g.width, g.channels, last_block ? 0 : block + 1);
}

void convolve(const Convolution& job, int64_t image, int64_t block, float* scratch) {
    const filtercov_geometry& g = job.geometry;
    const StripChoice& strip = cheapest_strip(g);
    const int64_t row_floats = convolution_row_floats(g, strip);
    const int64_t most_rows = tile_rows(g, row_floats), most_columns = tile_columns(g);
    const Image x = image_block(job.x, image, g.height, g.width, g.channels, block), next = next_item(job, image, block);
    for (int64_t top = 0; top < g.out_height; top += most_rows) {
        const int64_t rows = smaller(most_rows, g.out_height - top);
        for (int64_t left = 0; left < g.out_width; left += most_columns) {
            const int64_t columns = smaller(most_columns, g.out_width - left);
            copy_tile(x, top - g.pad_top, left - g.pad_left, rows + g.kernel_height - 1, row_floats / kBlock, scratch);
            convolve_tile(job, image, block, strip, top, left, rows, columns, scratch, next);
        }
    }
}
