// Weight gradient: grad_w[tap] += sum over pixels of grad_y[p] * x[p + tap].
//
// `Taps` neighbouring taps stay in registers while the image passes over them. Pixels are taken `AtOnce` at a time with
// their grad_y in registers, so each x is loaded once and used by up to `Taps` taps. Where those pixels are a whole row
// of the image and the taps a whole row of the filter, the x known to be padding are left out. Sums start from zero in
// every tile and are then added to the accumulator: rounding errors grow with the tile, not with the whole batch.

struct Pixels {
    const float* grad_y;
    const float* x;
    int64_t grad_row_floats, x_row_floats;
    int64_t rows, groups;  // groups of `AtOnce` pixels per row
};

template <int Taps, int AtOnce, bool WholeRow>
void correlate_taps(const Pixels& p, float* accumulator) {
    constexpr int margin = WholeRow ? Taps / 2 : 0;
    Vec sums[Taps] = {};
    for (int64_t row = 0; row < p.rows; ++row) {
        const float* grad_y = p.grad_y + row * p.grad_row_floats;
        const float* x = p.x + row * p.x_row_floats;
        for (int64_t group = 0; group < p.groups; ++group, grad_y += AtOnce * kBlock, x += AtOnce * kBlock) {
            Vec grad[AtOnce];
            unroll<AtOnce>([&](auto a) { grad[a.value] = load(grad_y + a.value * kBlock); });
            unroll_from<margin, AtOnce + Taps - 1 - margin>([&](auto s) {
                const Vec pixel = load(x + s.value * kBlock);
                unroll<Taps>([&](auto t) {
                    constexpr int from = decltype(s)::value - decltype(t)::value;
                    if constexpr (from >= 0 && from < AtOnce) sums[t.value] += grad[from] * pixel;
                });
            });
        }
    }
    unroll<Taps>([&](auto t) {
        float* sum = accumulator + t.value * kBlock;
        store(sum, load(sum) + sums[t.value]);
    });
}

using TapsFunction = void (*)(const Pixels&, float*);

// How many pixels at once, and the function for each number of taps.
struct PixelChoice {
    int64_t at_once;
    const TapsFunction* by_taps;
};

// For groups of pixels, of which a row may need several: kGroups<AtOnce>[taps - 1].
template <int AtOnce>
constexpr TapsFunction kGroups[] = {
    correlate_taps<1, AtOnce, false>, correlate_taps<2, AtOnce, false>, correlate_taps<3, AtOnce, false>,
    correlate_taps<4, AtOnce, false>, correlate_taps<5, AtOnce, false>, correlate_taps<6, AtOnce, false>,
#if FILTERCOV_REGISTERS >= 32
    correlate_taps<7, AtOnce, false>, correlate_taps<8, AtOnce, false>, correlate_taps<9, AtOnce, false>,
#endif
};
constexpr int64_t kMostTapsHeld = sizeof(kGroups<8>) / sizeof(TapsFunction);
constexpr PixelChoice kGroupChoices[] = {{8, kGroups<8>}, {7, kGroups<7>}};

// For whole rows, with an odd number of taps: kWholeRows<Width>[taps / 2].
template <int Width>
constexpr TapsFunction kWholeRows[] = {
    correlate_taps<1, Width, true>, correlate_taps<3, Width, true>, correlate_taps<5, Width, true>,
#if FILTERCOV_REGISTERS >= 32
    correlate_taps<7, Width, true>, correlate_taps<9, Width, true>,
#endif
};
constexpr PixelChoice kWholeRowChoices[] = {
#if FILTERCOV_REGISTERS >= 32
    {16, kWholeRows<16>}, {14, kWholeRows<14>},
#endif
    {8, kWholeRows<8>}, {7, kWholeRows<7>},
};

// The function for whole rows, or null where there is none for this convolution.
FILTERCOV_INLINE TapsFunction whole_row_function(const filtercov_geometry& g) {
    if (!keeps_width(g) || g.kernel_width > kMostTapsHeld) return nullptr;
    for (const PixelChoice& choice : kWholeRowChoices) {
        if (choice.at_once == g.width) return choice.by_taps[g.kernel_width / 2];
    }
    return nullptr;
}

// The group of pixels that rounds the row up least.
FILTERCOV_INLINE const PixelChoice& closest_group(int64_t columns) {
    const PixelChoice* best = nullptr;
    int64_t fewest = 0;
    for (const PixelChoice& choice : kGroupChoices) {
        const int64_t rounded = (columns + choice.at_once - 1) / choice.at_once * choice.at_once;
        if (best == nullptr || rounded < fewest) best = &choice, fewest = rounded;
    }
    return *best;
}

constexpr int64_t kGroupSlack = 8;               // pixels a group may read past the last one's
constexpr int64_t kCacheFloats = 24 * 1024 / 4;  // of a 32 KiB L1

struct CorrelationRows {
    int64_t grad, x;  // floats per row in scratch
};

FILTERCOV_INLINE CorrelationRows correlation_rows(const filtercov_geometry& g) {
    const int64_t columns = tile_columns(g) + kGroupSlack;
    return {columns * kBlock, (columns + g.kernel_width - 1) * kBlock};
}

int64_t correlation_scratch(const filtercov_geometry& g) {
    const CorrelationRows row = correlation_rows(g);
    const int64_t rows = tile_rows(g, row.grad + row.x);
    return rows * row.grad + (rows + g.kernel_height - 1) * row.x;
}

// An image's channel block in both tensors.
struct ImagePair {
    Image grad_y, x;
};

FILTERCOV_INLINE ImagePair image_pair(const Correlation& job, int64_t image, int64_t block) {
    const filtercov_geometry& g = job.geometry;
    if (image >= g.batch) return ImagePair{};
    return {image_block(job.grad_y, image, g.out_height, g.out_width, g.channels, block),
            image_block(job.x, image, g.height, g.width, g.channels, block)};
}

// One tile, already in scratch: `rows` x `columns` of grad_y starting at (top, left). `next` is what comes after it.
inline void correlate_tile(const filtercov_geometry& g, int64_t top, int64_t left, int64_t rows, int64_t columns,
                           const float* grad_y, const float* x, float* accumulator, const ImagePair& next) {
    const CorrelationRows row = correlation_rows(g);
    const TapsFunction whole_row = whole_row_function(g);
    const PixelChoice& pixels = closest_group(columns);
    const int64_t groups_of_taps = (g.kernel_width + kMostTapsHeld - 1) / kMostTapsHeld;
    for (int64_t i = 0; i < g.kernel_height; ++i) {
        for (int64_t y = top + rows * i / g.kernel_height; y < top + rows * (i + 1) / g.kernel_height; ++y) {
            prefetch_input(next.grad_y, y, left, columns);
            prefetch_input(next.x, y, left, columns);
        }
        // Rows of grad_y whose input row under tap row i lies in the image.
        const int64_t first_row = clamp(g.pad_top - i - top, 0, rows);
        const int64_t last_row = clamp(g.height + g.pad_top - i - top, first_row, rows);
        if (first_row == last_row) continue;
        for (int64_t group = 0; group < groups_of_taps; ++group) {
            const int64_t first_tap = g.kernel_width * group / groups_of_taps;
            const int64_t last_tap = g.kernel_width * (group + 1) / groups_of_taps;
            // Columns of grad_y that see the image through any of these taps.
            const int64_t first = clamp(g.pad_left - (last_tap - 1) - left, 0, columns);
            const int64_t last = clamp(g.width + g.pad_left - first_tap - left, first, columns);
            if (first == last) continue;
            Pixels p{grad_y + first_row * row.grad + first * kBlock,
                     x + (first_row + i) * row.x + (first + first_tap) * kBlock,
                     row.grad,
                     row.x,
                     last_row - first_row,
                     whole_row != nullptr ? 1 : (last - first + pixels.at_once - 1) / pixels.at_once};
            const TapsFunction correlate = whole_row != nullptr ? whole_row : pixels.by_taps[last_tap - first_tap - 1];
            float* sums = accumulator + (i * g.kernel_width + first_tap) * kBlock;
            for (int v = 0; v < kVectors; ++v, p.grad_y += kLanes, p.x += kLanes, sums += kLanes) correlate(p, sums);
        }
    }
}

void correlate(const Correlation& job, int64_t image, int64_t block, float* accumulator, float* scratch) {
    const filtercov_geometry& g = job.geometry;
    const CorrelationRows row = correlation_rows(g);
    const int64_t most_rows = tile_rows(g, row.grad + row.x), most_columns = tile_columns(g);
    const int64_t cached_rows = larger(1, kCacheFloats / (row.grad + row.x));
    float* grad_tile = scratch;
    float* x_tile = scratch + most_rows * row.grad;
    const ImagePair now = image_pair(job, image, block), next = image_pair(job, image + 1, block);
    for (int64_t top = 0; top < g.out_height; top += most_rows) {
        const int64_t rows = smaller(most_rows, g.out_height - top);
        for (int64_t left = 0; left < g.out_width; left += most_columns) {
            const int64_t columns = smaller(most_columns, g.out_width - left);
            copy_tile(now.grad_y, top, left, rows, row.grad / kBlock, grad_tile);
            // Columns past this tile belong to the next one: they must not be counted here.
            if (left + columns < g.out_width) {
                for (int64_t y = 0; y < rows; ++y) {
                    zero_pixels(grad_tile + y * row.grad + columns * kBlock, kGroupSlack);
                }
            }
            copy_tile(now.x, top - g.pad_top, left - g.pad_left, rows + g.kernel_height - 1, row.x / kBlock,
                      x_tile);
            for (int64_t y = 0; y < rows; y += cached_rows) {
                correlate_tile(g, top + y, left, smaller(cached_rows, rows - y), columns, grad_tile + y * row.grad,
                               x_tile + y * row.x, accumulator, next);
            }
        }
    }
}
