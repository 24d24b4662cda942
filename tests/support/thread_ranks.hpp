// Ranks as threads of this process: the in-process transport of the contract tests.
#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/arena.hpp"
#include "runtime/backoff.hpp"
#include "runtime/shared_memory_transport.hpp"

namespace gradmeter::test {

/// Memory for the cells of one group of threads.
class ThreadGroup {
 public:
  ThreadGroup(int size, int channels)
      : size_(size), channels_(channels), cells_(runtime::shared_memory_cell_count(size, channels)) {}
  std::unique_ptr<runtime::SharedMemoryTransport> transport(int rank) {
    return std::make_unique<runtime::SharedMemoryTransport>("thread", rank, size_, channels_, cells_,
                                                            runtime::SharedMemoryMap{});
  }
  int size() const { return size_; }

 private:
  int size_, channels_;
  std::vector<runtime::SharedMemoryCell> cells_;
};

/// Runs body(rank) on `size` threads; rethrows the first exception.
inline void run_ranks(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(r);
      } catch (...) {
        errors[static_cast<std::size_t>(r)] = std::current_exception();
      }
    });
  }
  for (auto& t : threads) t.join();
  for (auto& e : errors) {
    if (e) std::rethrow_exception(e);
  }
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

/// Runs an operation's `advance` to its end.
template <class Operation>
void run_to_end(Operation& op) {
  runtime::Backoff backoff({.spins = 20, .yields = 0});
  while (!op.advance()) backoff.wait();
}

}  // namespace gradmeter::test
