// SPDX-License-Identifier: Apache-2.0
#include "bench/links/links.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "analysis/links.hpp"
#include "core/format.hpp"
#include "core/units.hpp"
#include "report/cells.hpp"

namespace gradmeter::bench {

using namespace report;  // cells and columns
namespace {

using core::Factor;
using core::Metric;
using core::Point;

/// " · 4 pairs at once"; empty for multi-pair, whose points stand in one table with a column for the pairs.
std::string pairs_text(const Point& p) {
  const auto pairs = integer(p.factors[Factor::pairs]);
  if (pairs == 0 || text(p.factors[Factor::pattern]) == "multi-pair") return {};
  return fmt::format(" · {} pair{} at once", pairs, pairs == 1 ? "" : "s");
}

std::string link_heading(const Point& p) {
  const auto& f = p.factors;
  return fmt::format("{} · {} of {} at once · {} · {} ranks on {} node{}{}{}{}", text(f[Factor::pattern]),
                     report::counted(integer(f[Factor::outstanding]), "message"),
                     core::to_text(core::Bytes{static_cast<std::size_t>(integer(f[Factor::size_bytes]))}),
                     text(f[Factor::transport]), text(f[Factor::ranks]), text(f[Factor::nodes]),
                     integer(f[Factor::nodes]) == 1 ? "" : "s", pairs_text(p),
                     core::is_null(f[Factor::interconnect]) ? "" : fmt::format(" · {}", text(f[Factor::interconnect])),
                     core::is_null(f[Factor::inject]) ? "" : fmt::format(" · injected: {}", text(f[Factor::inject])));
}

/// The metric that a matrix shows, and its unit, which is one for all cells.
struct MatrixMetric {
  const char* title;
  Metric metric;
  const char* unit;
  double factor;
};
MatrixMetric bandwidth_of(const std::vector<double>& values) {
  const double middle = values.empty() ? 1 : core::median(values);
  if (middle >= 1e9) return {"bandwidth", Metric::link_bytes_per_s, "GB/s", 1e-9};
  return {"bandwidth", Metric::link_bytes_per_s, "MB/s", 1e-6};
}
MatrixMetric latency_of(const std::vector<double>& values) {
  const double middle = values.empty() ? 1 : core::median(values);
  if (middle < 1e-3) return {"latency, half a round trip of 8 bytes", Metric::latency_s, "us", 1e6};
  return {"latency, half a round trip of 8 bytes", Metric::latency_s, "ms", 1e3};
}

std::vector<double> values_of(const std::vector<const Point*>& points, Metric metric) {
  std::vector<double> out;
  for (const Point* p : points) {
    if (const double v = p->metrics.number(metric); p->status == core::Status::ok && v > 0) out.push_back(v);
  }
  return out;
}

/// A matrix over the ranks: rows are senders, columns are receivers.
class Matrix {
 public:
  explicit Matrix(const std::vector<const Point*>& points) : points_(points) {
    for (const Point* p : points) {
      const auto from = integer(p->factors[Factor::from_rank]), to = integer(p->factors[Factor::to_rank]);
      cells_[{from, to}] = p;
      hosts_[from] = text(p->metrics[Metric::from_host]);
      hosts_[to] = text(p->metrics[Metric::to_host]);
    }
  }
  std::string to_string(const MatrixMetric& shown, const std::set<std::pair<std::int64_t, std::int64_t>>& marked,
                        std::size_t width) const {
    const auto values = values_of(points_, shown.metric);
    if (values.empty()) return {};
    const auto s = core::summarise(values);
    std::string out =
        fmt::format("{} [{}]: median {}, quartiles {}–{}, extremes {}–{}\n", shown.title, shown.unit,
                    digits(s.median * shown.factor), digits(s.q1 * shown.factor), digits(s.q3 * shown.factor),
                    digits(s.min * shown.factor), digits(s.max * shown.factor));
    constexpr std::size_t cell = 9;
    std::size_t head = 10;
    for (const auto& [rank, host] : hosts_) head = std::max(head, 6 + core::display_width(host));
    if (hosts_.size() * cell + head > width) {
      return out + fmt::format("(a matrix of {} ranks needs more columns: --wide, or the page of gradmeter report)\n",
                               hosts_.size());
    }
    using enum core::Align;
    std::vector<core::Column> columns{{"from", "", left}, {"rank", "", right}};
    for (const auto& [rank, host] : hosts_) columns.push_back({fmt::format("to {}", rank), "", right});
    core::Table table(columns);
    for (const auto& [from, host] : hosts_) {
      std::vector<std::string> row{host, fmt::format("{}", from)};
      for (const auto& [to, other] : hosts_) row.push_back(cell_text(shown, marked, from, to));
      table.add_row(std::move(row));
    }
    return out + table.to_string();
  }

 private:
  std::string cell_text(const MatrixMetric& shown, const std::set<std::pair<std::int64_t, std::int64_t>>& marked,
                        std::int64_t from, std::int64_t to) const {
    const auto found = cells_.find({from, to});
    if (found == cells_.end()) return "· ";
    if (found->second->status != core::Status::ok) return fmt::format("{} ", name(found->second->status));
    return fmt::format("{}{}", digits(found->second->metrics.number(shown.metric) * shown.factor),
                       marked.contains({from, to}) ? "<" : " ");
  }

  const std::vector<const Point*>& points_;
  std::map<std::pair<std::int64_t, std::int64_t>, const Point*> cells_;
  std::map<std::int64_t, std::string> hosts_;
};

std::string findings_text(const std::vector<analysis::LinkFinding>& found) {
  if (found.empty()) return "no link and no host stands out\n";
  constexpr std::size_t most = 20;
  std::string out;
  for (std::size_t i = 0; i < std::min(most, found.size()); ++i) {
    const auto& f = found[i];
    const char* what = f.is_host()    ? f.is_latency ? "late host" : "slow host"
                       : f.asymmetric ? "asymmetric"
                       : f.is_latency ? "late link"
                                      : "slow link";
    out += fmt::format("{}  {}\n", what, f.text);
  }
  if (found.size() > most) out += fmt::format("and {} more\n", found.size() - most);
  return out;
}

std::string matrices(const std::vector<const Point*>& points, std::size_t width) {
  std::vector<Point> copies;
  for (const Point* p : points) copies.push_back(*p);
  const auto found = analysis::link_findings(copies);
  std::set<std::pair<std::int64_t, std::int64_t>> slow, late;
  for (const auto& f : found) {
    if (f.is_host()) continue;
    (f.is_latency ? late : slow).insert({f.from, f.to});
    if (f.both_ways) (f.is_latency ? late : slow).insert({f.to, f.from});
  }
  const Matrix matrix(points);
  std::string out = matrix.to_string(bandwidth_of(values_of(points, Metric::link_bytes_per_s)), slow, width);
  if (const auto latencies = values_of(points, Metric::latency_s); !latencies.empty()) {
    out += fmt::format("\n{}", matrix.to_string(latency_of(latencies), late, width));
  }
  const bool judged = text(points.front()->factors[Factor::pattern]) == "one-way";
  return judged ? fmt::format("{}\n{}", out, findings_text(found)) : out;
}

std::string rates(const std::vector<const Point*>& points, std::size_t width) {
  using enum core::Align;
  Columns<Point> c;
  c.add({"pairs", "", right}, [](const Point& p) { return text(p.factors[Factor::pairs]); });
  c.add({"window", "us", right}, [](const Point& p) { return digits(1e6 * p.metrics.number(Metric::time_s)); });
  c.add({"95 %", "us", right}, [](const Point& p) { return interval(p.metrics[Metric::time_s], 1e6); });
  c.add({"together", "GB/s", right},
        [](const Point& p) { return digits(1e-9 * p.metrics.number(Metric::link_bytes_per_s)); });
  c.add({"messages", "1000/s", right},
        [](const Point& p) { return digits(1e-3 * p.metrics.number(Metric::message_rate_per_s)); });
  auto table = c.table();
  for (const Point* p : points) table.add_row(c.cells(*p), why_not(*p));
  return table.to_string(width);
}

std::string group_findings(const std::vector<const Point*>& points) {
  std::string out;
  for (const Point* p : points) {
    if (p->status != core::Status::ok) continue;
    const auto& m = p->metrics;
    const std::string ranks = text(m[Metric::slow_ranks]);
    out += fmt::format("{} tests of groups, of which one usually takes {}; slow: {}\n", text(m[Metric::group_tests]),
                       core::to_text(core::Seconds{m.number(Metric::time_s)}),
                       ranks.empty() ? "none" : fmt::format("ranks {} on {}", ranks, text(m[Metric::slow_hosts])));
    if (const auto lost = integer(m[Metric::lost_groups]); lost > 0) {
      out += fmt::format("{} {} not traced to a rank: measure again\n", counted(lost, "slow group"),
                         lost == 1 ? "was" : "were");
    }
  }
  return out;
}

}  // namespace

std::string link_tables(std::span<const Point> points, std::size_t width) {
  const auto heading = distinguishing_headings(points, link_heading, [](const Point& p) {
    const auto& f = p.factors;
    return fmt::format("{} {} {}", text(f[Factor::from_rank]), text(f[Factor::to_rank]), text(f[Factor::pairs]));
  });
  std::string out;
  for (const auto& [name, table_points] : separate_runs(points, heading)) {
    const bool links = !core::is_null(table_points.front()->factors[Factor::from_rank]);
    const bool groups = text(table_points.front()->factors[Factor::pattern]) == "groups";
    out += fmt::format("{}\n{}\n", name,
                       links    ? matrices(table_points, width)
                       : groups ? group_findings(table_points)
                                : rates(table_points, width));
    for (const Point* p : table_points) {
      if (links && p->status != core::Status::ok) {
        out += fmt::format("{} > {}: {}\n", integer(p->factors[Factor::from_rank]),
                           integer(p->factors[Factor::to_rank]), why_not(*p));
      } else if (groups && !why_not(*p).empty()) {
        out += fmt::format("{}\n", why_not(*p));
      }
    }
  }
  return out;
}

std::string link_legend(Legend how) {
  if (how == Legend::brief) {
    return fmt::format("< slow link: over 10 % (latency: 25 %) slower than expected from its two ends\n{}",
                       whole_legend_line);
  }
  return "bandwidth  bytes of a window of messages / time until the receiver has confirmed all of them; median of "
         "blocks spread\n"
         "           over the run. both-ways and bisection count the bytes of both directions\n"
         "<          slow: its median is at least 10 % (latency: 25 %) and 5 robust deviations slower than expected,\n"
         "           and its whole 95 % interval is slower than expected. Expected is the usual time, or more where "
         "the\n"
         "           host (in a node: the rank) at an end is slow itself. A robust deviation is 1.4826 × the median\n"
         "           absolute deviation of links of the same kind (between nodes, or within one), but at least 1 %\n"
         "host       judged by the median of its links; those of a slow host are not named one by one; usual: the\n"
         "           median of the hosts' medians\n";
}

const CsvColumns& link_csv() {
  using enum Metric;
  static const CsvColumns columns = [] {
    CsvColumns c;
    c.add({Factor::pattern, Factor::from_rank, Factor::to_rank, Factor::pairs, Factor::size_bytes, Factor::outstanding,
           Factor::ranks, Factor::nodes, Factor::transport, Factor::interconnect, Factor::inject});
    c.add({from_host, to_host, link_bytes_per_s, message_rate_per_s});
    c.statistics(time_s, {"median", "ci95_low", "ci95_high", "p99", "max"});
    c.samples(time_s, "time_samples");
    c.stop(time_s);
    c.statistics(latency_s, {"median", "ci95_low", "ci95_high", "p99", "max"});
    c.add({wrong, blocks, warmup_s});
    return c;
  }();
  return columns;
}

using namespace report;  // cells and columns
namespace {

using core::Factor;
using core::Metric;
using core::Point;

std::string soak_heading(const Point& p) {
  const auto& f = p.factors;
  return fmt::format("soak · {} · {} of {} at once · {} · {} ranks on {} node{}{}", text(f[Factor::pattern]),
                     report::counted(integer(f[Factor::outstanding]), "message"),
                     core::to_text(core::Bytes{static_cast<std::size_t>(integer(f[Factor::size_bytes]))}),
                     text(f[Factor::transport]), text(f[Factor::ranks]), text(f[Factor::nodes]),
                     integer(f[Factor::nodes]) == 1 ? "" : "s",
                     core::is_null(f[Factor::inject]) ? "" : fmt::format(" · injected: {}", text(f[Factor::inject])));
}

/// A table with a line for each rank: the usual time of its windows, and its worst interval.
std::string rank_lines(const std::vector<const Point*>& points, std::size_t width) {
  std::map<std::int64_t, std::vector<const Point*>> ranks;
  for (const Point* p : points) {
    if (p->status == core::Status::ok) ranks[integer(p->factors[Factor::from_rank])].push_back(p);
  }
  using enum core::Align;
  core::Table table({{"rank", "", right},
                     {"host", "", left},
                     {"usual", "us", right},
                     {"quartiles", "us", right},
                     {"worst", "us", right},
                     {"at", "s", right},
                     {"longest", "us", right}});
  for (const auto& [rank, rank_points] : ranks) {
    std::vector<double> medians;
    const Point* worst = rank_points.front();
    double longest = 0;
    for (const Point* p : rank_points) {
      medians.push_back(p->metrics.number(Metric::time_s));
      if (medians.back() > worst->metrics.number(Metric::time_s)) worst = p;
      longest = std::max(longest, p->metrics[Metric::time_s].get<core::Summary>().max);
    }
    const auto s = core::summarise(medians);
    table.add_row({fmt::format("{}", rank), text(rank_points.front()->metrics[Metric::from_host]),
                   digits(1e6 * s.median), fmt::format("{}–{}", digits(1e6 * s.q1), digits(1e6 * s.q3)),
                   digits(1e6 * worst->metrics.number(Metric::time_s)),
                   digits(worst->metrics.number(Metric::elapsed_s)), digits(1e6 * longest)});
  }
  return table.to_string(width);
}

}  // namespace

std::string soak_tables(std::span<const Point> points, std::size_t width) {
  const auto heading = distinguishing_headings(points, soak_heading, [](const Point& p) {
    return fmt::format("{} {}", text(p.factors[Factor::from_rank]), text(p.factors[Factor::interval]));
  });
  std::string out;
  for (const auto& [name, soak_points] : separate_runs(points, heading)) {
    std::vector<Point> copies;
    for (const Point* p : soak_points) copies.push_back(*p);
    const auto found = analysis::soak_findings(copies);
    out += fmt::format("{}\n{}\n", name, rank_lines(soak_points, width));
    out += fmt::format("{} intervals over {:.1f} s\n", found.intervals, found.seconds);
    for (const auto& line : analysis::soak_sentences(found)) out += line + "\n";
    for (const Point* p : soak_points) {
      if (const auto why = why_not(*p); !why.empty()) {
        out += fmt::format("rank {} at {} s: {}\n", integer(p->factors[Factor::from_rank]),
                           digits(p->metrics.number(Metric::elapsed_s)), why);
      }
    }
  }
  return out;
}

std::string soak_legend(Legend how) {
  if (how == Legend::brief) {
    return fmt::format("usual: median of a rank's windows; worst: its slowest interval\n{}", whole_legend_line);
  }
  return "usual      for each interval the median time of the windows that the rank sent or received; of these the "
         "median\n"
         "worst      the rank's slowest interval; longest: its slowest single window\n"
         "           A disturbance takes 5 robust deviations and 10 % longer than the rank's usual time. Times count "
         "from the\n"
         "           beginning of the soak, which the file's first line has\n";
}

const CsvColumns& soak_csv() {
  using enum Metric;
  static const CsvColumns columns = [] {
    CsvColumns c;
    c.add({Factor::interval, Factor::from_rank, Factor::pattern, Factor::size_bytes, Factor::outstanding, Factor::ranks,
           Factor::nodes, Factor::transport, Factor::interconnect, Factor::inject});
    c.add({from_host, elapsed_s, link_bytes_per_s});
    c.statistics(time_s, {"median", "q1", "q3", "p99", "max"});
    c.samples(time_s, "time_samples");
    c.add({wrong});
    return c;
  }();
  return columns;
}

}  // namespace gradmeter::bench
