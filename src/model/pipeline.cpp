#include "model/pipeline.hpp"

#include <functional>
#include <stdexcept>

#include "kernels/aligned.hpp"
#include "kernels/threads.hpp"
#include "model/passes.hpp"

namespace gradmeter::model {
namespace {

void finish(TransferPtr& t) {
  if (t) t->wait();
  t.reset();
}

}  // namespace

Buffer Allotment::take(std::size_t floats, bool seen_by_peers) {
  Block& b = seen_by_peers ? seen_ : own_;
  const std::size_t at = b.used;
  b.used += kernels::whole_lines(floats);
  return b.memory.count() == 0 ? b.memory : b.memory.part(at, floats);
}

Pipeline::Pipeline(Stage& stage, const Part& part, kernels::Precision loss)
    : stage_(stage),
      part_(part),
      loss_(loss),
      steps_(pipeline_steps(part.order, part.stage, part.stages, part.micro_batches)),
      slots_(most_in_flight(steps_)),
      sum_(stage.part().element_count(), part.micro_batches),
      lent_(stage.part(), part),
      posts_(slots_) {
  const std::size_t seen = peer_needs().memory_bytes / sizeof(float);
  if (part.peers && seen > 0) seen_ = part.peers->memory(seen);
}

StageMemory Pipeline::lay_out(std::size_t samples, Allotment& from) const {
  const auto layers = stage_.layers();
  const auto take = [&](std::size_t width, bool seen) { return from.take(samples * width, seen); };
  StageMemory m{.slots = std::vector<StageSlot>(slots_), .deltas = {}};
  for (StageSlot& s : m.slots) {
    if (!is_first()) s.input = take(stage_.in(), true);
    for (const StageLayer& l : layers) {
      const bool is_sent = &l == &layers.back() && !is_last();
      s.outputs.push_back(take(l.out, l.sums.output || is_sent));
      auto& shared = s.shared.emplace_back();
      for (const auto& within : {l.sums.forward, l.sums.backward})
        for (const std::size_t floats : within) shared.push_back(take(floats, true));
    }
    s.top_delta = take(layers.back().out, !is_last());
    if (!is_first()) s.input_gradient = take(stage_.in(), true);
  }
  // The gradient by a layer's input is the delta of the layer below.
  for (std::size_t l = 0; l + 1 < layers.size(); ++l)
    m.deltas.push_back(take(layers[l].out, layers[l + 1].sums.input_gradient));
  for (Buffer* const b : {&m.lent_weight, &m.lent_gradient}) *b = from.take(lent_.floats(), true);
  return m;
}

// A part's is made once, for the largest micro-batch that its peers' memory is made for.
void Pipeline::provide_memory(Queue& queue, std::size_t samples) {
  if (!part_.peers && !part_.is_whole())
    throw std::logic_error("model: a part that was made without peers can only be asked for its sizes");
  if (samples <= memory_samples_) return;
  memory_samples_ = part_.is_whole() ? samples : largest_piece(part_.batch);
  queue.synchronise();  // work on the memory that goes now
  recorded_.forget();
  Allotment needed;
  (void)lay_out(memory_samples_, needed);
  own_ = queue.device().allocate(core::Element::f32, needed.own());
  Allotment given(own_.buffer, seen_);
  memory_ = lay_out(memory_samples_, given);
  lent_.set_memory(memory_.lent_weight, memory_.lent_gradient);
}

std::size_t Pipeline::largest_piece(std::size_t batch) const {
  return std::max<std::size_t>(1, (batch + part_.micro_batches - 1) / part_.micro_batches);
}

/// Samples of a forward pass's pieces: a part has memory for so many.
std::size_t Pipeline::forward_piece_samples(std::size_t batch) const {
  return part_.is_whole() ? batch : largest_piece(part_.batch);
}

std::size_t Pipeline::workspace_bytes(std::size_t samples) const {
  Allotment needed;
  (void)lay_out(largest_piece(samples), needed);
  std::size_t held = 0;
  for (const auto& l : stage_.part().layers()) held += slots_ * largest_piece(samples) * l->held_elements();
  const std::size_t sums = part_.micro_batches > 1 ? stage_.part().element_count() : 0;
  return (needed.own() + held + sums + lent_.summed_floats()) * sizeof(float);
}

PeerNeeds Pipeline::peer_needs() const {
  Allotment needed;
  const std::size_t samples = largest_piece(part_.batch);
  (void)lay_out(samples, needed);
  const std::vector<std::size_t> summed = sums(samples, true);
  const std::size_t largest = summed.empty() ? 0 : std::ranges::max(summed);
  return {.memory_bytes = needed.seen() * sizeof(float), .largest_sum_bytes = largest * sizeof(float)};
}

/// Floats of the sums over tensor ranks in a pass over so many samples.
std::vector<std::size_t> Pipeline::sums(std::size_t samples, bool backward) const {
  const auto layers = stage_.layers();
  std::vector<std::size_t> floats;
  for (const StageLayer& l : layers) {
    for (const std::size_t within : l.sums.forward) floats.push_back(samples * within);
    if (l.sums.output) floats.push_back(samples * l.out);
  }
  for (std::size_t l = 0; backward && l < layers.size(); ++l) {
    for (const std::size_t within : layers[l].sums.backward) floats.push_back(samples * within);
    if (layers[l].sums.input_gradient) floats.push_back(samples * (l == 0 ? stage_.in() : layers[l - 1].out));
  }
  return floats;
}

std::vector<RepeatedProblem> Pipeline::pass_problems(std::size_t samples) const {
  auto all = stage_.part().problems(micro_batch_samples(samples, part_.micro_batches), true);
  for (RepeatedProblem& p : all) p.times *= part_.micro_batches;
  return all;
}

std::vector<RepeatedProblem> Pipeline::forward_problems(std::size_t samples) const {
  const std::size_t piece = forward_piece_samples(samples);
  std::vector<RepeatedProblem> all;
  if (samples >= piece) all = stage_.part().problems(piece, false);
  for (RepeatedProblem& p : all) p.times *= samples / piece;
  if (samples % piece == 0) return all;
  const auto rest = stage_.part().problems(samples % piece, false);
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

PeerTraffic Pipeline::pass_traffic(std::size_t samples) const {
  const std::size_t piece = micro_batch_samples(samples, part_.micro_batches);
  const std::vector<std::size_t> summed = sums(piece, true);
  PeerTraffic t;
  for (std::size_t i = 0; i < part_.micro_batches; ++i) {
    t.sums.insert(t.sums.end(), summed.begin(), summed.end());
    if (!is_first()) t.messages += 1, t.floats_sent += piece * stage_.in();
    if (!is_last()) t.messages += 1, t.floats_sent += piece * out();
  }
  lent_.count(t, true);
  return t;
}

PeerTraffic Pipeline::forward_traffic(std::size_t samples) const {
  const std::size_t piece = forward_piece_samples(samples);
  PeerTraffic t;
  for (std::size_t first = 0; first < samples; first += piece) {
    const std::size_t n = std::min(piece, samples - first);
    const std::vector<std::size_t> summed = sums(n, false);
    t.sums.insert(t.sums.end(), summed.begin(), summed.end());
    if (!is_last()) t.messages += 1, t.floats_sent += n * out();
  }
  lent_.count(t, false);
  return t;
}

void Pipeline::forward(Queue& queue, Buffers buffers, const Batch& batch, const OutcomePlace& outcome) {
  const std::size_t piece = forward_piece_samples(batch.samples());
  const std::size_t pieces = (batch.samples() + piece - 1) / piece;
  provide_memory(queue, piece);
  const Run run{.queue = queue,
                .buffers = buffers,
                .batch = batch,
                .samples = piece,
                .pieces = pieces,
                .ready = nullptr,
                .outcome = outcome};
  play(run, forward_steps(pieces));
}

void Pipeline::pass(Queue& queue, Buffers buffers, const Batch& batch, const Model::Ready& ready,
                    const OutcomePlace& outcome) {
  const std::size_t piece = micro_batch_samples(batch.samples(), part_.micro_batches);
  if (!part_.is_whole() && piece > largest_piece(part_.batch))
    throw std::logic_error("model: its memory is for a smaller batch");
  provide_memory(queue, piece);
  const Run run{.queue = queue,
                .buffers = buffers,
                .batch = batch,
                .samples = piece,
                .pieces = part_.micro_batches,
                .ready = &ready,
                .outcome = outcome};
  if (part_.is_whole() && part_.micro_batches == 1) {
    whole_pass(run);
  } else {
    play(run, steps_);
  }
}

void Pipeline::whole_pass(const Run& run) {
  const RecordedPass::Operands operands{.parameters = run.buffers.parameters,
                                        .inputs = run.batch.inputs,
                                        .gradients = run.buffers.gradients,
                                        .samples = run.samples,
                                        .threads = kernels::compute_threads()};
  if (recorded_.is_of(operands)) {
    recorded_.submit_forward(run.queue);
    take_loss(run, 0);
    recorded_.submit_backward(run.queue, *run.ready);
    return;
  }
  if (!recorded_.recurs(operands)) return play(run, steps_);
  const StageSlot& slot = memory_.slots.front();
  const Stage::Pass pass = stage_pass(run, 0);
  const auto on = [&pass](Queue& queue) {
    return Stage::Pass{.queue = queue, .parameters = pass.parameters, .input = pass.input, .samples = pass.samples};
  };
  recorded_.begin();
  runtime::RecordingQueue forward = recorded_.forward(run.queue), backward = recorded_.backward(run.queue);
  stage_.forward(on(forward), slot);
  take_loss(run, 0);
  stage_.backward(on(backward), slot, memory_.deltas, run.buffers.gradients, [&](std::size_t tensor) {
    recorded_.announce();
    (*run.ready)(tensor);
  });
  recorded_.end();
}

std::vector<ConstBuffer> Pipeline::layer_outputs(Queue& queue, Buffers buffers, const Batch& batch) {
  const std::size_t n = batch.samples();
  provide_memory(queue, n);
  const StageSlot& slot = memory_.slots.front();
  stage_.forward({.queue = queue, .parameters = buffers.parameters, .input = batch.inputs, .samples = n}, slot);
  std::vector<ConstBuffer> outputs;
  for (std::size_t l = 0; l < slot.outputs.size(); ++l)
    outputs.emplace_back(slot.outputs[l].part(0, n * stage_.layers()[l].out));
  return outputs;
}

void Pipeline::play(const Run& run, const std::vector<PipelineStep>& steps) {
  lent_.begin(run.queue, run.buffers.parameters, inputs_in_use_);
  // One stage's messages are received in the order of their posting: what the first waits for is done for all of them.
  const bool is_first_message = !(lent_.borrows() && part_.stages == 2);
  for (std::size_t i = 0; i < slots_; ++i) expect_input(run, i, i == 0 && is_first_message && inputs_in_use_);
  for (const PipelineStep& s : steps) {
    if (s.kind == PipelineStep::Kind::forward) {
      forward_piece(run, s.micro_batch);
    } else {
      backward_piece(run, s.micro_batch);
    }
  }
  for (Post& p : posts_) {
    finish(p.output_left);
    finish(p.input_gradient_left);
  }
  lent_.end();
  // What a run sends leaves after all that has read its inputs; the last stage's forward pass sends nothing.
  inputs_in_use_ = run.ready == nullptr && is_last();
}

void Pipeline::expect_input(const Run& run, std::size_t piece, bool in_use) {
  if (is_first() || piece >= run.pieces) return;
  const Buffer& input = memory_.slots[piece % slots_].input;
  posts_[piece % slots_].input = part_.peers->receive(
      Neighbour::previous, input.part(0, run.count(piece) * stage_.in()), in_use ? run.queue.record() : nullptr);
}

Batch Pipeline::batch_of(const Run& run, std::size_t piece) const {
  return part_of(run.batch, run.batch.inputs.count() / run.batch.samples(), run.first(piece), run.count(piece));
}

Stage::Pass Pipeline::stage_pass(const Run& run, std::size_t piece) const {
  const std::size_t n = run.count(piece), slot = piece % slots_;
  return {.queue = run.queue,
          .parameters = run.buffers.parameters,
          .input = is_first() ? batch_of(run, piece).inputs
                              : ConstBuffer(memory_.slots[slot].input.part(0, n * stage_.in())),
          .samples = n,
          .slot = run.ready ? slot : 0,  // without a backward pass a stage needs one, since work is in order
          .lent_weight = lent_.weight()};
}

void Pipeline::forward_piece(const Run& run, std::size_t piece) {
  const StageSlot& slot = memory_.slots[piece % slots_];
  Post& post = posts_[piece % slots_];
  const std::size_t outputs = run.count(piece) * out();
  finish(post.input);
  finish(post.output_left);
  lent_.await_weight();
  stage_.forward(stage_pass(run, piece), slot);
  if (is_last()) {
    take_loss(run, piece);
  } else {
    // The receive for the answer is posted before the message that it answers is sent. That leaves after all work so
    // far, so its answer overwrites nothing that is still read.
    if (run.ready) post.top_delta = part_.peers->receive(Neighbour::next, slot.top_delta.part(0, outputs), nullptr);
    if (run.ready && piece + 1 == run.pieces) lent_.expect_gradient();
    post.output_left = part_.peers->send(Neighbour::next, slot.outputs.back().part(0, outputs));
  }
  if (!run.ready) expect_input(run, piece + slots_, true);
}

void Pipeline::take_loss(const Run& run, std::size_t piece) {
  const StageSlot& slot = memory_.slots[piece % slots_];
  const std::size_t logits = run.count(piece) * out();
  static const OutcomePlace not_reported = nullptr;
  submit_loss(run.queue, slot.outputs.back().part(0, logits), batch_of(run, piece),
              slot.top_delta.part(0, run.ready ? logits : 0), part_.tensor_rank == 0 ? run.outcome : not_reported,
              loss_);
}

void Pipeline::backward_piece(const Run& run, std::size_t piece) {
  const StageSlot& slot = memory_.slots[piece % slots_];
  Post& post = posts_[piece % slots_];
  finish(post.top_delta);
  finish(post.input_gradient_left);
  const Buffer& gradients = run.buffers.gradients;
  const Buffer target = sum_.target(run.queue, piece, gradients);
  const auto ready = [&](std::size_t t) {
    if (piece > 0) {
      const Tensor& tensor = stage_.part().tensors()[t];
      sum_.take(run.queue, piece, gradients, tensor.offset, tensor.count);
    }
    if (piece + 1 < run.pieces) return;
    lent_.add_gradient(run.queue, t, gradients);
    (*run.ready)(t);
  };
  Stage::Pass pass = stage_pass(run, piece);
  lent_.clear(run.queue, target);
  pass.lent_gradient = lent_.gradient_target(run.queue, piece);
  stage_.backward(pass, slot, memory_.deltas, target, std::ref(ready));
  if (!is_first()) {
    const std::size_t inputs = run.count(piece) * stage_.in();
    post.input_gradient_left = part_.peers->send(Neighbour::previous, slot.input_gradient.part(0, inputs));
  }
  lent_.return_gradient(run.queue, piece);
  expect_input(run, piece + slots_, true);
}

}  // namespace gradmeter::model
