// A stack of its own, to run a function that may be left and resumed.
#pragma once
#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <functional>
#include <memory>

namespace cuda_emulator {

/// Cost of resuming and leaving: about 15 ns. Destroying one that was left in the midst of its function leaks what that
/// owns.
class Fiber {
 public:
  static constexpr std::size_t stack_bytes = 64 << 10;
  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Of one that has ended, or never began.
  void begin(std::function<void()> function);
  /// Runs it until it leaves or ends. True: it has ended.
  bool resume();
  /// Inside: back to who resumed it.
  void leave();

 private:
  static void run(boost::context::detail::transfer_t);

  std::unique_ptr<std::byte[]> stack_;
  boost::context::detail::fcontext_t inside_, outside_ = nullptr;
  std::function<void()> function_;
  bool ended_ = true;
};

}  // namespace cuda_emulator
