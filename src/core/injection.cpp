// SPDX-License-Identifier: Apache-2.0
#include "core/injection.hpp"

#include <array>
#include <cmath>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "core/random.hpp"
#include "core/units.hpp"

namespace gradmeter::core {
namespace {

/// The stream of random draws for one message.
Random draws_of(std::uint64_t seed, const MessageId& m) {
  const std::uint64_t pair = std::uint64_t{m.from} << 32 | m.to;
  return {seed, random_bits(pair, m.channel, m.number)};
}

}  // namespace

int MessageFaults::Drop::losses(const MessageId& m) const {
  constexpr int most_losses = 30;
  const Random draws = draws_of(seed, m);
  int n = 0;
  while (n < most_losses && draws.uniform(static_cast<std::uint64_t>(n)) < probability) ++n;
  return n;
}

double MessageFaults::extra_s(const MessageId& m) const {
  double out = 0;
  if (drop) out += drop->timeout_s * (std::ldexp(1.0, drop->losses(m)) - 1);
  if (delay) {
    // A draw that `losses`, which may have the same seed, does not use.
    constexpr std::uint64_t draw_of_delay = 1u << 20;
    out += delay->time_s + delay->jitter_s * (2 * draws_of(delay->seed, m).uniform(draw_of_delay) - 1);
  }
  return out;
}

double MessageFaults::delivery_s(const MessageId& m, double arrival_s) const {
  const double delivery_s = arrival_s + extra_s(m);
  const bool is_on_link = cut && (static_cast<int>(m.from) == cut->rank || static_cast<int>(m.to) == cut->rank);
  return is_on_link && delivery_s >= cut->at_s && delivery_s < cut->at_s + cut->for_s ? cut->at_s + cut->for_s
                                                                                      : delivery_s;
}

namespace {

constexpr std::string_view option = "--inject";
constexpr std::uint64_t most_ranks = std::uint64_t{1} << 30;

int rank_of(const ParsedName& n) { return static_cast<int>(count_parameter(n, "rank", {0, most_ranks})); }

Injection::Slow read_slow(const ParsedName& given) {
  const auto n = with_defaults(option, "slow", "rank=0,factor=2,after=0,for=0", given);
  constexpr double longest_s = 1e9;
  Injection::Slow slow{.rank = rank_of(n),
                       .factor = number_parameter(n, "factor", {1, 1000}),
                       .after_s = number_parameter(n, "after", {0, longest_s})};
  if (const double duration_s = number_parameter(n, "for", {0, longest_s}); duration_s > 0) slow.for_s = duration_s;
  return slow;
}

/// Reads the parameters of flip or omit.
Injection::FromCall read_from_call(const ParsedName& given) {
  const auto n = with_defaults(option, given.base, "rank=0,call=0", given);
  return {.rank = rank_of(n), .call = count_parameter(n, "call", {0, UINT64_MAX})};
}

Injection::Drift read_drift(const ParsedName& given) {
  const auto n = with_defaults(option, "drift", "rank=last,ppm=20", given);
  Injection::Drift d{.rank = {}, .ppm = number_parameter(n, "ppm", {-100'000, 100'000})};
  if (n.parameters.at("rank") != "last") d.rank = rank_of(n);
  return d;
}

/// The duration as it was given, or else its default in `n`. In `n` numbers are in the form of canonical names, which
/// may have exponents; durations have none.
double seconds_of(const ParsedName& n, const char* key, const ParsedName& given) {
  const auto found = given.parameters.find(key);
  return parse_duration(found == given.parameters.end() ? n.parameters.at(key) : found->second).value;
}

/// The duration, to the nanosecond, as text that parse_duration reads; "forever" for infinity.
std::string duration_text(double seconds) {
  if (std::isinf(seconds)) return "forever";
  const double us = std::round(seconds * 1e9) / 1e3;
  if (us == 0 || us >= 1e6) return fmt::format("{}s", us / 1e6);
  return us >= 1e3 ? fmt::format("{}ms", us / 1e3) : fmt::format("{}us", us);
}

MessageFaults::Drop read_drop(const ParsedName& given) {
  const auto n = with_defaults(option, "drop", "p=0.01,seed=1,timeout=200ms", given);
  return {.probability = number_parameter(n, "p", {0, 1}),
          .timeout_s = seconds_of(n, "timeout", given),
          .seed = count_parameter(n, "seed", {0, UINT64_MAX})};
}

MessageFaults::Delay read_delay(const ParsedName& given) {
  const auto n = with_defaults(option, "delay", "time=1ms,jitter=0s,seed=1", given);
  const MessageFaults::Delay d{.time_s = seconds_of(n, "time", given),
                               .jitter_s = seconds_of(n, "jitter", given),
                               .seed = count_parameter(n, "seed", {0, UINT64_MAX})};
  if (d.jitter_s > d.time_s) throw UsageError("--inject delay: jitter is more than time, so a delay would be negative");
  return d;
}

MessageFaults::Cut read_cut(const ParsedName& given) {
  const auto n = with_defaults(option, "cut", "rank=0,at=0s,for=forever", given);
  MessageFaults::Cut c{.rank = rank_of(n), .at_s = seconds_of(n, "at", given)};
  if (n.parameters.at("for") != "forever") c.for_s = seconds_of(n, "for", given);
  return c;
}

template <class Fault, class Read>
void take(std::optional<Fault>& slot, const ParsedName& given, Read read) {
  if (slot) throw UsageError(fmt::format("--inject has {} twice: give each kind once", given.base));
  slot = read(given);
}

std::string slow_text(const Injection::Slow& s) {
  if (s.is_always()) return fmt::format("slow:factor={},rank={}", s.factor, s.rank);
  return fmt::format("slow:after={},factor={},for={},rank={}", s.after_s, s.factor, std::isinf(s.for_s) ? 0 : s.for_s,
                     s.rank);
}

void check_rank(std::string_view name, int rank, int ranks) {
  if (rank < ranks) return;
  throw UsageError(
      fmt::format("--inject {}: rank {} does not exist; the last of {} ranks is {}", name, rank, ranks, ranks - 1));
}

}  // namespace

std::string Injection::text() const {
  std::string out;
  const auto add = [&](const std::string& fault) { out += (out.empty() ? "" : ",") + fault; };
  if (slow) add(slow_text(*slow));
  if (flip) add(fmt::format("flip:call={},rank={}", flip->call, flip->rank));
  if (omit) add(fmt::format("omit:call={},rank={}", omit->call, omit->rank));
  if (drift)
    add(fmt::format("drift:ppm={},rank={}", drift->ppm, drift->rank ? fmt::format("{}", *drift->rank) : "last"));
  const auto& [drop, delay, cut] = messages;
  if (drop) {
    add(fmt::format("drop:p={},seed={},timeout={}", drop->probability, drop->seed, duration_text(drop->timeout_s)));
  }
  if (delay) {
    add(fmt::format("delay:jitter={},seed={},time={}", duration_text(delay->jitter_s), delay->seed,
                    duration_text(delay->time_s)));
  }
  if (cut) add(fmt::format("cut:at={},for={},rank={}", duration_text(cut->at_s), duration_text(cut->for_s), cut->rank));
  return out;
}

void Injection::check_ranks(int ranks) const {
  if (slow) check_rank("slow", slow->rank, ranks);
  if (flip) check_rank("flip", flip->rank, ranks);
  if (omit) check_rank("omit", omit->rank, ranks);
  if (messages.cut) check_rank("cut", messages.cut->rank, ranks);
  if (drift) check_rank("drift", drift->rank_of(ranks), ranks);
}

void Injection::check_lasting() const {
  if (!slow || slow->is_always()) return;
  throw UsageError("--inject slow: after and for are seconds of a soak (gradmeter links --soak); leave them out here");
}

Injection parse_injection(std::string_view list) {
  Injection out;
  for (const std::string& item : split_names(list)) {
    const ParsedName parsed = parse_name(item);
    if (parsed.base == "slow") {
      take(out.slow, parsed, read_slow);
    } else if (parsed.base == "flip") {
      take(out.flip, parsed, read_from_call);
    } else if (parsed.base == "omit") {
      take(out.omit, parsed, read_from_call);
    } else if (parsed.base == "drop") {
      take(out.messages.drop, parsed, read_drop);
    } else if (parsed.base == "delay") {
      take(out.messages.delay, parsed, read_delay);
    } else if (parsed.base == "cut") {
      take(out.messages.cut, parsed, read_cut);
    } else if (parsed.base == "drift") {
      take(out.drift, parsed, read_drift);
    } else {
      const std::array<std::string, 7> kinds{"cut", "delay", "drift", "drop", "flip", "omit", "slow"};
      refuse_unknown(option, parsed.base, kinds);
    }
  }
  return out;
}

}  // namespace gradmeter::core
