// SPDX-License-Identifier: Apache-2.0
#include "bench/train/step_size.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"

namespace gradmeter::bench {
namespace {

constexpr std::array table{
    StepSizeRuleInfo{"constant", "", "lr after the warm-up", "-"},
    StepSizeRuleInfo{"cosine", "", "lr*(1 + cos(pi*t))/2, t from 0 to 1 after the warm-up",
                     "Loshchilov & Hutter, ICLR 2017"},
    StepSizeRuleInfo{"linear", "batch=64", "lr*global batch/batch", "Goyal et al. 2017"},
    StepSizeRuleInfo{"sqrt", "batch=64", "lr*sqrt(global batch/batch)", "Krizhevsky 2014; Hoffer et al. 2017"},
};

core::ParsedName complete(std::string_view text) {
  const core::ParsedName parsed = core::parse_name(text);
  std::vector<std::string> names;
  for (const auto& r : table) {
    if (r.name == parsed.base) return core::with_defaults("step-size rule", r.name, r.parameters, parsed);
    names.emplace_back(r.name);
  }
  core::refuse_unknown("step-size rule", parsed.base, names);
}

std::vector<std::string_view> parts(std::string_view text) {
  std::vector<std::string_view> out;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find('+', begin);
    out.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return out;
    begin = end + 1;
  }
}

}  // namespace

std::span<const StepSizeRuleInfo> step_size_rules() { return table; }

StepSizeRule::StepSizeRule(std::string_view text) {
  std::string scaling, course;
  for (const auto part : parts(text)) {
    const core::ParsedName rule = complete(part);
    const bool scales = rule.parameters.contains("batch");
    std::string& kind_text = scales ? scaling : course;
    if (!kind_text.empty()) {
      throw core::UsageError(
          fmt::format("step-size rule {}: {} and {} exclude each other; join one of linear, sqrt "
                      "with one of constant, cosine",
                      text, kind_text, rule.canonical()));
    }
    kind_text = rule.canonical();
    if (scales) {
      scaling_ = rule.base == "linear" ? Scaling::linear : Scaling::square_root;
      reference_batch_ = static_cast<double>(core::count_parameter(rule, "batch", {1, std::uint64_t{1} << 40}));
    } else {
      course_ = rule.base == "cosine" ? Course::cosine : Course::constant;
    }
  }
  if (scaling.empty()) {
    name_ = course;
  } else {
    name_ = course_ == Course::constant ? scaling : scaling + "+" + course;
  }
}

double StepSizeRule::scaled(double base, std::size_t batch) const {
  const double ratio = static_cast<double>(batch) / reference_batch_;
  switch (scaling_) {
    case Scaling::linear:
      return base * ratio;
    case Scaling::square_root:
      return base * std::sqrt(ratio);
    case Scaling::none:
      break;
  }
  return base;
}

float StepSizeRule::at(const TrainingMoment& m, double base, double warmup_epochs) const {
  const double peak = scaled(base, m.batch), step = static_cast<double>(m.step), steps = static_cast<double>(m.steps);
  const double ramp = warmup_epochs * static_cast<double>(m.epoch_steps);
  if (step + 1 < ramp) {
    const double from = scaling_ == Scaling::none ? 0 : base;
    return static_cast<float>(from + (peak - from) * (step + 1) / ramp);
  }
  if (course_ == Course::constant) return static_cast<float>(peak);
  const double begin = std::max(0.0, ramp - 1);  // the first step with the full size
  const double t = std::clamp((step - begin) / std::max(1.0, steps - begin), 0.0, 1.0);
  return static_cast<float>(peak * (1 + std::cos(std::numbers::pi * t)) / 2);
}

}  // namespace gradmeter::bench
