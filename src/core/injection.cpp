#include "core/injection.hpp"

#include <array>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"

namespace gradmeter::core {
namespace {

constexpr std::string_view kind = "--inject";
constexpr std::uint64_t most_ranks = std::uint64_t{1} << 30;

int rank_of(const ParsedName& n) { return static_cast<int>(count_parameter(n, "rank", {0, most_ranks})); }

Injection::Slow read_slow(const ParsedName& given) {
  const auto n = with_defaults(kind, "slow", "rank=0,factor=2,after=0,for=0", given);
  constexpr double longest_s = 1e9;
  Injection::Slow slow{.rank = rank_of(n),
                       .factor = number_parameter(n, "factor", {1, 1000}),
                       .after_s = number_parameter(n, "after", {0, longest_s})};
  if (const double lasts = number_parameter(n, "for", {0, longest_s}); lasts > 0) slow.for_s = lasts;
  return slow;
}

Injection::Flip read_flip(const ParsedName& given) {
  const auto n = with_defaults(kind, "flip", "rank=0,call=0", given);
  return {.rank = rank_of(n), .call = count_parameter(n, "call", {0, UINT64_MAX})};
}

Injection::Drop read_drop(const ParsedName& given) {
  const auto n = with_defaults(kind, "drop", "rank=0,call=0", given);
  return {.rank = rank_of(n), .call = count_parameter(n, "call", {0, UINT64_MAX})};
}

Injection::Drift read_drift(const ParsedName& given) {
  const auto n = with_defaults(kind, "drift", "rank=last,ppm=20", given);
  Injection::Drift d{.rank = {}, .ppm = number_parameter(n, "ppm", {-100'000, 100'000})};
  if (n.parameters.at("rank") != "last") d.rank = rank_of(n);
  return d;
}

template <class Fault, class Read>
void take(std::optional<Fault>& place, const ParsedName& given, Read read) {
  if (place) throw UsageError(fmt::format("--inject has {} twice: give each kind once", given.base));
  place = read(given);
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
  const auto add = [&](const std::string& one) { out += (out.empty() ? "" : ",") + one; };
  if (slow) add(slow_text(*slow));
  if (flip) add(fmt::format("flip:call={},rank={}", flip->call, flip->rank));
  if (drop) add(fmt::format("drop:call={},rank={}", drop->call, drop->rank));
  if (drift)
    add(fmt::format("drift:ppm={},rank={}", drift->ppm, drift->rank ? fmt::format("{}", *drift->rank) : "last"));
  return out;
}

void Injection::check_ranks(int ranks) const {
  if (slow) check_rank("slow", slow->rank, ranks);
  if (flip) check_rank("flip", flip->rank, ranks);
  if (drop) check_rank("drop", drop->rank, ranks);
  if (drift) check_rank("drift", drift->rank_of(ranks), ranks);
}

void Injection::check_lasting() const {
  if (!slow || slow->is_always()) return;
  throw UsageError("--inject slow: after and for are seconds of a soak (gradmeter links --soak); leave them out here");
}

Injection parse_injection(std::string_view list) {
  Injection out;
  for (const std::string& item : split_names(list)) {
    const ParsedName given = parse_name(item);
    if (given.base == "slow") {
      take(out.slow, given, read_slow);
    } else if (given.base == "flip") {
      take(out.flip, given, read_flip);
    } else if (given.base == "drop") {
      take(out.drop, given, read_drop);
    } else if (given.base == "drift") {
      take(out.drift, given, read_drift);
    } else {
      const std::array<std::string, 4> known{"drift", "drop", "flip", "slow"};
      refuse_unknown(kind, given.base, known);
    }
  }
  return out;
}

}  // namespace gradmeter::core
