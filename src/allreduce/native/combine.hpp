// A reduction's operator as libraries have it.
#pragma once
#include "allreduce/reduce.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::allreduce {

/// `average` is a sum.
inline runtime::Combine combine_of(Op op) {
  switch (op) {
    case Op::min:
      return runtime::Combine::min;
    case Op::max:
      return runtime::Combine::max;
    case Op::product:
      return runtime::Combine::product;
    case Op::sum:
    case Op::average:
      break;
  }
  return runtime::Combine::sum;
}

}  // namespace gradmeter::allreduce
