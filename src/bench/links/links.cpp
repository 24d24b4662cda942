// SPDX-License-Identifier: Apache-2.0
#include "bench/links/links.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <set>

#include "bench/engine/rounds.hpp"
#include "bench/links/group_search.hpp"
#include "bench/links/messages.hpp"
#include "bench/links/tournament.hpp"
#include "core/format.hpp"
#include "runtime/communicator.hpp"

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

namespace {

using core::Metric;

constexpr double usual_links_s = 20, usual_pairs_s = 2;
constexpr int fewest_for_groups = 4;

struct PlannedLink : SweepPoint {
  PlannedLink(SweepPoint planned, LinkPoint p) : SweepPoint(std::move(planned)), point(p) {}
  LinkPoint point;
};

/// The record that rank 0 has of a link: its sender's times, its receiver's count of wrong messages.
struct LinkRecord {
  core::Blocks windows, latencies;
  core::Stop stop = core::Stop::none;
  double wrong = 0;
};

void append_blocks(const core::Blocks& blocks, std::vector<double>& out) {
  out.push_back(static_cast<double>(blocks.count()));
  for (std::size_t b = 0; b < blocks.count(); ++b) {
    const auto samples = blocks.block(b);
    out.push_back(static_cast<double>(samples.size()));
    out.insert(out.end(), samples.begin(), samples.end());
  }
}

core::Blocks take_blocks(std::span<const double>& in) {
  core::Blocks out;
  const auto next = [&in] {
    const double value = in.front();
    in = in.subspan(1);
    return static_cast<std::size_t>(value);
  };
  for (std::size_t left = next(); left > 0; --left) {
    const std::size_t samples = next();
    out.add(in.first(samples));
    in = in.subspan(samples);
  }
  return out;
}

/// Returns on rank 0 the records of all links, at index sender × ranks + receiver; on other ranks nothing. Collective.
std::vector<LinkRecord> gather_links(const runtime::Communicator& c, const std::vector<OwnLink>& mine) {
  std::vector<double> numbers;
  for (const OwnLink& link : mine) {
    numbers.push_back(static_cast<double>(link.stop));
    numbers.push_back(static_cast<double>(link.wrong));
    append_blocks(link.windows, numbers);
    append_blocks(link.latencies, numbers);
  }
  const std::size_t ranks = mine.size();
  std::vector<LinkRecord> out(c.rank() == 0 ? ranks * ranks : 0);
  std::size_t rank = 0;
  const std::string bytes(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double));
  runtime::collect(c, bytes, [&](const std::string& text) {
    std::vector<double> got(text.size() / sizeof(double));
    std::memcpy(got.data(), text.data(), text.size());
    std::span<const double> in(got);
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      LinkRecord& sent = out[rank * ranks + peer];
      sent.stop = static_cast<core::Stop>(static_cast<int>(in[0]));
      out[peer * ranks + rank].wrong = in[1];
      in = in.subspan(2);
      sent.windows = take_blocks(in);
      sent.latencies = take_blocks(in);
    }
    ++rank;
  });
  return out;
}

std::uint64_t messages_at_once(const LinkPoint& p, const LinkFactors& f) {
  const bool both_ways = p.pattern != LinkPattern::one_way && p.pattern != LinkPattern::multi_pair;
  const auto pairs = p.from >= 0 ? 1U : static_cast<std::uint64_t>(p.pairs);
  return (both_ways ? 2U : 1U) * pairs * f.outstanding;
}

class LinkSweep final : public Experiment {
 public:
  LinkSweep(Session& s, const LinkOptions& o)
      : session_(s),
        communicator_(s.world()),
        options_(o),
        by_node_(s.ranks_for(communicator_.size())),
        messages_(s, communicator_, o.factors.transport,
                  *std::max_element(o.factors.sizes.begin(), o.factors.sizes.end()) * o.factors.outstanding,
                  o.factors.injection),
        generator_(s.run_seed()) {}

  std::vector<SweepPoint*> plan(const SweepRows& rows) override {
    groups_ = link_groups(options_.factors);
    const auto map = session_.map_for(communicator_.size());
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      for (const auto& p : plan_links(options_.factors, groups_[g], communicator_.size())) {
        points_.emplace_back(rows.point("links", to_factors(options_.factors, p, map), g), p);
        if (p.pattern == LinkPattern::groups && communicator_.size() < fewest_for_groups) {
          refuse(points_.back().row, core::Status::unsupported, "groups of two are compared: it needs four ranks");
        }
      }
    }
    return pointers_to(points_);
  }

  void measure(std::size_t group, SweepRows& rows) override {
    const auto [pattern, size] = groups_[group];
    rows.progress(fmt::format("{} {}", name(pattern), core::to_text(core::Bytes{size})));
    std::vector<PlannedLink*> due;
    for (auto& p : points_) {
      if (p.group == group && p.is_due()) due.push_back(&p);
    }
    if (pattern == LinkPattern::groups) return search_groups(*due.front());
    const double due_count = static_cast<double>(due.size());
    const bool links = pattern == LinkPattern::one_way || pattern == LinkPattern::both_ways;
    const double usual = links ? usual_links_s / due_count : usual_pairs_s;
    const double each = rows.time_for_point(core::Seconds{usual}).value;
    links ? measure_links(groups_[group], each * due_count, due) : measure_pairs(each, due);
  }

 private:
  void measure_links(const LinkGroup& g, double budget, const std::vector<PlannedLink*>& due) {
    LinkPassesOptions o{.pattern = g.pattern,
                        .size_bytes = g.size_bytes,
                        .outstanding = options_.factors.outstanding,
                        .pairs_at_once = options_.factors.pairs_at_once,
                        .rule = options_.rule};
    o.rule.budget = core::Seconds{budget};
    LinkPasses passes(session_, communicator_, messages_, o);
    passes.warm_up();
    passes.run();
    const auto records = gather_links(communicator_, passes.links());
    for (PlannedLink* p : due) {
      if (records.empty()) continue;  // rank 0 has the rows
      const auto ranks = static_cast<std::size_t>(communicator_.size());
      const auto from = static_cast<std::size_t>(p->point.from), to = static_cast<std::size_t>(p->point.to);
      const LinkRecord& record = records[from * ranks + to];
      const bool both_ways = g.pattern == LinkPattern::both_ways;
      const double wrong = record.wrong + (both_ways ? records[to * ranks + from].wrong : 0);
      fill(*p, record.windows, record.stop, wrong);
      auto& m = p->row.metrics;
      m[Metric::warmup_s] = passes.warmup_s();
      m[Metric::warmup_samples] = static_cast<std::int64_t>(LinkPasses::warmup_windows);
      if (p->row.status != core::Status::ok) continue;
      if (record.latencies.count() > 0) m[Metric::latency_s] = core::summarise(record.latencies);
    }
  }

  /// All ranks follow the same search, since all have the same times.
  void search_groups(PlannedLink& p) {
    double wrong = 0;
    const auto seed = static_cast<unsigned>(session_.run_seed());
    const auto found = find_slow_nodes(communicator_.size(), {}, seed, [&](std::span<const NodeGroup> groups) {
      session_.stop_if_interrupted(communicator_);
      return ring_times(p.point, groups, wrong);
    });
    std::set<std::string> hosts;
    for (const int rank : found.slow) hosts.insert(session_.host_of(rank));
    auto& m = p.row.metrics;
    m[Metric::group_tests] = static_cast<std::int64_t>(found.tests);
    m[Metric::lost_groups] = static_cast<std::int64_t>(found.disturbed_groups);
    m[Metric::slow_ranks] = fmt::format("{}", fmt::join(found.slow, ","));
    m[Metric::slow_hosts] = fmt::format("{}", fmt::join(hosts, ","));
    m[Metric::time_s] = found.usual_s;
    refuse_wrong(p, communicator_.sum(wrong));
  }

  /// The time of each group [s], which is the median time of its slowest member. Each member sends to the next one and
  /// receives from the one before, in all groups at once.
  std::vector<double> ring_times(const LinkPoint& p, std::span<const NodeGroup> groups, double& wrong) {
    constexpr std::size_t windows = 15, discarded = 2;
    std::vector<double> times(groups.size(), 0);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const NodeGroup& members = groups[g];
      const auto me = std::find(members.begin(), members.end(), communicator_.rank());
      if (me == members.end()) continue;
      const auto place = static_cast<std::size_t>(me - members.begin()), size = members.size();
      const Window w{.to = members[(place + 1) % size],
                     .from = members[(place + size - 1) % size],
                     .size_bytes = p.size_bytes,
                     .outstanding = options_.factors.outstanding};
      std::vector<double> mine;
      for (std::size_t i = 0; i < windows; ++i) {
        const double took = messages_.exchange(w, i == 0 || i + 1 == windows);
        if (i >= discarded) mine.push_back(took);
      }
      wrong += static_cast<double>(messages_.take_wrong(w.from));
      times[g] = core::median(mine);
    }
    communicator_.max(times);
    return times;
  }

  /// Measures the points of one group, which take turns.
  void measure_pairs(double budget, const std::vector<PlannedLink*>& due) {
    RoundOptions o{.rule = options_.rule};
    o.rule.budget = core::Seconds{budget};
    std::vector<Rounds> rounds;
    std::vector<double> wrong(due.size(), 0);
    rounds.reserve(due.size());
    std::vector<Turn> turns;
    for (std::size_t i = 0; i < due.size(); ++i) {
      const LinkPoint& p = due[i]->point;
      rounds.emplace_back(session_, communicator_, o,
                          [this, &p, &w = wrong[i]](std::size_t n, bool keep) { return windows(p, n, keep, w); });
      turns.emplace_back([&r = rounds[i]] { return r.round() != core::Stop::none; });
    }
    for (Rounds& r : rounds) r.warm_up();
    take_turns(generator_(), turns);
    communicator_.sum(wrong);
    for (std::size_t i = 0; i < due.size(); ++i) {
      fill(*due[i], rounds[i].blocks(), rounds[i].stop(), wrong[i]);
      due[i]->row.metrics[Metric::warmup_s] = rounds[i].warmup_s();
      due[i]->row.metrics[Metric::warmup_samples] = static_cast<std::int64_t>(rounds[i].warmup_iterations());
    }
  }

  /// The times of `n` windows [s], each on the slowest rank.
  std::vector<double> windows(const LinkPoint& p, std::size_t n, bool keep, double& wrong) {
    std::vector<double> times(n, 0);
    for (std::size_t i = 0; i < n; ++i) {
      const Window w = window_of(p);
      communicator_.barrier();
      if (w.to >= 0 || w.from >= 0) times[i] = messages_.exchange(w, !keep || i + 1 == n);
      if (w.from >= 0) wrong += static_cast<double>(messages_.take_wrong(w.from));
    }
    communicator_.max(times);
    return times;
  }

  /// This rank's part of a window; all ranks draw the same pairs.
  Window window_of(const LinkPoint& p) {
    std::vector<int> order = by_node_;
    if (p.pattern == LinkPattern::bisection_random) std::shuffle(order.begin(), order.end(), generator_);
    const auto half = order.size() / 2;
    const auto me =
        static_cast<std::size_t>(std::find(order.begin(), order.end(), communicator_.rank()) - order.begin());
    const auto pair = me % half;
    const bool is_left = me < half;
    Window w{.size_bytes = p.size_bytes, .outstanding = options_.factors.outstanding};
    if (me >= 2 * half || pair >= static_cast<std::size_t>(p.pairs)) return w;  // this rank sits out
    const int peer = order[is_left ? me + half : pair];
    const bool both_ways = p.pattern != LinkPattern::multi_pair;
    if (both_ways || is_left) w.to = peer;
    if (both_ways || !is_left) w.from = peer;
    return w;
  }

  static bool refuse_wrong(PlannedLink& p, double wrong) {
    p.row.metrics[Metric::wrong] = static_cast<std::int64_t>(wrong);
    if (wrong == 0) return false;
    refuse(p.row, core::Status::wrong,
           fmt::format("{:.0f} messages were not what was sent: the link or its driver is broken", wrong));
    return true;
  }

  void fill(PlannedLink& p, const core::Blocks& windows, core::Stop stop, double wrong) {
    auto& m = p.row.metrics;
    if (p.point.from >= 0) {
      m[Metric::from_host] = session_.host_of(p.point.from);
      m[Metric::to_host] = session_.host_of(p.point.to);
    }
    if (refuse_wrong(p, wrong)) return;
    auto summary = core::summarise(windows);
    summary.stop = stop;
    p.row.raw_times_s.assign(windows.samples().begin(), windows.samples().end());
    const auto messages = static_cast<double>(messages_at_once(p.point, options_.factors));
    m[Metric::message_rate_per_s] = messages / summary.median;
    m[Metric::link_bytes_per_s] = messages * static_cast<double>(p.point.size_bytes) / summary.median;
    m[Metric::blocks] = static_cast<std::int64_t>(windows.count());
    if (session_.ranks_per_node(communicator_.size()) > session_.cores_per_node()) m[Metric::oversubscribed] = true;
    m[Metric::time_s] = summary;
  }

  Session& session_;
  const runtime::Communicator& communicator_;
  const LinkOptions& options_;
  const std::vector<int> by_node_;  ///< ranks, node after node
  LinkMessages messages_;
  std::mt19937_64 generator_;
  std::vector<LinkGroup> groups_;
  std::vector<PlannedLink> points_;
};

}  // namespace

std::size_t count_links(const LinkFactors& f, int ranks) {
  std::size_t out = 0;
  for (const auto& g : link_groups(f)) out += plan_links(f, g, ranks).size();
  return out;
}

std::size_t run_links(Session& s, const LinkOptions& o, const FinishedRows& finished, const RowListener& l) {
  LinkSweep sweep(s, o);
  const std::size_t wrong = run_sweep(sweep, peers_of(s, s.world()), finished, l, o.time_budget);
  return s.world().broadcast_value(wrong);  // rank 0 alone has the links' rows
}

}  // namespace gradmeter::bench
