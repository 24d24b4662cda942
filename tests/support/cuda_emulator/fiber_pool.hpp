// SPDX-License-Identifier: Apache-2.0
// Fibers for a kernel's threads, used again by later kernels.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "support/cuda_emulator/fiber.hpp"
#include "support/cuda_emulator/sanitizers.hpp"

namespace cuda_emulator {

/// Under the thread sanitizer there is one for each stream: what a fiber did before must have happened before what it
/// does next, or races of the two would be hidden. Blocks of different colours use different fibers.
class FiberPool {
 public:
  Fiber* take(std::size_t color) {
    auto& idle = idle_[color];
    if (idle.empty()) idle.push_back(all_.emplace_back(std::make_unique<Fiber>()).get());
    Fiber* const f = idle.back();
    idle.pop_back();
    return f;
  }
  void give(Fiber* f, std::size_t color) { idle_[color].push_back(f); }

 private:
  std::vector<std::unique_ptr<Fiber>> all_ = {};
  std::map<std::size_t, std::vector<Fiber*>> idle_ = {};
};

}  // namespace cuda_emulator
