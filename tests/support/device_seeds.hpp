// Runs a test's body under several orders of a device's work.
#pragma once
#include <gtest/gtest.h>

#include <string>

#ifdef GRADMETER_CUDA_EMULATED
#include "support/cuda_emulator/emulator.hpp"
#endif

namespace gradmeter::test {

#ifdef GRADMETER_CUDA_EMULATED
/// Seed 0 runs work as late as dependencies allow, others in a random order. What the emulator reports fails the test:
/// hangs, barriers that not all threads reach, warp operations with wrong masks.
template <class Body>
void each_device_seed(Body body, unsigned seeds = 3) {
  for (unsigned seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    cuda_emulator::set_seed(seed);
    body();
    for (const std::string& report : cuda_emulator::take_reports()) ADD_FAILURE() << report;
  }
}
#else
/// A real device has its own order.
template <class Body>
void each_device_seed(Body body, unsigned = 1) {
  body();
}
#endif

}  // namespace gradmeter::test
