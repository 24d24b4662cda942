// SPDX-License-Identifier: Apache-2.0
#include "predict/score.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>
#include <string_view>
#include <utility>

#include "core/format.hpp"
#include "core/print.hpp"
#include "core/statistics.hpp"
#include "predict/layer_step.hpp"
#include "predict/machines.hpp"
#include "predict/scaled_step.hpp"

namespace gradmeter::predict {
namespace {

/// The reason why rows with experts are not predicted; `mape_all` leaves such rows out.
constexpr std::string_view experts = "experts";
/// The most folds of a cross-validation; if there are more groups of rows, several groups are left out together.
constexpr std::size_t most_folds = 8;
/// The spread without any calibration row, and the least spread of a system with one row.
constexpr double spread_of_priors = 0.35, spread_of_one_row = 0.25;

Terms terms_of(std::span<const double> log_terms) {
  Terms t;
  for (std::size_t i = 0; i < term_count; ++i) t.values[i] = std::exp(log_terms[i]);
  return t;
}

struct Row {
  TransformerStep step;
  double measured;
  std::string id, group, network;
};

std::vector<double> fit(const std::array<Prior, term_count>& priors, std::span<const Row* const> rows) {
  std::vector<Residual> residuals;
  for (const Row* row : rows)
    residuals.emplace_back([row](std::span<const double> log_terms) {
      return std::log(row->step.seconds(terms_of(log_terms)) / row->measured);
    });
  return fit_terms(priors, residuals);
}

double percentile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return core::quantile(values, share);
}

/// log(predicted ÷ measured) of each row, predicted by a fit that leaves out the row's group; in the order of the
/// folds.
std::vector<std::pair<const Row*, double>> left_out_errors(const std::array<Prior, term_count>& priors,
                                                           std::span<const Row> rows, std::string Row::*group) {
  std::set<std::string> groups;
  for (const Row& r : rows) groups.insert(r.*group);
  std::vector<std::pair<const Row*, double>> log_errors;
  const std::size_t folds = std::min(most_folds, groups.size());
  for (std::size_t fold = 0; fold < folds; ++fold) {
    std::vector<const Row*> kept, left;
    for (const Row& r : rows) {
      const auto group_number = static_cast<std::size_t>(std::distance(groups.begin(), groups.find(r.*group)));
      (group_number % folds == fold ? left : kept).push_back(&r);
    }
    const Terms terms = terms_of(fit(priors, kept));
    for (const Row* r : left) log_errors.emplace_back(r, std::log(r->step.seconds(terms) / r->measured));
  }
  return log_errors;
}

std::vector<double> absolute_values(std::span<const std::pair<const Row*, double>> log_errors) {
  std::vector<double> values;
  for (const auto& [row, log] : log_errors) values.push_back(std::abs(log));
  return values;
}

double mean_of_all(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

std::string_view largest(const StepParts& p) {
  const std::array parts{std::pair{p.compute, "compute"},        std::pair{p.tensor_exchange, "tensor exchange"},
                         std::pair{p.pipeline_wait, "pipeline"}, std::pair{p.data_exchange, "data exchange"},
                         std::pair{p.update, "update"},          std::pair{p.fixed, "fixed"}};
  return std::ranges::max_element(parts)->second;
}

/// Predicts the step of a network from its layer table, without any measured step of the network. Fills in all of `p`
/// but the step's time and interval. why_not_scaled: the reason to return if there is no table.
ScaledStep step_of_layers(const TrainingStep& s, const core::Machine& m, Prediction& p,
                          const std::string& why_not_scaled) {
  // A layer table is for one sequence length, so it is not used for rows that state a length.
  const auto table = s.sequence > 0 || s.global_batch == 0 ? std::nullopt : find_layer_table(s.model);
  if (!table) return {.seconds = {}, .reason = why_not_scaled};
  if (!(m.device->peak(s.precision) > 0)) return {.seconds = {}, .reason = "the data sheet lacks this precision"};
  const std::size_t samples = (s.global_batch - 1) / s.gpus + 1;  // of the rank with the most
  const LayerStep layers = layer_step(*table, samples, s.precision, m);
  TrainingStep with_parameters = s;
  with_parameters.parameters = static_cast<double>(table->parameters());
  const double one_gpu_s = layers.compute_s + layers.update_s,
               all_gpus_s = scaled_seconds(with_parameters, one_gpu_s, 1, m);
  p.parts = {.compute = layers.compute_s, .data_exchange = all_gpus_s - one_gpu_s, .update = layers.update_s};
  p.flops = layers.flops / static_cast<double>(samples) * static_cast<double>(s.global_batch);
  p.memory = {.weights = sizeof(float) * with_parameters.parameters,
              .gradients = sizeof(float) * with_parameters.parameters,
              .optimizer = sizeof(float) * with_parameters.parameters,
              .activations = layers.activation_bytes};
  p.largest_part = largest(p.parts);
  p.basis = Basis::layer_costs;
  return {.seconds = all_gpus_s, .spread = layer_step_spread, .gpus = 1};
}

}  // namespace

std::string_view name(Basis b) {
  constexpr std::array<std::string_view, 4> names{"data sheet", "fit", "measured step", "layer costs"};
  return names.at(static_cast<std::size_t>(b));
}

void set_interval(Prediction& p, double spread, double rank_ratio) {
  constexpr double growth = 0.03;
  const double width = std::hypot(spread, growth * std::max(0.0, std::log2(rank_ratio)));
  p.low = p.seconds * std::exp(-width);
  p.high = p.seconds * std::exp(width);
}

double spread_of(std::vector<double> absolute_log_errors) {
  // Given the errors of n rows that were left out, that of the next row is at most the k-th smallest with probability
  // k / (n + 1).
  constexpr double ninety = 0.9;
  const double n = static_cast<double>(absolute_log_errors.size());
  const double share = n > 1 ? std::min(1.0, (ninety * (n + 1) - 1) / (n - 1)) : 1;
  return std::max(least_spread, percentile(std::move(absolute_log_errors), share));
}

double spread_with(double spread, const Correction& correction, double rank_ratio) {
  constexpr double ninety_of_95 = 1.645 / 1.960;
  const double noise = std::hypot(correction.noise, noise_between_launches);
  return std::hypot(spread, rank_ratio > 1 ? std::log(correction.factor) : 0, std::sqrt(2.0) * ninety_of_95 * noise);
}

std::string group_of(const TrainingStep& s) {
  return fmt::format("{} {} {} {} {} {}", s.model, s.hidden, s.tensor, s.pipeline, s.micro_batch, s.recompute);
}

Calibration::Calibration(std::vector<TrainingStep> rows) : rows_(std::move(rows)) {
  std::erase_if(rows_, [](const TrainingStep& s) { return !(s.step_s > 0); });
}

bool Calibration::is_fitted(const TrainingStep& row, const TrainingStep& step) {
  return row.system == step.system && is_same_device(row.gpu, step.gpu) && is_usual_step(row) &&
         TransformerStep::refusal(row).empty();
}

const core::Machine& Calibration::machine(const TrainingStep& s) const {
  const ListedDevice* device = find_device(s.gpu);
  const auto [at, is_new] =
      systems_.try_emplace(fmt::format("{}\n{}", s.system, device ? device->profile.name : plain_name(s.gpu)));
  core::Machine& m = at->second;
  if (!is_new) return m;
  m = machine_of(s).machine.value();
  std::vector<Row> rows;
  core::MachineFit fitted;
  for (const TrainingStep& r : rows_) {
    if (!is_fitted(r, s)) continue;
    rows.push_back({TransformerStep(r, m), r.step_s, r.id, group_of(r), fmt::format("{} {}", r.model, r.hidden)});
    fitted.ranks = std::max(fitted.ranks, static_cast<double>(r.gpus));
  }
  if (rows.empty()) return m;
  const auto priors = priors_of(m, s);
  std::vector<const Row*> row_pointers;
  for (const Row& r : rows) row_pointers.push_back(&r);
  const Terms terms = terms_of(fit(priors, row_pointers));
  for (std::size_t i = 0; i < term_count; ++i) fitted.terms.emplace(name(static_cast<Term>(i)), terms.values.at(i));
  fitted.rows = rows.size();
  // A fit's own residuals are too small, so each row is predicted from rows of other groups, and where there are
  // several networks, also from rows of other networks.
  constexpr std::size_t several = 3;
  const auto by_group = left_out_errors(priors, rows, &Row::group);
  for (const auto& [row, log] : by_group) fitted.residuals[row->id] = log;
  fitted.spread = spread_of(absolute_values(by_group));
  std::set<std::string> networks;
  for (const Row& r : rows) networks.insert(r.network);
  if (networks.size() >= several)
    fitted.spread = std::max(fitted.spread, spread_of(absolute_values(left_out_errors(priors, rows, &Row::network))));
  // A single row gives a single error, which says little about the spread.
  if (by_group.size() < 2) fitted.spread = std::max(fitted.spread, spread_of_one_row);
  m.name = s.system;
  m.fit = std::move(fitted);
  return m;
}

PredictionOrReason Calibration::predict(const TrainingStep& s) const {
  if (!s.unread_reason.empty()) return {{}, s.unread_reason};
  if (s.gpus == 0) return {{}, "the number of GPUs is not stated"};
  auto [own_machine, reason] = machine_of(s);
  if (!own_machine) return {{}, reason};
  if (s.expert > 1) return {{}, std::string(experts)};
  if (s.sequence > 0 && TransformerStep::refusal(s).empty()) own_machine->fit = machine(s).fit;
  return predict(s, *own_machine);
}

PredictionOrReason Calibration::predict(const TrainingStep& row, const core::Machine& m) const {
  if (row.gpus == 0) return {{}, "the number of GPUs is not stated"};
  if (row.expert > 1) return {{}, std::string(experts)};
  Prediction p;
  double spread = spread_of_priors, calibrated_gpus = 1;
  const TrainingStep whole = completed(row);
  const bool is_transformer = whole.layers > 0 && whole.hidden > 0 && whole.sequence > 0;
  if (is_transformer) {
    if (auto why = TransformerStep::refusal(row); !why.empty()) return {{}, why};
    if (!is_usual_step(row))
      return {{},
              fmt::format("the quantile {} of a step is not predicted, only its usual time",
                          core::printable(row.quantile))};
  }
  if (!is_transformer) {
    if (auto why = exchange_refusal(row, m); !why.empty()) return {{}, why};
    auto scaled = scaled_step(row, rows_, m);
    if (!scaled.seconds) scaled = step_of_layers(row, m, p, scaled.reason);
    if (!scaled.seconds) return {{}, scaled.reason};
    p.seconds = *scaled.seconds;
    if (p.basis != Basis::layer_costs) {
      p.basis = Basis::measured_step;
      p.parts = {.compute = scaled.base_s, .data_exchange = p.seconds - scaled.base_s};
      p.largest_part = scaled.gpus > 1 ? fmt::format("the measured step of {:.0f} GPUs", scaled.gpus)
                                       : "the measured step of one GPU";
      p.is_measured = scaled.gpus == static_cast<double>(row.gpus);
    }
    spread = scaled.spread;
    calibrated_gpus = scaled.gpus;
  } else {
    const Terms terms = terms_of(m, row);
    const TransformerStep step(row, m);
    if (auto why = step.exchange_refusal(); !why.empty()) return {{}, why};
    p.parts = step.parts(terms);
    p.flops = step.flops();
    p.memory = step.memory();
    p.correction = std::exp(-log_error(row));
    p.parts.scale(p.correction);
    p.seconds = p.parts.step();
    p.largest_part = largest(p.parts);
    if (m.fit) {
      p.basis = Basis::fit;
      spread = m.fit->spread;
      calibrated_gpus = m.fit->ranks;
    }
  }
  set_interval(p, spread, static_cast<double>(row.gpus) / calibrated_gpus);
  return {p, {}};
}

namespace {

/// The covariance of the terms' errors in two rows of one network. Each doubling of pipeline degree or micro-batch
/// between the rows multiplies the part of the mesh by a factor below 1. Rows with another tensor degree or
/// recomputation share only the part of the network.
double covariance(const TrainingStep& a, const TrainingStep& b) {
  constexpr double of_network = 0.15 * 0.15, of_mesh = 0.2 * 0.2, per_pipeline_doubling = 0.9,
                   per_micro_batch_doubling = 0.4;
  if (a.tensor != b.tensor || a.recompute != b.recompute) return of_network;
  const auto doublings = [](std::size_t x, std::size_t y) {
    const auto first = static_cast<double>(std::max<std::size_t>(x, 1));
    return std::abs(std::log2(first / static_cast<double>(std::max<std::size_t>(y, 1))));
  };
  return of_network + of_mesh * std::pow(per_pipeline_doubling, doublings(a.pipeline, b.pipeline)) *
                          std::pow(per_micro_batch_doubling, doublings(a.micro_batch, b.micro_batch));
}

}  // namespace

double Calibration::log_error(const TrainingStep& s) const {
  std::vector<const TrainingStep*> like_rows;
  std::vector<double> weights;  // at first the log errors of these rows
  for (const TrainingStep& r : rows_) {
    if (r.strategy != s.strategy || r.model != s.model || r.hidden != s.hidden || r.sequence != s.sequence ||
        r.layers != s.layers || r.precision != s.precision || !is_fitted(r, s))
      continue;
    like_rows.push_back(&r);
  }
  if (like_rows.empty() || !machine_of(*like_rows.front()).machine) return 0;
  const core::Machine& own = machine(*like_rows.front());
  for (const TrainingStep* r : like_rows)
    weights.push_back(std::log(TransformerStep(*r, own).seconds(terms_of(own, *r)) / r->step_s));
  constexpr double noise = 0.04 * 0.04;
  SymmetricMatrix covariances(like_rows.size());
  for (std::size_t i = 0; i < like_rows.size(); ++i)
    for (std::size_t j = 0; j <= i; ++j)
      covariances.at(i, j) = covariance(*like_rows[i], *like_rows[j]) + (i == j ? noise : 0);
  if (!solve(std::move(covariances), weights)) return 0;
  double log_error = 0;
  for (std::size_t i = 0; i < like_rows.size(); ++i) log_error += weights[i] * covariance(s, *like_rows[i]);
  return log_error;
}

std::optional<double> Calibration::seconds_at_constant_flops(const TrainingStep& s) const {
  const auto m = machine_of(s).machine;
  if (!m || !TransformerStep::refusal(s).empty()) return std::nullopt;
  std::vector<double> rates;
  for (const TrainingStep& r : rows_) {
    if (!is_fitted(r, s)) continue;
    rates.push_back(TransformerStep(r, *m).flops() / (r.step_s * static_cast<double>(r.gpus)));
  }
  if (rates.empty()) return std::nullopt;
  return TransformerStep(s, *m).flops() / (core::median(rates) * static_cast<double>(s.gpus));
}

std::optional<double> Calibration::seconds_at_constant_throughput(const TrainingStep& s) const {
  const TrainingStep* fewest = nullptr;
  for (const TrainingStep& r : rows_) {
    const bool same = r.system == s.system && is_same_device(r.gpu, s.gpu) && r.model == s.model &&
                      r.hidden == s.hidden && r.layers == s.layers && r.sequence == s.sequence &&
                      r.precision == s.precision && r.micro_batch == s.micro_batch && r.quantile == s.quantile &&
                      r.strategy == s.strategy && r.data == s.data;
    if (same && (!fewest || r.gpus < fewest->gpus)) fewest = &r;
  }
  if (!fewest) return std::nullopt;
  return fewest->step_s * batch_per_gpu(s) / batch_per_gpu(*fewest);
}

namespace {

/// Collects rows and makes their score.
class Scorer {
 public:
  void add(const JudgedRow& row) {
    ++rows_;
    if (!row.prediction || !row.reason.empty()) {
      ++reasons_[row.reason];
      constexpr double all_wrong = 100;
      if (row.reason != experts) errors_of_all_.push_back(all_wrong);
      return;
    }
    const Prediction& p = *row.prediction;
    const double error = error_of(p.seconds, row.measured_s);
    errors_.push_back(error);
    errors_of_all_.push_back(error);
    signed_errors_.push_back(100 * (p.seconds - row.measured_s) / row.measured_s);
    half_widths_.push_back(100 * (p.high - p.low) / 2 / p.seconds);
    covered_ += row.measured_s >= p.low && row.measured_s <= p.high ? 1 : 0;
    outliers_.push_back({row.id, p.largest_part, signed_errors_.back() / 100});
    if (row.constant_flops_s) {
      flops_errors_.push_back(error_of(*row.constant_flops_s, row.measured_s));
      errors_where_flops_.push_back(error);
    }
    if (!row.linear_s) return;
    linear_errors_.push_back(error_of(*row.linear_s, row.measured_s));
    errors_where_linear_.push_back(error);
  }

  Score result(const std::string& file) {
    Score out{.file = file, .rows = rows_, .unpredicted = rows_ - errors_.size(), .reasons = reasons_};
    out.mape = mean_of(errors_);
    out.mape_all = mean_of(errors_of_all_);
    out.bias = mean_of(signed_errors_);
    out.half_width = mean_of(half_widths_);
    out.constant_flops_mape = mean_of(flops_errors_);
    out.constant_flops_rows = flops_errors_.size();
    out.mape_where_constant_flops = mean_of(errors_where_flops_);
    out.linear_mape = mean_of(linear_errors_);
    out.linear_rows = linear_errors_.size();
    out.mape_where_linear = mean_of(errors_where_linear_);
    if (!errors_.empty()) {
      constexpr double middle = 0.5, ninety = 0.9;
      out.median = percentile(errors_, middle);
      out.p90 = percentile(errors_, ninety);
      out.coverage = 100 * covered_ / static_cast<double>(errors_.size());
    }
    std::ranges::stable_sort(outliers_, std::greater(), [](const Score::Outlier& o) { return std::abs(o.error); });
    out.outliers = outliers_;
    return out;
  }

 private:
  static double error_of(double predicted, double measured) { return 100 * std::abs(predicted - measured) / measured; }
  static std::optional<double> mean_of(std::span<const double> values) {
    return values.empty() ? std::nullopt : std::optional(mean_of_all(values));
  }

  std::size_t rows_ = 0;
  double covered_ = 0;
  std::vector<double> errors_, errors_of_all_, signed_errors_, half_widths_, flops_errors_, errors_where_flops_,
      linear_errors_, errors_where_linear_;  // in percent
  std::map<std::string, std::size_t> reasons_;
  std::vector<Score::Outlier> outliers_;
};

}  // namespace

namespace {

JudgedRow judge(const Calibration& calibration, const TrainingStep& s) {
  const auto [prediction, reason] = calibration.predict(s);
  return {.id = s.id,
          .measured_s = s.step_s,
          .prediction = prediction,
          .reason = s.problem.empty() ? reason : s.problem,
          .constant_flops_s = prediction ? calibration.seconds_at_constant_flops(s) : std::nullopt,
          .linear_s = prediction ? calibration.seconds_at_constant_throughput(s) : std::nullopt};
}

}  // namespace

Score score_of(std::span<const JudgedRow> rows, const std::string& file) {
  Scorer scorer;
  for (const JudgedRow& row : rows) scorer.add(row);
  return scorer.result(file);
}

Score score(const Calibration& calibration, std::span<const TrainingStep> rows, const std::string& file) {
  Scorer scorer;
  for (const TrainingStep& s : rows) scorer.add(judge(calibration, s));
  return scorer.result(file);
}

Score score_leaving_out(std::span<const TrainingStep> rows, const std::string& file,
                        const std::function<std::string(const TrainingStep&)>& group) {
  std::map<std::string, std::vector<TrainingStep>> groups;
  for (const TrainingStep& s : rows) groups[group(s)].push_back(s);
  Scorer scorer;
  for (const auto& [name, left_out] : groups) {
    std::vector<TrainingStep> kept;
    for (const auto& [other, of_other] : groups)
      if (other != name) kept.insert(kept.end(), of_other.begin(), of_other.end());
    const Calibration calibration(std::move(kept));
    for (const TrainingStep& s : left_out) scorer.add(judge(calibration, s));
  }
  return scorer.result(file);
}

}  // namespace gradmeter::predict
