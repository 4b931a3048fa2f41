// The kernels for any machine: four lanes, the width of SSE2 and NEON.
#define FILTERCOV_NAMESPACE portable
#define FILTERCOV_REGISTERS 16
#include "isa.inl"
