// SPDX-License-Identifier: Apache-2.0
// Which of several things that may happen now happens, by seed: of the emulated CUDA runtime and of the tests' own late
// queues. Seed 0: nothing happens before somebody waits for it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

namespace gradmeter::test {

class Order {
 public:
  explicit Order(std::uint64_t seed = 0) { set_seed(seed); }
  /// Ranks of one program differ: with one order they would drift alike.
  void set_seed(std::uint64_t seed) {
    random_ = seed != 0;
    state_ = (seed + (rank_ << 32)) * 0x9E3779B97F4A7C15u + 0x1234567;
    eager_quarters_ = random_ ? 2 * below(3) : 0;
  }
  bool is_random() const { return random_; }
  std::uint64_t bits() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    return state_ ^= state_ << 17;
  }
  /// In [0, n).
  std::size_t below(std::size_t n) { return static_cast<std::size_t>((bits() >> 32) * n >> 32); }
  /// Of n: the first with seed 0.
  std::size_t choose(std::size_t n) { return random_ ? below(n) : 0; }
  void set_rank(std::uint64_t rank) { rank_ = rank; }
  /// Shall work run now that nobody waits for?
  bool is_eager() { return random_ && below(4) < eager_quarters_; }

 private:
  bool random_ = false;
  std::uint64_t state_ = 1, rank_ = 0;
  std::size_t eager_quarters_ = 0;
};

/// Of one late queue.
class QueueOrder {
 public:
  /// `dropped`: of the events that the queue records, counted from 0, this one is forgotten: its waiters do not wait.
  explicit QueueOrder(std::uint64_t seed, std::optional<std::uint64_t> dropped = {})
      : order_(seed), dropped_(dropped) {}
  /// After a submission: how many of the pieces of work that wait run before anything demands them.
  std::size_t early(std::size_t waiting) { return order_.choose(4) == 1 ? order_.below(waiting + 1) : 0; }
  /// How many polls of an event are answered no, before one demands its work.
  std::size_t timeout() { return order_.choose(4); }
  /// Is the event that is being recorded forgotten?
  bool forgets_event() { return dropped_ == events_++; }
  bool drops_an_event() const { return dropped_.has_value(); }
  std::uint64_t events() const { return events_; }  ///< recorded so far

 private:
  Order order_;
  std::optional<std::uint64_t> dropped_;
  std::uint64_t events_ = 0;
};

}  // namespace gradmeter::test
