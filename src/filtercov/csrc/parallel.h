// What the drivers share: dispatch, aligned memory, and a list of work items spread over threads.
#pragma once

#include <atomic>
#include <cstdlib>
#include <memory>

#include "kernels.h"

namespace filtercov {

// The table of an instruction set, or null if this machine or this build cannot run it.
const Kernels* kernels_for(int32_t isa);

struct Free {
    void operator()(void* p) const { std::free(p); }
};
template <class T> using Buffer = std::unique_ptr<T[], Free>;

// `count` uninitialised elements on a cache-line boundary, or null.
template <class T> Buffer<T> allocate(int64_t count) {
    const size_t bytes = (static_cast<size_t>(count < 1 ? 1 : count) * sizeof(T) + 63) / 64 * 64;
    return Buffer<T>(static_cast<T*>(std::aligned_alloc(64, bytes)));
}

// Call run(item, scratch) for every item; each thread has its own scratch of `scratch_floats` floats.
template <class Run> int32_t run_items(int64_t items, int64_t scratch_floats, int32_t threads, const Run& run) {
    if (threads < 1) return FILTERCOV_BAD_ARGUMENT;
    if (threads > items) threads = static_cast<int32_t>(items < 1 ? 1 : items);
    std::atomic<bool> out_of_memory{false};
#if defined(_OPENMP)
#pragma omp parallel num_threads(threads)
#endif
    {
        const Buffer<float> scratch = allocate<float>(scratch_floats);
        if (!scratch) out_of_memory = true;
#if defined(_OPENMP)
#pragma omp for schedule(static) nowait
#endif
        for (int64_t item = 0; item < items; ++item) {
            if (scratch) run(item, scratch.get());
        }
    }
    return out_of_memory ? FILTERCOV_NO_MEMORY : FILTERCOV_OK;
}

}  // namespace filtercov
