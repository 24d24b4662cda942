#include "allreduce/mpi_all_reduce.hpp"

namespace gradmeter::allreduce {
namespace {

runtime::Combine combine_of(Op op) {
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

}  // namespace

void MpiAllReduce::start(const Call& call) {
  check_supported(call.element, call.op);
  call_ = call;
  running_ = true;
}

bool MpiAllReduce::advance() {
  if (!running_) return true;
  communicator_.all_reduce(call_.in, call_.out, call_.count, call_.element, combine_of(call_.op));
  finish(call_.element, call_.op, call_.out, call_.out, call_.count, communicator_.size());
  running_ = false;
  return true;
}

}  // namespace gradmeter::allreduce
