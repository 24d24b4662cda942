// Who may call MPI now: one thread at a time, in the order in which they asked (MPI_THREAD_SERIALIZED).
#pragma once
#include <atomic>
#include <cstdint>

namespace gradmeter::runtime {

/// Held around every MPI call of a session that several threads call from; nothing where only one does. Not recursive.
/// A call that waits for other ranks must not be made in a turn, since those may wait for another thread of this rank:
/// `begin` and `finish` wait between turns. Exceptions are the vendor's blocking collectives, measured as they are.
/// Cost: one locked instruction where nobody else wants it.
class MpiTurn {
 public:
  MpiTurn() : taken_(is_shared()) {
    if (!taken_) return;
    ticket_ = next_.fetch_add(1, std::memory_order_relaxed);
    if (serving_.load(std::memory_order_acquire) != ticket_) wait();
  }
  ~MpiTurn() {
    if (taken_) serving_.store(ticket_ + 1, std::memory_order_release);
  }
  MpiTurn(const MpiTurn&) = delete;
  MpiTurn& operator=(const MpiTurn&) = delete;

  /// Before a second thread calls MPI.
  static void share(bool by_several_threads) { shared_ = by_several_threads; }
  static bool is_shared() { return shared_.load(std::memory_order_relaxed); }

 private:
  void wait() const;

  // MPI is the process's, and so is the right to call it.
  static inline std::atomic<bool> shared_{false};
  alignas(64) static inline std::atomic<std::uint32_t> next_{0};
  alignas(64) static inline std::atomic<std::uint32_t> serving_{0};
  bool taken_;
  std::uint32_t ticket_ = 0;
};

}  // namespace gradmeter::runtime
