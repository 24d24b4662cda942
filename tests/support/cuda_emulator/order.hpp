// Which of several things that may happen now happens, by seed.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cuda_emulator {

class Order {
 public:
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

/// Under a lock.
extern Order order;
/// By the environment: GRADMETER_CUDA_EMULATOR_SEED.
void begin_order();

}  // namespace cuda_emulator
