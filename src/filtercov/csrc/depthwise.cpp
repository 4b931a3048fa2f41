// The depthwise convolution and its two gradients: check the geometry, cut the work into items, run them.
#include "parallel.h"

namespace filtercov {
namespace {

bool valid(const filtercov_geometry& g) {
    return g.batch >= 0 && g.channels >= 0 && g.height >= 0 && g.width >= 0 && g.kernel_height >= 1 &&
           g.kernel_width >= 1 && g.out_height >= 0 && g.out_width >= 0;
}

// (channels, kernel pixels) -> (channel block, kernel pixel, 16), optionally with every filter turned by 180 degrees.
void pack_weight(const float* weight, int64_t channels, int64_t taps, bool flip, int64_t block, float* packed) {
    float* to = packed + block * taps * kBlock;
    for (int64_t lane = 0; lane < kBlock; ++lane) {
        const int64_t channel = block * kBlock + lane;
        const float* from = weight + channel * taps;
        for (int64_t tap = 0; tap < taps; ++tap) {
            to[tap * kBlock + lane] = channel < channels ? from[flip ? taps - 1 - tap : tap] : 0.0f;
        }
    }
}

// Whether y is worth writing past the caches, which spares fetching it first, and can be: it is too large to be still
// there when it is read (caches that threads share hold 16 to 32 MB on most machines), and its pixels are aligned.
bool can_stream(const filtercov_geometry& g, const float* y) {
    constexpr int64_t kMostCached = int64_t{24} << 20;
    constexpr int64_t kLine = kBlock * static_cast<int64_t>(sizeof(float));
    const int64_t bytes = g.batch * g.out_height * g.out_width * g.channels * static_cast<int64_t>(sizeof(float));
    return bytes >= kMostCached && g.channels % kBlock == 0 && reinterpret_cast<uintptr_t>(y) % kLine == 0;
}

int32_t convolve(const filtercov_geometry& g, const float* x, const float* weight, const float* bias, bool flip,
                 float* y, const Kernels& kernels, int32_t threads) {
    const int64_t blocks = channel_blocks(g.channels), taps = g.kernel_height * g.kernel_width;
    const Buffer<float> packed = allocate<float>(blocks * taps * kBlock);
    if (!packed) return FILTERCOV_NO_MEMORY;
    // Waking threads costs more than packing a few filters.
    const int32_t status = run_items(blocks, 0, blocks * taps < 1024 ? 1 : threads, [&](int64_t block, float*) {
        pack_weight(weight, g.channels, taps, flip, block, packed.get());
    });
    if (status != FILTERCOV_OK) return status;
    const Convolution job{g, kernels.plan_convolution(g), x, packed.get(), bias, y, can_stream(g, y)};
    return run_items(g.batch * blocks, job.plan.scratch_floats, threads, [&](int64_t item, float* scratch) {
        kernels.convolve(job, item / blocks, item % blocks, scratch);
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
    return convolve(*g, x, weight, bias, false, y, *kernels, threads);
}

int32_t filtercov_depthwise_input_grad(const filtercov_geometry* g, const float* grad_y, const float* weight,
                                       float* grad_x, int32_t isa, int32_t threads) {
    const Kernels* kernels = kernels_for(isa);
    if (kernels == nullptr) return FILTERCOV_BAD_ISA;
    if (!valid(*g)) return FILTERCOV_BAD_ARGUMENT;
    const filtercov_geometry mirrored{g->batch,         g->channels,
                                      g->out_height,    g->out_width,
                                      g->kernel_height, g->kernel_width,
                                      g->kernel_height - 1 - g->pad_top, g->kernel_width - 1 - g->pad_left,
                                      g->height,        g->width};
    return convolve(mirrored, grad_y, weight, nullptr, true, grad_x, *kernels, threads);
}

int32_t filtercov_depthwise_weight_grad(const filtercov_geometry* geometry, const float* grad_y, const float* x,
                                        float* grad_weight, int32_t isa, int32_t threads) {
    const Kernels* kernels = kernels_for(isa);
    if (kernels == nullptr) return FILTERCOV_BAD_ISA;
    if (!valid(*geometry)) return FILTERCOV_BAD_ARGUMENT;
    const filtercov_geometry g = *geometry;
    const int64_t blocks = channel_blocks(g.channels), taps = g.kernel_height * g.kernel_width;
    if (blocks == 0) return FILTERCOV_OK;

    // Few channels leave threads idle, so the batch is cut into slices too, each with its own accumulators. The number
    // aimed at is far above common thread counts and must not depend on the actual one.
    const int64_t wanted_items = 32;
    const int64_t most_slices = g.batch < 1 ? 1 : g.batch;
    const int64_t wanted_slices = ceil_div(wanted_items, blocks);
    const int64_t slices = wanted_slices < most_slices ? wanted_slices : most_slices;
    const int64_t block_floats = taps * kBlock;
    const Buffer<float> sums = allocate<float>(slices * blocks * block_floats);
    if (!sums) return FILTERCOV_NO_MEMORY;

    const Correlation job{g, grad_y, x};
    const int32_t status =
        run_items(slices * blocks, kernels->correlation_scratch(g), threads, [&](int64_t item, float* scratch) {
            const int64_t slice = item / blocks, block = item % blocks;
            float* sum = sums.get() + item * block_floats;
            for (int64_t i = 0; i < block_floats; ++i) sum[i] = 0.0f;
            for (int64_t n = g.batch * slice / slices; n < g.batch * (slice + 1) / slices; ++n) {
                kernels->correlate(job, n, block, sum, scratch);
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
                grad_weight[(block * kBlock + lane) * taps + tap] = total;
            }
        }
    });
}
