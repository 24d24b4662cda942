#include "model/mlp.hpp"

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "kernels/problems/shape.hpp"
#include "model/passes.hpp"

namespace gradmeter::model {
namespace {

void finish(TransferPtr& t) {
  if (t) t->wait();
  t.reset();
}

}  // namespace

Mlp::Mlp(std::vector<std::size_t> widths, const Part& part, std::string gemm_backend)
    : shard_(std::move(widths), part),
      part_(part),
      stage_(shard_, part, std::move(gemm_backend)),
      steps_(pipeline_steps(part.order, part.stage, part.stages, part.micro_batches)),
      slots_(most_in_flight(steps_)),
      sum_(shard_.element_count(), part.micro_batches),
      posts_(slots_) {
  const std::size_t seen = Mlp::peer_needs().memory_bytes / sizeof(float);
  if (part.peers && seen > 0) seen_ = part.peers->memory(seen);
}

// A part's is made once, for the largest micro-batch that its peers' memory is made for.
void Mlp::provide_memory(Queue& queue, std::size_t samples) {
  if (samples <= memory_samples_) return;
  memory_samples_ = part_.is_whole() ? samples : largest_piece(part_.batch);
  queue.synchronise();  // work on the memory that goes now
  Allotment needed;
  (void)lay_out(shard_, slots_, memory_samples_, needed);
  own_ = queue.device().allocate(core::Element::f32, needed.own());
  Allotment given(own_.buffer, seen_);
  memory_ = lay_out(shard_, slots_, memory_samples_, given);
}

std::size_t Mlp::largest_piece(std::size_t batch) const {
  return std::max<std::size_t>(1, (batch + part_.micro_batches - 1) / part_.micro_batches);
}

/// Samples of a forward pass's pieces: a part has memory for so many.
std::size_t Mlp::forward_piece_samples(std::size_t batch) const {
  return part_.is_whole() ? batch : largest_piece(part_.batch);
}

std::size_t Mlp::workspace_bytes(std::size_t samples) const {
  Allotment needed;
  (void)lay_out(shard_, slots_, largest_piece(samples), needed);
  const std::size_t sums = part_.micro_batches > 1 ? element_count() : 0;
  return (needed.own() + sums) * sizeof(float);
}

PeerNeeds Mlp::peer_needs() const {
  Allotment needed;
  const std::size_t samples = largest_piece(part_.batch);
  (void)lay_out(shard_, slots_, samples, needed);
  const std::vector<std::size_t> sums = stage_.sums(samples);
  const std::size_t largest = sums.empty() ? 0 : std::ranges::max(sums);
  return {.memory_bytes = needed.seen() * sizeof(float), .largest_sum_bytes = largest * sizeof(float)};
}

std::vector<RepeatedProblem> Mlp::pass_problems(std::size_t samples) const {
  auto products = shard_.pass_problems(micro_batch_samples(samples, part_.micro_batches));
  for (RepeatedProblem& p : products) p.times = part_.micro_batches;
  return products;
}

std::vector<RepeatedProblem> Mlp::forward_problems(std::size_t samples) const {
  const std::size_t piece = forward_piece_samples(samples);
  std::vector<RepeatedProblem> all;
  if (samples >= piece) all = shard_.forward_problems(piece);
  for (RepeatedProblem& p : all) p.times = samples / piece;
  if (samples % piece == 0) return all;
  const auto rest = shard_.forward_problems(samples % piece);
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

PeerTraffic Mlp::pass_traffic(std::size_t samples) const {
  const std::size_t piece = micro_batch_samples(samples, part_.micro_batches);
  const std::vector<std::size_t> sums = stage_.sums(piece);
  PeerTraffic t;
  for (std::size_t i = 0; i < part_.micro_batches; ++i) {
    t.sums.insert(t.sums.end(), sums.begin(), sums.end());
    if (!is_first()) t.messages += 1, t.floats_sent += piece * shard_.layers().front().in;
    if (!is_last()) t.messages += 1, t.floats_sent += piece * shard_.layers().back().out;
  }
  return t;
}

PeerTraffic Mlp::forward_traffic(std::size_t samples) const {
  const std::size_t piece = forward_piece_samples(samples);
  PeerTraffic t;
  for (std::size_t first = 0; first < samples; first += piece) {
    const std::size_t n = std::min(piece, samples - first);
    const std::vector<std::size_t> sums = stage_.forward_sums(n);
    t.sums.insert(t.sums.end(), sums.begin(), sums.end());
    if (!is_last()) t.messages += 1, t.floats_sent += n * shard_.layers().back().out;
  }
  return t;
}

void Mlp::check(Buffers buffers, const Batch& batch) const {
  if (!part_.peers && !part_.is_whole())
    throw std::logic_error("mlp: a part that was made without peers can only be asked for its sizes");
  kernels::require_elements("mlp: parameters", buffers.parameters.count(), element_count());
  if (batch.samples() == 0) throw std::invalid_argument("mlp: the batch is empty");
  kernels::require_elements("mlp: inputs", batch.inputs.count(), batch.samples() * input_features());
}

void Mlp::run_forward(Queue& queue, Buffers buffers, const Batch& batch, const OutcomePlace& outcome) {
  check(buffers, batch);
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

void Mlp::run_pass(Queue& queue, Buffers buffers, const Batch& batch, const Ready& ready, const OutcomePlace& outcome) {
  check(buffers, batch);
  kernels::require_elements("mlp: gradients", buffers.gradients.count(), element_count());
  const std::size_t piece = micro_batch_samples(batch.samples(), part_.micro_batches);
  if (!part_.is_whole() && piece > largest_piece(part_.batch))
    throw std::logic_error("mlp: its memory is for a smaller batch");
  provide_memory(queue, piece);
  const Run run{.queue = queue,
                .buffers = buffers,
                .batch = batch,
                .samples = piece,
                .pieces = part_.micro_batches,
                .ready = &ready,
                .outcome = outcome};
  play(run, steps_);
}

void Mlp::play(const Run& run, const std::vector<PipelineStep>& steps) {
  // A stage's messages are received in the order of their posting: what the first waits for is done for all of them.
  for (std::size_t i = 0; i < slots_; ++i) expect_input(run, i, i == 0 && inputs_in_use_);
  for (const PipelineStep& s : steps) {
    if (s.kind == PipelineStep::Kind::forward) {
      forward_piece(run, s.micro_batch);
    } else {
      backward_piece(run, s.micro_batch);
    }
  }
  for (Post& p : posts_) {
    finish(p.output_left);
    finish(p.input_delta_left);
  }
  // What a run sends leaves after all that has read its inputs; the last stage's forward pass sends nothing.
  inputs_in_use_ = run.ready == nullptr && is_last();
}

void Mlp::expect_input(const Run& run, std::size_t piece, bool in_use) {
  if (is_first() || piece >= run.pieces) return;
  const Buffer& input = memory_.slots[piece % slots_].input;
  const std::size_t width = shard_.layers().front().in;
  posts_[piece % slots_].input = part_.peers->receive(Neighbour::previous, input.part(0, run.count(piece) * width),
                                                      in_use ? run.queue.record() : nullptr);
}

MlpStage::Pass Mlp::stage_pass(const Run& run, std::size_t piece) const {
  const std::size_t n = run.count(piece), in = shard_.layers().front().in;
  const ConstBuffer input = is_first() ? run.batch.inputs.part(run.first(piece) * in, n * in)
                                       : ConstBuffer(memory_.slots[piece % slots_].input.part(0, n * in));
  return {.queue = run.queue, .parameters = run.buffers.parameters, .input = input, .samples = n};
}

void Mlp::forward_piece(const Run& run, std::size_t piece) {
  const StageSlot& slot = memory_.slots[piece % slots_];
  Post& post = posts_[piece % slots_];
  const std::size_t outputs = run.count(piece) * shard_.layers().back().out;
  finish(post.input);
  finish(post.output_left);
  stage_.forward(stage_pass(run, piece), slot);
  if (is_last()) {
    take_loss(run, piece);
  } else {
    // The receive for the answer is posted before the message that it answers is sent. That leaves after all work so
    // far, so its answer overwrites nothing that is still read.
    if (run.ready) post.delta = part_.peers->receive(Neighbour::next, slot.top_delta.part(0, outputs), nullptr);
    post.output_left = part_.peers->send(Neighbour::next, slot.outputs.back().part(0, outputs));
  }
  if (!run.ready) expect_input(run, piece + slots_, true);
}

void Mlp::take_loss(const Run& run, std::size_t piece) {
  const StageSlot& slot = memory_.slots[piece % slots_];
  const std::size_t n = run.count(piece), logits = n * classes();
  submit_loss(run.queue, slot.outputs.back().part(0, logits), run.batch.labels.part(run.first(piece), n),
              slot.top_delta.part(0, run.ready ? logits : 0), part_.tensor_rank == 0 ? run.outcome : nullptr);
}

void Mlp::backward_piece(const Run& run, std::size_t piece) {
  const StageSlot& slot = memory_.slots[piece % slots_];
  Post& post = posts_[piece % slots_];
  const std::size_t n = run.count(piece);
  finish(post.delta);
  finish(post.input_delta_left);
  if (!is_last()) {
    const std::size_t outputs = n * shard_.layers().back().out;
    submit_relu_backward(run.queue, slot.outputs.back().part(0, outputs), slot.top_delta.part(0, outputs));
  }
  const Buffer& gradients = run.buffers.gradients;
  const Buffer target = sum_.target(run.queue, piece, gradients);
  const auto ready = [&](std::size_t t) {
    sum_.take(run.queue, piece, gradients, tensors()[t].offset, tensors()[t].count);
    if (piece + 1 == run.pieces) (*run.ready)(t);
  };
  stage_.backward(stage_pass(run, piece), slot, memory_.deltas, target, std::ref(ready));
  if (!is_first()) {
    const std::size_t inputs = n * shard_.layers().front().in;
    post.input_delta_left = part_.peers->send(Neighbour::previous, slot.input_delta.part(0, inputs));
  }
  expect_input(run, piece + slots_, true);
}

}  // namespace gradmeter::model
