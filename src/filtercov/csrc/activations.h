// Which numbers are activations.
#pragma once

#include "filtercov_native.h"

namespace filtercov {

inline bool is_activation(int32_t number) { return number >= FILTERCOV_IDENTITY && number <= FILTERCOV_GELU; }

}  // namespace filtercov
