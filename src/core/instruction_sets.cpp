// SPDX-License-Identifier: Apache-2.0
#include "core/instruction_sets.hpp"

#include <hwy/targets.h>

namespace gradmeter::core {

void limit_instruction_sets(std::string_view limit) {
  // Highway's numbers of better sets are lower bits.
  if (limit.starts_with("AVX2")) hwy::DisableTargets(HWY_AVX2 - 1);
  if (limit == "AVX" || limit == "SSE41") hwy::DisableTargets(HWY_SSE4 - 1);
}

}  // namespace gradmeter::core
