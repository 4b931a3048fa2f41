// The kernels for AVX-512: empty unless the build passes -mavx512f and its companions for this file.
#include "kernels.h"

#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
#include <immintrin.h>

#define FILTERCOV_NAMESPACE avx512
#define FILTERCOV_REGISTERS 32
#include "isa.inl"

namespace filtercov {
const Kernels* avx512_kernels() { return &avx512::kTable; }
}  // namespace filtercov
#else
namespace filtercov {
const Kernels* avx512_kernels() { return nullptr; }
}  // namespace filtercov
#endif
