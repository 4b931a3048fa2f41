// The depthwise convolution and its two gradients: check the geometry, cut the work into items, run them.
#include "polyphase.h"

namespace filtercov {
namespace {

int32_t check(const filtercov_geometry& g, const Kernels* kernels, int32_t threads) {
    constexpr int64_t kMostTaps = int64_t{1} << 21;  // along one axis: the product of three fits an int64_t
    if (kernels == nullptr) return FILTERCOV_BAD_ISA;
    bool ok = g.batch >= 0 && g.channels >= 0 && threads >= 1;
    for (int i = 0; i < 3; ++i) {
        ok = ok && g.size[i] >= 0 && g.out[i] >= 0 && g.kernel[i] >= 1 && g.kernel[i] <= kMostTaps &&
             g.stride[i] >= 1 && g.dilation[i] >= 1 && (g.stride[i] == 1 || g.dilation[i] == 1);
    }
    return ok ? FILTERCOV_OK : FILTERCOV_BAD_ARGUMENT;
}

// order[n] = which of the whole filter's taps the phase's n-th tap is; the taps of a row run by run, each every
// `stride`-th.
void order_taps(const Phase& phase, const int64_t (&kernel)[3], int64_t* order) {
    const auto& [deep, down, across] = phase.along;
    for (int64_t i = 0; i < deep.axis.kernel; ++i) {
        for (int64_t j = 0; j < down.axis.kernel; ++j) {
            const int64_t plane = deep.taps.first + i * deep.taps.step, row = down.taps.first + j * down.taps.step;
            for (int64_t run = 0; run < across.axis.stride; ++run) {
                for (int64_t k = run; k < across.axis.kernel; k += across.axis.stride) {
                    const int64_t column = across.taps.first + k * across.taps.step;
                    *order++ = (plane * kernel[1] + row) * kernel[2] + column;
                }
            }
        }
    }
}

// One channel block of (channels, all taps) -> (channel block, these taps, 16).
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

// Whether to write y past the caches, which spares fetching it first: y is too large to be still cached when it is read
// (caches that threads share hold 16 to 32 MB on most machines), and its pixels are aligned.
bool should_stream(const Convolution& job) {
    constexpr int64_t kMostCached = int64_t{24} << 20;
    constexpr int64_t kLine = kBlock * static_cast<int64_t>(sizeof(float));
    const Axis(&axis)[3] = job.shape.axis;
    const int64_t pixels = axis[0].out * axis[1].out * axis[2].out;
    const int64_t bytes = job.batch * pixels * job.channels * static_cast<int64_t>(sizeof(float));
    const filtercov_strides& y = job.y.strides;
    return bytes >= kMostCached && y.channel == 1 && job.channels % kBlock == 0 && y.image % kBlock == 0 &&
           y.axis[0] % kBlock == 0 && y.axis[1] % kBlock == 0 && y.axis[2] % kBlock == 0 &&
           reinterpret_cast<uintptr_t>(job.y.data) % kLine == 0;
}

// The forward pass from x to y, or the input gradient from grad_y to grad_x, as source and target.
int32_t convolve(const filtercov_geometry& geometry, bool input_grad, const float* source, const float* weight,
                 const float* bias, float* target, int32_t isa, int32_t threads) {
    const Kernels* kernels = kernels_for(isa);
    if (const int32_t status = check(geometry, kernels, threads); status != FILTERCOV_OK) return status;
    const filtercov_geometry g = by_rows(geometry);
    const Tensor<const float> x{source, input_grad ? g.y : g.x};
    const Tensor<float> y{target, input_grad ? g.x : g.y};
    const Phases phases(g, input_grad);
    const int64_t blocks = channel_blocks(g.channels), all_taps = g.kernel[0] * g.kernel[1] * g.kernel[2];
    if (g.batch == 0 || blocks == 0) return FILTERCOV_OK;
    const Buffer<float> packed = allocate<float>(blocks * all_taps * kBlock);
    const Buffer<int64_t> order = allocate<int64_t>(all_taps), starts = allocate<int64_t>(phases.count() + 1);
    const Buffer<Convolution> jobs = allocate<Convolution>(phases.count());
    if (!packed || !order || !starts || !jobs) return FILTERCOV_NO_MEMORY;

    // Each phase's job and packed filter, and in `starts` the first of its items.
    float* next_packed = packed.get();
    int64_t scratch_floats = 0;
    starts[0] = 0;
    for (int64_t i = 0; i < phases.count(); ++i) {
        const Phase phase = phases[i];
        const Shape shape = phase.shape();
        const int64_t same_filter = phases.first_of_filter(phase), taps = phase.taps();
        const float* packed_weight = same_filter < i ? jobs[same_filter].packed_weight : next_packed;
        const ConvolutionPlan plan = kernels->plan_convolution(shape, y.strides.channel == 1);
        jobs[i] = {g.batch, g.channels, shape, plan, phase.view(x, &AxisPhase::source), packed_weight, bias,
                   phase.view(y, &AxisPhase::target), false};
        jobs[i].stream = should_stream(jobs[i]);
        starts[i + 1] = starts[i] + g.batch * blocks * tiles(plan.tiling);
        if (plan.scratch_floats > scratch_floats) scratch_floats = plan.scratch_floats;
        if (same_filter < i) continue;
        order_taps(phase, g.kernel, order.get());
        // Waking threads costs more than packing a few filters.
        const int32_t status = run_items(blocks, 0, blocks * taps < 1024 ? 1 : threads, [&](int64_t block, float*) {
            pack_weight(weight, g.channels, all_taps, order.get(), taps, block, next_packed);
        });
        if (status != FILTERCOV_OK) return status;
        next_packed += taps * blocks * kBlock;
    }
    return run_items(starts[phases.count()], scratch_floats, threads, [&](int64_t item, float* scratch) {
        const int64_t* ends = starts.get() + 1;  // of each phase's items
        const int64_t phase = std::upper_bound(ends, ends + phases.count(), item) - ends;
        const Convolution& job = jobs[phase];
        const int64_t inside = item - starts[phase], per_block = tiles(job.plan.tiling);
        kernels->convolve(job, inside / per_block / blocks, inside / per_block % blocks, inside % per_block, scratch);
    });
}

}  // namespace
}  // namespace filtercov

using namespace filtercov;

int32_t filtercov_depthwise_forward(const filtercov_geometry* geometry, const float* x, const float* weight,
                                    const float* bias, float* y, int32_t isa, int32_t threads) {
    return convolve(*geometry, false, x, weight, bias, y, isa, threads);
}

int32_t filtercov_depthwise_input_grad(const filtercov_geometry* geometry, const float* grad_y, const float* weight,
                                       float* grad_x, int32_t isa, int32_t threads) {
    return convolve(*geometry, true, grad_y, weight, nullptr, grad_x, isa, threads);
}

int32_t filtercov_depthwise_weight_grad(const filtercov_geometry* geometry, const float* grad_y, const float* x,
                                        float* grad_weight, int32_t isa, int32_t threads) {
    const Kernels* kernels = kernels_for(isa);
    if (const int32_t status = check(*geometry, kernels, threads); status != FILTERCOV_OK) return status;
    const filtercov_geometry g = by_rows(*geometry);
    const Phases phases(g, false);
    const int64_t blocks = channel_blocks(g.channels), taps = g.kernel[0] * g.kernel[1] * g.kernel[2];
    if (blocks == 0) return FILTERCOV_OK;
    const Buffer<int64_t> order = allocate<int64_t>(taps), starts = allocate<int64_t>(phases.count() + 1);
    const Buffer<Correlation> jobs = allocate<Correlation>(phases.count());
    if (!order || !starts || !jobs) return FILTERCOV_NO_MEMORY;

    // Pieces: (image, tile) of each phase in turn. All phases have all taps and add to the same sums.
    int64_t scratch_floats = 0;
    starts[0] = 0;
    order_taps(phases[0], g.kernel, order.get());
    for (int64_t i = 0; i < phases.count(); ++i) {
        const Phase phase = phases[i];
        const CorrelationPlan plan = kernels->plan_correlation(phase.shape());
        const Tensor<const float> grads{grad_y, g.y}, images{x, g.x};
        jobs[i] = {g.batch, g.channels, phase.shape(), plan, phase.view(grads, &AxisPhase::target),
                   phase.view(images, &AxisPhase::source)};
        starts[i + 1] = starts[i] + g.batch * tiles(plan.tiling);
        if (plan.scratch_floats > scratch_floats) scratch_floats = plan.scratch_floats;
    }

    // Few channels leave threads idle, so the pieces are cut into slices, each with its own accumulators. The number
    // aimed at is far above common thread counts and must not depend on the actual one.
    constexpr int64_t kItems = 32;
    const int64_t pieces = starts[phases.count()];
    const int64_t slices = std::clamp<int64_t>(pieces, 1, ceil_div(kItems, blocks));
    const int64_t block_floats = taps * kBlock;
    const Buffer<float> sums = allocate<float>(slices * blocks * block_floats);
    if (!sums) return FILTERCOV_NO_MEMORY;
    const int32_t status = run_items(slices * blocks, scratch_floats, threads, [&](int64_t item, float* scratch) {
        const int64_t slice = item / blocks, block = item % blocks;
        float* sum = sums.get() + item * block_floats;
        for (int64_t i = 0; i < block_floats; ++i) sum[i] = 0.0f;
        int64_t phase = 0;
        for (int64_t piece = pieces * slice / slices; piece < pieces * (slice + 1) / slices; ++piece) {
            while (piece >= starts[phase + 1]) ++phase;
            const int64_t inside = piece - starts[phase], per_image = tiles(jobs[phase].plan.tiling);
            kernels->correlate(jobs[phase], inside / per_image, block, inside % per_image, sum, scratch);
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
