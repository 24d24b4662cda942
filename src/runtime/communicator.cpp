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

bool may_call_collectives() noexcept { return std::uncaught_exceptions() == 0; }

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
  // A double holds 32 bits exactly, so each value is sent as two halves. All values are equal if and only if, for both
  // halves, the largest equals the smallest (which is found as the negated largest of the negated halves).
  std::array<double, 4> maxima{none, none, none, none};
  if (mine) {
    const auto high = static_cast<double>(*mine >> 32), low = static_cast<double>(*mine & 0xffffffffu);
    maxima = {high, -high, low, -low};
  }
  c.max(maxima);
  const bool nobody = maxima[0] == none;
  return nobody || (maxima[0] == -maxima[1] && maxima[2] == -maxima[3]);
}

FirstReport first_report(const Communicator& c, const std::string& mine) {
  const bool has_text = !mine.empty();
  if (!c.any(has_text)) return {};
  FirstReport report{
      .text = {}, .rank = static_cast<int>(-c.max(has_text ? -c.rank() : -c.size())), .by_all = c.all(has_text)};
  report.text = c.broadcast_text(mine, report.rank);
  return report;
}

void collect(const Communicator& c, const std::string& mine, const std::function<void(const std::string&)>& take) {
  if (c.rank() > 0) {  // waits for rank 0's request, since texts sent early would pile up in rank 0's memory
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
