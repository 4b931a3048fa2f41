// The kernels for AVX2 with FMA: empty unless the build passes -mavx2 -mfma for this file.
#include "kernels.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

#define FILTERCOV_NAMESPACE avx2
#define FILTERCOV_REGISTERS 16
#include "isa.inl"

namespace filtercov {
const Kernels* avx2_kernels() { return &avx2::kTable; }
}  // namespace filtercov
#else
namespace filtercov {
const Kernels* avx2_kernels() { return nullptr; }
}  // namespace filtercov
#endif
