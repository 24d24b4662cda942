// SPDX-License-Identifier: Apache-2.0
// A stack of its own, to run a function that may be left and resumed.
#pragma once
#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <functional>
#include <memory>

namespace cuda_emulator {

/// Cost of resuming and leaving: about 15 ns. To the thread sanitizer it is a thread; switches order nothing, and who
/// makes it happened before it. Destroying one that was left in the midst of its function leaks what that owns.
class Fiber {
 public:
  static constexpr std::size_t small_stack = 64 << 10, large_stack = 256 << 10;
  explicit Fiber(std::size_t stack_bytes = small_stack);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Of one that has ended, or never began.
  void begin(std::function<void()> function);
  /// Runs it until it leaves or ends, on whatever thread. True: it has ended.
  bool resume();
  /// Inside: back to who resumed it.
  void leave();
  /// The thread sanitizer's name of it; null without.
  void* race_thread() const { return race_thread_; }

 private:
  static void run(boost::context::detail::transfer_t);
  void arrive(boost::context::detail::fcontext_t from);

  std::size_t stack_bytes_;
  std::unique_ptr<std::byte[]> stack_;
  boost::context::detail::fcontext_t inside_, outside_ = nullptr;
  std::function<void()> function_;
  bool ended_ = true;
  void *race_thread_, *outside_race_thread_ = nullptr;
  void* inside_fake_stack_ = nullptr;  ///< the address sanitizer's
  const void* outside_bottom_ = nullptr;
  std::size_t outside_bytes_ = 0;
};

}  // namespace cuda_emulator
