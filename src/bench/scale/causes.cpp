#include "bench/scale/causes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

namespace gradmeter::bench {
namespace {

/// For the ranks that train: those that serve compute nothing.
std::vector<double> sorted_workers(const StepBlock& control, const StepBlock& point) {
  std::vector<double> out;
  for (std::size_t r = 0; r < control.compute.size(); ++r) {
    if (point.compute.at(r) > 0) out.push_back(control.compute[r]);
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// The lower one of two middle ranks: of two ranks the faster, so that a slow one counts as straggle, not contention.
double lower_median(std::span<const double> sorted) { return sorted.empty() ? 0 : sorted[(sorted.size() - 1) / 2]; }

double mean(std::span<const double> values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

struct Parts {
  double contention, straggle, interference, wait, wire, other;
};

Parts parts_of(const ComparedBlocks& b, std::size_t i) {
  const StepBlock &base = *b.base[i], &control = *b.control[i], &point = *b.point[i];
  const auto workers = sorted_workers(control, point);
  const double middle = lower_median(workers);
  // Without lock step there is no one rank that all wait for: the workers' mean takes its place.
  const double own = b.lock_step ? control.compute.at(static_cast<std::size_t>(point.longest)) : mean(workers);
  const double wire = b.lock_step ? point.parts.exposed - point.parts.wait : point.parts.handling;
  return {
      .contention = middle - base.parts.compute / b.ideal,
      .straggle = own - middle,
      .interference = point.parts.compute - own,
      .wait = point.parts.wait,
      .wire = wire,
      .other = point.step - point.parts.compute - point.parts.wait - wire - (base.step - base.parts.compute) / b.ideal};
}

/// Medians do not add up as the blocks do. Least squares by the parts' variances: narrow intervals hardly change.
void make_add_up(std::span<Estimate* const> parts, double sum) {
  double rest = sum, widths = 0;
  const auto square_of_width = [](const Estimate& e) {
    const double width = e.high - e.low;
    return std::isfinite(width) ? width * width : 0;
  };
  for (const Estimate* e : parts) rest -= e->value, widths += square_of_width(*e);
  for (Estimate* e : parts) {
    if (widths == 0 && e != parts.back()) continue;
    e->value += widths > 0 ? rest * square_of_width(*e) / widths : rest;
    e->low = std::min(e->low, e->value);
    e->high = std::max(e->high, e->value);
  }
}

/// The rank that computed longest in most blocks of the control.
std::optional<int> straggler_of(const ComparedBlocks& b, const Estimate& straggle) {
  std::map<int, std::size_t> blocks;
  for (const auto* c : b.control) ++blocks[c->longest];
  const auto most =
      std::max_element(blocks.begin(), blocks.end(), [](const auto& x, const auto& y) { return x.second < y.second; });
  constexpr double noticeable = 0.05;  // of the base's step, as for lost time
  const double step = b.base.empty() ? 0 : b.base.front()->step / b.ideal;
  if (most == blocks.end() || 3 * most->second < 2 * b.control.size()) return std::nullopt;
  if (!(straggle.low > 0) || straggle.value < noticeable * step) return std::nullopt;
  return most->first;
}

}  // namespace

Estimate estimate(std::span<const double> blocks) {
  if (blocks.empty()) return {};
  const core::Summary s = core::summarise(blocks);
  return {s.median, s.ci95_low, s.ci95_high};
}

ComparedBlocks pair_blocks(const Measurement& base, const Measurement& control, const Measurement& point) {
  const auto by_round = [](const Measurement& m) {
    std::map<std::size_t, const StepBlock*> out;
    for (const auto& b : m.blocks) out[b.round] = &b;
    return out;
  };
  const auto bases = by_round(base), controls = by_round(control);
  ComparedBlocks out;
  for (const auto& b : point.blocks) {
    const auto of_base = bases.find(b.round), of_control = controls.find(b.round);
    if (of_base == bases.end() || of_control == controls.end()) continue;
    out.base.push_back(of_base->second);
    out.control.push_back(of_control->second);
    out.point.push_back(&b);
  }
  return out;
}

Causes find_causes(const ComparedBlocks& b, double step_s, double base_s, double control_s) {
  std::array<std::vector<double>, 8> values;
  for (std::size_t i = 0; i < b.point.size(); ++i) {
    const Parts p = parts_of(b, i);
    const double base = b.base[i]->step / b.ideal, step = b.point[i]->step;
    const std::array block{p.contention, p.straggle, p.interference, p.wait, p.wire, p.other, step - b.control[i]->step,
                           base / step};
    for (std::size_t k = 0; k < block.size(); ++k) values[k].push_back(block[k]);
  }
  Causes c{.lost = step_s - base_s / b.ideal,
           .contention = estimate(values[0]),
           .straggle = estimate(values[1]),
           .interference = estimate(values[2]),
           .wait = estimate(values[3]),
           .wire = estimate(values[4]),
           .other = estimate(values[5]),
           .exposed = estimate(values[6]),
           .speed = estimate(values[7]),
           .straggler = {}};
  if (b.point.empty()) return c;
  make_add_up(std::array{&c.contention, &c.straggle, &c.interference, &c.wait, &c.wire, &c.other}, c.lost);
  c.exposed.value = step_s - control_s;
  c.speed.value = base_s / b.ideal / step_s;
  // Ratios and differences of medians are not medians of ratios and differences, so the interval includes both.
  for (Estimate* e : {&c.exposed, &c.speed}) {
    e->low = std::min(e->low, e->value);
    e->high = std::max(e->high, e->value);
  }
  c.straggler = straggler_of(b, c.straggle);
  return c;
}

std::string bound_by(const Causes& c, double step_s, bool oversubscribed, double unsteady) {
  constexpr double little = 0.05;
  // How uncertain the loss is: the efficiency's interval, as time.
  const double doubt = (c.speed.high - c.speed.low) / 2 * step_s;
  if (c.lost < little * step_s && !(doubt > little * step_s)) return "compute";
  const double unsure = unsteady * step_s;
  if (!(c.lost > std::max(doubt, unsure))) return "undecided";
  struct Named {
    const char* word;
    Estimate e;
  };
  const std::array all{Named{oversubscribed ? "cores" : "memory", c.contention},
                       Named{"straggle", c.straggle},
                       Named{"interference", c.interference},
                       Named{"wait", c.wait},
                       Named{"wire", c.wire},
                       Named{"other", c.other}};
  const auto largest =
      std::max_element(all.begin(), all.end(), [](const Named& a, const Named& b) { return a.e.value < b.e.value; });
  for (const auto& n : all) {
    if (&n != &*largest && n.e.high + unsure >= largest->e.low) return "undecided";
  }
  return largest->word;
}

}  // namespace gradmeter::bench
