// The kernels for AVX-512; none unless the build passes -mavx512f and its companions for this file.
#define FILTERCOV_NAMESPACE avx512
#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
#define FILTERCOV_REGISTERS 32
#endif
#include "isa.inl"
