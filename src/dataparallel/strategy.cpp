// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/strategy.hpp"

#include <algorithm>

#include "compression/codecs/dgc.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "dataparallel/optimizers/weight_format.hpp"

namespace gradmeter::dataparallel {

double Observations::mean_staleness() const {
  double sum = static_cast<double>(staleness_under_way), count = 0;
  for (std::size_t k = 0; k < staleness.size(); ++k) {
    sum += static_cast<double>(k) * static_cast<double>(staleness[k]);
    count += static_cast<double>(staleness[k]);
  }
  return count > 0 ? sum / count : 0;
}

model::PendingOutcome Worker::pass(const model::Batch& b, const model::Model::Ready& ready) {
  std::vector<double>* const times = fabric_.ready_times();
  if (!scaler_ && !gradient_format_ && !times) return model_.pass(fabric_, buffers_, b, ready);
  model::Batch scaled = b;
  if (scaler_) scaled.loss_scale = scaler_->scale();
  return model_.pass(fabric_, buffers_, scaled, [&](std::size_t tensor) {
    const model::Tensor& t = model_.tensors()[tensor];
    finish_gradient(gradients(t.offset, t.count));
    if (times) fabric_.stamp((*times)[tensor]);
    ready(tensor);
  });
}

void Worker::finish_gradient(const Buffer& g) {
  const auto n = static_cast<double>(g.count());
  const runtime::Cost cost{.flops = n, .bytes = 8 * n};
  if (scaler_) scaler_->submit_unscale(queue(), g);
  if (gradient_format_) queue().submit("backward.round", cost, [format = gradient_format_, g] { format->round(g); });
}

void Worker::apply(Range r, UpdateStep step) {
  optimizer_.update(queue(), parameters().part(r.first, r.count), gradients(r.first, r.count), r.first, step);
}

void Worker::update(std::size_t offset, std::size_t count, UpdateStep step) {
  if (!scaler_ || !scaler_->adapts()) return apply({offset, count}, step);
  step.loss_scale_counts = scaler_->counts();
  scaler_->submit_check(queue(), gradients(offset, count));
  held_back_.push_back({offset, count});
  std::size_t known = 0;
  for (const Range& r : held_back_) known += r.count;
  if (known < parameters().count()) return;
  for (const Range& r : held_back_) apply(r, step);
  held_back_.clear();
  scaler_->submit_end_of_step(queue());
}

void Worker::clip(double norm, int ranks) {
  const auto n = static_cast<double>(gradients().count());
  queue().submit("clip", {3 * n, 12 * n}, [norm, values = gradients(), ranks = static_cast<std::size_t>(ranks)] {
    compression::clip_gradient(values.values<float>(), norm, ranks);
  });
}

void Worker::average(const Buffer& values) {
  if (ranks() > 1) fabric_.wait(fabric_.all_reduce(axis_, values, allreduce::Op::average, fabric_.record()));
}

void Strategy::begin(Worker& worker) {
  if (worker.ranks() > 1) worker.fabric().wait(worker.fabric().broadcast(worker.axis(), worker.parameters(), 0));
}

void Strategy::evaluation_weights(Worker& worker, Buffer to) {
  worker.queue().run_and_wait(
      [&] { std::ranges::copy(worker.parameters().values<float>(), to.values<float>().begin()); });
}

void Strategy::update_by_buckets(Worker& worker, UpdateStep step) const {
  for (const Bucket& b : buckets(worker.model())) worker.update(b.offset, b.count, step);
}

void Strategy::mean_weights(Worker& worker, Buffer to) {
  worker.queue().run_and_wait(
      [&] { std::ranges::copy(worker.parameters().values<float>(), to.values<float>().begin()); });
  if (worker.ranks() > 1) worker.fabric().wait(worker.fabric().all_reduce(worker.axis(), to, allreduce::Op::average));
}

std::vector<WeightsInPlace> Strategy::held_weights(const Worker& worker) const {
  return {{.first = 0, .values = worker.parameters().values<float>()}};
}

std::unique_ptr<Strategy> StrategyChoice::make(StrategyOptions o) const {
  constexpr core::CountRange servers{0, 65536};
  if (parsed_.parameters.contains("servers")) {
    o.servers = static_cast<int>(core::count_parameter(parsed_, "servers", servers));
  }
  return info_.make(parsed_, o);
}

bool StrategyChoice::overlaps_changes() const {
  return info_.communication == CommunicationPattern::changes && parsed_.parameters.at("overlap") != "0";
}

StrategyPtr StrategyChoice::with_servers(int servers) const {
  core::ParsedName other = parsed_;
  const auto it = other.parameters.find("servers");
  if (it == other.parameters.end()) {
    throw core::UsageError(
        fmt::format("strategy {} has no servers; ps-async has, see servers= in 'list strategies'", name));
  }
  it->second = fmt::format("{}", servers);
  return std::make_shared<StrategyChoice>(info_, std::move(other));
}

StrategyPtr StrategyChoice::for_one_rank() const {
  if (parsed_.parameters.contains("servers")) return with_servers(0);
  return std::make_shared<StrategyChoice>(info_, parsed_);
}

}  // namespace gradmeter::dataparallel
