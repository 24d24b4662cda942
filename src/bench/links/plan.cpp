#include "bench/links/plan.hpp"

#include <algorithm>
#include <array>

namespace gradmeter::bench {
namespace {

struct PatternRow {
  LinkPattern pattern;
  std::string_view name;
};
constexpr std::array pattern_table{PatternRow{LinkPattern::one_way, "one-way"},
                                   PatternRow{LinkPattern::both_ways, "both-ways"},
                                   PatternRow{LinkPattern::multi_pair, "multi-pair"},
                                   PatternRow{LinkPattern::bisection, "bisection"},
                                   PatternRow{LinkPattern::bisection_random, "bisection-random"},
                                   PatternRow{LinkPattern::groups, "groups"}};

}  // namespace

std::string_view name(LinkPattern p) { return pattern_table[static_cast<std::size_t>(p)].name; }

std::vector<LinkPattern> link_patterns() {
  std::vector<LinkPattern> out;
  for (const auto& row : pattern_table) out.push_back(row.pattern);
  return out;
}

std::vector<LinkGroup> link_groups(const LinkFactors& f) {
  std::vector<LinkGroup> out;
  for (const auto pattern : f.patterns) {
    for (const auto size : f.sizes) out.push_back({pattern, size});
  }
  return out;
}

std::vector<LinkPoint> plan_links(const LinkFactors& f, const LinkGroup& g, int ranks) {
  std::vector<LinkPoint> out;
  LinkPoint p{.pattern = g.pattern, .size_bytes = g.size_bytes, .pairs = ranks / 2};
  if (g.pattern == LinkPattern::one_way || g.pattern == LinkPattern::both_ways) {
    if (f.pairs_at_once > 0) p.pairs = std::min(p.pairs, f.pairs_at_once);
    for (p.from = 0; p.from < ranks; ++p.from) {
      for (p.to = 0; p.to < ranks; ++p.to) {
        const bool twice = g.pattern == LinkPattern::both_ways && p.to < p.from;
        if (p.to != p.from && !twice) out.push_back(p);
      }
    }
  } else if (g.pattern == LinkPattern::multi_pair) {
    for (p.pairs = 1; p.pairs < ranks / 2; p.pairs *= 2) out.push_back(p);
    p.pairs = ranks / 2;
    out.push_back(p);
  } else {
    if (g.pattern == LinkPattern::groups) p.pairs = 0;
    out.push_back(p);
  }
  return out;
}

core::Factors to_factors(const LinkFactors& f, const LinkPoint& p, const NodeMap& map) {
  using core::Factor;
  core::Factors out;
  fill_ranks(map, out);
  if (!f.interconnect.empty()) out[Factor::interconnect] = f.interconnect;
  out[Factor::transport] = std::string(runtime::name(f.transport));
  out[Factor::size_bytes] = static_cast<std::int64_t>(p.size_bytes);
  if (f.injection.any()) out[Factor::inject] = f.injection.text();
  out[Factor::pattern] = std::string(name(p.pattern));
  if (p.from >= 0) {
    out[Factor::from_rank] = std::int64_t{p.from};
    out[Factor::to_rank] = std::int64_t{p.to};
  }
  out[Factor::outstanding] = static_cast<std::int64_t>(f.outstanding);
  if (p.pairs > 0) out[Factor::pairs] = std::int64_t{p.pairs};
  return out;
}

}  // namespace gradmeter::bench
