// The kernels for AVX2 with FMA; none unless the build passes -mavx2 -mfma for this file.
#define FILTERCOV_NAMESPACE avx2
#if defined(__AVX2__) && defined(__FMA__)
#define FILTERCOV_REGISTERS 16
#endif
#include "isa.inl"
