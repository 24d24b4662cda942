// SPDX-License-Identifier: Apache-2.0
#include "runtime/communicator.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <limits>

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
  const auto gathered = all_gather(std::span<const char>(padded));
  std::vector<std::string> out;
  for (std::size_t r = 0; r < lengths.size(); ++r) out.emplace_back(gathered.data() + r * padded.size(), lengths[r]);
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

bool same_on_all(const Communicator& c, std::optional<std::uint64_t> mine) {
  constexpr double none = -std::numeric_limits<double>::infinity();
  // Halves fit a double. The largest and the negated smallest are the same number only if all are equal.
  std::array<double, 4> most{none, none, none, none};
  if (mine) {
    const auto high = static_cast<double>(*mine >> 32), low = static_cast<double>(*mine & 0xffffffffu);
    most = {high, -high, low, -low};
  }
  c.max(most);
  const bool nobody = most[0] == none;
  return nobody || (most[0] == -most[1] && most[2] == -most[3]);
}

FirstReport first_report(const Communicator& c, const std::string& mine) {
  const bool says = !mine.empty();
  if (!c.any(says)) return {};
  FirstReport said{.text = {}, .rank = static_cast<int>(-c.max(says ? -c.rank() : -c.size())), .by_all = c.all(says)};
  said.text = c.broadcast_text(mine, said.rank);
  return said;
}

void collect(const Communicator& c, const std::string& mine, const std::function<void(const std::string&)>& take) {
  if (c.rank() > 0) {  // waits until it is asked: early texts would all lie in rank 0's memory at once
    c.member().receive(0, {});
    c.send_text(0, mine);
    return;
  }
  take(mine);
  for (int r = 1; r < c.size(); ++r) {
    c.member().send(r, {});
    take(c.receive_text(r));
  }
}

}  // namespace gradmeter::runtime
