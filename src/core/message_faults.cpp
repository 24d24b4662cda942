#include "core/message_faults.hpp"

#include <cmath>

#include "core/random.hpp"

namespace gradmeter::core {
namespace {

/// Draws of one message are those of one stream.
Random draws_of(std::uint64_t seed, const MessagePlace& m) {
  const std::uint64_t pair = std::uint64_t{m.from} << 32 | m.to;
  return {seed, random_bits(pair, m.channel, m.number)};
}

}  // namespace

int MessageFaults::Drop::losses(const MessagePlace& m) const {
  constexpr int most = 30;
  const Random draws = draws_of(seed, m);
  int n = 0;
  while (n < most && draws.uniform(static_cast<std::uint64_t>(n)) < probability) ++n;
  return n;
}

double MessageFaults::extra_s(const MessagePlace& m) const {
  double out = 0;
  if (drop) out += drop->timeout_s * (std::ldexp(1.0, drop->losses(m)) - 1);
  if (delay) {
    constexpr std::uint64_t apart = 1u << 20;  // from the draws of losses, which may have the same seed
    out += delay->time_s + delay->jitter_s * (2 * draws_of(delay->seed, m).uniform(apart) - 1);
  }
  return out;
}

double MessageFaults::handed_on_s(const MessagePlace& m, double arrival_s) const {
  const double t = arrival_s + extra_s(m);
  const bool concerned = cut && (static_cast<int>(m.from) == cut->rank || static_cast<int>(m.to) == cut->rank);
  return concerned && t >= cut->at_s && t < cut->at_s + cut->for_s ? cut->at_s + cut->for_s : t;
}

}  // namespace gradmeter::core
