// SPDX-License-Identifier: Apache-2.0
#include "allreduce/coded/collective_sequence.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace gradmeter::allreduce {

CollectiveSequence::CollectiveSequence(std::string name, runtime::Queue* queue) : name_(std::move(name)) {
  if (queue) submitter_.emplace(*queue);
}

Collective& CollectiveSequence::add_part(std::unique_ptr<Collective> part) {
  return *parts_.emplace_back(std::move(part));
}

void CollectiveSequence::start(const Call& call) {
  if (is_running_) throw core::BackendError("allreduce", name_, "started before the last call was complete");
  ++own_coding_time_.calls;
  begin(call);
  steps_taken_ = 0;
  current_step_ = next_step();
  is_running_ = true;
  proceed();
}

bool CollectiveSequence::advance() {
  while (is_running_) {
    proceed();
    if (!is_running_) break;
    if (!is_part_running_ || !current_step_.part->advance()) return false;
    is_part_running_ = false;
    current_step_ = next_step();
  }
  return true;
}

/// Goes on until an inner call runs, local work is not yet done, or the collective is complete.
void CollectiveSequence::proceed() {
  while (is_running_ && !is_part_running_) {
    if (submitter_ && !submitter_->done()) return;
    if (current_step_.part) {
      current_step_.part->start(current_step_.call);
      is_part_running_ = true;
    } else if (current_step_.waits_for_local_work) {
      current_step_ = next_step();
    } else {
      is_running_ = false;
    }
  }
}

bool CollectiveSequence::holds_up_other_calls() const {
  return std::ranges::any_of(parts_, [](const auto& part) { return part->holds_up_other_calls(); });
}

std::optional<runtime::Traffic> CollectiveSequence::sent() const {
  runtime::Traffic sum;
  for (const auto& part : parts_) {
    const auto sent = part->sent();
    if (!sent) return std::nullopt;
    sum += *sent;
  }
  return sum;
}

std::optional<std::uint64_t> CollectiveSequence::bytes_required() const {
  std::uint64_t sum = 0;
  for (const auto& part : parts_) {
    const auto required = part->bytes_required();
    if (!required) return std::nullopt;
    sum += *required;
  }
  return sum;
}

std::optional<CodingTime> CollectiveSequence::coding() const {
  CodingTime sum = own_coding_time_;
  for (const auto& part : parts_) {
    if (const auto t = part->coding()) sum.add_times(*t);
  }
  return sum;
}

void TensorCalls::assign(const Call& call) {
  const TensorLayout& layout = call.tensor_layout;
  const TensorPart whole_call{.offset = 0, .count = call.count()};
  const std::span<const TensorPart> tensors = layout.tensors.empty() ? std::span(&whole_call, 1) : layout.tensors;
  whole_ = layout.difference;
  tensors_.assign(tensors.begin(), tensors.end());
  differences_.assign(whole_ ? tensors.size() : 0, {});
  calls_.assign(tensors.size(), call);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorPart& t = tensors[i];
    const std::size_t global_offset = layout.offset_in_step + t.offset;
    tensors_[i].offset = 0;
    Call& c = calls_[i];
    c.in = call.in.part(t.offset, t.count);
    c.out = call.out.part(t.offset, t.count);
    c.tensor_layout = {.offset_in_step = global_offset, .tensors = {&tensors_[i], 1}};
    c.encoding.draw.tensor = static_cast<std::uint32_t>(global_offset);
    if (c.encoding.worker_residual) c.encoding.worker_residual += t.offset;
    if (c.encoding.owner_residual) c.encoding.owner_residual += t.offset;
    if (!whole_) continue;
    differences_[i].values = whole_->values.subspan(t.offset, t.count);
    c.tensor_layout.difference = &differences_[i];
  }
}

void TensorCalls::add_squares() {
  for (const CodingDifference& d : differences_) whole_->term_squares += d.term_squares;
}

}  // namespace gradmeter::allreduce
