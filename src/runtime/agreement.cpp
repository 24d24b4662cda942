#include "runtime/agreement.hpp"

#include <array>
#include <limits>

namespace gradmeter::runtime {

bool same_on_all(const Communicator& c, std::optional<std::uint64_t> mine) {
  constexpr double none = -std::numeric_limits<double>::infinity();
  // Halves fit a double. The largest and the negated smallest are one number's only where all are equal.
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
  if (c.rank() > 0) {  // not before it is asked for: early texts would lie in rank 0's memory all at once
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
