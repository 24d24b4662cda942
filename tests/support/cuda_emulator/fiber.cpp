// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_emulator/fiber.hpp"

#include <utility>

#include "support/cuda_emulator/sanitizers.hpp"

namespace cuda_emulator {

using boost::context::detail::fcontext_t, boost::context::detail::jump_fcontext, boost::context::detail::make_fcontext;

constexpr unsigned orders_nothing = 1;  // flag of __tsan_switch_to_fiber

Fiber::Fiber(std::size_t stack_bytes)
    : stack_bytes_(stack_bytes),
      stack_(std::make_unique_for_overwrite<std::byte[]>(stack_bytes)),
      inside_(make_fcontext(stack_.get() + stack_bytes, stack_bytes, &Fiber::run)),
      race_thread_(finds_races() ? __tsan_create_fiber(0) : nullptr) {}

Fiber::~Fiber() {
  if (race_thread_) __tsan_destroy_fiber(race_thread_);
}

void Fiber::arrive(fcontext_t from) {
  outside_ = from;
  if (finds_overruns()) __sanitizer_finish_switch_fiber(inside_fake_stack_, &outside_bottom_, &outside_bytes_);
}

void Fiber::run(boost::context::detail::transfer_t from) {
  auto& self = *static_cast<Fiber*>(from.data);
  self.arrive(from.fctx);
  for (;;) {
    look_away();
    self.function_();
    look_again();
    self.ended_ = true;
    self.leave();
  }
}

void Fiber::begin(std::function<void()> function) {
  function_ = std::move(function);
  ended_ = false;
}

bool Fiber::resume() {
  void* fake_stack = nullptr;
  if (finds_overruns()) __sanitizer_start_switch_fiber(&fake_stack, stack_.get(), stack_bytes_);
  if (race_thread_) {
    outside_race_thread_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(race_thread_, orders_nothing);
  }
  inside_ = jump_fcontext(inside_, this).fctx;
  if (finds_overruns()) __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
  return ended_;
}

void Fiber::leave() {
  if (finds_overruns()) __sanitizer_start_switch_fiber(&inside_fake_stack_, outside_bottom_, outside_bytes_);
  if (race_thread_) __tsan_switch_to_fiber(outside_race_thread_, orders_nothing);
  arrive(jump_fcontext(outside_, nullptr).fctx);
}

}  // namespace cuda_emulator
