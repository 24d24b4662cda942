#include "report/tables.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "core/disturbance.hpp"
#include "core/format.hpp"
#include "report/cells.hpp"

namespace gradmeter::report {
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
  return name;
}

/// What all rows of a table share.
std::string collective_heading(const Point& p) {
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

/// One row of a table: the same call out of place and in place.
struct PlacementPair {
  const Point* out = nullptr;
  const Point* in = nullptr;
  const Point& any() const { return out ? *out : *in; }
};

std::string wrong_cell(const Point& p) {
  return core::is_null(p.metrics[Metric::wrong]) ? "N/A" : text(p.metrics[Metric::wrong]);
}

std::string distance(const Point* p) {
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
  for (const Point* p : {pair.out, pair.in}) {
    if (!p) continue;
    add(p->status == core::Status::ok ? chosen(*p) : why_not(*p));
    add(slow_and_busy(*p));
  }
  return out;
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

using Half = const Point* PlacementPair::*;

/// A cell of one half; "-" where that was not measured.
Columns<PlacementPair>::Cell timed(Half half, std::function<std::string(const Point&)> cell) {
  return [half, cell = std::move(cell)](const PlacementPair& pair) {
    const Point* p = pair.*half;
    return p && time_of(*p) ? cell(*p) : "-";
  };
}

void add_half(Columns<PlacementPair>& c, Half half, const char* name) {
  using enum core::Align;
  const auto tail = [half](double core::Summary::*part) {
    return timed(half, [part](const Point& p) { return microseconds(time_of(p)->*part); });
  };
  const auto rate = [half](Metric m) {
    return timed(half, [m](const Point& p) { return gigabytes(p.metrics.number(m)); });
  };
  c.add({name, "time, us", right},
        timed(half, [](const Point& p) { return microseconds(time_of(p)->median) + collective_marks(p); }));
  c.add({"95 %", "us", right, 1}, timed(half, [](const Point& p) { return interval(p.metrics[Metric::time_s], 1e6); }));
  c.add({"p95", "us", right, 6}, tail(&core::Summary::p95));
  c.add({"p99", "us", right, 6}, tail(&core::Summary::p99));
  c.add({"max", "us", right, 6}, tail(&core::Summary::max));
  c.add({"algbw", "GB/s", right, 4}, rate(Metric::algbw_bytes_per_s));
  c.add({"busbw", "GB/s", right}, rate(Metric::busbw_bytes_per_s));
  c.add({"#wrong", "", right}, [half](const PlacementPair& pair) -> std::string {
    const Point* p = pair.*half;
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

/// Which columns a table has.
struct Parts {
  bool out = false, in = false, overlap = false;
};

Columns<PlacementPair> columns_of(const Parts& parts, const Labels& codecs) {
  using enum core::Align;
  Columns<PlacementPair> c;
  c.add({"size", "B", right}, [](const PlacementPair& pair) { return text(pair.any().factors[Factor::size_bytes]); });
  c.add({"count", "elements", right, 5},
        [](const PlacementPair& pair) { return fmt::format("{}", count_of(pair.any(), width_of(pair.any()))); });
  c.add({"algorithm", "", left}, [&codecs](const PlacementPair& pair) { return algorithm_cell(pair.any(), codecs); });
  if (parts.out) add_half(c, &PlacementPair::out, "out of place");
  if (parts.in) add_half(c, &PlacementPair::in, "in place");
  if (parts.overlap) add_overlap(c);
  c.add({"limit", "us", right, 2}, [](const PlacementPair& pair) {
    const auto limit = [](const Point* p) { return p ? p->metrics.number(Metric::limit_s) : std::nan(""); };
    return microseconds(std::fmax(limit(pair.out), limit(pair.in)));
  });
  if (parts.out)
    c.add({parts.in ? "out" : "time", "x limit", right, 2}, [](const PlacementPair& p) { return distance(p.out); });
  if (parts.in)
    c.add({parts.out ? "in" : "time", "x limit", right, 2}, [](const PlacementPair& p) { return distance(p.in); });
  c.add({"error", "", right, 3}, error_cell);
  return c;
}

std::vector<PlacementPair> pairs(const std::vector<const Point*>& points, const Labels& codecs) {
  std::vector<std::pair<std::tuple<std::int64_t, std::string>, PlacementPair>> found;
  for (const Point* p : points) {
    const auto key = std::make_tuple(integer(p->factors[Factor::size_bytes]), algorithm_cell(*p, codecs));
    auto it = std::find_if(found.begin(), found.end(), [&](const auto& f) { return f.first == key; });
    if (it == found.end()) it = found.insert(found.end(), {key, {}});
    (is_true(p->factors[Factor::in_place]) ? it->second.in : it->second.out) = p;
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return std::get<0>(a.first) < std::get<0>(b.first); });
  std::vector<PlacementPair> out;
  for (const auto& [key, pair] : found) out.push_back(pair);
  return out;
}

std::string table(const std::vector<const Point*>& points, const Labels& codecs, std::size_t width) {
  Parts parts;
  for (const Point* p : points) {
    (is_true(p->factors[Factor::in_place]) ? parts.in : parts.out) = true;
    parts.overlap |= text(p->factors[Factor::overlap]) == "gemm";
  }
  const auto columns = columns_of(parts, codecs);
  auto out = columns.table();
  for (const auto& pair : pairs(points, codecs)) {
    if (parts.overlap && pair.out && pair.in) {  // their parts differ: a row each
      for (const PlacementPair& half : {PlacementPair{pair.out, nullptr}, PlacementPair{nullptr, pair.in}}) {
        out.add_row(columns.cells(half), remark(half));
      }
    } else {
      out.add_row(columns.cells(pair), remark(pair));
    }
  }
  return out.to_string(width);
}

}  // namespace

std::string collective_tables(std::span<const Point> points, std::size_t width) {
  const Labels codecs = short_labels(points, Factor::codec);
  std::string out;
  for (const auto& [name, of] : by_name(points, collective_heading))
    out += fmt::format("{}\n{}{}\n", name, machine_line(of), table(of, codecs, width));
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

const CsvColumns& collective_csv() {
  using enum Metric;
  static const CsvColumns columns =
      CsvColumns()
          .add({Factor::collective, Factor::algorithm, Factor::transport,      Factor::buffers, Factor::in_place,
                Factor::size_bytes, Factor::dtype,     Factor::accum_dtype,    Factor::op,      Factor::problem,
                Factor::ranks,      Factor::nodes,     Factor::ranks_per_node, Factor::mapping, Factor::interconnect,
                Factor::codec,      Factor::overlap,   Factor::threads,        Factor::cadence, Factor::reduction,
                Factor::inject,     Factor::cudagraph})
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

}  // namespace gradmeter::report
