// A (rows, channels) matrix cut into ranges of rows: the items of everything that works on matrices.
#pragma once

#include "parallel.h"

namespace filtercov {

// Rows per range: about 64 KiB of input for the cache's sake, and few enough that float32 sums over them stay exact to
// a few units in the last place. Ranges are then added in double.
inline int64_t rows_per_range(int64_t channels) {
    const int64_t rows = 16 * 1024 / (channels < 1 ? 1 : channels);
    return rows < 16 ? 16 : rows > 128 ? 128 : rows;
}

struct Ranges {
    int64_t rows, size;

    Ranges(int64_t rows, int64_t channels) : rows(rows), size(rows_per_range(channels)) {}
    int64_t count() const { return ceil_div(rows, size); }
    RowRange operator[](int64_t i) const { return {i * size, (i + 1) * size < rows ? (i + 1) * size : rows}; }
};

// totals[c] = sum over ranges of parts[range][c], in double: the parts are few, their rounding should not matter. Null if
// there is no memory.
inline Buffer<double> totals(const float* parts, int64_t ranges, int64_t channels) {
    Buffer<double> sums = allocate<double>(channels);
    if (!sums) return sums;
    for (int64_t c = 0; c < channels; ++c) sums[c] = 0.0;
    for (int64_t i = 0; i < ranges; ++i) {
        const float* part = parts + i * channels;
        for (int64_t c = 0; c < channels; ++c) sums[c] += static_cast<double>(part[c]);
    }
    return sums;
}

inline bool valid(int64_t rows, int64_t channels, int32_t threads) { return rows >= 0 && channels >= 0 && threads >= 1; }

// Call run(kernels, range) for every range of a matrix of at least `least_channels` channels.
template <class Run>
int32_t run_rows(int64_t rows, int64_t channels, int64_t least_channels, int32_t isa, int32_t threads, const Run& run) {
    const Kernels* kernels = kernels_for(isa);
    if (kernels == nullptr) return FILTERCOV_BAD_ISA;
    if (!valid(rows, channels, threads) || channels < least_channels) return FILTERCOV_BAD_ARGUMENT;
    const Ranges ranges(rows, channels);
    return run_items(ranges.count(), 0, threads, [&](int64_t i, float*) { run(*kernels, ranges[i]); });
}

}  // namespace filtercov
