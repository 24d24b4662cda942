#include "bench/infer/trained_model.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "bench/train/training.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::bench {
namespace {

void train_alone(Session& session, const runtime::Communicator& alone, const model::DataSplit& data, const TrainOnce& o,
                 const TrainingProgress& progress, TrainedModel& m) {
  constexpr std::size_t between_checks = 16, between_verified = 64;
  Training training(session, alone, data, o.config);
  const auto same_place = [](const model::Tensor& a, const model::Tensor& b) {
    return a.shape == b.shape && a.offset == b.offset;
  };
  if (!std::ranges::equal(training.model().tensors(), m.network->tensors(), same_place))
    throw std::logic_error(fmt::format("{}: tensors lie elsewhere for inference", m.network->name()));
  const std::size_t steps = training.steps_per_epoch() * o.epochs;
  for (std::size_t step = 0; step < steps; ++step) {
    const bool is_verified = step % between_verified == 0 || step + 1 == steps;
    if (is_verified) training.verify_next();
    const double loss = training.step(step).mean_loss();
    if (is_verified)
      if (const auto fault = training.verdict(); !fault.empty()) throw core::WrongResult(fault);
    if (!std::isfinite(loss))
      throw core::WrongResult(fmt::format("{}: the loss is {} at step {}: the step size {} is too large",
                                          m.network->name(), loss, step, o.config.step_size));
    if (step % between_checks != 0) continue;
    progress(fmt::format("step {} of {}, loss {:.2f}", step, steps, loss));
    session.stop_if_interrupted(alone);
  }
  std::ranges::copy(training.weights(), m.weights.begin());
  training.finish();
}

/// Ranks other than 0 sleep meanwhile. A signal that rank 0 has seen reaches all.
void on_rank_0(Session& session, const runtime::Communicator& c,
               const std::function<void(const runtime::Communicator&)>& work) {
  const auto alone = c.split(c.rank() == 0 ? 0 : -1, 0);
  int signal = 0;
  if (!alone.is_null()) {
    try {
      work(alone);
    } catch (const core::Interrupted& e) {
      signal = e.signal();
    }
  }
  {
    std::optional<runtime::Pause> sitting_out;
    if (alone.is_null()) sitting_out.emplace(session.activity());
    c.sleeping_barrier();
  }
  signal = c.broadcast_value(signal);
  if (signal != 0) throw core::Interrupted(signal);
}

void calibrate_on(const model::Dataset& set, std::size_t samples, TrainedModel& m) {
  runtime::HostQueue queue;
  std::vector<std::uint64_t> indices(std::min(samples, set.size()));
  std::iota(indices.begin(), indices.end(), 0);
  for (std::size_t first = 0; first < indices.size(); first += validation_piece) {
    const auto piece = std::span(indices).subspan(first, std::min(validation_piece, indices.size() - first));
    std::vector<float> inputs(piece.size() * set.features());
    std::vector<std::int32_t> labels(piece.size() * set.labels());
    model::gather(set, piece, inputs, labels);
    model::calibrate(*m.network, queue, m.buffers(), {inputs, labels, set.labels()}, m.ranges);
  }
}

}  // namespace

TrainedModel train_once(Session& session, const runtime::Communicator& c, const model::DataSplit& data,
                        const TrainOnce& o, const TrainingProgress& progress) {
  kernels::set_compute_threads(o.config.threads);
  const model::Dataset& set = *data.train;
  TrainedModel m{.network = model::make_network(
                     o.config.model, {.features = set.features(), .classes = set.classes(), .labels = set.labels()}),
                 .weights = {},
                 .ranges = {}};
  m.weights.resize(m.network->element_count());
  on_rank_0(session, c, [&](const auto& alone) { train_alone(session, alone, data, o, progress, m); });
  c.broadcast(std::span<float>(m.weights));
  calibrate_on(set, o.calibration_samples, m);
  return m;
}

}  // namespace gradmeter::bench
