// The kernels for AArch64, every machine of which has NEON: the portable width of four lanes, with all 32 registers.
#define FILTERCOV_NAMESPACE neon
#if defined(__aarch64__)
#define FILTERCOV_REGISTERS 32
#endif
#include "isa.inl"
