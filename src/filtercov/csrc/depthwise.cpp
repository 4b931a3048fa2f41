// The depthwise convolution and its two gradients: check the geometry, cut the work into items, run them.
#include "fold.h"
#include "parallel.h"

namespace filtercov {
namespace {

bool valid(const filtercov_geometry& g) {
    constexpr int64_t kMostTaps = int64_t{1} << 21;  // along one axis: all of them can then be counted
    bool ok = g.batch >= 0 && g.channels >= 0;
    for (int i = 0; i < 3; ++i) {
        ok = ok && g.kernel[i] <= kMostTaps && g.size[i] >= 0 && g.out[i] >= 0 && g.kernel[i] >= 1 && g.stride[i] >= 1 && g.dilation[i] >= 1 &&
             (g.stride[i] == 1 || g.dilation[i] == 1);
    }
    return ok;
}

template <class Float>
Tensor<Float> part_of(const Tensor<Float>& whole, const int64_t (&first)[3], const int64_t (&step)[3]) {
    Tensor<Float> part = whole;
    for (int i = 0; i < 3; ++i) {
        part.data += first[i] * whole.strides.axis[i];
        part.strides.axis[i] *= step[i];
    }
    return part;
}

int64_t kernel_size(const Shape& shape) {
    return shape.axis[0].kernel * shape.axis[1].kernel * shape.axis[2].kernel;
}

// A kernel row's taps in the order of the kernels' runs: run by run, each every `stride`-th tap.
int64_t tap_in_order(const Axis& across, int64_t position) {
    for (int64_t run = 0; run < across.stride; ++run) {
        const int64_t taps = ceil_div(across.kernel - run, across.stride);
        if (position < taps) return run + position * across.stride;
        position -= taps;
    }
    return position;
}

// Which of all the filter's taps each of a part's taps is, in the kernels' order.
void order_taps(const Part (&parts)[3], const int64_t (&kernel)[3], int64_t* order) {
    for (int64_t i = 0; i < parts[0].axis.kernel; ++i) {
        for (int64_t j = 0; j < parts[1].axis.kernel; ++j) {
            for (int64_t k = 0; k < parts[2].axis.kernel; ++k) {
                const int64_t plane = parts[0].tap_first + i * parts[0].tap_step;
                const int64_t row = parts[1].tap_first + j * parts[1].tap_step;
                const int64_t column =
                    parts[2].tap_first + tap_in_order(parts[2].axis, k) * parts[2].tap_step;
                *order++ = (plane * kernel[1] + row) * kernel[2] + column;
            }
        }
    }
}

// (channels, all taps) -> (channel block, these taps, 16)
void pack_weight(const float* weight, int64_t channels, int64_t all_taps, const int64_t* order, int64_t taps,
                 int64_t block, float* packed) {
    float* to = packed + block * taps * kBlock;
    for (int64_t lane = 0; lane < kBlock; ++lane) {
        const int64_t channel = block * kBlock + lane;
        const float* from = weight + channel * all_taps;
        for (int64_t tap = 0; tap < taps; ++tap) {
            to[tap * kBlock + lane] = channel < channels ? from[order[tap]] : 0.0f;
        }
    }
}

// Whether y is worth writing past the caches, which spares fetching it first, and can be: it is too large to be still
// there when it is read (caches that threads share hold 16 to 32 MB on most machines), and its pixels are aligned.
bool can_stream(const Convolution& job) {
    constexpr int64_t kMostCached = int64_t{24} << 20;
    constexpr int64_t kLine = kBlock * static_cast<int64_t>(sizeof(float));
    const Shape& s = job.shape;
    const int64_t pixels = s.axis[0].out * s.axis[1].out * s.axis[2].out;
    const int64_t bytes = job.batch * pixels * job.channels * static_cast<int64_t>(sizeof(float));
    const filtercov_strides& y = job.y.strides;
    return bytes >= kMostCached && y.channel == 1 && job.channels % kBlock == 0 && y.image % kBlock == 0 &&
           y.axis[0] % kBlock == 0 && y.axis[1] % kBlock == 0 && y.axis[2] % kBlock == 0 &&
           reinterpret_cast<uintptr_t>(job.y.data) % kLine == 0;
}

using CountParts = int64_t (*)(const filtercov_geometry&, int);
using MakePart = Part (*)(const filtercov_geometry&, int, int64_t);

// All parts of a convolution: their jobs, where the items of each begin, and their packed filters.
int32_t convolve(const filtercov_geometry& g, CountParts count, MakePart make, Tensor<const float> x,
                 const float* weight, const float* bias, Tensor<float> y, const Kernels& kernels, int32_t threads) {
    if (threads < 1) return FILTERCOV_BAD_ARGUMENT;
    const int64_t counts[3] = {count(g, 0), count(g, 1), count(g, 2)}, parts = counts[0] * counts[1] * counts[2];
    const int64_t blocks = channel_blocks(g.channels), all_taps = g.kernel[0] * g.kernel[1] * g.kernel[2];
    if (parts == 0 || g.batch == 0 || blocks == 0) return FILTERCOV_OK;
    const Buffer<float> packed = allocate<float>(blocks * all_taps * kBlock);
    const Buffer<int64_t> order = allocate<int64_t>(all_taps), starts = allocate<int64_t>(parts + 1);
    const Buffer<Convolution> jobs = allocate<Convolution>(parts);
    if (!packed || !order || !starts || !jobs) return FILTERCOV_NO_MEMORY;

    int64_t packed_taps = 0, scratch_floats = 0;
    starts[0] = 0;
    for (int64_t i = 0; i < parts; ++i) {
        const int64_t index[3] = {i / (counts[1] * counts[2]), i / counts[2] % counts[1], i % counts[2]};
        const Part part[3] = {make(g, 0, index[0]), make(g, 1, index[1]), make(g, 2, index[2])};
        const Shape shape{{part[0].axis, part[1].axis, part[2].axis}};
        const int64_t taps = kernel_size(shape);
        const int64_t first_of_filter = (part[0].filter * counts[1] + part[1].filter) * counts[2] + part[2].filter;
        Convolution& job = jobs[i];
        job = {g.batch,
               g.channels,
               shape,
               kernels.plan_convolution(shape, y.strides.channel == 1),
               part_of(x, {part[0].source_first, part[1].source_first, part[2].source_first},
                       {part[0].source_step, part[1].source_step, part[2].source_step}),
               first_of_filter == i ? packed.get() + packed_taps * blocks * kBlock : jobs[first_of_filter].packed_weight,
               bias,
               part_of(y, {part[0].target_first, part[1].target_first, part[2].target_first},
                       {part[0].target_step, part[1].target_step, part[2].target_step}),
               false};
        job.stream = can_stream(job);
        starts[i + 1] = starts[i] + g.batch * blocks * tiles(job.plan.tiling);
        if (job.plan.scratch_floats > scratch_floats) scratch_floats = job.plan.scratch_floats;
        if (first_of_filter < i) continue;
        order_taps(part, g.kernel, order.get());
        float* to = packed.get() + packed_taps * blocks * kBlock;
        // Waking threads costs more than packing a few filters.
        const int32_t status = run_items(blocks, 0, blocks * taps < 1024 ? 1 : threads, [&](int64_t block, float*) {
            pack_weight(weight, g.channels, all_taps, order.get(), taps, block, to);
        });
        if (status != FILTERCOV_OK) return status;
        packed_taps += taps;
    }
    return run_items(starts[parts], scratch_floats, threads, [&](int64_t item, float* scratch) {
        int64_t low = 0, high = parts;  // the part whose items begin last at or before this one
        while (high - low > 1) {
            const int64_t middle = (low + high) / 2;
            (starts[middle] <= item ? low : high) = middle;
        }
        const Convolution& job = jobs[low];
        const int64_t inside = item - starts[low], per_block = tiles(job.plan.tiling);
        kernels.convolve(job, inside / per_block / blocks, inside / per_block % blocks, inside % per_block, scratch);
    });
}

}  // namespace
}  // namespace filtercov

using namespace filtercov;

int32_t filtercov_depthwise_forward(const filtercov_geometry* g, const float* x, const float* weight,
                                    const float* bias, float* y, int32_t isa, int32_t threads) {
    const Kernels* kernels = kernels_for(isa);
    if (kernels == nullptr) return FILTERCOV_BAD_ISA;
    if (!valid(*g)) return FILTERCOV_BAD_ARGUMENT;
    const filtercov_geometry rows = by_rows(*g);
    return convolve(rows, forward_parts, forward_part, {x, rows.x}, weight, bias, {y, rows.y}, *kernels, threads);
}

int32_t filtercov_depthwise_input_grad(const filtercov_geometry* g, const float* grad_y, const float* weight,
                                       float* grad_x, int32_t isa, int32_t threads) {
    const Kernels* kernels = kernels_for(isa);
    if (kernels == nullptr) return FILTERCOV_BAD_ISA;
    if (!valid(*g)) return FILTERCOV_BAD_ARGUMENT;
    const filtercov_geometry rows = by_rows(*g);
    return convolve(rows, input_grad_parts, input_grad_part, {grad_y, rows.y}, weight, nullptr, {grad_x, rows.x},
                    *kernels, threads);
}

int32_t filtercov_depthwise_weight_grad(const filtercov_geometry* geometry, const float* grad_y, const float* x,
                                        float* grad_weight, int32_t isa, int32_t threads) {
    const Kernels* kernels = kernels_for(isa);
    if (kernels == nullptr) return FILTERCOV_BAD_ISA;
    if (!valid(*geometry) || threads < 1) return FILTERCOV_BAD_ARGUMENT;
    const filtercov_geometry g = by_rows(*geometry);
    const int64_t blocks = channel_blocks(g.channels), taps = g.kernel[0] * g.kernel[1] * g.kernel[2];
    if (blocks == 0) return FILTERCOV_OK;
    const int64_t counts[3] = {forward_parts(g, 0), forward_parts(g, 1), forward_parts(g, 2)};
    const int64_t parts = counts[0] * counts[1] * counts[2];
    const Buffer<int64_t> order = allocate<int64_t>(taps), starts = allocate<int64_t>(parts + 1);
    const Buffer<Correlation> jobs = allocate<Correlation>(parts);
    if (!order || !starts || !jobs) return FILTERCOV_NO_MEMORY;

    // Pieces: (image, tile) of each part in turn. All add to the same taps.
    int64_t scratch_floats = 0;
    starts[0] = 0;
    const Part first[3] = {forward_part(g, 0, 0), forward_part(g, 1, 0), forward_part(g, 2, 0)};
    order_taps(first, g.kernel, order.get());
    for (int64_t i = 0; i < parts; ++i) {
        const Part part[3] = {forward_part(g, 0, i / (counts[1] * counts[2])),
                              forward_part(g, 1, i / counts[2] % counts[1]), forward_part(g, 2, i % counts[2])};
        const Shape shape{{part[0].axis, part[1].axis, part[2].axis}};
        jobs[i] = {g.batch,
                   g.channels,
                   shape,
                   kernels->plan_correlation(shape),
                   part_of(Tensor<const float>{grad_y, g.y},
                           {part[0].target_first, part[1].target_first, part[2].target_first},
                           {part[0].target_step, part[1].target_step, part[2].target_step}),
                   part_of(Tensor<const float>{x, g.x},
                           {part[0].source_first, part[1].source_first, part[2].source_first},
                           {part[0].source_step, part[1].source_step, part[2].source_step})};
        starts[i + 1] = starts[i] + g.batch * tiles(jobs[i].plan.tiling);
        if (jobs[i].plan.scratch_floats > scratch_floats) scratch_floats = jobs[i].plan.scratch_floats;
    }

    // Few channels leave threads idle, so the pieces are cut into slices, each with its own accumulators. The number
    // aimed at is far above common thread counts and must not depend on the actual one.
    const int64_t wanted_items = 32, pieces = starts[parts];
    const int64_t slices = smaller_of(ceil_div(wanted_items, blocks), pieces < 1 ? 1 : pieces);
    const int64_t block_floats = taps * kBlock;
    const Buffer<float> sums = allocate<float>(slices * blocks * block_floats);
    if (!sums) return FILTERCOV_NO_MEMORY;
    const int32_t status = run_items(slices * blocks, scratch_floats, threads, [&](int64_t item, float* scratch) {
        const int64_t slice = item / blocks, block = item % blocks;
        float* sum = sums.get() + item * block_floats;
        for (int64_t i = 0; i < block_floats; ++i) sum[i] = 0.0f;
        int64_t part = 0;
        for (int64_t piece = pieces * slice / slices; piece < pieces * (slice + 1) / slices; ++piece) {
            while (piece >= starts[part + 1]) ++part;
            const int64_t inside = piece - starts[part], per_image = tiles(jobs[part].plan.tiling);
            kernels->correlate(jobs[part], inside / per_image, block, inside % per_image, sum, scratch);
        }
    });
    if (status != FILTERCOV_OK) return status;
    return run_items(blocks, 0, threads, [&](int64_t block, float*) {
        for (int64_t lane = 0; lane < kBlock && block * kBlock + lane < g.channels; ++lane) {
            for (int64_t tap = 0; tap < taps; ++tap) {
                float total = 0.0f;
                for (int64_t slice = 0; slice < slices; ++slice) {
                    total += sums[(slice * blocks + block) * block_floats + tap * kBlock + lane];
                }
                grad_weight[(block * kBlock + lane) * taps + order[tap]] = total;
            }
        }
    });
}
