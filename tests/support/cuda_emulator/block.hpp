// SPDX-License-Identifier: Apache-2.0
// A block's threads, and where they meet: barriers, and operations of a warp.
#pragma once
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "support/cuda_emulator/device.hpp"
#include "support/cuda_emulator/fiber.hpp"

namespace cuda_emulator {

struct Block;
struct Warp;

struct Thread {
  Place place = {};
  Block* block = nullptr;
  Warp* warp = nullptr;
  Fiber* fiber = nullptr;
  const char* waits_at = nullptr;  ///< null: it does not wait
  unsigned line = 0;               ///< where
};

/// Lanes of one mask that meet in one operation after the other.
struct LaneMeeting {
  unsigned mask = 0, arrived = 0;
  std::size_t round = 0;
  const char* operation = nullptr;
  unsigned line = 0;
  std::array<std::array<std::uint64_t, 32>, 2> deposits = {};  ///< of this round, and of the last, which is being read
};

struct Warp {
  std::deque<LaneMeeting> meetings = {};
  std::array<Thread*, 32> lanes = {};
  unsigned gone = 0;  ///< lanes that have left or never were
};

struct Barrier {
  std::size_t arrived = 0;
  unsigned line = 0;
  std::vector<Thread*> waiting = {};
  std::size_t round = 0;
  std::array<std::uint64_t, 2> passed = {};  ///< the thread sanitizer's, of this round and the last
};

struct Block {
  std::vector<Thread> threads = {};
  std::vector<Warp> warps = {};
  Barrier barrier = {};
  std::size_t left = 0;
  std::size_t color = 0;                                            ///< of its threads' fibers
  std::map<const void*, std::unique_ptr<std::byte[]>> shared = {};  ///< by key
};

/// With its threads at their places; index: in the grid.
std::unique_ptr<Block> make_block(dim3 grid, dim3 size, unsigned index);

}  // namespace cuda_emulator
