#include "support/cuda_emulator/fiber.hpp"

namespace cuda_emulator {

using boost::context::detail::jump_fcontext, boost::context::detail::make_fcontext;

Fiber::Fiber()
    : stack_(std::make_unique_for_overwrite<std::byte[]>(stack_bytes)),
      inside_(make_fcontext(stack_.get() + stack_bytes, stack_bytes, &Fiber::run)) {}

void Fiber::run(boost::context::detail::transfer_t from) {
  auto& self = *static_cast<Fiber*>(from.data);
  self.outside_ = from.fctx;
  for (;;) {
    self.function_();
    self.ended_ = true;
    self.leave();
  }
}

void Fiber::begin(std::function<void()> function) {
  function_ = std::move(function);
  ended_ = false;
}

bool Fiber::resume() {
  inside_ = jump_fcontext(inside_, this).fctx;
  return ended_;
}

void Fiber::leave() { outside_ = jump_fcontext(outside_, nullptr).fctx; }

}  // namespace cuda_emulator
