// Weight gradient: grad_w[tap] += sum over pixels of grad_y[p] * x[p + tap].
//
// `Taps` neighbouring taps stay in registers while the image passes over them. Pixels are taken `AtOnce` at once, with
// their grad_y in registers, so that each x is used by up to `Taps` taps. Where those pixels are a whole row
// of the image and the taps a whole row of the filter, the x known to be padding are left out. Sums start from zero in
// every tile and are then added to the accumulator: rounding errors grow with the tile, not with the whole batch.

struct Pixels {
    const float* grad_y;
    const float* x;
    int64_t grad_row_floats, x_row_floats;  // from one row of grad_y to the next, and between the rows of x they see
    int64_t rows, groups;  // groups of `AtOnce` pixels per row
};

// How a group of pixels is held in registers. A sum that waits for itself adds once in four cycles, while twice as many
// additions could begin in each: with few taps every tap has several sums, of every n-th pixel. What registers are left
// hold grad_y, of as many pixels as fit; the group is taken in so many parts.
template <int Taps, int AtOnce> struct Held {
    static constexpr int copies = Taps >= 7 ? 1 : (6 + Taps) / Taps;
    static constexpr int left = FILTERCOV_REGISTERS - Taps * copies - 1;
    static constexpr int parts = (AtOnce + left - 1) / left;
    static constexpr int pixels = (AtOnce + parts - 1) / parts;
};

template <int Taps, int AtOnce, bool WholeRow> void correlate_taps(const Pixels& p, float* accumulator) {
    using H = Held<Taps, AtOnce>;
    constexpr int margin = WholeRow ? Taps / 2 : 0, last = AtOnce + Taps - 1 - margin;
    Vec sums[H::copies][Taps] = {};
    for (int64_t row = 0; row < p.rows; ++row) {
        const float* grad_y = p.grad_y + row * p.grad_row_floats;
        const float* x = p.x + row * p.x_row_floats;
        for (int64_t group = 0; group < p.groups; ++group, grad_y += AtOnce * kBlock, x += AtOnce * kBlock) {
            unroll<H::parts>([&](auto part) {
                constexpr int begin = decltype(part)::value * H::pixels;
                constexpr int end = begin + H::pixels < AtOnce ? begin + H::pixels : AtOnce;
                const float* seen = anew(x);
                Vec grad[H::pixels];
                unroll_from<begin, end>([&](auto a) { grad[a.value - begin] = load(grad_y + a.value * kBlock); });
                constexpr int first_seen = begin > margin ? begin : margin;
                constexpr int last_seen = end + Taps - 1 < last ? end + Taps - 1 : last;
                unroll_from<first_seen, last_seen>([&](auto s) {
                    const Vec pixel = load(seen + s.value * kBlock);
                    unroll<Taps>([&](auto t) {
                        constexpr int from = decltype(s)::value - decltype(t)::value;
                        if constexpr (from >= begin && from < end) {
                            sums[from % H::copies][t.value] += grad[from - begin] * pixel;
                        }
                    });
                });
            });
        }
    }
    unroll<Taps>([&](auto t) {
        float* to = accumulator + t.value * kBlock;
        Vec sum = sums[0][t.value];
        unroll_from<1, H::copies>([&](auto copy) { sum += sums[copy.value][t.value]; });
        store(to, load(to) + sum);
    });
}

using TapsFunction = void (*)(const Pixels&, float*);

// How many pixels at once, and the function for each number of taps.
struct PixelChoice {
    int64_t at_once;
    const TapsFunction* by_taps;
};

constexpr int kMostTapsHeld = 9;

// For groups of pixels, of which a row may need several: by_taps[taps - 1].
template <int AtOnce, int... I> constexpr TapsFunction kGroups[] = {correlate_taps<I + 1, AtOnce, false>...};
template <int AtOnce, int... I>
constexpr PixelChoice group_choice(Lanes<I...>) { return {AtOnce, kGroups<AtOnce, I...>}; }
constexpr std::make_integer_sequence<int, kMostTapsHeld> kTapsHeld;
constexpr PixelChoice kGroupChoices[] = {group_choice<8>(kTapsHeld), group_choice<7>(kTapsHeld)};

// For whole rows, with an odd number of taps: by_taps[taps / 2].
template <int Width> constexpr TapsFunction kWholeRows[] = {
    correlate_taps<1, Width, true>, correlate_taps<3, Width, true>, correlate_taps<5, Width, true>,
    correlate_taps<7, Width, true>, correlate_taps<9, Width, true>,
};
constexpr PixelChoice kWholeRowChoices[] = {
    {16, kWholeRows<16>}, {14, kWholeRows<14>}, {8, kWholeRows<8>}, {7, kWholeRows<7>}};

// The function for whole rows, or null where there is none for this convolution.
FILTERCOV_INLINE TapsFunction whole_row_function(const Axis& across) {
    if (!keeps_width(across) || across.kernel > kMostTapsHeld) return nullptr;
    for (const PixelChoice& choice : kWholeRowChoices) {
        if (choice.at_once == across.size) return choice.by_taps[across.kernel / 2];
    }
    return nullptr;
}

// The group of pixels that rounds the row up least.
FILTERCOV_INLINE const PixelChoice& closest_group(int64_t columns) {
    const PixelChoice &first = kGroupChoices[0], &second = kGroupChoices[1];
    return round_up(columns, second.at_once) < round_up(columns, first.at_once) ? second : first;
}

constexpr int64_t kGroupSlack = 8;               // pixels a group may read past the last one's
constexpr int64_t kCacheFloats = 24 * 1024 / 4;  // of a 32 KiB L1

CorrelationPlan plan_correlation(const Shape& shape) {
    const Axis &deep = shape.axis[0], &down = shape.axis[1], &across = shape.axis[2];
    CorrelationPlan plan{};
    plan.grad_columns = tile_columns(shape) + kGroupSlack;
    plan.run_columns = plan.grad_columns + taps_in_run(across, 0) - 1;
    const int64_t grad_row = plan.grad_columns * kBlock, x_row = across.stride * plan.run_columns * kBlock;
    plan.tiling = choose_tiling(shape, grad_row + x_row);
    const int64_t* extent = plan.tiling.extent;
    plan.grad_floats = extent[0] * extent[1] * grad_row;
    plan.scratch_floats =
        plan.grad_floats + inputs_seen(deep, extent[0]) * inputs_seen(down, extent[1]) * x_row;
    return plan;
}

// grad_y as a convolution would see it that leaves everything as it is.
FILTERCOV_INLINE Shape unmoved(const Shape& shape) {
    Shape same;
    for (int axis = 0; axis < 3; ++axis) same.axis[axis] = {shape.axis[axis].out, shape.axis[axis].out, 1, 0, 1};
    return same;
}

// Outputs [first, last) of `count`, from `start` on, whose input under a tap lies in the image.
FILTERCOV_INLINE Span outputs_inside(const Axis& axis, int64_t tap, int64_t start, int64_t count) {
    const int64_t first = clamp(ceil_div(axis.pad - tap, axis.stride) - start, 0, count);
    return {first, clamp(ceil_div(axis.size + axis.pad - tap, axis.stride) - start, first, count)};
}

// One plane of taps over some rows of one plane of a tile, both already in scratch: `rows` of grad_y from `top` on in
// the image, its columns from `left` on.
struct CorrelatedRows {
    const float *grad_y, *x;
    int64_t top, rows, left, columns;
    float* accumulator;  // of this plane of taps
};

// `next_grad_y` and `next_x` are read after this.
inline void correlate_rows(const Correlation& job, const CorrelatedRows& r, const Block& next_grad_y,
                           const Block& next_x) {
    const Axis &down = job.shape.axis[1], &across = job.shape.axis[2];
    const int64_t grad_row = job.plan.grad_columns * kBlock, run_floats = job.plan.run_columns * kBlock;
    const int64_t x_row = across.stride * run_floats;
    const TapsFunction whole_row = whole_row_function(across);
    const PixelChoice& pixels = closest_group(r.columns);
    for (int64_t i = 0; i < down.kernel; ++i) {
        for (int64_t y = r.top + r.rows * i / down.kernel; y < r.top + r.rows * (i + 1) / down.kernel; ++y) {
            prefetch_row(next_grad_y, unmoved(job.shape), y, r.left, r.columns);
            prefetch_row(next_x, job.shape, y * down.stride, r.left * across.stride, r.columns * across.stride);
        }
        const Span rows = outputs_inside(down, i, r.top, r.rows);
        if (rows.first == rows.last) continue;
        float* run_sums = r.accumulator + i * across.kernel * kBlock;
        for (int64_t run = 0; run < across.stride; ++run) {
            const int64_t taps = taps_in_run(across, run);
            const int64_t groups_of_taps = (taps + kMostTapsHeld - 1) / kMostTapsHeld;
            for (int64_t group = 0; group < groups_of_taps; ++group) {
                const int64_t first_tap = taps * group / groups_of_taps, last_tap = taps * (group + 1) / groups_of_taps;
                // Columns of grad_y that see the image through any of these taps.
                const int64_t first =
                    outputs_inside(across, run + (last_tap - 1) * across.stride, r.left, r.columns).first;
                const int64_t last = outputs_inside(across, run + first_tap * across.stride, r.left, r.columns).last;
                if (first >= last) continue;
                Pixels p{r.grad_y + rows.first * grad_row + first * kBlock,
                         r.x + (rows.first * down.stride + i) * x_row + run * run_floats + (first + first_tap) * kBlock,
                         grad_row,
                         down.stride * x_row,
                         rows.last - rows.first,
                         whole_row != nullptr ? 1 : (last - first + pixels.at_once - 1) / pixels.at_once};
                const TapsFunction correlate =
                    whole_row != nullptr ? whole_row : pixels.by_taps[last_tap - first_tap - 1];
                float* sums = run_sums + first_tap * kBlock;
                for (int v = 0; v < kVectors; ++v, p.grad_y += kLanes, p.x += kLanes, sums += kLanes) {
                    correlate(p, sums);
                }
            }
            run_sums += taps * kBlock;
        }
    }
}

void correlate(const Correlation& job, int64_t image, int64_t block, int64_t tile, float* accumulator, float* scratch) {
    const Axis &deep = job.shape.axis[0], &down = job.shape.axis[1], &across = job.shape.axis[2];
    const Box box = tile_box(job.plan.tiling, job.shape, tile);
    const int64_t grad_row = job.plan.grad_columns * kBlock, x_row = across.stride * job.plan.run_columns * kBlock;
    const int64_t grad_plane = box.extent[1] * grad_row, x_plane = inputs_seen(down, box.extent[1]) * x_row;
    float* grad_tile = scratch;
    float* x_tile = scratch + job.plan.grad_floats;
    const bool more = image + 1 < job.batch;
    const Block next_grad_y = more ? channel_block(job.grad_y, job.channels, image + 1, block) : Block{};
    const Block next_x = more ? channel_block(job.x, job.channels, image + 1, block) : Block{};
    const Block grad_y = channel_block(job.grad_y, job.channels, image, block);
    copy_tile(grad_y, unmoved(job.shape), box, job.plan.grad_columns, grad_tile);
    // Columns past this tile belong to the next one: they must not be counted here.
    if (box.first[2] + box.extent[2] < across.out) {
        for (int64_t row = 0; row < box.extent[0] * box.extent[1]; ++row) {
            zero_pixels(grad_tile + row * grad_row + box.extent[2] * kBlock, kGroupSlack);
        }
    }
    copy_tile(channel_block(job.x, job.channels, image, block), job.shape, box, job.plan.run_columns, x_tile);
    const int64_t cached_rows = larger(1, kCacheFloats / (grad_row + down.stride * x_row));
    for (int64_t plane = 0; plane < box.extent[0]; ++plane) {
        for (int64_t row = 0; row < box.extent[1]; row += cached_rows) {
            for (int64_t tap = 0; tap < deep.kernel; ++tap) {
                const int64_t seen = (box.first[0] + plane) * deep.stride - deep.pad + tap;
                if (seen < 0 || seen >= deep.size) continue;
                correlate_rows(job,
                               {grad_tile + plane * grad_plane + row * grad_row,
                                x_tile + (plane * deep.stride + tap) * x_plane + row * down.stride * x_row,
                                box.first[1] + row, smaller(cached_rows, box.extent[1] - row), box.first[2],
                                box.extent[2], accumulator + tap * down.kernel * across.kernel * kBlock},
                               next_grad_y, next_x);
            }
        }
    }
}
