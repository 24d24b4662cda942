// SPDX-License-Identifier: Apache-2.0
#include "cli/predict_what_if.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/table.hpp"
#include "predict/machines.hpp"
#include "report/cells.hpp"

namespace gradmeter::cli {

using core::UsageError;

namespace {

/// A change pays if it makes samples/s at least 5 % higher; predictions are less sure than that.
constexpr double pays_from = 1.05;

}  // namespace

std::vector<WhatIf::Change> WhatIf::read_changes(const Flags& f) {
  std::vector<Change> out;
  if (!f.has("what-if")) return out;
  for (const std::string& text : f.texts("what-if")) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos)
      throw UsageError(
          fmt::format("--what-if {}: write KEY=VALUE,VALUE, as link=100GbE,400GbE", core::printable(text)));
    for (const std::string& value : split_list("--what-if", text.substr(equals + 1)))
      out.push_back({text.substr(0, equals), value});
  }
  return out;
}

AskedStep WhatIf::changed(AskedStep asked, const Change& change) {
  const std::string flag = "--what-if " + change.key;
  const auto one_of = [&](const std::vector<std::string>& values) {
    check_one_of(flag, change.value, values);
    return change.value;
  };
  if (change.key == "link") {
    predict::connect(asked.machine, flag, change.value);
    asked.link = change.value;
  } else if (change.key == "precision") {
    asked.step.precision = one_of({"fp32", "tf32", "fp16", "bf16", "fp8", "fp4"});
  } else if (change.key == "codec") {
    set_codec(change.value, asked);
  } else if (change.key == "strategy") {
    set_strategy(change.value, asked);
  } else if (change.key == "algorithm") {
    set_algorithm(flag, change.value, asked);
  } else if (change.key == "bucket") {
    set_bucket(flag, change.value, asked);
  } else if (change.key == "machine") {
    core::Machine other = predict::machine_named(change.value, asked.machine.ranks_per_node);
    if (const std::string why = predict::machine_refusal(other); !why.empty())
      throw UsageError(fmt::format("{} {}: {}; name another", flag, core::printable(change.value), why));
    if (!asked.link.empty()) predict::connect(other, flag, asked.link);
    asked.machine = std::move(other);
    asked.step.gpu = asked.machine.device->name;
  } else if (change.key == "recompute") {
    asked.step.recompute = one_of({"none", "selective", "full"});
  } else if (change.key == "attention") {
    asked.step.attention = one_of({"flash", "plain"});
  } else if (change.key == "zero") {
    asked.step.zero_stage = static_cast<int>(parse_count(flag, change.value, 0, 3));
  } else if (change.key == "micro-batch") {
    asked.step.micro_batch = static_cast<std::size_t>(parse_count(flag, change.value, 1, most_count));
  } else {
    throw UsageError(
        fmt::format("--what-if: '{}' cannot be changed; there are link, precision, codec, strategy, algorithm, bucket, "
                    "machine, recompute, attention, zero, micro-batch",
                    core::printable(change.key)));
  }
  check_exchange(asked);
  return asked;
}

/// "from 64 ranks", "up to 512 ranks", "at 8 of 12", "nowhere".
std::string WhatIf::where_it_pays(const Effect& e) const {
  std::vector<std::size_t> pays;
  for (std::size_t i = 0; i < rows_.size(); ++i)
    if (e.ratios[i] && *e.ratios[i] >= pays_from) pays.push_back(i);
  if (pays.empty()) return "nowhere";
  if (pays.size() == rows_.size()) return "everywhere";
  const bool is_one_range = pays.back() - pays.front() + 1 == pays.size();
  if (is_one_range && pays.back() + 1 == rows_.size())
    return fmt::format("from {} ranks", rows_[pays.front()].asked.step.gpus);
  if (is_one_range && pays.front() == 0) return fmt::format("up to {} ranks", rows_[pays.back()].asked.step.gpus);
  if (is_one_range)
    return fmt::format("{} to {} ranks", rows_[pays.front()].asked.step.gpus, rows_[pays.back()].asked.step.gpus);
  return fmt::format("at {} of {}", pays.size(), rows_.size());
}

WhatIf::WhatIf(const Flags& f, const std::vector<PredictedRow>& rows, const predict::Calibration& calibration)
    : rows_(rows) {
  for (const Change& change : read_changes(f)) {
    Effect e{.change = change, .ratios = {}, .reason = {}, .price_ratio = {}};
    for (PredictedRow base : rows_) {
      PredictedRow other = predicted(changed(base.asked, change), calibration);
      const bool is_other_link = change.key == "link" && base.asked.step.gpus > base.asked.machine.ranks_per_node;
      if (base.prediction && other.prediction &&
          (base.prediction->basis != other.prediction->basis || (is_other_link && other.prediction->is_measured))) {
        // A prediction that is fitted to measurements is not compared with one from data sheets, and a measured step on
        // as many GPUs does not say what another link would change: both are made from data sheets then.
        const predict::Calibration uncalibrated({});
        base.asked.machine.fit.reset();
        base = predicted(base.asked, uncalibrated);
        other = predicted(changed(base.asked, change), uncalibrated);
      }
      const bool both = base.prediction && other.prediction;
      const auto modelled_s = [](const predict::Prediction& p) { return p.seconds / p.correction; };
      e.ratios.push_back(both ? std::optional(modelled_s(*base.prediction) / modelled_s(*other.prediction))
                              : std::nullopt);
      if (!both && e.reason.empty())
        e.reason = base.prediction       ? other.reason
                   : base.reason.empty() ? "without the change there is no prediction"
                                         : "without the change there is no prediction: " + base.reason;
      const double before = base.asked.machine.device->price_usd, after = other.asked.machine.device->price_usd;
      if (before > 0 && after > 0) e.price_ratio = after / before;
    }
    effects_.push_back(std::move(e));
  }
}

void WhatIf::print_json() const {
  for (const Effect& e : effects_) {
    core::Json ratios = core::Json::array();
    for (std::size_t i = 0; i < rows_.size(); ++i)
      ratios.push_back({{"ranks", rows_[i].asked.step.gpus}, {"ratio", or_null(e.ratios[i])}});
    const bool has_ratio = std::ranges::any_of(e.ratios, [](const auto& ratio) { return ratio.has_value(); });
    const core::Json line{{"what_if", e.change.key},  {"value", e.change.value},
                          {"predicted", has_ratio},   {"ratios", std::move(ratios)},
                          {"pays", where_it_pays(e)}, {"price_ratio", or_null(e.price_ratio)},
                          {"reason", e.reason}};
    core::print("{}\n", core::json_text(line));
  }
}

void WhatIf::print(std::size_t width) const {
  if (effects_.empty()) return;
  std::vector<core::Column> heads{{"change", "", core::Align::left}};
  for (const PredictedRow& r : rows_)
    heads.push_back({report::counted(r.asked.step.gpus, "rank"), "times", core::Align::right});
  const bool has_price = std::ranges::any_of(effects_, [](const Effect& e) { return e.price_ratio.has_value(); });
  if (has_price) heads.push_back({"list price", "times", core::Align::right});
  heads.push_back({"pays", "", core::Align::left});
  core::Table table(heads);
  const Effect* best = nullptr;
  std::size_t best_at = 0;
  for (const Effect& e : effects_) {
    std::vector<std::string> cells{
        fmt::format("{}={}", core::printable(e.change.key), core::printable(e.change.value))};
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      cells.push_back(e.ratios[i] ? fmt::format("{:.2f}", *e.ratios[i]) : "-");
      if (e.ratios[i] && (!best || *e.ratios[i] > best->ratios[best_at].value_or(0))) best = &e, best_at = i;
    }
    if (has_price) cells.push_back(e.price_ratio ? fmt::format("{:.2f}", *e.price_ratio) : "-");
    cells.push_back(where_it_pays(e));
    table.add_row(std::move(cells), e.reason.empty() ? "" : core::printable(e.reason));
  }
  core::print("What if: samples/s relative to the rows above; a change pays from {:.2f} times\n{}\n", pays_from,
              table.to_string(width));
  if (!best || *best->ratios[best_at] < pays_from) {
    core::print("None of these changes pays.\n");
  } else {
    core::print("{}={} pays most: {:.2f} times at {}; it pays {}.\n", core::printable(best->change.key),
                core::printable(best->change.value), *best->ratios[best_at],
                report::counted(rows_[best_at].asked.step.gpus, "rank"), where_it_pays(*best));
  }
}

}  // namespace gradmeter::cli
