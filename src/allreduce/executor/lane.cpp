// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "allreduce/executor/executor.hpp"
#include "allreduce/schedule/slices.hpp"

namespace gradmeter::allreduce {
namespace {

/// The data of an empty message, which is never sent.
constexpr std::byte no_data{};

constexpr std::size_t cache_line = 64;
constexpr std::size_t round_up_to_line(std::size_t n) { return (n + cache_line - 1) / cache_line * cache_line; }

}  // namespace

template <class Submit>
void Lane<Submit>::launch(const Plan& plan, const Call& call, CallMemory memory, const Slice& slice) {
  plan_ = &plan;
  call_ = &call;
  memory_ = memory;
  slice_ = slice;
  width_ = core::size_of(call.element());
  round_ = 0;
  phase_ = first_phase();
  sends_.clear();
  sends_done_ = 0;
  if (coded_) {
    coded_->launch(call, memory, slice);
    if (call.op == Op::average) work_.run("divide", 2 * slice.length * width_, [this] { coded_->divide(); });
  }
  copy(plan.first_copies);
}

template <class Submit>
std::byte* Lane<Submit>::at(Place p, const Extent& e) const {
  switch (p) {
    case Place::in:
      return const_cast<std::byte*>(memory_.in) + e.offset * width_;  // only ever read
    case Place::out:
      return memory_.out + e.offset * width_;
    case Place::alternate:
    case Place::wire:  // encoded blocks have no place for each element: see `message`
      break;
  }
  return alternate_.data() + e.scratch_offset * width_;
}

template <class Submit>
std::span<std::byte> Lane<Submit>::message(Place p, Blocks blocks) const {
  if (coded_) return coded_->message(blocks);
  const Extent e = slice_.extent(blocks);
  return {at(p, e), bytes(e)};
}

template <class Submit>
bool Lane<Submit>::first_sends_done(std::uint32_t count) {
  while (sends_done_ < count && transport_.send_done(sends_[sends_done_])) ++sends_done_;
  return sends_done_ >= count;
}

template <class Submit>
bool Lane<Submit>::advance() {
  bool moved = false;
  work_.release_read_messages(transport_);
  while (plan_) {
    switch (phase_) {
      case Phase::encode:
        if (!encode()) return moved;
        phase_ = Phase::post_sends;
        break;
      case Phase::post_sends:
        if (!post_sends()) return moved;
        moved = true;
        phase_ = Phase::post_receives;
        break;
      case Phase::post_receives:
        if (!post_receives()) return moved;
        phase_ = Phase::receive;
        break;
      case Phase::receive: {
        const auto before = next_receive_ + next_reduction_;
        const bool complete = receive();
        moved |= next_receive_ + next_reduction_ != before;
        if (!complete) return moved;
        phase_ = Phase::finish_sums;
        break;
      }
      case Phase::finish_sums:
        if (!finish_sums()) return moved;
        moved = true;
        ++round_;
        phase_ = first_phase();
        break;
      case Phase::copy_rest:
        if (!copy_rest()) return moved;
        phase_ = Phase::end_slice;
        break;
      case Phase::end_slice:
        if (!end_slice()) return moved;
        moved = true;
        break;
    }
  }
  return moved;
}

template <class Submit>
bool Lane<Submit>::encode() {
  const std::span steps = round().encodes.of(plan_->encodes);
  for (const auto& x : steps) {
    if (!first_sends_done(x.sends_before_write)) return false;
  }
  for (const auto& x : steps) {
    work_.run("encode", slice_.extent(x.blocks).elements * width_,
              [this, &x, round = round().number] { coded_->encode(x, round); });
  }
  return true;
}

template <class Submit>
bool Lane<Submit>::post_sends() {
  if (!sendable()) return false;
  for (const SendStep& x : round().sends.of(plan_->sends)) {
    const std::span<std::byte> data = message(x.from, x.blocks);
    sends_.push_back(data.empty() ? runtime::MessageHandle{}
                                  : transport_.send(static_cast<int>(x.peer), channel_, data));
  }
  return true;
}

template <class Submit>
bool Lane<Submit>::sendable() {
  if (Submit::at_once) return true;
  const bool any = std::ranges::any_of(round().sends.of(plan_->sends),
                                       [this](const SendStep& x) { return slice_.extent(x.blocks).elements; });
  return !any || work_.done();
}

/// True where the message's data may be written to their place as soon as the receive is posted.
template <class Submit>
bool Lane<Submit>::may_post_receive(const ReceiveStep& x) {
  if (Submit::at_once && !x.direct) return true;
  if (transport_.zero_copy_from(static_cast<int>(x.peer))) return true;
  if (x.direct && !first_sends_done(x.sends_before_write)) return false;
  if (slice_.extent(x.blocks).elements == 0) return true;
  // In a coded plan no queued work reads the place in `wire`: the encoding there belongs to another block, or it has
  // been sent, which `sends_before_write` has waited for.
  return x.direct && !coded_ ? work_.done() : work_.received_memory_is_free();
}

template <class Submit>
bool Lane<Submit>::post_receives() {
  const std::span steps = round().receives.of(plan_->receives);
  if (!std::ranges::all_of(steps, [this](const ReceiveStep& x) { return may_post_receive(x); })) return false;
  receives_.clear();
  received_.clear();
  next_receive_ = next_reduction_ = 0;
  std::size_t landed = 0;
  for (const auto& x : steps) {
    const std::span<std::byte> place = message(x.to, x.blocks);
    if (place.empty()) {
      receives_.emplace_back();
      received_.push_back(&no_data);
      continue;
    }
    std::byte* landing = nullptr;
    if (x.direct) {
      landing = place.data();
    } else if (!transport_.zero_copy_from(static_cast<int>(x.peer))) {
      landing = landing_.data() + landed;
      landed += round_up_to_line(place.size());
    }
    receives_.push_back(transport_.receive(static_cast<int>(x.peer), channel_, {landing, place.size()}));
    received_.push_back(nullptr);
  }
  return true;
}

template <class Submit>
const std::byte* Lane<Submit>::received_data(std::uint32_t i) {
  if (!received_[i]) received_[i] = transport_.try_receive(receives_[i]);
  return received_[i];
}

template <class Submit>
bool Lane<Submit>::receive() {
  if (!receive_direct()) return false;
  while (next_reduction_ < round().reductions.count) {
    if (!reduce_one(plan_->reductions[round().reductions.first + next_reduction_])) return false;
    ++next_reduction_;
  }
  return true;
}

template <class Submit>
bool Lane<Submit>::receive_direct() {
  for (; next_receive_ < round().receives.count; ++next_receive_) {
    const ReceiveStep& x = plan_->receives[round().receives.first + next_receive_];
    if (!x.direct) continue;
    const std::byte* from = received_data(next_receive_);
    if (!from || !first_sends_done(x.sends_before_write)) return false;
    if (from == &no_data) continue;
    const std::span<std::byte> to = message(x.to, x.blocks);
    if (coded_) {
      work_.run("decode", to.size(), [this, &x, from] { coded_->accept(x, from); });
    } else if (from != to.data()) {
      work_.run("copy", 2 * to.size(), [k = work_.kernels(), to, from] { k.copy(to.data(), from, to.size()); });
    }
    work_.release(transport_, receives_[next_receive_]);
  }
  return true;
}

template <class Submit>
bool Lane<Submit>::operands_arrived(const ReduceStep& r) {
  for (std::uint32_t i = 0; i < r.operands; ++i) {
    const std::uint32_t operand = plan_->operands[r.first_operand + i];
    if (operand != own_operand && !received_data(operand)) return false;
  }
  return true;
}

template <class Submit>
bool Lane<Submit>::reduce_one(const ReduceStep& r) {
  if (!operands_arrived(r) || !first_sends_done(r.sends_before_write)) return false;
  const Extent e = slice_.extent(r.blocks);
  if (e.elements == 0) return true;
  sources_.clear();
  for (std::uint32_t i = 0; i < r.operands; ++i) {
    const std::uint32_t operand = plan_->operands[r.first_operand + i];
    sources_.push_back(operand != own_operand ? received_[operand] : coded_ ? nullptr : at(r.own_place, e));
  }
  sum(r, e);
  for (std::uint32_t i = 0; i < r.operands; ++i) {
    const std::uint32_t operand = plan_->operands[r.first_operand + i];
    if (operand != own_operand) work_.release(transport_, receives_[operand]);
  }
  return true;
}

template <class Submit>
void Lane<Submit>::sum(const ReduceStep& r, const Extent& e) {
  const auto add = [this, k = work_.kernels(), &r, to = coded_ ? nullptr : at(r.to, e),
                    n = e.elements](const auto& sources) {
    if (coded_) return coded_->reduce(r, sources);
    k.reduce(call_->element(), call_->accumulates_in(), call_->op, to, sources, n);
  };
  work_.sum((sources_.size() + 1) * bytes(e), sources_, add);
}

template <class Submit>
bool Lane<Submit>::finish_sums() {
  const std::span steps = round().finishes.of(plan_->finishes);
  for (const auto& x : steps) {
    if (!first_sends_done(x.sends_before_write)) return false;
  }
  for (const auto& x : steps) {
    const Extent e = slice_.extent(x.blocks);
    if (coded_) {
      work_.run("finish", 2 * bytes(e), [this, &x] { coded_->finish(x); });
      continue;
    }
    work_.run("finish", 2 * bytes(e),
              [this, k = work_.kernels(), to = at(Place::out, e), from = at(x.from, e), n = e.elements] {
                k.finish(call_->element(), call_->op, to, from, n, transport_.size());
              });
  }
  return true;
}

template <class Submit>
bool Lane<Submit>::copy_rest() {
  if (!first_sends_done(static_cast<std::uint32_t>(sends_.size()))) return false;
  copy(plan_->copies);
  return true;
}

template <class Submit>
bool Lane<Submit>::end_slice() {
  if (!work_.done()) return false;
  work_.release_read_messages(transport_);
  plan_ = nullptr;
  return true;
}

template <class Submit>
void Lane<Submit>::copy(const std::vector<LocalStep>& steps) {
  for (const LocalStep& c : steps) {
    const Extent e = slice_.extent(c.blocks);
    if (e.elements == 0) continue;
    work_.run("copy", 2 * bytes(e), [k = work_.kernels(), to = at(Place::out, e), from = at(c.from, e), n = bytes(e)] {
      k.copy(to, from, n);
    });
  }
}

template <class Submit>
Waiting Lane<Submit>::waiting() const {
  if (!plan_) return {};
  const auto rounds = static_cast<std::uint32_t>(plan_->rounds.size());
  if (round_ == plan_->rounds.size()) return {.peer = -1, .round = rounds, .rounds = rounds};
  Waiting w{.peer = -1, .round = static_cast<std::uint32_t>(round_) + 1, .rounds = rounds};
  if (phase_ != Phase::receive) return w;
  for (std::uint32_t i = 0; i < round().receives.count; ++i) {
    if (!received_[i]) return w.peer = static_cast<int>(plan_->receives[round().receives.first + i].peer), w;
  }
  return w;
}

template class Lane<AtOnce>;
template class Lane<Submitter>;

}  // namespace gradmeter::allreduce
