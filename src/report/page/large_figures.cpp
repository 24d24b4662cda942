// SPDX-License-Identifier: Apache-2.0
#include "report/page/page.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>

#include "core/format.hpp"
#include "core/units.hpp"
#include "report/cells.hpp"

namespace gradmeter::report {
namespace {

using Rows = std::vector<const PageRow*>;

/// A headline, and the row that its figures are of; null: no row has figures.
struct FoundHeadline {
  const PageRow* row = nullptr;
  Headline headline = {};
};

/// Shows a rate as the terminal does: with three digits and a letter for thousands.
std::string short_rate(double per_second) {
  if (!std::isfinite(per_second)) return "-";
  if (per_second >= 1e6) return digits(per_second / 1e6) + "M";
  return per_second >= 1e4 ? digits(per_second / 1e3) + "k" : fmt::format("{:.0f}", per_second);
}

std::string whole_percent(double share) { return fmt::format("{:.0f}", 100 * share); }

/// An interval as text, "82–86"; empty if one end is not known.
std::string interval_text(double low, double high, const std::function<std::string(double)>& shown) {
  return std::isfinite(low) && std::isfinite(high) ? fmt::format("{}–{}", shown(low), shown(high)) : "";
}

std::string ms_text(double seconds) { return digits(1e3 * seconds); }

HeadlineFigure time_figure(const PageRow& row, const std::string& what) {
  return {.value = ms_text(row.number("time_s")) + " ms",
          .what = what,
          .interval = interval_text(row.number("time_s_ci95_low"), row.number("time_s_ci95_high"), ms_text)};
}

HeadlineFigure rate_figure(double bytes_per_s, const std::string& what) {
  return {.value = digits(bytes_per_s / 1e9) + " GB/s", .what = what};
}

/// The row with the largest `value`, a row in doubt only if all are; null if no row has a value.
const PageRow* best(const Rows& rows, const std::function<double(const PageRow&)>& value) {
  const PageRow* out = nullptr;
  const auto key = [&](const PageRow& row) { return std::pair(!row.has("doubt"), value(row)); };
  for (const PageRow* row : rows)
    if (std::isfinite(value(*row)) && (!out || key(*out) < key(*row))) out = row;
  return out;
}

/// Keeps the rows of one panel, so of one link, scaling and so on: that of the first row that is not in doubt. What is
/// fastest on another link is no better choice on this one.
void keep_first_panel(Rows& rows) {
  if (rows.empty()) return;
  const auto sure = std::ranges::find_if(rows, [](const PageRow* row) { return !row->has("doubt"); });
  const std::string panel = (sure == rows.end() ? rows.front() : *sure)->text("panel");
  std::erase_if(rows, [&](const PageRow* row) { return row->text("panel") != panel; });
}

/// Keeps the rows of the first row's model: samples of another model are other work.
void keep_first_model(Rows& rows) {
  if (rows.empty()) return;
  const std::string model = rows.front()->text("model");
  std::erase_if(rows, [&](const PageRow* row) { return row->text("model") != model; });
}

/// Keeps the rows that have the largest number in the column, so that other rows are not held against them.
void keep_largest(Rows& rows, std::string_view column) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const PageRow* row : rows)
    if (const double number = row->number(column); number > largest) largest = number;
  if (!std::isfinite(largest)) return;
  std::erase_if(rows, [&](const PageRow* row) { return row->number(column) != largest; });
}

/// The point of a row in words: "resnet50, 8 ranks, batch 16, ring, 1gbe".
std::string described(const PageRow& row) {
  std::string out;
  const auto add = [&](const std::string& words) {
    if (!words.empty()) out += fmt::format("{}{}", out.empty() ? "" : ", ", words);
  };
  const std::string panel = row.text("panel"), series = row.text("series"), model = row.text("model");
  if (!model.empty() && panel.find(model) == std::string::npos) add(model);
  if (const auto ranks = row.whole("ranks")) add(fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s"));
  add(row.text("batch"));
  if (row.has("size_bytes")) add(core::to_text(core::Bytes{static_cast<std::size_t>(row.number("size_bytes"))}));
  if (series != "measured") add(series);
  add(panel);
  return out;
}

/// The cause of most of the lost time, and its share; empty if no time is lost, or the step is bound by computation.
HeadlineFigure largest_loss(const PageRow& row) {
  constexpr std::array parts{std::pair{"contention_s", "shared cores and memory"},
                             std::pair{"straggle_s", "a slow rank's computation"},
                             std::pair{"interference_s", "computation that the exchange slows down"},
                             std::pair{"wait_s", "waiting for other ranks"},
                             std::pair{"wire_s", "the wire"},
                             std::pair{"other_s", "work that a step without an exchange does not do"}};
  double lost = 0, largest = 0;
  std::string_view name;
  for (const auto& [key, words] : parts) {
    const double part = row.number(key);
    if (!(part > 0)) continue;
    lost += part;
    if (part > largest) largest = part, name = words;
  }
  const std::string bound = row.text("bound_by");
  if (!(lost > 0) || bound == "compute") return {};
  const std::string unsure = bound == "undecided" ? ", but intervals leave it undecided" : "";
  return {.value = whole_percent(largest / lost) + " %",
          .what = fmt::format("of the lost time: {}{}", name, unsure),
          .interval = fmt::format("{} of {} ms", ms_text(largest), ms_text(lost))};
}

FoundHeadline of_scale(const Rows& all) {
  Rows rows = all;
  keep_first_model(rows);
  std::erase_if(rows, [](const PageRow* row) {
    return row->text("strategy") == "independent" || !row->has("efficiency") || !row->has("ranks");
  });
  keep_largest(rows, "ranks");
  keep_first_panel(rows);
  const PageRow* row = best(rows, [](const PageRow& r) { return r.number("samples_per_s"); });
  if (!row) row = best(rows, [](const PageRow& r) { return r.number("efficiency"); });
  if (!row) return {};
  const std::int64_t ranks = row->whole("ranks");
  Headline out{.figures = {}, .of = described(*row)};
  if (rows.size() > 1)
    out.of += fmt::format("; of {} points at {} ranks the one with most samples/s", rows.size(), ranks);
  out.figures.push_back({.value = whole_percent(row->number("efficiency")) + " %",
                         .what = fmt::format("efficiency on {} rank{}", ranks, ranks == 1 ? "" : "s"),
                         .interval = interval_text(row->number("efficiency_ci95_low"),
                                                   row->number("efficiency_ci95_high"), whole_percent)});
  if (HeadlineFigure loss = largest_loss(*row); !loss.value.empty()) out.figures.push_back(std::move(loss));
  if (const double per_s = row->number("samples_per_s"); std::isfinite(per_s))
    out.figures.push_back({.value = short_rate(per_s), .what = "of all ranks together", .interval = "samples/s"});
  else
    out.figures.push_back(time_figure(*row, "a step"));
  return {row, std::move(out)};
}

FoundHeadline of_allreduce(const Rows& all) {
  Rows rows = all;
  // A larger buffer of fewer ranks would say less of the machine than the largest one of most ranks.
  keep_largest(rows, "ranks");
  keep_largest(rows, "size_bytes");
  keep_first_panel(rows);
  const PageRow* row = best(rows, [](const PageRow& r) { return -r.number("time_s"); });
  if (!row) return {};
  Headline out{.figures = {time_figure(*row, "a call of the fastest exchange of the largest buffer")},
               .of = described(*row)};
  if (const double bus = row->number("busbw_bytes_per_s"); bus > 0)
    out.figures.push_back(rate_figure(bus, "bus bandwidth"));
  if (const double share = row->number("limit_s") / row->number("time_s"); std::isfinite(share))
    out.figures.push_back({.value = whole_percent(share) + " %", .what = "of the limit by the link"});
  return {row, std::move(out)};
}

FoundHeadline of_kernels(const Rows& rows) {
  const PageRow* row = best(rows, [](const PageRow& r) { return r.number("flops_per_s"); });
  if (!row) return {};
  Headline out{
      .figures = {{.value = digits(row->number("flops_per_s") / 1e9) + " GFLOP/s", .what = "the fastest kernel"}},
      .of = described(*row)};
  if (const double share = row->number("roofline"); std::isfinite(share))
    out.figures.push_back({.value = whole_percent(share) + " %", .what = "of its roofline"});
  out.figures.push_back(time_figure(*row, "a call"));
  return {row, std::move(out)};
}

FoundHeadline of_links(const Rows& all) {
  Rows rows = all;
  // Rows of other patterns have the rate of several links together, or of both directions.
  std::erase_if(rows, [](const PageRow* row) {
    return row->text("pattern") != "one-way" || !row->has("from_rank") || !row->has("to_rank");
  });
  // A small message is slow on any link.
  keep_largest(rows, "size_bytes");
  keep_first_panel(rows);
  const PageRow* row = best(rows, [](const PageRow& r) { return -r.number("link_bytes_per_s"); });
  if (!row) return {};
  Headline out{
      .figures = {rate_figure(row->number("link_bytes_per_s"), "the slowest link")},
      .of = fmt::format("rank {} to rank {}, {}", row->whole("from_rank"), row->whole("to_rank"), described(*row))};
  if (const double seconds = row->number("latency_s"); std::isfinite(seconds))
    out.figures.push_back({.value = digits(1e6 * seconds) + " µs", .what = "its latency"});
  return {row, std::move(out)};
}

/// The samples of all ranks together in a second; rows of one rank need not have the metric.
double inferred_per_s(const PageRow& row) {
  if (row.has("samples_per_s")) return row.number("samples_per_s");
  return row.number("batch_per_rank") * row.number("ranks") / row.number("time_s");
}

FoundHeadline of_infer(const Rows& all) {
  Rows rows = all;
  keep_first_model(rows);
  const PageRow* row = best(rows, inferred_per_s);
  if (!row) return {};
  Headline out{.figures = {time_figure(*row, "a forward pass")}, .of = described(*row)};
  if (rows.size() > 1) out.of += fmt::format("; of {} points the one with most samples/s", rows.size());
  out.figures.push_back(
      {.value = short_rate(inferred_per_s(*row)), .what = "of all ranks together", .interval = "samples/s"});
  if (const double speedup = row->number("speedup"); std::isfinite(speedup))
    out.figures.push_back({.value = digits(speedup) + " ×", .what = "the speed of fp32"});
  return {row, std::move(out)};
}

FoundHeadline of_train(const Rows& all) {
  Rows rows = all;
  keep_first_model(rows);
  const PageRow* row = best(rows, [](const PageRow& r) { return r.number("accuracy"); });
  if (!row) return {};
  Headline out{.figures = {{.value = digits(100 * row->number("accuracy")) + " %", .what = "accuracy, the highest"}},
               .of = described(*row)};
  // Steps and samples/s count from the run's begin; `time_s` is of the last epoch alone.
  const double seconds = row->number("step") * row->number("batch_global") / row->number("samples_per_s");
  if (std::isfinite(seconds))
    out.figures.push_back({.value = digits(seconds) + " s", .what = "of training until then"});
  if (std::isfinite(row->number("time_s"))) out.figures.push_back(time_figure(*row, "a step"));
  return {row, std::move(out)};
}

/// Marks all figures of a row in doubt, and says why at the first.
void mark_doubt(FoundHeadline& found) {
  const std::string doubt = found.row->text("doubt");
  if (doubt.empty()) return;
  for (HeadlineFigure& figure : found.headline.figures) figure.value += " ?";
  found.headline.figures.front().what += fmt::format(": {}", doubt);
}

}  // namespace

Headline headline(const PageTable& table) {
  for (const auto& [experiment, make] : {std::pair{"scale", &of_scale},
                                         {"allreduce", &of_allreduce},
                                         {"train", &of_train},
                                         {"kernels", &of_kernels},
                                         {"infer", &of_infer},
                                         {"links", &of_links}}) {
    Rows rows;
    for (const PageRow& row : table.rows)
      if (row.point.experiment == experiment && row.point.status == core::Status::ok) rows.push_back(&row);
    if (rows.empty()) continue;
    FoundHeadline found = make(rows);
    if (found.headline.figures.empty()) continue;
    mark_doubt(found);
    return std::move(found.headline);
  }
  return {};
}

}  // namespace gradmeter::report
