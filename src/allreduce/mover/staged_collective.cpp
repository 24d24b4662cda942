#include "allreduce/mover/staged_collective.hpp"

namespace gradmeter::allreduce {

// A call that is given up may have copies under way to memory that goes next.
StagedCollective::~StagedCollective() {
  if (part_ == Part::idle) return;
  try {
    queue_.synchronise();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the error that ended the call has been seen
  }
}

void StagedCollective::start(const Call& call) {
  call_ = call;
  queue_.to_transport(call.in);
  copied_ = queue_.record();
  part_ = Part::leaving;
}

void StagedCollective::exchange() {
  const auto& device = queue_.device();
  Call call = call_;
  call.in = {call_.in.element(), std::span(device.transport_address(call_.in), call_.in.bytes())};
  call.out = {call_.out.element(), std::span(device.transport_address(call_.out), call_.out.bytes())};
  inner_->start(call);
  part_ = Part::exchanging;
}

bool StagedCollective::advance() {
  if (part_ == Part::leaving) {
    if (copied_ && !copied_->reached()) return false;
    exchange();
  }
  if (part_ == Part::exchanging) {
    if (!inner_->advance()) return false;
    queue_.from_transport(call_.out);
    copied_ = queue_.record();
    part_ = Part::arriving;
  }
  if (part_ == Part::arriving && copied_ && !copied_->reached()) return false;
  part_ = Part::idle;
  return true;
}

}  // namespace gradmeter::allreduce
