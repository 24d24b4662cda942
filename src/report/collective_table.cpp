#include "report/collective_table.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <vector>

#include "core/format.hpp"
#include "report/cells.hpp"

namespace gradmeter::report {
namespace {

using core::Factor;
using core::Metric;
using core::Point;

std::string microseconds(double s) { return digits(s * 1e6); }
std::string gigabytes(double rate) { return digits(rate * 1e-9); }

const core::Summary* time_of(const Point& p) { return std::get_if<core::Summary>(&p.metrics[Metric::time_s]); }

std::string marks(const Point& p) { return fmt::format("{}{}", oversubscribed(p) ? "*" : " ", noisy(p) ? "~" : " "); }

std::string algorithm_cell(const Point& p, const Labels& codecs) {
  std::string name = exchange(p, codecs);
  const std::string accum = text(p.factors[Factor::accum_dtype]);
  if (accum != "-" && accum != text(p.factors[Factor::dtype])) name += fmt::format(" +{}", accum);
  return name;
}

/// What all rows of a table share.
std::string heading(const Point& p) {
  const auto& f = p.factors;
  std::string out = text(f[Factor::collective]);
  for (const Factor part : {Factor::dtype, Factor::op, Factor::problem}) {
    if (!core::is_null(f[part])) out += fmt::format(" · {}", text(f[part]));
  }
  if (!core::is_null(f[Factor::inject])) out += fmt::format(" · injected {}", text(f[Factor::inject]));
  out += fmt::format(" · buffers {} · {} ranks on {} node{} · cadence {} · {} over ranks", text(f[Factor::buffers]),
                     text(f[Factor::ranks]), text(f[Factor::nodes]), integer(f[Factor::nodes]) == 1 ? "" : "s",
                     text(f[Factor::cadence]), text(f[Factor::reduction]));
  if (!core::is_null(f[Factor::mapping])) out += fmt::format(" · {}", text(f[Factor::mapping]));
  if (!core::is_null(f[Factor::interconnect])) out += fmt::format(" · {}", text(f[Factor::interconnect]));
  if (text(f[Factor::overlap]) == "gemm") out += " · under a matrix product";
  return out;
}

/// How steady the machine was, by the canary in the turns of each size.
std::string steadiness_line(const std::vector<const Point*>& points) {
  double least = std::nan("");
  std::int64_t disturbed = 0, left_out = 0, blocks = 0;
  for (const Point* p : points) {
    least = std::fmin(least, p->metrics.number(Metric::steadiness));
    disturbed += integer(p->metrics[Metric::disturbed_blocks]);
    left_out += integer(p->metrics[Metric::left_out_blocks]);
    blocks += integer(p->metrics[Metric::blocks]);
  }
  if (!std::isfinite(least)) return {};
  return fmt::format("machine: {:.0f} % steady where it was least; of {} blocks {} are disturbed; {} were left out\n",
                     100 * least, blocks, disturbed, left_out);
}

/// One row of a table: the same call out of place and in place.
struct Pair {
  const Point* out = nullptr;
  const Point* in = nullptr;
  const Point& any() const { return out ? *out : *in; }
};

std::string wrong_cell(const Point& p) {
  return core::is_null(p.metrics[Metric::wrong]) ? "N/A" : text(p.metrics[Metric::wrong]);
}

void add_half(const Point* p, std::vector<std::string>& cells) {
  constexpr std::size_t width = 8;
  const auto* time = p ? time_of(*p) : nullptr;
  if (!time) {
    cells.insert(cells.end(), width - 1, "-");
    cells.push_back(p && p->status == core::Status::wrong ? wrong_cell(*p) : "-");
    return;
  }
  cells.insert(cells.end(), {microseconds(time->median) + marks(*p), interval(p->metrics[Metric::time_s], 1e6),
                             microseconds(time->p95), microseconds(time->p99), microseconds(time->max),
                             gigabytes(p->metrics.number(Metric::algbw_bytes_per_s)),
                             gigabytes(p->metrics.number(Metric::busbw_bytes_per_s)), wrong_cell(*p)});
}

std::string distance(const Point* p) {
  return p ? digits(p->metrics.number(Metric::time_s) / p->metrics.number(Metric::limit_s)) : "-";
}

std::string error_cell(const Pair& pair) {
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

std::string slowest(const Point& p) {
  const auto& rank = p.metrics[Metric::slowest_rank];
  if (core::is_null(rank)) return {};
  return fmt::format("slow: rank {} on {}", text(rank), text(p.metrics[Metric::slowest_host]));
}

std::string remark(const Pair& pair) {
  std::string out;
  const auto add = [&](const std::string& what) {
    if (!what.empty() && out.find(what) == std::string::npos) out += fmt::format("{}{}", out.empty() ? "" : "; ", what);
  };
  for (const Point* p : {pair.out, pair.in}) {
    if (!p) continue;
    add(p->status == core::Status::ok ? chosen(*p) : why_not(*p));
    add(slowest(*p));
  }
  return out;
}

/// Which columns a table has.
struct Layout {
  bool out = false, in = false, overlap = false;
};

void add_half_columns(std::vector<core::Column>& c, const char* name) {
  using enum core::Align;
  c.insert(c.end(), {{name, "time, us", right},
                     {"95 %", "us", right, 1},
                     {"p95", "us", right, 6},
                     {"p99", "us", right, 6},
                     {"max", "us", right, 6},
                     {"algbw", "GB/s", right, 4},
                     {"busbw", "GB/s", right},
                     {"#wrong", "", right}});
}

std::vector<core::Column> columns(const Layout& l) {
  using enum core::Align;
  std::vector<core::Column> c{{"size", "B", right}, {"count", "elements", right, 5}, {"algorithm", "", left}};
  if (l.out) add_half_columns(c, "out of place");
  if (l.in) add_half_columns(c, "in place");
  if (l.overlap) {
    c.insert(c.end(),
             {{"alone", "us", right}, {"gemm", "us", right}, {"exposed", "us", right}, {"hidden", "%", right}});
  }
  c.push_back({"limit", "us", right, 2});
  if (l.out) c.push_back({l.in ? "out" : "time", "x limit", right, 2});
  if (l.in) c.push_back({l.out ? "in" : "time", "x limit", right, 2});
  c.push_back({"error", "", right, 3});
  return c;
}

void add_overlap(const Point& p, std::vector<std::string>& cells) {
  const auto& m = p.metrics;
  const double share = m.number(Metric::overlap_s) / m.number(Metric::comm_s);
  cells.insert(cells.end(), {microseconds(m.number(Metric::comm_s)), microseconds(m.number(Metric::compute_s)),
                             microseconds(m.number(Metric::exposed_s)),
                             std::isfinite(share) ? fmt::format("{:.0f}", 100 * share) : "-"});
}

std::int64_t count_of(const Point& p, std::int64_t width) { return integer(p.factors[Factor::size_bytes]) / width; }

/// By the type's name: "int8", "fp8-e4m3", "bf16" end or begin with their bits.
std::int64_t width_of(const Point& p) {
  const std::string name = text(p.factors[Factor::dtype]);
  for (const auto& [bits, bytes] : {std::pair{"64", 8}, {"32", 4}, {"16", 2}}) {
    if (name.find(bits) != std::string::npos) return bytes;
  }
  return 1;
}

std::vector<std::string> row(const Pair& pair, const Layout& l, const Labels& codecs) {
  const Point& p = pair.any();
  std::vector<std::string> cells{text(p.factors[Factor::size_bytes]), fmt::format("{}", count_of(p, width_of(p))),
                                 algorithm_cell(p, codecs)};
  if (l.out) add_half(pair.out, cells);
  if (l.in) add_half(pair.in, cells);
  if (l.overlap) add_overlap(p, cells);
  const double limit = std::fmax(pair.out ? pair.out->metrics.number(Metric::limit_s) : std::nan(""),
                                 pair.in ? pair.in->metrics.number(Metric::limit_s) : std::nan(""));
  cells.push_back(microseconds(limit));
  if (l.out) cells.push_back(distance(pair.out));
  if (l.in) cells.push_back(distance(pair.in));
  cells.push_back(error_cell(pair));
  return cells;
}

std::vector<Pair> pairs(const std::vector<const Point*>& points, const Labels& codecs) {
  std::vector<std::pair<std::tuple<std::int64_t, std::string>, Pair>> found;
  for (const Point* p : points) {
    const auto key = std::make_tuple(integer(p->factors[Factor::size_bytes]), algorithm_cell(*p, codecs));
    auto it = std::find_if(found.begin(), found.end(), [&](const auto& f) { return f.first == key; });
    if (it == found.end()) it = found.insert(found.end(), {key, {}});
    (is_true(p->factors[Factor::in_place]) ? it->second.in : it->second.out) = p;
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return std::get<0>(a.first) < std::get<0>(b.first); });
  std::vector<Pair> out;
  for (const auto& [key, pair] : found) out.push_back(pair);
  return out;
}

std::string table(const std::vector<const Point*>& points, const Labels& codecs, std::size_t width) {
  Layout layout;
  for (const Point* p : points) {
    (is_true(p->factors[Factor::in_place]) ? layout.in : layout.out) = true;
    layout.overlap |= text(p->factors[Factor::overlap]) == "gemm";
  }
  core::Table out(columns(layout));
  for (const auto& pair : pairs(points, codecs)) {
    if (layout.overlap && pair.out && pair.in) {  // their parts differ: a row each
      for (const Pair& half : {Pair{pair.out, nullptr}, Pair{nullptr, pair.in}}) {
        out.add_row(row(half, layout, codecs), remark(half));
      }
    } else {
      out.add_row(row(pair, layout, codecs), remark(pair));
    }
  }
  return out.to_string(width);
}

constexpr std::array csv_factors{
    Factor::collective, Factor::algorithm, Factor::transport,      Factor::buffers, Factor::in_place,
    Factor::size_bytes, Factor::dtype,     Factor::accum_dtype,    Factor::op,      Factor::problem,
    Factor::ranks,      Factor::nodes,     Factor::ranks_per_node, Factor::mapping, Factor::interconnect,
    Factor::codec,      Factor::overlap,   Factor::threads,        Factor::cadence, Factor::reduction,
    Factor::inject};
constexpr std::array csv_metrics{Metric::algbw_bytes_per_s,
                                 Metric::busbw_bytes_per_s,
                                 Metric::wrong,
                                 Metric::error,
                                 Metric::limit_s,
                                 Metric::limit,
                                 Metric::bytes_sent_per_rank_max,
                                 Metric::bytes_sent_total,
                                 Metric::bytes_inter_node,
                                 Metric::bytes_predicted,
                                 Metric::encode_s,
                                 Metric::decode_s,
                                 Metric::link_bytes_per_s,
                                 Metric::crossover_bytes_per_s,
                                 Metric::predicted_time_s,
                                 Metric::comm_s,
                                 Metric::compute_s,
                                 Metric::exposed_s,
                                 Metric::overlap_s,
                                 Metric::warmup_s,
                                 Metric::oversubscribed,
                                 Metric::noise_steal,
                                 Metric::noise_run_delay,
                                 Metric::blocks,
                                 Metric::disturbed_blocks,
                                 Metric::left_out_blocks,
                                 Metric::steadiness,
                                 Metric::slowest_rank,
                                 Metric::slowest_host,
                                 Metric::implementation};

/// Bytes as the file has them, the rest of the columns in the same order for every point.
std::vector<std::string> csv_times(const Point& p) {
  const auto* t = time_of(p);
  if (!t) return std::vector<std::string>(11);
  std::vector<std::string> out;
  for (const double x : {t->min, t->q1, t->median, t->q3, t->ci95_low, t->ci95_high, t->p95, t->p99, t->max}) {
    out.push_back(std::isfinite(x) ? fmt::format("{}", x) : "");
  }
  out.push_back(fmt::format("{}", t->n));
  out.emplace_back(core::name(t->stop));
  return out;
}

}  // namespace

std::string collective_tables(std::span<const Point> points, std::size_t width) {
  const Labels codecs = short_labels(points, Factor::codec);
  std::string out;
  for (const auto& [name, of] : by_name(points, heading))
    out += fmt::format("{}\n{}{}\n", name, steadiness_line(of), table(of, codecs, width));
  return out;
}

std::string collective_legend() {
  return "time     of one call: median over iterations; 95 %: rank-based interval of the median; p95, p99, max: its "
         "tail\n"
         "algbw    size / time; busbw: algbw times 2(P-1)/P for allreduce, (P-1)/P for reduce_scatter, all_gather and\n"
         "         all_to_all, 1 for broadcast and sendrecv: what a link must carry\n"
         "#wrong   elements outside the tolerance, over all ranks, in the worst call checked: before, after, and one "
         "of "
         "each\n"
         "         block of timed ones; N/A: not checked\n"
         "limit    the least that all ranks must do at once, measured in turn with the others: allreduce, all_to_all, "
         "sendrecv\n"
         "         a copy, reduce_scatter a reduction of the buffer to a block, all_gather and broadcast writing it; "
         "over "
         "several\n"
         "         nodes at least what a node must send at the best rate measured between nodes; x limit: time / "
         "limit\n"
         "slow     a rank more than 10 % and its interval behind the median rank: in its calls, or in the limit's "
         "work, "
         "without\n"
         "         waits\n"
         "error    largest error against the exact result, relative to the summands' magnitudes; with a codec the "
         "sum's,\n"
         "         relative and squared\n"
         "*        more busy threads than cores: says nothing of a machine with a core for each\n"
         "~        over 5 % of the machine was with other processes or the hypervisor meanwhile, or most blocks of "
         "the\n"
         "         figure are disturbed: measure again\n"
         "machine  a small product and a copy beside the points: best over median time; turns in which they took over\n"
         "         10 % longer than the best are disturbed, and left out where enough others were had\n";
}

std::string collective_csv_header() {
  std::vector<std::string> names{"status", "reason"};
  for (const Factor f : csv_factors) names.emplace_back(core::name(f));
  for (const char* t : {"time_min_s", "time_q1_s", "time_median_s", "time_q3_s", "time_ci95_low_s", "time_ci95_high_s",
                        "time_p95_s", "time_p99_s", "time_max_s", "samples", "stop"}) {
    names.emplace_back(t);
  }
  for (const Metric m : csv_metrics) names.emplace_back(core::name(m));
  return fmt::format("{}\n", fmt::join(names, ","));
}

std::string collective_csv_row(const Point& p) {
  std::vector<std::string> cells{std::string(core::name(p.status)), csv_cell(p.reason)};
  for (const Factor f : csv_factors) cells.push_back(csv_cell(p.factors[f]));
  for (auto& t : csv_times(p)) cells.push_back(std::move(t));
  for (const Metric m : csv_metrics) {
    cells.push_back(csv_cell(p.metrics[m]));
  }
  return fmt::format("{}\n", fmt::join(cells, ","));
}

}  // namespace gradmeter::report
