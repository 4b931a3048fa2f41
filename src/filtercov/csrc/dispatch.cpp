// Which instruction sets this build holds and this machine runs.
#include "parallel.h"

using namespace filtercov;

int32_t filtercov_abi_version() { return 6; }

int32_t filtercov_has_openmp() {
#if defined(_OPENMP)
    return 1;
#else
    return 0;
#endif
}

int32_t filtercov_isa_available(int32_t isa) {
    if (isa == FILTERCOV_PORTABLE) return 1;
    if (isa == FILTERCOV_NEON) return neon_kernels() != nullptr;
#if defined(__x86_64__) || defined(__i386__)
    if (isa == FILTERCOV_AVX2) {
        return avx2_kernels() != nullptr && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    }
    if (isa == FILTERCOV_AVX512) {
        return avx512_kernels() != nullptr && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    }
#endif
    return 0;
}

namespace filtercov {

const Kernels* kernels_for(int32_t isa) {
    if (!filtercov_isa_available(isa)) return nullptr;
    switch (isa) {
        case FILTERCOV_AVX512: return avx512_kernels();
        case FILTERCOV_AVX2: return avx2_kernels();
        case FILTERCOV_NEON: return neon_kernels();
        default: return portable_kernels();
    }
}

}  // namespace filtercov
