// SPDX-License-Identifier: Apache-2.0
// The mutex that all state of the emulator is under.
#pragma once
#include <cstdint>
#include <mutex>

#include "support/cuda_emulator/sanitizers.hpp"

namespace cuda_emulator {

/// Each call of CUDA holds one. They nest. Nothing that it covers is watched for races. At the end of the last one
/// device memory is closed.
class Lock {
 public:
  Lock();
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Unwatched unwatched_;
};

/// Other threads' calls may go on while one lives, and device memory is closed; inside any number of locks.
class Unlocked {
 public:
  Unlocked();
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  unsigned depth_;
};

/// Lets the calls go on that wait for the lock, if some do. Device memory stays as it is.
void hand_over();
/// Changes with every call of CUDA.
std::uint64_t calls_so_far();

}  // namespace cuda_emulator
