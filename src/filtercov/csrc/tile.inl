// Tiles: a rectangle of one image's channel block, copied to scratch as (row, column, 16).
//
// Channels-last rows of one block are 64 bytes in every 4 * channels, a stride that maps to few cache sets; the copy
// makes them dense, and adds the zero columns so that inner loops need no bounds.

struct Image {
    const float* data;  // first channel of the block, pixel (0, 0)
    int64_t height, width;
    int64_t channels;  // stride of a pixel
    int64_t lanes;     // channels present in this block, 1 ... 16
};

FILTERCOV_INLINE Image image_block(const float* tensor, int64_t image, int64_t height, int64_t width,
                                   int64_t channels, int64_t block) {
    const int64_t first = block * kBlock;
    return {tensor + image * height * width * channels + first, height, width, channels,
            smaller(kBlock, channels - first)};
}

FILTERCOV_INLINE void zero_pixels(float* to, int64_t count) {
    for (int64_t i = 0; i < count * kVectors; ++i) store(to + i * kLanes, Vec{});
}

// Copy columns [left, left + columns) of one row, zero outside the image.
FILTERCOV_INLINE void copy_row(const Image& image, int64_t row, int64_t left, int64_t columns, float* to) {
    const int64_t first = clamp(-left, 0, columns);
    const int64_t last = clamp(image.width - left, first, columns);
    zero_pixels(to, first);
    const int64_t stride = image.channels, lanes = image.lanes;
    const float* from = image.data + (row * image.width + left + first) * stride;
    float* pixel = to + first * kBlock;
    for (int64_t x = first; x < last; ++x, from += stride, pixel += kBlock) {
        for (int v = 0; v < kVectors; ++v) store(pixel + v * kLanes, load_first(from + v * kLanes, lanes - v * kLanes));
    }
    zero_pixels(to + last * kBlock, columns - last);
}

// Copy rows [top, top + rows), skipping those outside the image: callers never read them.
inline void copy_tile(const Image& image, int64_t top, int64_t left, int64_t rows, int64_t columns, float* to) {
    const int64_t first = clamp(-top, 0, rows);
    const int64_t last = clamp(image.height - top, first, rows);
    for (int64_t row = first; row < last; ++row) copy_row(image, top + row, left, columns, to + row * columns * kBlock);
}

// Ask for pixels [left, left + columns) of a row while there is arithmetic to do: their stride is one the hardware does
// not foresee, and asking for many at once would only move the wait. Those to be copied later go to the L2 cache.
FILTERCOV_INLINE void prefetch_input(const Image& image, int64_t row, int64_t left, int64_t columns) {
    if (image.data == nullptr || row >= image.height) return;
    const float* from = image.data + (row * image.width + left) * image.channels;
    for (int64_t x = left; x < smaller(left + columns, image.width); ++x, from += image.channels) {
        __builtin_prefetch(from, 0, 2);
    }
}

FILTERCOV_INLINE void prefetch_output(const float* pixels, int64_t count, int64_t channels) {
    for (int64_t i = 0; i < count; ++i) __builtin_prefetch(pixels + i * channels, 1);
}

// Whether rows keep their width, with as much padding on the left as on the right.
FILTERCOV_INLINE bool keeps_width(const filtercov_geometry& g) {
    return g.out_width == g.width && g.kernel_width == 2 * g.pad_left + 1;
}

// Output columns and rows per tile. Wide enough that the halo of kernel - 1 is cheap, small enough for the L2 cache.
constexpr int64_t kTileColumns = 64;
constexpr int64_t kTileRows = 64;
constexpr int64_t kTileFloats = 64 * 1024;

FILTERCOV_INLINE int64_t tile_columns(const filtercov_geometry& g) { return smaller(g.out_width, kTileColumns); }

FILTERCOV_INLINE int64_t tile_rows(const filtercov_geometry& g, int64_t row_floats) {
    return clamp(kTileFloats / row_floats - g.kernel_height, 8, larger(1, smaller(g.out_height, kTileRows)));
}
