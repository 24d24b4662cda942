#include "runtime/communicator.hpp"

#include <algorithm>
#include <exception>

namespace gradmeter::runtime {

std::string_view name(RanksAs r) { return r == RanksAs::threads ? "threads" : "processes"; }

double combined(double a, double b, Combine c) {
  switch (c) {
    case Combine::min:
      return std::min(a, b);
    case Combine::max:
      return std::max(a, b);
    case Combine::product:
      return a * b;
    case Combine::sum:
      break;
  }
  return a + b;
}

bool may_free() noexcept { return std::uncaught_exceptions() == 0; }

Communicator::Communicator(std::unique_ptr<GroupMember> member) : member_(std::move(member)) {
  if (!member_) return;
  rank_ = member_->rank();
  size_ = member_->size();
}

std::string Communicator::broadcast_text(std::string text, int root) const {
  text.resize(broadcast_value(text.size(), root));
  broadcast(std::span<char>(text), root);
  return text;
}

std::vector<std::string> Communicator::all_gather_text(const std::string& mine) const {
  const auto lengths = all_gather_value(mine.size());
  std::string padded = mine;
  padded.resize(*std::max_element(lengths.begin(), lengths.end()), ' ');
  const auto all = all_gather(std::span<const char>(padded));
  std::vector<std::string> out;
  for (std::size_t r = 0; r < lengths.size(); ++r) out.emplace_back(all.data() + r * padded.size(), lengths[r]);
  return out;
}

void Communicator::send_text(int peer, const std::string& text) const {
  send_value(peer, text.size());
  member_->send(peer, std::as_bytes(std::span(text)));
}

std::string Communicator::receive_text(int peer) const {
  std::string text(receive_value<std::size_t>(peer), '\0');
  member_->receive(peer, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace gradmeter::runtime
