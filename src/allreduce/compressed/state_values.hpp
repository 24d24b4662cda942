// What a collective with a codec keeps from call to call, as a value that can be taken out and put back.
#pragma once
#include <memory>
#include <utility>

#include "allreduce/collective.hpp"

namespace gradmeter::allreduce {

template <class T>
class StateValues final : public CodecState {
 public:
  explicit StateValues(T v) : value(std::move(v)) {}
  T value;
};

/// Leaves `from` as newly made.
template <class T>
std::unique_ptr<CodecState> take_values(T& from) {
  return std::make_unique<StateValues<T>>(std::exchange(from, T{}));
}
/// `state` must come from `take_values` of the same type.
template <class T>
void restore_values(std::unique_ptr<CodecState> state, T& to) {
  to = std::move(static_cast<StateValues<T>&>(*state).value);
}

}  // namespace gradmeter::allreduce
