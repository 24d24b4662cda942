// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_emulator/order.hpp"

#include <cstdlib>

namespace cuda_emulator {

gradmeter::test::Order order;

namespace {

std::uint64_t number_of(const char* variable) {
  const char* const text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : 0;
}

}  // namespace

void begin_order() {
  order.set_rank(number_of("OMPI_COMM_WORLD_RANK"));
  order.set_seed(number_of("GRADMETER_CUDA_EMULATOR_SEED"));
}

}  // namespace cuda_emulator
