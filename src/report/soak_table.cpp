#include <map>

#include "analysis/soak.hpp"
#include "core/format.hpp"
#include "core/units.hpp"
#include "report/cells.hpp"
#include "report/tables.hpp"

namespace gradmeter::report {
namespace {

using core::Factor;
using core::Metric;
using core::Point;

std::string soak_heading(const Point& p) {
  const auto& f = p.factors;
  return fmt::format("soak · {} · {} messages of {} at once · {} · {} ranks on {} node{}{}", text(f[Factor::pattern]),
                     text(f[Factor::outstanding]),
                     core::to_text(core::Bytes{static_cast<std::size_t>(integer(f[Factor::size_bytes]))}),
                     text(f[Factor::transport]), text(f[Factor::ranks]), text(f[Factor::nodes]),
                     integer(f[Factor::nodes]) == 1 ? "" : "s",
                     core::is_null(f[Factor::inject]) ? "" : fmt::format(" · injected: {}", text(f[Factor::inject])));
}

/// A line a rank: its usual window, and its worst interval.
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
  for (const auto& [rank, of] : ranks) {
    std::vector<double> medians;
    const Point* worst = of.front();
    double longest = 0;
    for (const Point* p : of) {
      medians.push_back(p->metrics.number(Metric::time_s));
      if (medians.back() > worst->metrics.number(Metric::time_s)) worst = p;
      longest = std::max(longest, p->metrics[Metric::time_s].get<core::Summary>().max);
    }
    const auto s = core::summarise(medians);
    table.add_row({fmt::format("{}", rank), text(of.front()->metrics[Metric::from_host]), digits(1e6 * s.median),
                   fmt::format("{}–{}", digits(1e6 * s.q1), digits(1e6 * s.q3)),
                   digits(1e6 * worst->metrics.number(Metric::time_s)),
                   digits(worst->metrics.number(Metric::elapsed_s)), digits(1e6 * longest)});
  }
  return table.to_string(width);
}

}  // namespace

std::string soak_tables(std::span<const Point> points, std::size_t width) {
  std::string out;
  for (const auto& [name, of] : by_name(points, soak_heading)) {
    std::vector<Point> copies;
    for (const Point* p : of) copies.push_back(*p);
    const auto found = analysis::soak_findings(copies);
    out += fmt::format("{}\n{}\n", name, rank_lines(of, width));
    out += fmt::format("{} intervals over {:.1f} s\n", found.intervals, found.seconds);
    for (const auto& line : analysis::soak_sentences(found)) out += line + "\n";
    for (const Point* p : of) {
      if (const auto why = why_not(*p); !why.empty()) {
        out += fmt::format("rank {} at {} s: {}\n", integer(p->factors[Factor::from_rank]),
                           digits(p->metrics.number(Metric::elapsed_s)), why);
      }
    }
  }
  return out;
}

std::string soak_legend() {
  return "usual      median over intervals of a rank's median window, sent or received; worst: its longest interval;\n"
         "           longest: a single window. A disturbance takes 5 robust deviations and 10 % longer than the "
         "rank's\n"
         "           usual; times are from the soak's begin, which the file's head line has\n";
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

}  // namespace gradmeter::report
