// SPDX-License-Identifier: Apache-2.0
#include "model/network/network.hpp"

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "kernels/host/memory.hpp"
#include "kernels/host/threads.hpp"
#include "model/layers/operations.hpp"

namespace gradmeter::model {
namespace {

void finish(TransferPtr& transfer) {
  if (transfer) transfer->wait();
  transfer.reset();
}

}  // namespace

struct Network::Run {
  Queue& queue;
  Buffers buffers;
  const Batch& batch;
  std::size_t samples, micro_batches;  ///< samples: of each micro-batch; the last one may have fewer
  const Ready* ready;                  ///< null: a forward pass alone
  const OutcomePlace& outcome;
  std::size_t slots;  ///< number of micro-batches whose activations are held at once

  std::size_t slot(std::size_t micro_batch) const { return micro_batch % slots; }
  std::size_t samples_in(std::size_t micro_batch) const {
    return std::min(samples, batch.samples() - micro_batch * samples);
  }
  Batch part(std::size_t micro_batch) const {
    return part_of(batch, batch.inputs.count() / batch.samples(), micro_batch * samples, samples_in(micro_batch));
  }
};

Network::Network(std::string name, std::vector<std::unique_ptr<Layer>> layers, const Part& part, NetworkOptions options)
    : part_(part),
      held_(std::move(name), std::move(layers), part),
      stage_(held_, part.peers),
      options_(std::move(options)),
      // Without a pipeline to fill, one micro-batch at a time is enough.
      steps_(pipeline_steps(part.stages > 1 ? part.order : PipelineOrder::one_f_one_b, part.stage, part.stages,
                            part.micro_batches)),
      messages_(most_in_flight(steps_)),
      gradient_sum_(held_.element_count(), part.micro_batches),
      tied_weight_(held_, part),
      may_record_(std::ranges::none_of(held_.layers(), [](const auto& l) { return l->draws_by_pass(); })) {
  const std::size_t peer_readable = needed_memory(pass_samples(part.largest_batch)).peer_readable();
  if (part.peers && peer_readable > 0) peer_memory_ = part.peers->memory(peer_readable);
}

std::vector<std::string> Network::layer_names() const {
  std::vector<std::string> names;
  for (const auto& layer : held_.layers()) names.push_back(layer->name());
  return names;
}

void Network::check(Buffers buffers, const Batch& batch) const {
  kernels::require_elements("network: parameters", buffers.parameters.count(), element_count());
  if (batch.samples() == 0) throw std::invalid_argument("network: the batch is empty");
  kernels::require_elements("network: inputs", batch.inputs.count(), batch.samples() * input_features());
  if (options_.learns) kernels::require_elements("network: labels of a sample", batch.labels_each, labels());
}

std::vector<StageSlot> Network::lay_out(std::size_t samples, MemoryPlanner& planner) const {
  const std::size_t layers = held_.layers().size();
  const auto take = [&](std::size_t width, bool peer_readable) { return planner.take(samples * width, peer_readable); };
  std::vector<StageSlot> slots(messages_.size());
  for (StageSlot& slot : slots) {
    if (!is_first()) slot.input = take(held_.input_width(), true);
    for (std::size_t l = 0; l < layers; ++l) {
      const LayerSums& sums = held_.sums(l);
      const bool is_sent = l + 1 == layers && !is_last();
      slot.outputs.push_back(take(held_.widths()[l], sums.output || is_sent));
      auto& shared = slot.shared.emplace_back();
      for (const auto& within : {sums.forward, sums.backward})
        for (const std::size_t floats : within) shared.push_back(take(floats, true));
    }
    slot.top_delta = take(output_width(), !is_last());
    if (!is_first()) slot.input_gradient = take(held_.input_width(), true);
  }
  // The gradient with respect to a layer's input is the delta of the layer before it.
  std::vector<Buffer> deltas;
  for (std::size_t l = 0; l + 1 < layers; ++l)
    deltas.push_back(take(held_.widths()[l], held_.sums(l + 1).input_gradient));
  for (StageSlot& slot : slots) slot.deltas = deltas;
  return slots;
}

MemoryPlanner Network::needed_memory(std::size_t samples) const {
  MemoryPlanner needed;
  (void)lay_out(samples, needed);
  (void)tied_weight_.take_memory(needed);
  return needed;
}

// A part of a split model gets its memory once, for the largest micro-batch, as it got the memory that peers read.
void Network::provide_memory(Queue& queue, std::size_t samples) {
  if (!part_.peers && !part_.is_whole())
    throw std::logic_error("model: a part that was made without peers can only be asked for its sizes");
  if (samples <= memory_samples_) return;
  memory_samples_ = part_.is_whole() ? samples : pass_samples(part_.largest_batch);
  queue.synchronise();  // earlier work uses the memory that is freed now
  recorded_.forget();
  own_memory_ = queue.device().allocate(core::Element::f32, needed_memory(memory_samples_).own());
  MemoryPlanner given(own_memory_.buffer, peer_memory_);
  slots_ = lay_out(memory_samples_, given);
  tied_weight_.set_memory(tied_weight_.take_memory(given));
}

std::size_t Network::pass_samples(std::size_t batch) const {
  return std::max<std::size_t>(1, (batch + part_.micro_batches - 1) / part_.micro_batches);
}

std::size_t Network::forward_samples(std::size_t batch) const {
  return part_.is_whole() ? batch : pass_samples(part_.largest_batch);  // a part has memory for this many
}

std::size_t Network::workspace_bytes(std::size_t samples) const {
  const std::size_t samples_each = pass_samples(samples);
  std::size_t activations = 0;
  std::size_t run_bytes = 0;
  for (std::size_t l = 0; l < held_.layers().size(); ++l) {
    const Layer& layer = *held_.layers()[l];
    activations += messages_.size() * samples_each * layer.activation_elements();
    run_bytes = std::max(run_bytes, layer.shared_bytes(held_.layers().subspan(l), samples_each));
  }
  const std::size_t sums = part_.micro_batches > 1 ? element_count() : 0;
  return (needed_memory(samples_each).own() + activations + sums + tied_weight_.summed_floats()) * sizeof(float) +
         run_bytes;
}

PeerNeeds Network::peer_needs() const {
  const std::size_t samples = pass_samples(part_.largest_batch);
  const std::vector<std::size_t> summed = sum_lengths(samples, true);
  const std::size_t largest = summed.empty() ? 0 : std::ranges::max(summed);
  return {.memory_bytes = needed_memory(samples).peer_readable() * sizeof(float),
          .largest_sum_bytes = largest * sizeof(float)};
}

std::vector<std::size_t> Network::sum_lengths(std::size_t samples, bool backward) const {
  const std::span<const std::size_t> widths = held_.widths();
  std::vector<std::size_t> floats;
  for (std::size_t l = 0; l < widths.size(); ++l) {
    for (const std::size_t within : held_.sums(l).forward) floats.push_back(samples * within);
    if (held_.sums(l).output) floats.push_back(samples * widths[l]);
  }
  for (std::size_t l = 0; backward && l < widths.size(); ++l) {
    for (const std::size_t within : held_.sums(l).backward) floats.push_back(samples * within);
    if (held_.sums(l).input_gradient) floats.push_back(samples * (l == 0 ? held_.input_width() : widths[l - 1]));
  }
  return floats;
}

std::vector<RepeatedProblem> Network::pass_problems(std::size_t samples) const {
  auto problems = held_.problems(micro_batch_samples(samples, part_.micro_batches), true);
  for (RepeatedProblem& p : problems) p.times *= part_.micro_batches;
  return problems;
}

std::vector<RepeatedProblem> Network::forward_problems(std::size_t samples) const {
  const std::size_t samples_each = forward_samples(samples);
  std::vector<RepeatedProblem> problems;
  if (samples >= samples_each) problems = held_.problems(samples_each, false);
  for (RepeatedProblem& p : problems) p.times *= samples / samples_each;
  if (samples % samples_each == 0) return problems;
  const auto rest = held_.problems(samples % samples_each, false);
  problems.insert(problems.end(), rest.begin(), rest.end());
  return problems;
}

PeerTraffic Network::pass_traffic(std::size_t samples) const {
  const std::size_t samples_each = micro_batch_samples(samples, part_.micro_batches);
  const std::vector<std::size_t> summed = sum_lengths(samples_each, true);
  PeerTraffic traffic;
  for (std::size_t i = 0; i < part_.micro_batches; ++i) {
    traffic.sums.insert(traffic.sums.end(), summed.begin(), summed.end());
    if (!is_first()) traffic.messages += 1, traffic.floats_sent += samples_each * held_.input_width();
    if (!is_last()) traffic.messages += 1, traffic.floats_sent += samples_each * output_width();
  }
  tied_weight_.add_traffic(traffic, true);
  return traffic;
}

PeerTraffic Network::forward_traffic(std::size_t samples) const {
  const std::size_t samples_each = forward_samples(samples);
  PeerTraffic traffic;
  for (std::size_t first = 0; first < samples; first += samples_each) {
    const std::size_t n = std::min(samples_each, samples - first);
    const std::vector<std::size_t> summed = sum_lengths(n, false);
    traffic.sums.insert(traffic.sums.end(), summed.begin(), summed.end());
    if (!is_last()) traffic.messages += 1, traffic.floats_sent += n * output_width();
  }
  tied_weight_.add_traffic(traffic, false);
  return traffic;
}

void Network::run_forward(Queue& queue, Buffers buffers, const Batch& batch, const OutcomePlace& outcome) {
  check(buffers, batch);
  const std::size_t samples_each = forward_samples(batch.samples());
  const std::size_t micro_batches = (batch.samples() + samples_each - 1) / samples_each;
  provide_memory(queue, samples_each);
  run_schedule({.queue = queue,
                .buffers = buffers,
                .batch = batch,
                .samples = samples_each,
                .micro_batches = micro_batches,
                .ready = nullptr,
                .outcome = outcome,
                .slots = messages_.size()},
               forward_steps(micro_batches));
}

void Network::run_pass(Queue& queue, Buffers buffers, const Batch& batch, const Ready& ready,
                       const OutcomePlace& outcome) {
  check(buffers, batch);
  kernels::require_elements("network: gradients", buffers.gradients.count(), element_count());
  const std::size_t samples_each = micro_batch_samples(batch.samples(), part_.micro_batches);
  if (!part_.is_whole() && samples_each > pass_samples(part_.largest_batch))
    throw std::logic_error("model: its memory is for a smaller batch");
  provide_memory(queue, samples_each);
  const Run run{.queue = queue,
                .buffers = buffers,
                .batch = batch,
                .samples = samples_each,
                .micro_batches = part_.micro_batches,
                .ready = &ready,
                .outcome = outcome,
                .slots = messages_.size()};
  if (part_.is_whole() && part_.micro_batches == 1 && may_record_) {
    whole_pass(run);
  } else {
    run_schedule(run, steps_);
  }
}

void Network::whole_pass(const Run& run) {
  const RecordedPass::Operands operands{.parameters = run.buffers.parameters,
                                        .inputs = run.batch.inputs,
                                        .gradients = run.buffers.gradients,
                                        .samples = run.samples,
                                        .threads = kernels::compute_threads()};
  if (recorded_.is_of(operands)) {
    recorded_.submit_forward(run.queue);
    submit_outcome(run, 0);
    recorded_.submit_backward(run.queue, *run.ready);
    return;
  }
  if (!recorded_.should_record(operands)) return run_schedule(run, steps_);
  const StageSlot& slot = slots_.front();
  const Stage::Pass pass = stage_pass(run, 0);
  const auto on = [&pass](Queue& queue) {
    return Stage::Pass{.queue = queue, .parameters = pass.parameters, .input = pass.input, .samples = pass.samples};
  };
  recorded_.begin();
  runtime::RecordingQueue forward = recorded_.forward(run.queue), backward = recorded_.backward(run.queue);
  stage_.forward(on(forward), slot);
  submit_outcome(run, 0);
  stage_.backward(on(backward), slot, run.buffers.gradients, [&](std::size_t tensor) {
    recorded_.announce();
    (*run.ready)(tensor);
  });
  recorded_.end();
}

std::vector<ConstBuffer> Network::layer_outputs(Queue& queue, Buffers buffers, const Batch& batch) {
  check(buffers, batch);
  const std::size_t n = batch.samples();
  provide_memory(queue, n);
  const StageSlot& slot = slots_.front();
  stage_.forward({.queue = queue, .parameters = buffers.parameters, .input = batch.inputs, .samples = n}, slot);
  std::vector<ConstBuffer> outputs;
  for (std::size_t l = 0; l < slot.outputs.size(); ++l)
    outputs.emplace_back(slot.outputs[l].part(0, n * held_.widths()[l]));
  return outputs;
}

void Network::run_schedule(const Run& run, const std::vector<PipelineStep>& steps) {
  tied_weight_.begin(run.queue, run.buffers.parameters, inputs_in_use_);
  // Messages from one stage arrive in order, so only the first receive from it must wait for work that still reads the
  // inputs. With two stages, the tied weight comes first from the stage that also sends the inputs.
  const bool is_first_message = !(tied_weight_.uses() && part_.stages == 2);
  for (std::size_t i = 0; i < run.slots; ++i) expect_input(run, i, i == 0 && is_first_message && inputs_in_use_);
  for (const PipelineStep& step : steps) {
    if (step.kind == PipelineStep::Kind::forward) {
      forward_micro_batch(run, step.micro_batch);
    } else {
      backward_micro_batch(run, step.micro_batch);
    }
  }
  for (Messages& messages : messages_) {
    finish(messages.output_sent);
    finish(messages.input_gradient_sent);
  }
  tied_weight_.end();
  // A message leaves after all work submitted before it. So work that reads the inputs can still be under way only if
  // the run has sent nothing after it: a forward pass alone on the last stage.
  inputs_in_use_ = run.ready == nullptr && is_last();
}

void Network::expect_input(const Run& run, std::size_t micro_batch, bool in_use) {
  if (is_first() || micro_batch >= run.micro_batches) return;
  const Buffer& input = slots_[run.slot(micro_batch)].input;
  messages_[run.slot(micro_batch)].input =
      part_.peers->receive(OtherStage::previous, input.part(0, run.samples_in(micro_batch) * held_.input_width()),
                           in_use ? run.queue.record() : nullptr);
}

Stage::Pass Network::stage_pass(const Run& run, std::size_t micro_batch) const {
  const std::size_t n = run.samples_in(micro_batch), slot = run.slot(micro_batch);
  return {.queue = run.queue,
          .parameters = run.buffers.parameters,
          .input = is_first() ? run.part(micro_batch).inputs
                              : ConstBuffer(slots_[slot].input.part(0, n * held_.input_width())),
          .samples = n,
          .slot = run.ready ? slot : 0,  // a forward pass alone needs one slot, since work is in order
          .tied_weight = tied_weight_.weight()};
}

void Network::forward_micro_batch(const Run& run, std::size_t micro_batch) {
  const StageSlot& slot = slots_[run.slot(micro_batch)];
  Messages& messages = messages_[run.slot(micro_batch)];
  const std::size_t outputs = run.samples_in(micro_batch) * output_width();
  finish(messages.input);
  finish(messages.output_sent);
  tied_weight_.await_weight();
  stage_.forward(stage_pass(run, micro_batch), slot);
  if (is_last()) {
    submit_outcome(run, micro_batch);
  } else {
    // The receives of gradients are posted before the output is sent. The output leaves after all work so far, so the
    // gradients that answer it overwrite nothing that is still read.
    if (run.ready)
      messages.top_delta = part_.peers->receive(OtherStage::next, slot.top_delta.part(0, outputs), nullptr);
    if (run.ready && micro_batch + 1 == run.micro_batches) tied_weight_.expect_gradient();
    messages.output_sent = part_.peers->send(OtherStage::next, slot.outputs.back().part(0, outputs));
  }
  if (!run.ready) expect_input(run, micro_batch + run.slots, true);
}

void Network::submit_outcome(const Run& run, std::size_t micro_batch) {
  if (!options_.learns)
    return run.queue.submit("forward.count", {},
                            [outcome = run.outcome, n = run.part(micro_batch).samples()] { outcome->labels += n; });
  const StageSlot& slot = slots_[run.slot(micro_batch)];
  const std::size_t logits = run.samples_in(micro_batch) * output_width();
  static const OutcomePlace not_reported = nullptr;
  submit_loss(run.queue, slot.outputs.back().part(0, logits), run.part(micro_batch),
              slot.top_delta.part(0, run.ready ? logits : 0), part_.tensor_rank == 0 ? run.outcome : not_reported,
              options_.loss);
}

void Network::backward_micro_batch(const Run& run, std::size_t micro_batch) {
  const StageSlot& slot = slots_[run.slot(micro_batch)];
  Messages& messages = messages_[run.slot(micro_batch)];
  finish(messages.top_delta);
  finish(messages.input_gradient_sent);
  const Buffer& gradients = run.buffers.gradients;
  const Buffer target = gradient_sum_.target(run.queue, micro_batch, gradients);
  const bool is_last_of_pass = micro_batch + 1 == run.micro_batches;
  const auto ready = [&](std::size_t tensor) {
    if (!is_last_of_pass) return;
    gradient_sum_.add(run.queue, micro_batch, gradients, tensors()[tensor].offset, tensors()[tensor].count);
    tied_weight_.add_gradient(run.queue, tensor, gradients);
    (*run.ready)(tensor);
  };
  Stage::Pass pass = stage_pass(run, micro_batch);
  tied_weight_.clear_gradient(run.queue, target);
  pass.tied_gradient = tied_weight_.gradient_target(run.queue, micro_batch);
  stage_.backward(pass, slot, target, std::ref(ready));
  if (!is_first()) {
    const std::size_t inputs = run.samples_in(micro_batch) * held_.input_width();
    messages.input_gradient_sent = part_.peers->send(OtherStage::previous, slot.input_gradient.part(0, inputs));
  }
  if (!is_last_of_pass) gradient_sum_.add(run.queue, micro_batch, gradients, 0, element_count());
  tied_weight_.return_gradient(run.queue, micro_batch);
  expect_input(run, micro_batch + run.slots, true);
}

}  // namespace gradmeter::model
