// Where a thread sleeps until a message comes by shared memory.
#pragma once
#include <atomic>
#include <cstdint>

namespace gradmeter::runtime {

/// One word of memory that several processes see. Zeroed memory is one that nobody waits at.
struct DoorbellMemory {
  std::atomic<std::uint32_t> rings{0}, armed{0};
};

/// A sleeper arms it, takes the number of rings, looks once more for what it waits for, and sleeps until there are more
/// rings. Whoever has something for it rings: without a system call unless it is armed. One sleeper, any ringers.
/// Cost: a ring is a fence, and a system call where somebody sleeps.
class Doorbell {
 public:
  explicit Doorbell(DoorbellMemory& m) : memory_(&m) {}
  void arm(bool yes);
  std::uint32_t rings() const { return memory_->rings.load(std::memory_order_seq_cst); }
  /// Until there are more rings than these, or so long [s].
  void sleep(std::uint32_t seen, double at_most);
  void ring();
  /// Whether armed or not.
  void wake();

 private:
  DoorbellMemory* memory_;
};

}  // namespace gradmeter::runtime
