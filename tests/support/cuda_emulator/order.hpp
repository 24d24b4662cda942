// Which of several things that may happen now happens, by seed.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cuda_emulator {

class Order {
 public:
  void set_seed(std::uint64_t seed) {
    random_ = seed != 0;
    state_ = seed * 0x9E3779B97F4A7C15u + 0x1234567;
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
  /// Shall work run now that nobody waits for?
  bool is_eager() { return random_ && below(4) < eager_quarters_; }

 private:
  bool random_ = false;
  std::uint64_t state_ = 1;
  std::size_t eager_quarters_ = 0;
};

/// Under the runtime's mutex.
extern Order order;

}  // namespace cuda_emulator
