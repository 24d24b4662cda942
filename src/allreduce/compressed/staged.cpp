#include "allreduce/compressed/staged.hpp"

#include "core/error.hpp"

namespace gradmeter::allreduce {

Collective& Staged::add_part(std::unique_ptr<Collective> part) { return *parts_.emplace_back(std::move(part)); }

void Staged::start(const Call& call) {
  if (current_) throw core::BackendError("allreduce", name_, "started before the last call was complete");
  ++own_.calls;
  begin(call);
  const Stage first = next();
  if (first.part) first.part->start(first.call);
  current_ = first.part;
}

bool Staged::advance() {
  while (current_ && current_->advance()) {
    current_ = nullptr;
    const Stage stage = next();
    if (stage.part) stage.part->start(stage.call);
    current_ = stage.part;
  }
  return !current_;
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
