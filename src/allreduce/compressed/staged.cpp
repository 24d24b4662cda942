#include "allreduce/compressed/staged.hpp"

#include "core/error.hpp"

namespace gradmeter::allreduce {

Staged::Staged(std::string name, runtime::Queue* queue) : name_(std::move(name)) {
  if (queue) work_.emplace(*queue);
}

Collective& Staged::add_part(std::unique_ptr<Collective> part) { return *parts_.emplace_back(std::move(part)); }

void Staged::start(const Call& call) {
  if (running_) throw core::BackendError("allreduce", name_, "started before the last call was complete");
  ++own_.calls;
  begin(call);
  stage_ = next();
  running_ = true;
  proceed();
}

bool Staged::advance() {
  while (running_) {
    proceed();
    if (!running_) break;
    if (!part_runs_ || !stage_.part->advance()) return false;
    part_runs_ = false;
    stage_ = next();
  }
  return true;
}

/// As far as it goes without the part that runs.
void Staged::proceed() {
  while (running_ && !part_runs_) {
    if (work_ && !work_->done()) return;
    if (stage_.part) {
      stage_.part->start(stage_.call);
      part_runs_ = true;
    } else if (stage_.comes_back) {
      stage_ = next();
    } else {
      running_ = false;
    }
  }
}

std::optional<runtime::Traffic> Staged::sent() const {
  runtime::Traffic sum;
  for (const auto& part : parts_) {
    const auto sent = part->sent();
    if (!sent) return std::nullopt;
    sum.bytes += sent->bytes;
    sum.messages += sent->messages;
    sum.bytes_between_nodes += sent->bytes_between_nodes;
  }
  return sum;
}

std::optional<std::uint64_t> Staged::bytes_due() const {
  std::uint64_t sum = 0;
  for (const auto& part : parts_) {
    const auto due = part->bytes_due();
    if (!due) return std::nullopt;
    sum += *due;
  }
  return sum;
}

std::optional<CodingTime> Staged::coding() const {
  CodingTime sum = own_;
  for (const auto& part : parts_) {
    if (const auto t = part->coding()) sum.encode_s += t->encode_s, sum.decode_s += t->decode_s;
  }
  return sum;
}

}  // namespace gradmeter::allreduce
