#include "allreduce/mover/pipeline.hpp"

#include <cstring>

#include "allreduce/schedule/slices.hpp"

namespace gradmeter::allreduce {
namespace {

/// An empty message is never sent; this is its view.
constexpr std::byte nothing{};

constexpr std::size_t line = 64;
constexpr std::size_t round_up_to_line(std::size_t n) { return (n + line - 1) / line * line; }

}  // namespace

void Pipeline::launch(const Plan& plan, const Call& call, const Slice& slice) {
  plan_ = &plan;
  call_ = call;
  slice_ = slice;
  width_ = core::size_of(call.element);
  round_ = 0;
  phase_ = Phase::encode;
  sends_.clear();
  left_ = 0;
  if (coded_) coded_->launch(call, slice);
  copy(plan.first_copies);
}

std::byte* Pipeline::at(Place p, const Extent& e) const {
  switch (p) {
    case Place::in:
      return const_cast<std::byte*>(call_.in) + e.offset * width_;  // only ever read
    case Place::out:
      return call_.out + e.offset * width_;
    case Place::alternate:
    case Place::wire:  // encoded blocks have no place for each element: see `message`
      break;
  }
  return scratch_.alternate.data() + e.scratch_offset * width_;
}

std::span<std::byte> Pipeline::message(Place p, Blocks blocks) const {
  if (coded_) return coded_->message(blocks);
  const Extent e = slice_.extent(blocks);
  return {at(p, e), bytes(e)};
}

bool Pipeline::fenced(std::uint32_t fence) {
  while (left_ < fence && transport_.send_done(sends_[left_])) ++left_;
  return left_ >= fence;
}

bool Pipeline::advance() {
  bool moved = false;
  while (plan_ && round_ < plan_->rounds.size()) {
    switch (phase_) {
      case Phase::encode:
        if (!encode()) return moved;
        phase_ = Phase::send;
        break;
      case Phase::send:
        post_sends();
        moved = true;
        phase_ = Phase::post;
        break;
      case Phase::post:
        if (!post_receives()) return moved;
        phase_ = Phase::receive;
        break;
      case Phase::receive: {
        const auto before = next_receive_ + next_reduction_;
        const bool complete = receive();
        moved |= next_receive_ + next_reduction_ != before;
        if (!complete) return moved;
        phase_ = Phase::finish;
        break;
      }
      case Phase::finish:
        if (!finish_round()) return moved;
        moved = true;
        phase_ = Phase::encode;
        ++round_;
        break;
    }
  }
  return plan_ ? end_slice() || moved : moved;
}

bool Pipeline::encode() {
  const std::span<const EncodeStep> steps{plan_->encodes.data() + round().encodes.first, round().encodes.count};
  for (const auto& x : steps) {
    if (!fenced(x.fence)) return false;
  }
  for (const auto& x : steps) coded_->encode(x, round().number);
  return true;
}

void Pipeline::post_sends() {
  for (std::uint32_t i = 0; i < round().sends.count; ++i) {
    const SendStep& x = plan_->sends[round().sends.first + i];
    const std::span<std::byte> data = message(x.from, x.blocks);
    sends_.push_back(data.empty() ? runtime::MessageHandle{}
                                  : transport_.send(static_cast<int>(x.peer), channel_, data));
  }
}

bool Pipeline::post_receives() {
  const std::span<const ReceiveStep> steps{plan_->receives.data() + round().receives.first, round().receives.count};
  for (const auto& x : steps) {
    if (x.direct && !transport_.zero_copy_from(static_cast<int>(x.peer)) && !fenced(x.fence)) return false;
  }
  receives_.clear();
  views_.clear();
  next_receive_ = next_reduction_ = 0;
  std::size_t landed = 0;
  for (const auto& x : steps) {
    const std::span<std::byte> place = message(x.to, x.blocks);
    if (place.empty()) {
      receives_.emplace_back();
      views_.push_back(&nothing);
      continue;
    }
    std::byte* landing = nullptr;
    if (x.direct) {
      landing = place.data();
    } else if (!transport_.zero_copy_from(static_cast<int>(x.peer))) {
      landing = scratch_.landing.data() + landed;
      landed += round_up_to_line(place.size());
    }
    receives_.push_back(transport_.receive(static_cast<int>(x.peer), channel_, {landing, place.size()}));
    views_.push_back(nullptr);
  }
  return true;
}

const std::byte* Pipeline::view(std::uint32_t i) {
  if (!views_[i]) views_[i] = transport_.try_receive(receives_[i]);
  return views_[i];
}

bool Pipeline::receive() {
  if (!receive_direct()) return false;
  while (next_reduction_ < round().reductions.count) {
    if (!reduce_one(plan_->reductions[round().reductions.first + next_reduction_])) return false;
    ++next_reduction_;
  }
  return true;
}

bool Pipeline::receive_direct() {
  for (; next_receive_ < round().receives.count; ++next_receive_) {
    const ReceiveStep& x = plan_->receives[round().receives.first + next_receive_];
    if (!x.direct) continue;
    const std::byte* from = view(next_receive_);
    if (!from || !fenced(x.fence)) return false;
    if (from == &nothing) continue;
    if (coded_) {
      coded_->accept(x, from);
    } else if (const auto to = message(x.to, x.blocks); from != to.data()) {
      std::memcpy(to.data(), from, to.size());
    }
    transport_.release(receives_[next_receive_]);
  }
  return true;
}

bool Pipeline::operands_arrived(const ReduceStep& r) {
  for (std::uint32_t i = 0; i < r.operands; ++i) {
    const std::uint32_t o = plan_->operands[r.first_operand + i];
    if (o != own_operand && !view(o)) return false;
  }
  return true;
}

bool Pipeline::reduce_one(const ReduceStep& r) {
  if (!operands_arrived(r) || !fenced(r.fence)) return false;
  const Extent e = slice_.extent(r.blocks);
  if (e.elements == 0) return true;
  sources_.clear();
  for (std::uint32_t i = 0; i < r.operands; ++i) {
    const std::uint32_t o = plan_->operands[r.first_operand + i];
    sources_.push_back(o != own_operand ? views_[o] : coded_ ? nullptr : at(r.own, e));
  }
  if (coded_) {
    coded_->reduce(r, sources_);
  } else {
    reduce(call_.element, call_.accumulates_in(), call_.op, at(r.to, e), sources_, e.elements);
  }
  for (std::uint32_t i = 0; i < r.operands; ++i) {
    const std::uint32_t o = plan_->operands[r.first_operand + i];
    if (o != own_operand) transport_.release(receives_[o]);
  }
  return true;
}

bool Pipeline::finish_round() {
  const std::span<const FinishStep> steps{plan_->finishes.data() + round().finishes.first, round().finishes.count};
  for (const auto& x : steps) {
    if (!fenced(x.fence)) return false;
  }
  for (const auto& x : steps) {
    if (coded_) {
      coded_->finish(x);
      continue;
    }
    const Extent e = slice_.extent(x.blocks);
    finish(call_.element, call_.op, at(Place::out, e), at(x.from, e), e.elements, transport_.size());
  }
  return true;
}

bool Pipeline::end_slice() {
  if (!fenced(static_cast<std::uint32_t>(sends_.size()))) return false;
  copy(plan_->copies);
  plan_ = nullptr;
  return true;
}

void Pipeline::copy(const std::vector<CopyStep>& steps) {
  for (const CopyStep& c : steps) {
    const Extent e = slice_.extent(c.blocks);
    if (e.elements > 0) std::memcpy(at(Place::out, e), at(c.from, e), bytes(e));
  }
}

Waiting Pipeline::waiting() const {
  if (!plan_) return {};
  const auto rounds = static_cast<std::uint32_t>(plan_->rounds.size());
  if (round_ == plan_->rounds.size()) return {.peer = -1, .round = rounds, .rounds = rounds};
  Waiting w{.peer = -1, .round = static_cast<std::uint32_t>(round_) + 1, .rounds = rounds};
  if (phase_ != Phase::receive) return w;
  for (std::uint32_t i = 0; i < round().receives.count; ++i) {
    if (!views_[i]) return w.peer = static_cast<int>(plan_->receives[round().receives.first + i].peer), w;
  }
  return w;
}

}  // namespace gradmeter::allreduce
