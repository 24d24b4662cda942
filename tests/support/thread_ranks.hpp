// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of this process: the in-process transport of the contract tests.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "runtime/threads/thread_group.hpp"
#include "runtime/transport/arena.hpp"
#include "runtime/transport/shared_memory_transport.hpp"

namespace gradmeter::test {

/// Memory for the cells of one group of threads.
class ThreadGroup {
 public:
  ThreadGroup(int size, int channels)
      : size_(size), channels_(channels), cells_(runtime::shared_memory_cell_count(size, channels)) {}
  std::unique_ptr<runtime::SharedMemoryTransport> transport(int rank) {
    return std::make_unique<runtime::SharedMemoryTransport>("thread", rank, size_, channels_, cells_,
                                                            std::vector<std::span<std::byte>>{});
  }
  int size() const { return size_; }

 private:
  int size_, channels_;
  std::vector<runtime::SharedMemoryCell> cells_;
};

/// Runs body(rank) on `size` threads; rethrows the first exception.
inline void run_ranks(int size, const std::function<void(int)>& body) {
  runtime::run_thread_ranks(size, [&body](const runtime::Communicator& world) { body(world.rank()); });
}

/// Memory for tests that has no peers: as big as asked.
class HeapArena final : public runtime::Arena {
 public:
  explicit HeapArena(std::size_t bytes) : storage_(bytes + 4096) {
    const auto base = (reinterpret_cast<std::uintptr_t>(storage_.data()) + 4095) / 4096 * 4096;
    memory_ = {reinterpret_cast<std::byte*>(base), bytes};
  }

 private:
  std::vector<std::byte> storage_;
};

}  // namespace gradmeter::test
