// SPDX-License-Identifier: Apache-2.0
#include "bench/scale/scale.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "core/format.hpp"
#include "core/name.hpp"
#include "core/result.hpp"
#include "core/units.hpp"
#include "report/cells.hpp"

namespace gradmeter::bench {

using namespace report;  // for cells and columns
namespace {

using core::Factor;
using core::Metric;
using core::Point;

std::string milliseconds(double seconds) { return digits(seconds * 1e3); }

std::string percent(double share) { return std::isfinite(share) ? fmt::format("{:.0f}", share * 100) : "-"; }

std::string rate(double per_s) {
  if (!std::isfinite(per_s)) return "-";
  return per_s >= 1e4 ? fmt::format("{:.1f}k", per_s / 1e3) : fmt::format("{:.0f}", per_s);
}

std::string step_cell(const Point& p) {
  return fmt::format("{}{}", milliseconds(p.metrics.number(Metric::time_s)), core::is_disturbed(p.metrics) ? "~" : " ");
}

std::string ranks_cell(const Point& p) {
  return fmt::format("{}{}", text(p.factors[Factor::ranks]), oversubscribed(p) ? "*" : " ");
}

/// The strategy's name, with the mesh and the micro-batches where there are any.
std::string strategy_cell(const Point& p, const Labels& labels) {
  const auto label = labels.find(text(p.factors[Factor::strategy]));
  std::string out = label == labels.end() ? "-" : label->second;
  if (const auto& mesh = p.factors[Factor::mesh]; !core::is_null(mesh)) out += fmt::format(" · {}", text(mesh));
  if (const auto n = integer(p.factors[Factor::accumulate]); n > 1) out += fmt::format(" · {} micro-batches", n);
  return out;
}

/// True for `independent` on one rank, which is 100 % by definition and has no interval.
bool is_baseline(const Point& p) {
  return text(p.factors[Factor::ranks]) == "1" && text(p.factors[Factor::strategy]) == "independent";
}

/// "65 (63–67)", in percent; "256 ?" where there is no interval, or where all of it is above 100 %.
std::string efficiency_cell(const Point& p) {
  const double efficiency = p.metrics.number(Metric::efficiency), low = p.metrics.number(Metric::efficiency_ci95_low),
               high = p.metrics.number(Metric::efficiency_ci95_high);
  const bool is_known = std::isfinite(low) && std::isfinite(high);
  std::string out = percent(efficiency);
  if (is_known) out += fmt::format(" ({}–{})", percent(low), percent(high));
  const bool doubtful = is_known ? low > 1 : !is_baseline(p);
  return std::isfinite(efficiency) && doubtful ? out + " ?" : out;
}

/// "wire 93 %". It shows at most 99 %, since nothing drawn from samples is certain.
std::string bound_by_cell(const Point& p) {
  const double probability = p.metrics.number(Metric::bound_by_probability);
  std::string word = text(p.metrics[Metric::bound_by]);
  if (word == "undecided" || !std::isfinite(probability)) return word;
  return fmt::format("{} {:.0f} %", word, std::min(99.0, 100 * probability));
}

std::string straggle_cell(const Point& p) {
  const auto& rank = p.metrics[Metric::slowest_rank];
  return milliseconds(p.metrics.number(Metric::straggle_s)) +
         (core::is_null(rank) ? "" : fmt::format(" r{}", text(rank)));
}

/// "undecided: wire 55 %, straggle 40 %; a longer --time-budget would decide": for a row without a verdict.
std::string undecided_note(const Point& p) {
  const auto& candidates = p.metrics[Metric::bound_by_candidates];
  if (text(p.metrics[Metric::bound_by]) != "undecided" || core::is_null(candidates)) return {};
  return fmt::format("undecided: {}; {} would decide", text(candidates),
                     core::is_disturbed(p.metrics) ? "quieter cores" : "a longer --time-budget");
}

/// The remark that all measured points of a curve have, such as how the processor multiplies; empty where they differ.
std::string common_remark(std::span<const Point* const> curve) {
  const auto is_ok = [](const Point* p) { return p->status == core::Status::ok; };
  const auto first = std::ranges::find_if(curve, is_ok);
  if (first == curve.end()) return {};
  const std::string& remark = (*first)->reason;
  const auto says_so = [&](const Point* p) {
    return !is_ok(p) || p->reason == remark || p->reason.starts_with(remark + "; ");
  };
  return std::ranges::all_of(curve, says_so) ? remark : "";
}

/// A note on the point: why it was not measured or is doubtful, and why it has no verdict. common: the remark that
/// stands above the table, and is left out here.
std::string curve_note(const Point& p, const std::string& common) {
  std::string reason = p.status == core::Status::ok ? p.reason : why_not(p);
  if (p.status == core::Status::ok && !common.empty())
    reason.erase(0, std::min(reason.size(), common.size() + std::string_view("; ").size()));
  const std::string undecided = undecided_note(p);
  return reason.empty() || undecided.empty() ? reason + undecided : fmt::format("{}; {}", reason, undecided);
}

/// Shows `cell`, or "-" if the point has no times.
Columns<Point>::Cell timed(std::function<std::string(const Point&)> cell) {
  return [cell = std::move(cell)](const Point& p) {
    return p.status == core::Status::ok || p.status == core::Status::mistrusted ? cell(p) : "-";
  };
}
Columns<Point>::Cell milliseconds_of(Metric m) {
  return timed([m](const Point& p) { return milliseconds(p.metrics.number(m)); });
}

Columns<Point> columns_of(const Labels& codecs, const Labels& strategies) {
  using enum core::Align;
  Columns<Point> c;
  const auto factor = [](Factor f) { return [f](const Point& p) { return text(p.factors[f]); }; };
  c.add({"ranks", "", right}, ranks_cell);
  c.add({"scaling", "", left, 9}, factor(Factor::scaling));
  c.add({"batch", "/rank", right}, factor(Factor::batch_per_rank));
  c.add({"strategy", "", left}, [&strategies](const Point& p) { return strategy_cell(p, strategies); });
  c.add({"exchange", "", left}, [&codecs](const Point& p) { return exchange(p, codecs); });
  c.add({"overlap", "", left, 8}, factor(Factor::overlap));
  c.add({"efficiency", "%", right}, timed(efficiency_cell));
  c.add({"step", "ms", right}, timed(step_cell));
  c.add({"95 %", "ms", right, 2}, timed([](const Point& p) { return interval(p.metrics[Metric::time_s], 1e3); }));
  c.add({"exposed", "ms", right, 1}, milliseconds_of(Metric::exposed_s));
  c.add({"contend", "ms", right, 5}, milliseconds_of(Metric::contention_s));
  c.add({"straggle", "ms", right, 4}, timed(straggle_cell));
  c.add({"interfere", "ms", right, 7}, milliseconds_of(Metric::interference_s));
  c.add({"wait", "ms", right, 6}, milliseconds_of(Metric::wait_s));
  c.add({"wire", "ms", right, 3}, milliseconds_of(Metric::wire_s));
  c.add({"other", "ms", right, 11}, milliseconds_of(Metric::other_s));
  c.add({"limit", "ms", right, 10}, milliseconds_of(Metric::limit_s));
  c.add({"rate", "samples/s", right, 12},
        timed([](const Point& p) { return rate(p.metrics.number(Metric::samples_per_s)); }));
  c.add({"bound by", "", left}, timed(bound_by_cell));
  return c;
}

/// The batch that names a curve: that of its one-rank baseline, which is also strong scaling's global batch.
std::string curve_batch(const Point& p) {
  const bool strong = text(p.factors[Factor::scaling]) == "strong";
  return text(p.factors[strong ? Factor::batch_global : Factor::batch_per_rank]);
}

/// " · bf16 · weights bf16-kahan": what the point says of its number formats.
std::string formats_of(const Point& p) {
  const auto &precision = p.factors[Factor::precision], &update = p.factors[Factor::update],
             &scale = p.factors[Factor::loss_scale], &gradients = p.factors[Factor::gradients];
  return (core::is_null(precision) ? "" : fmt::format(" · {}", text(precision))) +
         (core::is_null(update) ? "" : fmt::format(" · weights {}", text(update))) +
         (core::is_null(gradients) ? "" : fmt::format(" · gradients {}", text(gradients))) +
         (core::is_null(scale) ? "" : fmt::format(" · loss scale {}", text(scale)));
}

/// " · threads as ranks · inject slow:rank=1": how the point differs from a usual one in what was measured.
std::string circumstances_of(const Point& p) {
  const auto &device = p.factors[Factor::device], &ranks_as = p.factors[Factor::ranks_as],
             &interconnect = p.factors[Factor::interconnect], &optimizer = p.factors[Factor::optimizer],
             &inject = p.factors[Factor::inject];
  const bool is_on_host = core::is_null(device) || text(device) == "cpu";
  const bool are_processes = core::is_null(ranks_as) || text(ranks_as) == "processes";
  return (is_on_host ? "" : fmt::format(" · {}", text(device))) +
         (are_processes ? "" : fmt::format(" · {} as ranks", text(ranks_as))) +
         (core::is_null(interconnect) ? "" : fmt::format(" · {}", text(interconnect))) +
         (core::is_null(optimizer) ? "" : fmt::format(" · {}", text(optimizer))) +
         (core::is_null(inject) ? "" : fmt::format(" · inject {}", text(inject)));
}

/// cadence: the text for points that have no cadence of their own, since their ranks are not synchronised.
std::string curve_name(const Point& p, const std::string& cadence) {
  return fmt::format(
      "{}{} · batch {} · {} thread{} a rank · cadence {}{}", text(p.factors[Factor::model]), formats_of(p),
      curve_batch(p), text(p.factors[Factor::threads]), text(p.factors[Factor::threads]) == "1" ? "" : "s",
      core::is_null(p.factors[Factor::cadence]) ? cadence : text(p.factors[Factor::cadence]), circumstances_of(p));
}

std::string baseline_line(const std::vector<const Point*>& curve) {
  for (const Point* at : curve) {
    const Point& p = *at;
    const double base = p.metrics.number(Metric::baseline_time_s);
    if (text(p.factors[Factor::ranks]) == "1" && std::isfinite(base)) {
      return fmt::format("baseline: 1 rank, batch {}, {} ms a step (independent)\n",
                         text(p.factors[Factor::batch_per_rank]), milliseconds(base));
    }
  }
  return "no baseline was measured: no efficiency is shown\n";
}

/// The order of the rows in a table: by ranks, with the control above the points that are compared with it.
bool comes_before(const Point* a, const Point* b) {
  const auto order = [](const Point& p) {
    const auto* ranks = p.factors[Factor::ranks].as<std::int64_t>();
    return std::make_tuple(ranks ? *ranks : 0, text(p.factors[Factor::scaling]) == "strong",
                           text(p.factors[Factor::strategy]) != "independent", text(p.factors[Factor::strategy]));
  };
  if (order(*a) != order(*b)) return order(*a) < order(*b);
  const auto detail = [](const Point& p) {
    const auto* bucket = p.factors[Factor::bucket_bytes].as<std::int64_t>();
    return std::make_tuple(text(p.factors[Factor::algorithm]), text(p.factors[Factor::codec]) != "none",
                           text(p.factors[Factor::codec]), text(p.factors[Factor::transport]),
                           text(p.factors[Factor::overlap]), bucket ? *bucket : 0);
  };
  return detail(*a) < detail(*b);
}

std::string bytes_cell(double bytes) {
  return std::isfinite(bytes) ? core::to_text(core::Bytes{static_cast<std::uint64_t>(bytes)}) : "-";
}

std::string accuracy_cell(double share) { return std::isfinite(share) ? fmt::format("{:.2f}", share * 100) : "-"; }

std::string staleness_cell(const Point& p) {
  const double mean = p.metrics.number(Metric::staleness);
  return std::isfinite(mean) ? fmt::format("{:.2f} / {:.0f}", mean, p.metrics.number(Metric::staleness_p99)) : "-";
}

std::string waits_cell(const Point& p) {
  const double share = p.metrics.number(Metric::standstill_s) / p.metrics.number(Metric::time_s);
  if (!std::isfinite(share) || core::is_null(p.metrics[Metric::standstill_causes])) return "-";
  return fmt::format("{:.0f} %: {}", 100 * share, text(p.metrics[Metric::standstill_causes]));
}

/// True where there is a strategy besides the control, or accuracy to show.
bool tells_strategies_apart(std::span<const Point> points, const Labels& strategies) {
  return strategies.size() > 2 || std::any_of(points.begin(), points.end(), [](const Point& p) {
           return !core::is_null(p.metrics[Metric::accuracy_at_samples]);
         });
}

/// Columns that tell strategies apart besides speed.
std::string strategy_table(const std::vector<const Point*>& curve, const Labels& labels, std::size_t width) {
  using enum core::Align;
  const auto number = [](Metric m, auto cell) {
    return [m, cell](const Point& p) { return cell(p.metrics.number(m)); };
  };
  Columns<Point> c;
  c.add({"ranks", "", right}, ranks_cell);
  c.add({"strategy", "", left}, [&labels](const Point& p) { return strategy_cell(p, labels); });
  c.add({"exchange", "", left, 3}, [](const Point& p) {
    return report::exchange(p, short_labels({&p, 1}, Factor::codec));
  });
  c.add({"time", "µs/sample", right}, number(Metric::time_per_sample_s, [](double s) { return digits(s * 1e6); }));
  c.add({"sent", "B/step", right, 2}, number(Metric::bytes_sent_total, bytes_cell));
  c.add({"stale", "updates", right, 1}, staleness_cell);
  c.add({"accuracy", "% equal samples", right}, number(Metric::accuracy_at_samples, accuracy_cell));
  c.add({"accuracy", "% equal time", right}, number(Metric::accuracy_at_time, accuracy_cell));
  c.add({"waits", "", left, 4}, waits_cell);
  auto table = c.table();
  for (const Point* p : curve) {
    if (p->status == core::Status::ok) table.add_row(c.cells(*p));
  }
  return table.to_string(width) + "\n";
}

}  // namespace

std::string scale_tables(std::span<const Point> points, std::size_t width) {
  const Labels codecs = short_labels(points, Factor::codec);
  const Labels strategies = short_labels(points, Factor::strategy);
  const auto columns = columns_of(codecs, strategies);
  const bool has_strategy_table = tells_strategies_apart(points, strategies);
  const auto paced = std::find_if(points.begin(), points.end(),
                                  [](const Point& p) { return !core::is_null(p.factors[Factor::cadence]); });
  const std::string cadence = paced == points.end() ? "none" : text(paced->factors[Factor::cadence]);
  std::string out;
  for (auto& [name, curve] : by_name(points, [&](const Point& p) { return curve_name(p, cadence); })) {
    std::stable_sort(curve.begin(), curve.end(), comes_before);
    auto table = columns.table();
    const std::string common = common_remark(curve);
    for (const Point* p : curve) table.add_row(columns.cells(*p), curve_note(*p, common));
    out += fmt::format("{}\n{}{}{}{}{}\n{}", name, baseline_line(curve), machine_line(curve), common,
                       common.empty() ? "" : "\n", table.to_string(width),
                       has_strategy_table ? strategy_table(curve, strategies, width) : "");
  }
  return out;
}

std::string scale_legend(std::span<const Point> points, Legend how) {
  if (how == Legend::brief) {
    return fmt::format(
        "efficiency: rate per rank ÷ rate of one alone; exposed: added by communication\n"
        "~ disturbed: measure again; ? conclude nothing; * more busy threads than cores\n{}",
        whole_legend_line);
  }
  const bool has_strategy_table = tells_strategies_apart(points, short_labels(points, Factor::strategy));
  std::string out =
      "efficiency  samples/s per rank (servers count as ranks) ÷ samples/s of the baseline: one rank that runs "
      "independent;\n"
      "            the 95 % interval comes from blocks of steps that were measured in turn\n"
      "exchange    algorithm/transport and codec of the communication; overlap: with or without computation beside it\n"
      "scaling     weak: the batch of a rank stays the same on more ranks; strong: that of all ranks together does\n"
      "step        median time of a step on the slowest rank (95 %: its interval); for strategies with servers the "
      "harmonic\n"
      "            mean of the workers' times; the parts below are averaged over workers so that they add up to it\n"
      "exposed     time that communication adds: step − step of independent on the same ranks (below 0: within noise)\n"
      "The baseline and the six columns from contend to other add up to the step of the rank that computes longest:\n"
      "contend     contention: the kernel time of the median rank minus the baseline's, both without communication\n"
      "straggle    straggler (r1: rank 1): its kernel time minus the median rank's, both without communication\n"
      "interfere   extra time of kernels while the step communicates; only kernels that independent has too\n"
      "wait        waiting for ranks that have not begun the call (with servers: all waiting)\n"
      "wire        the rest of the communication (with servers: the worker's handling of messages)\n"
      "other       the rest of the step, and kernels that independent does not have: a strategy's own work\n"
      "limit       no step can be shorter: the library's best time for its operations or, if longer, the time for the "
      "bytes\n"
      "            that a rank must send at the link's rate; both are measured in turn with the step\n"
      "rate        samples/s of all ranks together\n"
      "bound by    the largest part, and the share of bootstrap draws (of blocks) in which it is the largest. A part\n"
      "            is named memory or cores (both: contend), straggle, interference, wait, wire or other. compute: "
      "under\n"
      "            5 % of the step was lost, or less than the noise.\n"
      "            undecided: no part is the largest in two thirds of the draws\n";
  const auto is_dgc = [](const Point& p) { return text(p.factors[Factor::codec]).starts_with("dgc"); };
  if (std::ranges::any_of(points, is_dgc)) {
    out += "codec       dgc: at its final density, without the warm-up of train\n";
  }
  const auto is_on_gpu = [](const Point& p) { return text(p.factors[Factor::device]) == "cuda"; };
  if (std::ranges::any_of(points, is_on_gpu)) {
    out += "step        on a GPU it includes the events that time each operation\n";
  }
  if (has_strategy_table) {
    out +=
        "time        step ÷ global batch\n"
        "sent        bytes that all ranks send in a step, on average\n"
        "stale       updates by others between a worker's read and its own update: mean / 99th percentile\n"
        "accuracy    on the validation set, after the samples of --learn, and after the time in which independent "
        "learns them\n"
        "waits       share of the step in which workers waited, and the main reason\n";
  }
  out += report::disturbed_legend(12, true) +
         "?           efficiency without an interval (the baseline needs none), or with one that is all above 100 %:\n"
         "            conclude nothing from it\n"
         "*           oversubscribed, more busy threads than cores: no measurement of scaling\n";
  return out;
}

const CsvColumns& scale_csv() {
  using enum core::Metric;
  using core::Factor;
  static const CsvColumns columns =
      CsvColumns()
          .add({Factor::model,          Factor::precision,    Factor::update,      Factor::batch_per_rank,
                Factor::batch_global,   Factor::accumulate,   Factor::ranks,       Factor::nodes,
                Factor::ranks_per_node, Factor::placement,    Factor::scaling,     Factor::threads,
                Factor::device,         Factor::interconnect, Factor::strategy,    Factor::mesh,
                Factor::algorithm,      Factor::codec,        Factor::transport,   Factor::overlap,
                Factor::bucket_bytes,   Factor::cadence,      Factor::tuned_table, Factor::optimizer})
          .statistics(time_s, {"median", "ci95_low", "ci95_high"})
          .samples(time_s, "samples")
          .stop(time_s)
          .add({samples_per_s,
                efficiency,
                efficiency_ci95_low,
                efficiency_ci95_high,
                baseline_time_s,
                baseline_ranks,
                baseline_batch,
                self_speedup,
                exposed_s,
                exposed_ci95_low,
                exposed_ci95_high,
                contention_s,
                straggle_s,
                interference_s,
                wait_s,
                wire_s,
                other_s,
                bound_by,
                bound_by_probability,
                limit_s,
                limit})
          .add({compute_s, comm_s, overlap_s, bytes_sent_per_rank_max, bytes_sent_total, bytes_inter_node, staleness,
                updates_per_s, accuracy_at_samples, accuracy_at_time, oversubscribed, steadiness, blocks,
                disturbed_blocks, left_out_blocks, noise_steal, noise_run_delay});
  return columns;
}

}  // namespace gradmeter::bench
