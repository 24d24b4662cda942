#include "report/page/headline.hpp"

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

using core::Json;
using Rows = std::vector<const Json*>;

double number_of(const Json& row, const std::string& key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

/// As the terminal has rates: three digits and a letter for thousands.
std::string short_rate(double per_second) {
  if (!std::isfinite(per_second)) return "-";
  if (per_second >= 1e6) return digits(per_second / 1e6) + "M";
  return per_second >= 1e4 ? digits(per_second / 1e3) + "k" : fmt::format("{:.0f}", per_second);
}

std::string whole_percent(double share) { return fmt::format("{:.0f}", 100 * share); }

/// "82–86" of both ends; empty where one is not known.
std::string ends(double low, double high, const std::function<std::string(double)>& shown) {
  return std::isfinite(low) && std::isfinite(high) ? fmt::format("{}–{}", shown(low), shown(high)) : "";
}

std::string ms_text(double seconds) { return digits(1e3 * seconds); }

LargeFigure time_figure(const Json& row, const std::string& what) {
  return {.value = ms_text(number_of(row, "time_s")) + " ms",
          .interval = ends(number_of(row, "time_s_ci95_low"), number_of(row, "time_s_ci95_high"), ms_text),
          .what = what};
}

LargeFigure rate_figure(double bytes_per_s, const std::string& what) {
  return {.value = digits(bytes_per_s / 1e9) + " GB/s", .interval = "", .what = what};
}

/// The row with the largest `value`, those in doubt only where all are; null where none has one.
const Json* best(const Rows& rows, const std::function<double(const Json&)>& value) {
  const Json* out = nullptr;
  const auto key = [&](const Json& row) { return std::pair(!row.contains("doubt"), value(row)); };
  for (const Json* row : rows) {
    if (std::isfinite(value(*row)) && (!out || key(*out) < key(*row))) out = row;
  }
  return out;
}

/// Rows of one link, scaling and so on: what is fastest on another link is no better choice on this one.
void keep_first_panel(Rows& rows) {
  if (rows.empty()) return;
  const std::string panel = rows.front()->at("panel");
  std::erase_if(rows, [&](const Json* row) { return row->at("panel") != panel; });
}

std::string described(const Json& row) {
  std::string out;
  const auto add = [&](const std::string& words) {
    if (!words.empty()) out += fmt::format("{}{}", out.empty() ? "" : ", ", words);
  };
  const std::string panel = row.at("panel"), series = row.at("series"), model = row.value("model", "");
  if (!model.empty() && panel.find(model) == std::string::npos) add(model);
  if (const auto ranks = row.value("ranks", 0)) add(fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s"));
  add(row.value("batch", ""));
  if (row.contains("size_bytes"))
    add(core::to_text(core::Bytes{static_cast<std::size_t>(row["size_bytes"].get<double>())}));
  if (series != "measured") add(series);
  add(panel);
  return out;
}

/// What most of the lost time went to, and its share of it; empty where too little was lost to say.
LargeFigure largest_loss(const Json& row) {
  constexpr std::array parts{std::pair{"contention_s", "shared cores and memory"},
                             std::pair{"straggle_s", "a slow rank's computation"},
                             std::pair{"interference_s", "computation that the exchange slows down"},
                             std::pair{"wait_s", "waiting for other ranks"},
                             std::pair{"wire_s", "the wire"},
                             std::pair{"other_s", "work besides kernels and calls"}};
  double lost = 0, largest = 0;
  std::string_view name;
  for (const auto& [key, words] : parts) {
    const double part = number_of(row, key);
    if (!(part > 0)) continue;
    lost += part;
    if (part > largest) largest = part, name = words;
  }
  const std::string bound = row.value("bound_by", "");
  if (!(lost > 0) || bound == "compute") return {};
  const std::string unsure = bound == "undecided" ? ", but intervals leave it undecided" : "";
  return {.value = whole_percent(largest / lost) + " %",
          .interval = fmt::format("{} of {} ms", ms_text(largest), ms_text(lost)),
          .what = fmt::format("of the lost time: {}{}", name, unsure)};
}

Headline of_scale(const Rows& all) {
  const auto ranks_of = [](const Json& row) { return row.value("ranks", 0); };
  const std::string model = all.front()->value("model", "");
  Rows rows;
  int most = 0;
  for (const Json* row : all) {
    if (row->value("model", "") != model || row->value("strategy", "") == "independent") continue;
    if (!row->contains("efficiency")) continue;
    most = std::max(most, ranks_of(*row));
    rows.push_back(row);
  }
  std::erase_if(rows, [&](const Json* row) { return ranks_of(*row) != most; });
  keep_first_panel(rows);
  const Json* row = best(rows, [](const Json& r) { return number_of(r, "samples_per_s"); });
  if (!row) row = best(rows, [](const Json& r) { return number_of(r, "efficiency"); });
  if (!row) return {};
  Headline out{.figures = {}, .of = described(*row)};
  if (rows.size() > 1)
    out.of += fmt::format("; of {} points at {} ranks the one with most samples/s", rows.size(), most);
  const std::string doubt = row->value("doubt", "");
  out.figures.push_back(
      {.value = whole_percent(number_of(*row, "efficiency")) + " %" + (doubt.empty() ? "" : " ?"),
       .interval = ends(number_of(*row, "efficiency_ci95_low"), number_of(*row, "efficiency_ci95_high"), whole_percent),
       .what =
           fmt::format("efficiency on {} rank{}{}{}", most, most == 1 ? "" : "s", doubt.empty() ? "" : ": ", doubt)});
  if (LargeFigure loss = largest_loss(*row); !loss.value.empty()) out.figures.push_back(std::move(loss));
  if (const double per_s = number_of(*row, "samples_per_s"); std::isfinite(per_s))
    out.figures.push_back({.value = short_rate(per_s), .interval = "samples/s", .what = "of all ranks together"});
  else
    out.figures.push_back(time_figure(*row, "a step"));
  return out;
}

Headline of_allreduce(const Rows& all) {
  double largest = 0;
  for (const Json* row : all) largest = std::max(largest, number_of(*row, "size_bytes"));
  Rows rows = all;
  std::erase_if(rows, [&](const Json* row) { return number_of(*row, "size_bytes") != largest; });
  keep_first_panel(rows);
  const Json* row = best(rows, [](const Json& r) { return -number_of(r, "time_s"); });
  if (!row) return {};
  Headline out{.figures = {time_figure(*row, "a call of the fastest exchange of the largest buffer")},
               .of = described(*row)};
  if (const double bus = number_of(*row, "busbw_bytes_per_s"); bus > 0)
    out.figures.push_back(rate_figure(bus, "bus bandwidth"));
  if (const double share = number_of(*row, "limit_s") / number_of(*row, "time_s"); std::isfinite(share))
    out.figures.push_back({.value = whole_percent(share) + " %", .interval = "", .what = "of the limit by the link"});
  return out;
}

Headline of_kernels(const Rows& rows) {
  const Json* row = best(rows, [](const Json& r) { return number_of(r, "flops_per_s"); });
  if (!row) return {};
  Headline out{.figures = {{.value = digits(number_of(*row, "flops_per_s") / 1e9) + " GFLOP/s",
                            .interval = "",
                            .what = "the fastest kernel"}},
               .of = described(*row)};
  if (const double share = number_of(*row, "roofline"); std::isfinite(share))
    out.figures.push_back({.value = whole_percent(share) + " %", .interval = "", .what = "of its roofline"});
  out.figures.push_back(time_figure(*row, "a call"));
  return out;
}

Headline of_links(const Rows& rows) {
  const Json* row = best(rows, [](const Json& r) { return -number_of(r, "link_bytes_per_s"); });
  if (!row) return {};
  Headline out{.figures = {rate_figure(number_of(*row, "link_bytes_per_s"), "the slowest link")},
               .of = fmt::format("rank {} to rank {}, {}", row->value("from_rank", 0), row->value("to_rank", 0),
                                 described(*row))};
  if (const double seconds = number_of(*row, "latency_s"); std::isfinite(seconds))
    out.figures.push_back({.value = digits(1e6 * seconds) + " µs", .interval = "", .what = "its latency"});
  return out;
}

Headline of_infer(const Rows& rows) {
  const Json* row = best(rows, [](const Json& r) { return number_of(r, "samples_per_s"); });
  if (!row) row = best(rows, [](const Json& r) { return number_of(r, "batch_per_rank") / number_of(r, "time_s"); });
  if (!row) return {};
  Headline out{.figures = {time_figure(*row, "a forward pass")}, .of = described(*row)};
  out.figures.push_back({.value = short_rate(number_of(*row, "batch_per_rank") / number_of(*row, "time_s")),
                         .interval = "samples/s",
                         .what = "the most of all points"});
  if (const double speedup = number_of(*row, "speedup"); std::isfinite(speedup))
    out.figures.push_back({.value = digits(speedup) + " ×", .interval = "", .what = "the speed of fp32"});
  return out;
}

Headline of_train(const Rows& rows) {
  const Json* row = best(rows, [](const Json& r) { return number_of(r, "accuracy"); });
  if (!row) return {};
  Headline out{.figures = {{.value = digits(100 * number_of(*row, "accuracy")) + " %",
                            .interval = "",
                            .what = "accuracy, the highest"}},
               .of = described(*row)};
  const double seconds = number_of(*row, "step") * number_of(*row, "time_s");
  if (std::isfinite(seconds))
    out.figures.push_back({.value = digits(seconds) + " s", .interval = "", .what = "of training until then"});
  if (std::isfinite(number_of(*row, "time_s"))) out.figures.push_back(time_figure(*row, "a step"));
  return out;
}

}  // namespace

Headline headline(const RowTable& table) {
  struct Maker {
    std::string_view experiment;
    Headline (*make)(const Rows&);
  };
  constexpr std::array makers{Maker{"scale", of_scale},     Maker{"allreduce", of_allreduce}, Maker{"train", of_train},
                              Maker{"kernels", of_kernels}, Maker{"infer", of_infer},         Maker{"links", of_links}};
  for (const auto& [experiment, make] : makers) {
    Rows rows;
    for (const Json& row : table.rows)
      if (row.at("experiment") == experiment && row.at("status") == "ok") rows.push_back(&row);
    if (rows.empty()) continue;
    if (Headline out = make(rows); !out.figures.empty()) return out;
  }
  return {};
}

}  // namespace gradmeter::report
