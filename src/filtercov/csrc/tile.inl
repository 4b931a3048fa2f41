// Tiles: a box of one image's channel block, copied to scratch as (plane, row, column, 16).
//
// In the image, the pixels of one block are far apart, at strides that map to few cache sets, or the channels are; the
// copy makes them dense and adds the zero columns, so that inner loops need no bounds and know one layout. Where the
// convolution has a stride, the columns of a row are sorted into as many runs, run r of columns r, r + stride, ...:
// what neighbouring outputs see through one tap are then neighbours. Tap t is in run t % stride, t / stride from its
// start.

struct Block {
    const float* data;  // first channel, first pixel; null if there is none
    filtercov_strides strides;
    int64_t lanes;  // channels present, 1 ... 16
};

FILTERCOV_INLINE Block channel_block(const Tensor<const float>& tensor, int64_t channels, int64_t image,
                                     int64_t block) {
    const int64_t first = block * kBlock;
    return {tensor.data + image * tensor.strides.image + first * tensor.strides.channel, tensor.strides,
            smaller(kBlock, channels - first)};
}

FILTERCOV_INLINE void zero_pixels(float* to, int64_t count) {
    for (int64_t i = 0; i < count * kVectors; ++i) store(to + i * kLanes, Vec{});
}

// Copy `count` pixels, `stride` floats apart.
FILTERCOV_INLINE void copy_pixels(const Block& block, const float* from, int64_t stride, int64_t count, float* to) {
    const int64_t lanes = block.lanes, channel = block.strides.channel;
    if (channel == 1) {
        for (int64_t x = 0; x < count; ++x, from += stride, to += kBlock) {
            for (int c = 0; c < kBlock; c += kLanes) store(to + c, load_first(from + c, lanes - c));
        }
        return;
    }
    int64_t x = 0;
    if (stride == 1) {
        for (; x + kLanes <= count; x += kLanes) {
            for (int v = 0; v < kVectors; ++v) {
                Vec rows[kLanes];
                unroll<kLanes>([&](auto i) {
                    const int64_t lane = v * kLanes + i.value;
                    rows[i.value] = lane < lanes ? load(from + lane * channel + x) : Vec{};
                });
                transpose(rows);
                unroll<kLanes>([&](auto i) { store(to + (x + i.value) * kBlock + v * kLanes, rows[i.value]); });
            }
        }
    }
    for (; x < count; ++x) {
        for (int64_t lane = 0; lane < kBlock; ++lane) {
            to[x * kBlock + lane] = lane < lanes ? from[lane * channel + x * stride] : 0.0f;
        }
    }
}

// Copy `columns` pixels of each run of a row from column `left` on, zero outside the image.
FILTERCOV_INLINE void copy_row(const Block& block, const float* row, const Axis& across, int64_t left, int64_t columns,
                               float* to) {
    const int64_t runs = across.stride, stride = block.strides.axis[2];
    for (int64_t run = 0; run < runs; ++run, to += columns * kBlock) {
        const int64_t start = left + run;
        const int64_t first = clamp(ceil_div(-start, runs), 0, columns);
        const int64_t last = clamp(ceil_div(across.size - start, runs), first, columns);
        zero_pixels(to, first);
        copy_pixels(block, row + (start + first * runs) * stride, runs * stride, last - first, to + first * kBlock);
        zero_pixels(to + last * kBlock, columns - last);
    }
}

// Where a tile begins in the image, and how many outputs it has.
struct Box {
    int64_t first[3], extent[3];
};

FILTERCOV_INLINE Box tile_box(const Tiling& tiling, const Shape& shape, int64_t tile) {
    Box box;
    for (int axis = 2; axis >= 0; --axis) {
        box.first[axis] = tile % tiling.counts[axis] * tiling.extent[axis];
        box.extent[axis] = smaller(tiling.extent[axis], shape.axis[axis].out - box.first[axis]);
        tile /= tiling.counts[axis];
    }
    return box;
}

// How many inputs along an axis `outputs` outputs see.
FILTERCOV_INLINE int64_t inputs_seen(const Axis& axis, int64_t outputs) {
    return (outputs - 1) * axis.stride + larger(axis.kernel, 1);
}

// Copy what the outputs of a box see, leaving out planes and rows outside the image: callers never read them.
// `stride` of the shape counts here; a tensor that is copied as it is has axes with stride 1, kernel 1 and no padding.
inline void copy_tile(const Block& block, const Shape& shape, const Box& box, int64_t columns, float* to) {
    const Axis &deep = shape.axis[0], &down = shape.axis[1], &across = shape.axis[2];
    const int64_t front = box.first[0] * deep.stride - deep.pad, top = box.first[1] * down.stride - down.pad;
    const int64_t left = box.first[2] * across.stride - across.pad;
    const int64_t planes = inputs_seen(deep, box.extent[0]), rows = inputs_seen(down, box.extent[1]);
    const int64_t first_plane = clamp(-front, 0, planes), last_plane = clamp(deep.size - front, first_plane, planes);
    const int64_t first_row = clamp(-top, 0, rows), last_row = clamp(down.size - top, first_row, rows);
    const int64_t row_floats = across.stride * columns * kBlock;
    for (int64_t plane = first_plane; plane < last_plane; ++plane) {
        for (int64_t row = first_row; row < last_row; ++row) {
            const float* from =
                block.data + (front + plane) * block.strides.axis[0] + (top + row) * block.strides.axis[1];
            copy_row(block, from, across, left, columns, to + (plane * rows + row) * row_floats);
        }
    }
}

// Ask for pixels [left, left + columns) of a row while there is arithmetic to do: their stride is one the hardware does
// not foresee, and asking for many at once would only move the wait. Those to be copied later go to the L2 cache.
FILTERCOV_INLINE void prefetch_row(const Block& block, const Shape& shape, int64_t row, int64_t left, int64_t columns) {
    if (block.data == nullptr || block.strides.channel != 1 || row >= shape.axis[1].size) return;
    const int64_t stride = block.strides.axis[2];
    const float* from = block.data + row * block.strides.axis[1] + left * stride;
    for (int64_t x = left; x < smaller(left + columns, shape.axis[2].size); ++x, from += stride) {
        __builtin_prefetch(from, 0, 2);
    }
}

// Whether rows keep their width, with as much padding on the left as on the right.
FILTERCOV_INLINE bool keeps_width(const Axis& across) {
    return across.stride == 1 && across.out == across.size && across.kernel == 2 * across.pad + 1;
}

// Outputs per tile. Wide enough that the halo of kernel - 1 is cheap, small enough for the L2 cache.
constexpr int64_t kTileColumns = 64, kTileColumnsOfALine = 256;  // of images with rows; without
constexpr int64_t kTileRows = 64;
constexpr int64_t kTileFloats = 64 * 1024;

FILTERCOV_INLINE int64_t tile_columns(const Shape& shape) {
    const bool line = shape.axis[0].out == 1 && shape.axis[1].out == 1;
    return clamp(shape.axis[2].out, 1, line ? kTileColumnsOfALine : kTileColumns);
}

// Cut the outputs into tiles whose inputs, rows of `row_floats`, fit the cache: as many rows as do; then, if an image
// has depth, rows and planes in like numbers, since their halos are alike.
inline Tiling choose_tiling(const Shape& shape, int64_t row_floats) {
    const Axis &deep = shape.axis[0], &down = shape.axis[1];
    const int64_t rows_fit = kTileFloats / row_floats / larger(1, deep.out > 1 ? 1 : inputs_seen(deep, 1));
    Tiling tiling;
    tiling.extent[2] = tile_columns(shape);
    tiling.extent[0] = larger(1, deep.out);
    tiling.extent[1] = clamp((rows_fit - down.kernel) / down.stride, 8, larger(1, smaller(down.out, kTileRows)));
    if (deep.out > 1) {
        while (inputs_seen(deep, tiling.extent[0]) * inputs_seen(down, tiling.extent[1]) > rows_fit) {
            int64_t& most = tiling.extent[0] >= tiling.extent[1] ? tiling.extent[0] : tiling.extent[1];
            if (most <= 4) break;
            most = (most + 1) / 2;
        }
    }
    for (int axis = 0; axis < 3; ++axis) {
        tiling.counts[axis] = ceil_div(shape.axis[axis].out, tiling.extent[axis]);
    }
    return tiling;
}
