// The kernels for AArch64, every machine of which has NEON: the portable width of four lanes, with all 32 registers.
#include "kernels.h"

#if defined(__aarch64__)
#define FILTERCOV_NAMESPACE neon
#define FILTERCOV_REGISTERS 32
#include "isa.inl"

namespace filtercov {
const Kernels* neon_kernels() { return &neon::kTable; }
}  // namespace filtercov
#else
namespace filtercov {
const Kernels* neon_kernels() { return nullptr; }
}  // namespace filtercov
#endif
