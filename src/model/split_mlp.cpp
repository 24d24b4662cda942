#include "model/split_mlp.hpp"

#include <algorithm>
#include <stdexcept>

#include "kernels/pointwise.hpp"
#include "kernels/problems/shape.hpp"

namespace gradmeter::model {
namespace {

void finish(TransferPtr& t) {
  if (t) t->wait();
  t.reset();
}

}  // namespace

SplitMlp::SplitMlp(std::vector<std::size_t> widths, const Part& part, std::string gemm_backend)
    : shard_(std::move(widths), part),
      part_(part),
      stage_(shard_, part, std::move(gemm_backend)),
      steps_(pipeline_steps(part.order, part.stage, part.stages, part.micro_batches)),
      slots_(most_in_flight(steps_)),
      sum_(part.peers ? shard_.element_count() : 0, part.micro_batches),
      posts_(slots_) {
  if (!part.peers) return;
  Allotment needed;
  (void)lay_out(shard_, slots_, largest_piece(part.batch), needed);
  own_.resize(needed.own());
  Allotment given(own_, needed.seen() > 0 ? part.peers->memory(needed.seen()) : std::span<float>{});
  memory_ = lay_out(shard_, slots_, largest_piece(part.batch), given);
}

std::size_t SplitMlp::largest_piece(std::size_t batch) const {
  return std::max<std::size_t>(1, (batch + part_.micro_batches - 1) / part_.micro_batches);
}

std::size_t SplitMlp::workspace_bytes(std::size_t samples) const {
  Allotment needed;
  (void)lay_out(shard_, slots_, largest_piece(samples), needed);
  const std::size_t sums = part_.micro_batches > 1 ? element_count() : 0;
  return (needed.own() + sums) * sizeof(float);
}

PeerNeeds SplitMlp::peer_needs() const {
  Allotment needed;
  const std::size_t samples = largest_piece(part_.batch);
  (void)lay_out(shard_, slots_, samples, needed);
  const std::vector<std::size_t> sums = stage_.sums(samples);
  const std::size_t largest = sums.empty() ? 0 : std::ranges::max(sums);
  return {.memory_bytes = needed.seen() * sizeof(float), .largest_sum_bytes = largest * sizeof(float)};
}

std::vector<RepeatedProduct> SplitMlp::pass_products(std::size_t samples) const {
  auto products = shard_.pass_products(micro_batch_samples(samples, part_.micro_batches));
  for (RepeatedProduct& p : products) p.times = part_.micro_batches;
  return products;
}

std::vector<RepeatedProduct> SplitMlp::forward_products(std::size_t samples) const {
  const std::size_t piece = largest_piece(part_.batch);
  std::vector<RepeatedProduct> all;
  if (samples >= piece) all = shard_.forward_products(piece);
  for (RepeatedProduct& p : all) p.times = samples / piece;
  if (samples % piece == 0) return all;
  const auto rest = shard_.forward_products(samples % piece);
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

PeerTraffic SplitMlp::pass_traffic(std::size_t samples) const {
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

PeerTraffic SplitMlp::forward_traffic(std::size_t samples) const {
  const std::size_t piece = largest_piece(part_.batch);
  PeerTraffic t;
  for (std::size_t first = 0; first < samples; first += piece) {
    const std::size_t n = std::min(piece, samples - first);
    const std::vector<std::size_t> sums = stage_.forward_sums(n);
    t.sums.insert(t.sums.end(), sums.begin(), sums.end());
    if (!is_last()) t.messages += 1, t.floats_sent += n * shard_.layers().back().out;
  }
  return t;
}

void SplitMlp::check(Buffers buffers, const Batch& batch) const {
  if (!part_.peers) throw std::logic_error("split mlp: it was made without peers, to be asked for its sizes only");
  kernels::require_elements("split mlp: parameters", buffers.parameters.count(), element_count());
  if (batch.samples() == 0) throw std::invalid_argument("split mlp: the batch is empty");
  kernels::require_elements("split mlp: inputs", batch.inputs.count(), batch.samples() * input_features());
}

Outcome SplitMlp::forward(Queue& queue, Buffers buffers, const Batch& batch) {
  check(buffers, batch);
  const std::size_t piece = largest_piece(part_.batch), pieces = (batch.samples() + piece - 1) / piece;
  Run run{.queue = queue, .buffers = buffers, .batch = batch, .samples = piece, .pieces = pieces, .ready = {}};
  play(run, forward_steps(pieces));
  return run.outcome;
}

Outcome SplitMlp::pass(Queue& queue, Buffers buffers, const Batch& batch, const Ready& ready) {
  check(buffers, batch);
  kernels::require_elements("split mlp: gradients", buffers.gradients.count(), element_count());
  const std::size_t piece = micro_batch_samples(batch.samples(), part_.micro_batches);
  if (piece > largest_piece(part_.batch)) throw std::logic_error("split mlp: its memory is for a smaller batch");
  Run run{.queue = queue,
          .buffers = buffers,
          .batch = batch,
          .samples = piece,
          .pieces = part_.micro_batches,
          .ready = &ready};
  play(run, steps_);
  return run.outcome;
}

void SplitMlp::play(Run& run, const std::vector<PipelineStep>& steps) {
  for (std::size_t i = 0; i < slots_; ++i) expect_input(run, i);
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
}

void SplitMlp::expect_input(const Run& run, std::size_t piece) {
  if (is_first() || piece >= run.pieces) return;
  const std::span<float> input = memory_.slots[piece % slots_].input;
  const std::size_t width = shard_.layers().front().in;
  posts_[piece % slots_].input = part_.peers->receive(Neighbour::previous, input.first(run.count(piece) * width));
}

MlpStage::Pass SplitMlp::stage_pass(const Run& run, std::size_t piece) const {
  const std::size_t n = run.count(piece), in = shard_.layers().front().in;
  const std::span<const float> input = is_first()
                                           ? run.batch.inputs.values<float>().subspan(run.first(piece) * in, n * in)
                                           : std::span<const float>(memory_.slots[piece % slots_].input.first(n * in));
  return {.queue = run.queue, .parameters = run.buffers.parameters.values<float>(), .input = input, .samples = n};
}

void SplitMlp::forward_piece(Run& run, std::size_t piece) {
  const StageSlot& slot = memory_.slots[piece % slots_];
  Post& post = posts_[piece % slots_];
  const std::size_t outputs = run.count(piece) * shard_.layers().back().out;
  finish(post.input);
  finish(post.output_left);
  stage_.forward(stage_pass(run, piece), slot);
  if (is_last()) {
    take_loss(run, piece);
  } else {
    // The receive for the answer is posted before the message that it answers is sent.
    if (run.ready) post.delta = part_.peers->receive(Neighbour::next, slot.top_delta.first(outputs));
    post.output_left = part_.peers->send(Neighbour::next, slot.outputs.back().first(outputs));
  }
  if (!run.ready) expect_input(run, piece + slots_);
}

void SplitMlp::take_loss(Run& run, std::size_t piece) {
  const StageSlot& slot = memory_.slots[piece % slots_];
  const std::size_t n = run.count(piece), logits = n * classes();
  const auto labels = run.batch.labels.part(run.first(piece), n).values<std::int32_t>();
  const std::span<float> delta = run.ready ? slot.top_delta.first(logits) : std::span<float>{};
  kernels::CrossEntropy loss{};
  run.queue.submit("forward.softmax",
                   {.flops = 6 * static_cast<double>(logits), .bytes = 8 * static_cast<double>(logits)}, [&] {
                     loss = kernels::softmax_cross_entropy(slot.outputs.back().first(logits), labels, classes(),
                                                           1.0F / static_cast<float>(n), delta);
                   });
  if (part_.tensor_rank > 0) return;
  run.outcome.loss_sum += loss.loss_sum;
  run.outcome.correct += loss.correct;
  run.outcome.samples += n;
}

void SplitMlp::backward_piece(Run& run, std::size_t piece) {
  const StageSlot& slot = memory_.slots[piece % slots_];
  Post& post = posts_[piece % slots_];
  const std::size_t n = run.count(piece);
  finish(post.delta);
  finish(post.input_delta_left);
  if (!is_last()) {
    const std::size_t outputs = n * shard_.layers().back().out;
    run.queue.submit("backward.relu", {.flops = 0, .bytes = 12.0 * static_cast<double>(outputs)}, [&] {
      kernels::relu_backward(slot.outputs.back().first(outputs), slot.top_delta.first(outputs));
    });
  }
  const std::span<float> gradients = run.buffers.gradients.values<float>();
  stage_.backward(stage_pass(run, piece), slot, memory_.deltas, sum_.target(piece, gradients), [&](std::size_t t) {
    sum_.take(run.queue, piece, gradients, tensors()[t].offset, tensors()[t].count);
    if (piece + 1 == run.pieces) (*run.ready)(t);
  });
  if (!is_first()) {
    const std::size_t inputs = n * shard_.layers().front().in;
    post.input_delta_left = part_.peers->send(Neighbour::previous, slot.input_delta.first(inputs));
  }
  expect_input(run, piece + slots_);
}

}  // namespace gradmeter::model
