// Which instruction sets this build holds and this machine runs, and the interface's version.
#include "parallel.h"

using namespace filtercov;

int32_t filtercov_abi_version() { return 7; }

int32_t filtercov_has_openmp() {
#if defined(_OPENMP)
    return 1;
#else
    return 0;
#endif
}

int32_t filtercov_isa_available(int32_t isa) { return kernels_for(isa) != nullptr; }

const Kernels* filtercov::kernels_for(int32_t isa) {
    if (isa == FILTERCOV_PORTABLE) return portable::kernels();
    if (isa == FILTERCOV_NEON) return neon::kernels();
#if defined(__x86_64__) || defined(__i386__)
    if (isa == FILTERCOV_AVX2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return avx2::kernels();
    }
    if (isa == FILTERCOV_AVX512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")) {
        return avx512::kernels();
    }
#endif
    return nullptr;
}
