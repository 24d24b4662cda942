// SPDX-License-Identifier: Apache-2.0
#include "bench/allreduce/allreduce.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "analysis/findings.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/result.hpp"
#include "report/cells.hpp"

namespace gradmeter::bench {

using namespace report;  // cells and columns
namespace {

using core::Factor;
using core::Metric;
using core::Point;

std::string microseconds(double s) { return digits(s * 1e6); }
std::string gigabytes(double rate) { return digits(rate * 1e-9); }

const core::Summary* time_of(const Point& p) { return p.metrics[Metric::time_s].as<core::Summary>(); }

std::string collective_marks(const Point& p) {
  return fmt::format("{}{}", oversubscribed(p) ? "*" : " ", core::is_disturbed(p.metrics) ? "~" : " ");
}

std::string algorithm_cell(const Point& p, const Labels& codecs) {
  std::string name = exchange(p, codecs);
  const std::string accum = text(p.factors[Factor::accum_dtype]);
  if (accum != "-" && accum != text(p.factors[Factor::dtype])) name += fmt::format(" +{}", accum);
  if (const auto& launches = p.factors[Factor::cudagraph]; !core::is_null(launches))
    name += fmt::format(" graph×{}", text(launches));
  if (const auto& repeat = p.factors[Factor::repeat]; !core::is_null(repeat)) name += fmt::format(" #{}", text(repeat));
  return name;
}

/// The heading: the facts that all rows of a table share.
std::string collective_heading(const Point& p) {
  const auto& f = p.factors;
  std::string out = text(f[Factor::collective]);
  for (const Factor part : {Factor::dtype, Factor::op, Factor::problem}) {
    if (!core::is_null(f[part])) out += fmt::format(" · {}", text(f[part]));
  }
  if (!core::is_null(f[Factor::inject])) out += fmt::format(" · injected {}", text(f[Factor::inject]));
  out += fmt::format(" · buffers {} · {} on {} · cadence {} · {} over ranks", text(f[Factor::buffers]),
                     report::counted(integer(f[Factor::ranks]), "rank"),
                     report::counted(integer(f[Factor::nodes]), "node"), text(f[Factor::cadence]),
                     text(f[Factor::reduction]));
  if (!core::is_null(f[Factor::mapping])) out += fmt::format(" · {}", text(f[Factor::mapping]));
  if (!core::is_null(f[Factor::interconnect])) out += fmt::format(" · {}", text(f[Factor::interconnect]));
  if (text(f[Factor::overlap]) == "gemm") out += " · under a matrix product";
  return out;
}

/// One row of a table: the same call out of place and in place.
struct PlacementPair {
  const Point* out = nullptr;
  const Point* in = nullptr;
  const Point& any() const { return out ? *out : *in; }
};

std::string wrong_cell(const Point& p) {
  return core::is_null(p.metrics[Metric::wrong]) ? "N/A" : text(p.metrics[Metric::wrong]);
}

std::string time_over_limit(const Point* p) {
  return p ? digits(p->metrics.number(Metric::time_s) / p->metrics.number(Metric::limit_s)) : "-";
}

std::string error_cell(const PlacementPair& pair) {
  double most = -1;
  for (const Point* p : {pair.out, pair.in}) {
    if (p && std::isfinite(p->metrics.number(Metric::error))) most = std::max(most, p->metrics.number(Metric::error));
  }
  return most < 0 ? "-" : most == 0 ? "0" : fmt::format("{:.0e}", most);
}

/// "by ring", where a selection has chosen; empty elsewhere.
std::string chosen(const Point& p) {
  const std::string implementation = text(p.metrics[Metric::implementation]);
  const auto at = implementation.find(", by ");
  return at == std::string::npos ? "" : implementation.substr(at + 2);
}

std::string remark(const PlacementPair& pair) {
  std::string out;
  const auto add = [&](const std::string& what) {
    if (!what.empty() && out.find(what) == std::string::npos) out += fmt::format("{}{}", out.empty() ? "" : "; ", what);
  };
  const auto slow = [](const Point* p) { return p ? slow_and_busy(*p) : ""; };
  // The slow rank may differ between out of place and in place; the remark then says which is which.
  const bool differ = !slow(pair.out).empty() && !slow(pair.in).empty() && slow(pair.out) != slow(pair.in);
  for (const Point* p : {pair.out, pair.in}) {
    if (!p) continue;
    add(p->status == core::Status::ok ? chosen(*p) : why_not(*p));
    add(differ ? fmt::format("{} {}", p == pair.out ? "out of place" : "in place", slow(p)) : slow(p));
  }
  return out;
}

std::int64_t count_of(const Point& p, std::int64_t width) { return integer(p.factors[Factor::size_bytes]) / width; }

/// The bytes of an element, from the bits in the type's name: "int8", "fp8-e4m3", "bf16".
std::int64_t width_of(const Point& p) {
  const std::string name = text(p.factors[Factor::dtype]);
  for (const auto& [bits, bytes] : {std::pair{"64", 8}, {"32", 4}, {"16", 2}}) {
    if (name.find(bits) != std::string::npos) return bytes;
  }
  return 1;
}

using PlacementMember = const Point* PlacementPair::*;

/// A cell of one placement; "-" where that was not timed.
Columns<PlacementPair>::Cell timed(PlacementMember member, std::function<std::string(const Point&)> cell) {
  return [member, cell = std::move(cell)](const PlacementPair& pair) {
    const Point* p = pair.*member;
    return p && time_of(*p) ? cell(*p) : "-";
  };
}

void add_time_columns(Columns<PlacementPair>& c, PlacementMember member, const char* name) {
  using enum core::Align;
  const auto tail = [member](double core::Summary::*part) {
    return timed(member, [part](const Point& p) { return microseconds(time_of(p)->*part); });
  };
  const auto rate = [member](Metric m) {
    return timed(member, [m](const Point& p) { return gigabytes(p.metrics.number(m)); });
  };
  c.add({name, "time, us", right},
        timed(member, [](const Point& p) { return microseconds(time_of(p)->median) + collective_marks(p); }));
  c.add({"95 %", "us", right}, timed(member, [](const Point& p) { return interval(p.metrics[Metric::time_s], 1e6); }));
  c.add({"p95", "us", right, 8}, tail(&core::Summary::p95));
  c.add({"p99", "us", right, 8}, tail(&core::Summary::p99));
  c.add({"max", "us", right, 8}, tail(&core::Summary::max));
  c.add({"algbw", "GB/s", right, 6}, rate(Metric::algbw_bytes_per_s));
  c.add({"busbw", "GB/s", right, 1}, rate(Metric::busbw_bytes_per_s));
  c.add({"#wrong", "", right, 2}, [member](const PlacementPair& pair) -> std::string {
    const Point* p = pair.*member;
    return p && (time_of(*p) || p->status == core::Status::wrong) ? wrong_cell(*p) : "-";
  });
}

void add_overlap(Columns<PlacementPair>& c) {
  using enum core::Align;
  const auto time = [](Metric m) {
    return [m](const PlacementPair& pair) { return microseconds(pair.any().metrics.number(m)); };
  };
  c.add({"alone", "us", right}, time(Metric::comm_s));
  c.add({"gemm", "us", right}, time(Metric::compute_s));
  c.add({"exposed", "us", right}, time(Metric::exposed_s));
  c.add({"hidden", "%", right}, [](const PlacementPair& pair) {
    const auto& m = pair.any().metrics;
    const double share = m.number(Metric::overlap_s) / m.number(Metric::comm_s);
    return std::isfinite(share) ? fmt::format("{:.0f}", 100 * share) : "-";
  });
}

/// The groups of columns that a table has.
struct ColumnGroups {
  bool out = false, in = false, overlap = false;
};

Columns<PlacementPair> columns_of(const ColumnGroups& groups, const Labels& codecs) {
  using enum core::Align;
  Columns<PlacementPair> c;
  c.add({"size", "B", right}, [](const PlacementPair& pair) { return text(pair.any().factors[Factor::size_bytes]); });
  c.add({"count", "elements", right, 7},
        [](const PlacementPair& pair) { return fmt::format("{}", count_of(pair.any(), width_of(pair.any()))); });
  c.add({"algorithm", "", left}, [&codecs](const PlacementPair& pair) { return algorithm_cell(pair.any(), codecs); });
  if (groups.out) add_time_columns(c, &PlacementPair::out, "out of place");
  if (groups.in) add_time_columns(c, &PlacementPair::in, "in place");
  if (groups.overlap) add_overlap(c);
  c.add({"limit", "us", right, 3}, [](const PlacementPair& pair) {
    const auto limit = [](const Point* p) { return p ? p->metrics.number(Metric::limit_s) : std::nan(""); };
    return microseconds(std::fmax(limit(pair.out), limit(pair.in)));
  });
  if (groups.out)
    c.add({groups.in ? "out" : "time", "x limit", right, 3},
          [](const PlacementPair& p) { return time_over_limit(p.out); });
  if (groups.in)
    c.add({groups.out ? "in" : "time", "x limit", right, 3},
          [](const PlacementPair& p) { return time_over_limit(p.in); });
  c.add({"error", "", right, 5}, error_cell);
  return c;
}

/// The shorter time of the two placements; infinite where none was timed.
double shorter_time(const PlacementPair& pair) {
  double least = std::numeric_limits<double>::infinity();
  for (const Point* p : {pair.out, pair.in})
    if (p && time_of(*p)) least = std::min(least, time_of(*p)->median);
  return least;
}

/// Pairs the points that differ only in placement; sorted by size, and within a size by time.
std::vector<PlacementPair> pairs(const std::vector<const Point*>& points, const Labels& codecs) {
  std::vector<std::pair<std::tuple<std::int64_t, std::string>, PlacementPair>> found;
  for (const Point* p : points) {
    const auto key = std::make_tuple(integer(p->factors[Factor::size_bytes]), algorithm_cell(*p, codecs));
    auto it = std::find_if(found.begin(), found.end(), [&](const auto& f) { return f.first == key; });
    if (it == found.end()) it = found.insert(found.end(), {key, {}});
    (is_true(p->factors[Factor::in_place]) ? it->second.in : it->second.out) = p;
  }
  const auto order = [](const auto& f) { return std::make_pair(std::get<0>(f.first), shorter_time(f.second)); };
  std::stable_sort(found.begin(), found.end(), [&](const auto& a, const auto& b) { return order(a) < order(b); });
  std::vector<PlacementPair> out;
  for (const auto& [key, pair] : found) out.push_back(pair);
  return out;
}

/// Removes the rows of algorithms that are unsupported at every size, unless all are. Returns text that says how many
/// were removed, and why; algorithms with the same reason stand together.
std::string take_unsupported(std::vector<PlacementPair>& rows, const Labels& codecs, std::size_t width) {
  std::set<std::string> supported;
  for (const auto& pair : rows) {
    for (const Point* p : {pair.out, pair.in})
      if (p && p->status != core::Status::unsupported) supported.insert(algorithm_cell(*p, codecs));
  }
  if (supported.empty()) return {};
  std::map<std::string, std::set<std::string>> by_reason;
  std::set<std::string> removed;
  std::erase_if(rows, [&](const PlacementPair& pair) {
    const std::string name = algorithm_cell(pair.any(), codecs);
    if (supported.contains(name)) return false;
    by_reason[pair.any().reason].insert(name);
    removed.insert(name);
    return true;
  });
  if (removed.empty()) return {};
  const bool is_one = removed.size() == 1;
  std::string out = fmt::format("{} algorithm{} not apply:\n", removed.size(), is_one ? " does" : "s do");
  for (const auto& [reason, names] : by_reason) {
    constexpr std::size_t indent = 4, least = 24;
    for (const auto& line : core::wrap(fmt::format("{}: {}", fmt::join(names, ", "), core::printable(reason)),
                                       std::max(width, least) - indent))
      out += fmt::format("{:{}}{}\n", "", indent, line);
  }
  return out;
}

std::string table(const std::vector<const Point*>& points, const Labels& codecs, std::size_t width) {
  ColumnGroups groups;
  for (const Point* p : points) {
    (is_true(p->factors[Factor::in_place]) ? groups.in : groups.out) = true;
    groups.overlap |= text(p->factors[Factor::overlap]) == "gemm";
  }
  const auto columns = columns_of(groups, codecs);
  auto out = columns.table();
  auto rows = pairs(points, codecs);
  const std::string unsupported = take_unsupported(rows, codecs, width);
  for (const auto& pair : rows) {
    if (groups.overlap && pair.out && pair.in) {  // the columns of overlap differ, so each placement has a row
      for (const PlacementPair& single : {PlacementPair{pair.out, nullptr}, PlacementPair{nullptr, pair.in}}) {
        out.add_row(columns.cells(single), remark(single));
      }
    } else {
      out.add_row(columns.cells(pair), remark(pair));
    }
  }
  return out.to_string(width) + unsupported;
}

}  // namespace

std::string collective_tables(std::span<const Point> points, std::size_t width) {
  const Labels codecs = short_labels(points, Factor::codec);
  // Points that differ in a factor without a column have tables of their own, or they would share a row.
  const auto heading = distinguishing_headings(points, collective_heading, [&codecs](const Point& p) {
    return fmt::format("{} {} {}", text(p.factors[Factor::size_bytes]), algorithm_cell(p, codecs),
                       text(p.factors[Factor::in_place]));
  });
  std::string out;
  for (const auto& [name, group] : by_name(points, heading))
    out += fmt::format("{}\n{}{}\n", name, machine_line(group), table(group, codecs, width));
  return out;
}

std::string collective_legend(Legend legend) {
  if (legend == Legend::brief) {
    return fmt::format(
        "busbw: bandwidth that a link must carry; #wrong: elements outside the tolerance\n"
        "~ disturbed: measure again; * oversubscribed: more busy threads than cores\n{}",
        whole_legend_line);
  }
  return "time     of one call: median over iterations; 95 %: interval of the median; p95, p99, max: the slow tail\n"
         "algbw    size / time\n"
         "busbw    algbw times 2(P-1)/P for allreduce, (P-1)/P for reduce_scatter, all_gather and all_to_all, 1 for "
         "broadcast and\n"
         "         sendrecv: the bandwidth that a link must carry\n"
         "#wrong   elements outside the tolerance, over all ranks, in the worst checked call: before and after timing, "
         "and one of\n"
         "         each block of timed calls; N/A: not checked\n"
         "limit    the least work of the collective, done by all ranks at once and measured in turn with it: for "
         "allreduce,\n"
         "         all_to_all and sendrecv a copy, for reduce_scatter a reduction to one block, for all_gather and "
         "broadcast\n"
         "         writing the buffer; over several nodes, at least the bytes that a node must send at the best rate "
         "measured\n"
         "         between nodes; x limit: time / limit\n"
         "slow     a rank whose whole 95 % interval is over 10 % above the median rank's time: in its calls, or in the "
         "work by\n"
         "         which the limit is measured, where no rank waits for another\n"
         "error    largest error against the exact result, relative to the magnitudes of the summands; with a codec: "
         "the\n"
         "         squared relative error of the sum\n"
         "*        oversubscribed, more busy threads than cores: no measurement of scaling\n" +
         report::disturbed_legend(9, true);
}

const CsvColumns& collective_csv() {
  using enum Metric;
  static const CsvColumns columns =
      CsvColumns()
          .add({Factor::collective, Factor::algorithm, Factor::transport,      Factor::buffers,    Factor::in_place,
                Factor::size_bytes, Factor::dtype,     Factor::accum_dtype,    Factor::op,         Factor::problem,
                Factor::ranks,      Factor::nodes,     Factor::ranks_per_node, Factor::mapping,    Factor::interconnect,
                Factor::codec,      Factor::overlap,   Factor::threads,        Factor::cadence,    Factor::reduction,
                Factor::inject,     Factor::cudagraph, Factor::repeat,         Factor::tuned_table})
          .statistics(time_s, {"min", "q1", "median", "q3", "ci95_low", "ci95_high", "p95", "p99", "max"})
          .samples(time_s, "samples")
          .stop(time_s)
          .add({algbw_bytes_per_s,
                busbw_bytes_per_s,
                wrong,
                error,
                limit_s,
                limit,
                bytes_sent_per_rank_max,
                bytes_sent_total,
                bytes_inter_node,
                bytes_predicted,
                encode_s,
                decode_s,
                link_bytes_per_s,
                crossover_bytes_per_s,
                predicted_time_s,
                comm_s,
                compute_s,
                exposed_s,
                overlap_s,
                warmup_s,
                oversubscribed,
                noise_steal,
                noise_run_delay,
                busy_host,
                blocks,
                disturbed_blocks,
                left_out_blocks,
                steadiness,
                slowest_rank,
                slowest_host,
                implementation});
  return columns;
}

using namespace report;  // cells and columns
namespace {

using analysis::Finding;
using core::Factor;
using core::Metric;
using core::Point;

/// The fastest of a finding's points, and a vendor's beside it.
struct Winner {
  const Finding* finding;
  const Point* best;
  const Point* vendor = nullptr;    ///< null: none was measured, or it is the fastest
  analysis::Estimate speedup = {};  ///< how many times as fast as the vendor's
};

Winner winner_of(const Finding& f, std::span<const Point> points) {
  Winner w{&f, &points[f.rows.front().point]};
  for (const auto& row : f.rows) {
    const Point& p = points[row.point];
    if (p.metrics.number(Metric::time_s) < w.best->metrics.number(Metric::time_s)) w.best = &p;
    const auto figure = f.figures.find("speed_against_" + text(p.factors[Factor::algorithm]));
    if (figure == f.figures.end()) continue;
    w.vendor = &p;
    w.speedup = figure->second;
  }
  return w;
}

/// Factors in which the findings differ, so that no row stands for two of them.
std::vector<Factor> differing_factors(const std::vector<Winner>& winners) {
  std::vector<Factor> out;
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const auto factor = static_cast<Factor>(i);
    const auto& first = winners.front().finding->factors[factor];
    const bool differs = std::any_of(winners.begin(), winners.end(),
                                     [&](const Winner& w) { return text(w.finding->factors[factor]) != text(first); });
    if (differs && factor != Factor::size_bytes && factor != Factor::in_place) out.push_back(factor);
  }
  return out;
}

std::string time_text(const Point* p) { return p ? digits(1e6 * p->metrics.number(Metric::time_s)) : "-"; }

Columns<Winner> winner_columns(const std::vector<Winner>& winners) {
  using enum core::Align;
  Columns<Winner> c;
  for (const Factor factor : differing_factors(winners)) {
    c.add({std::string(core::name(factor)), "", left},
          [factor](const Winner& w) { return text(w.finding->factors[factor]); });
  }
  c.add({"size", "B", right}, [](const Winner& w) { return text(w.best->factors[Factor::size_bytes]); });
  c.add({"place", "", left}, [](const Winner& w) { return is_true(w.best->factors[Factor::in_place]) ? "in" : "out"; });
  c.add({"fastest", "", left}, [](const Winner& w) { return exchange(*w.best, {}); });
  c.add({"time", "us", right}, [](const Winner& w) { return time_text(w.best); });
  c.add({"95 %", "us", right}, [](const Winner& w) { return interval(w.best->metrics[Metric::time_s], 1e6); });
  c.add({"vendor", "", left, 2}, [](const Winner& w) { return w.vendor ? exchange(*w.vendor, {}) : "-"; });
  c.add({"time", "us", right, 2}, [](const Winner& w) { return time_text(w.vendor); });
  c.add({"x vendor", "", right, 1}, [](const Winner& w) {
    if (!w.vendor) return std::string("-");
    return std::isfinite(w.speedup.low)
               ? fmt::format("{} ({}–{})", digits(w.speedup.value), digits(w.speedup.low), digits(w.speedup.high))
               : digits(w.speedup.value);
  });
  return c;
}

}  // namespace

std::string collective_winners(std::span<const Point> points, std::size_t width) {
  const core::Run run{.info = {}, .points = {points.begin(), points.end()}};
  const auto found = analysis::findings({&run, 1});
  std::vector<Winner> winners;
  for (const Finding& f : found) {
    if (f.kind == analysis::FindingKind::fastest_exchange && f.rows.size() > 1)
      winners.push_back(winner_of(f, run.points));
  }
  if (winners.empty()) return {};
  std::stable_sort(winners.begin(), winners.end(), [](const Winner& a, const Winner& b) {
    return integer(a.best->factors[Factor::size_bytes]) < integer(b.best->factors[Factor::size_bytes]);
  });
  const auto columns = winner_columns(winners);
  auto table = columns.table();
  for (const Winner& w : winners) {
    table.add_row(columns.cells(w), w.finding->severity > 0 ? "" : "not shown to be faster than all others");
  }
  return fmt::format(
      "the fastest algorithm of each size, out of place and in place; x vendor: the vendor's time / the "
      "fastest's\n{}\n",
      table.to_string(width));
}

namespace {

using core::Factor;
using core::Metric;
using core::Point;

/// "wins" or "loses" if the intervals of the two medians do not overlap, else "even"; "-" if one has no interval, since
/// nothing is known of its median then.
std::string verdict(const CodecPair& pair) {
  const auto* coded = pair.coded->metrics[Metric::time_s].as<core::Summary>();
  const auto* plain = pair.plain->metrics[Metric::time_s].as<core::Summary>();
  const auto has_interval = [](const core::Summary* time) {
    return time && std::isfinite(time->ci95_low) && std::isfinite(time->ci95_high);
  };
  if (!has_interval(coded) || !has_interval(plain)) return "-";
  if (coded->ci95_high < plain->ci95_low) return "wins";
  return coded->ci95_low > plain->ci95_high ? "loses" : "even";
}

std::string percent_of_time(const Point& p, Metric part) {
  const double share = p.metrics.number(part) / p.metrics.number(Metric::time_s);
  return std::isfinite(share) ? fmt::format("{:.0f}", 100 * share) : "-";
}

std::string gigabytes(const Point& p, Metric m) { return digits(p.metrics.number(m) * 1e-9); }

/// An integer as a floating-point number; NaN for other values.
double to_double(const core::Value& v) {
  const auto* i = v.as<std::int64_t>();
  return i ? static_cast<double>(*i) : std::nan("");
}

/// The predicted time of the call without a codec [s]: its bytes at the link's rate.
double plain_by_the_link(const Point& p) {
  const double ranks = to_double(p.factors[Factor::ranks]);
  return 2 * (ranks - 1) / ranks * to_double(p.factors[Factor::size_bytes]) /
         p.metrics.number(Metric::link_bytes_per_s);
}

std::vector<std::string> row(const CodecPair& pair, const Labels& codecs) {
  const Point& p = *pair.coded;
  const double sent = p.metrics.number(Metric::bytes_sent_per_rank_max);
  const double link = p.metrics.number(Metric::link_bytes_per_s),
               crossover = p.metrics.number(Metric::crossover_bytes_per_s);
  const bool is_known = std::isfinite(link) && std::isfinite(crossover);
  return {text(p.factors[Factor::size_bytes]),
          exchange(p, codecs),
          is_true(p.factors[Factor::in_place]) ? "in" : "out",
          digits(p.metrics.number(Metric::time_s) * 1e6),
          std::isfinite(sent) ? fmt::format("{:.0f}", sent) : "-",
          percent_of_time(p, Metric::encode_s),
          percent_of_time(p, Metric::decode_s),
          digits(pair.gain().value),
          verdict(pair),
          digits(plain_by_the_link(p) / p.metrics.number(Metric::predicted_time_s)),
          gigabytes(p, Metric::crossover_bytes_per_s),
          gigabytes(p, Metric::link_bytes_per_s),
          is_known ? (link < crossover ? "pays" : "does not pay") : "-"};
}

}  // namespace

std::string codec_comparison(std::span<const Point> points, std::size_t width) {
  using enum core::Align;
  std::vector<const Point*> pointers;
  for (const Point& p : points) pointers.push_back(&p);
  const auto found = codec_pairs(pointers);
  if (found.empty()) return {};
  const Labels codecs = short_labels(points, Factor::codec);
  core::Table table({{"size", "B", right},
                     {"exchange", "", left},
                     {"place", "", left},
                     {"time", "us", right, 5},
                     {"sent", "B/rank", right, 6},
                     {"encode", "%", right, 4},
                     {"decode", "%", right, 4},
                     {"measured", "x none", right},
                     {"", "", left},
                     {"formula", "x none", right, 3},
                     {"pays below", "GB/s", right, 1},
                     {"link", "GB/s", right, 2},
                     {"predicted", "", left}});
  for (const CodecPair& pair : found) table.add_row(row(pair, codecs));
  return fmt::format("codecs against none\n{}\n", table.to_string(width));
}

std::string codec_comparison_legend() {
  return "x none   time of the same call without a codec / time with it; wins, loses: the two intervals do not "
         "overlap\n"
         "encode   and decode: share of the time in the codec, on the rank where it takes longest\n"
         "formula  x none as predicted from speeds: all bytes at the link's rate, plus the codec's arithmetic; no "
         "latency, no\n"
         "         overlap; -: the algorithm sends other amounts than a reduce-scatter and an all-gather\n"
         "pays     below this link speed: 2(P-1)/P * (32-w)/32 * V, with 1/V = (1+1/P)/encode + ((P-1)/P)/add + "
         "1/decode;\n"
         "         P: ranks; w: bits that an element has when sent; encode, add, decode: speeds in bytes of fp32\n"
         "link     rate at which each rank sends while all send, measured in this run as the codec's speeds are (with "
         "ef=on,\n"
         "         encoding with its error feedback)\n"
         "predicted pays if the link is slower than the figure in 'pays below'; what was measured may differ\n"
         "dgc      at its final density, without the warm-up of train\n";
}

using namespace report;  // cells and columns

}  // namespace gradmeter::bench
