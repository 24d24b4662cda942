// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/server/served_chunk.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "allreduce/reduce.hpp"
#include "core/format.hpp"
#include "kernels/host/threads.hpp"

namespace gradmeter::dataparallel {

ChunkWeights::ChunkWeights(std::span<float> memory, std::span<const float> first, int workers, int local_worker)
    : copies_{{{.memory = memory.first(first.size())}, {.memory = memory.last(first.size())}}},
      local_worker_(local_worker),
      newest_(copies_[0].memory),
      places_(static_cast<std::size_t>(workers)) {
  std::ranges::copy(first, copies_[0].memory.begin());
}

bool ChunkWeights::OwnCopy::is_free() {
  std::erase_if(readers, [](const Ticket& t) { return t->done(); });
  return readers.empty();
}

/// A message occupies one copy. The other must be free, so that the next step has a copy to write to.
bool ChunkWeights::can_send() {
  return copies_[1 - last_written_].is_free() && (owner_ == server_itself || copies_[last_written_].is_free());
}

/// Returns a copy in the server's memory from which no message leaves.
std::span<float> ChunkWeights::free_copy() {
  if (!copies_[last_written_].is_free()) last_written_ = 1 - last_written_;
  if (!copies_[last_written_].is_free()) throw std::logic_error("both copies of a chunk are being read");
  return copies_[last_written_].memory;
}

std::span<const float> ChunkWeights::weights_to_send(ExecutionContext& context) {
  if (owner_ == server_itself) return newest_;
  const std::span<float> to = free_copy();
  context.submit("server.copy", {0, 8.0 * double(to.size())}, [&] { std::ranges::copy(newest_, to.begin()); });
  owner_ = server_itself;
  return newest_ = to;
}

void ChunkWeights::forget(ExecutionContext& context, int worker) {
  if (owner_ == worker) weights_to_send(context);
  place(worker) = {};
}

void ChunkWeights::offer(int worker, std::span<float> memory) { place(worker) = {.memory = memory}; }

std::span<float> ChunkWeights::end_offer(int worker) {
  const WorkerPlace p = std::exchange(place(worker), {});
  return p.newest ? p.memory : std::span<float>{};
}

ChunkWeights::Step ChunkWeights::begin_step() {
  Step step{.from = newest_};
  for (int w = 0; w < static_cast<int>(places_.size()); ++w) {
    if (!place(w).is_due()) continue;
    step.copies.push_back(place(w).memory);
    if (w == local_worker_) std::swap(step.copies.front(), step.copies.back());
  }
  if (step.copies.empty()) {
    step.to = free_copy();
  } else {
    step.to = step.copies.front();
    step.copies.erase(step.copies.begin());
  }
  return step;
}

void ChunkWeights::end_step(const Step& step) {
  newest_ = step.to;
  owner_ = server_itself;
  for (std::size_t w = 0; w < places_.size(); ++w) {
    WorkerPlace& p = places_[w];
    p.newest = p.is_due();
    p.joins = false;
    if (p.newest && p.memory.data() == newest_.data()) owner_ = static_cast<int>(w);
  }
}

namespace {

/// Adds changes to the weights: w += d. Cost: 12 bytes an element.
class Add final : public Optimizer {
 public:
  Add() : Optimizer("add") {}
  void apply(runtime::Buffer w, runtime::ConstBuffer d, std::size_t, UpdateStep) override {
    const auto to = w.values<float>();
    const auto change = d.values<float>();
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += change[i];
  }
  runtime::Cost cost(std::size_t n) const override { return {double(n), 12.0 * double(n)}; }
};

/// The number of elements that are summed and applied at a time, so that their sum stays in the caches of the threads.
std::size_t elements_at_once() {
  // A single thread works in its first-level cache.
  constexpr std::size_t elements_alone = 1536, elements_per_thread = 1 << 14;
  const auto threads = static_cast<std::size_t>(kernels::compute_threads());
  return threads > 1 ? threads * elements_per_thread : elements_alone;
}

/// Elements [first, first + count) of the terms' sum, added from left to right and divided by `divisor`. If there is
/// one term and divisor is 1, they are returned where they lie; otherwise in `scratch`.
std::span<const float> sum_or_mean(std::span<const std::span<const float>> terms, std::size_t first, std::size_t count,
                                   int divisor, std::span<float> scratch) {
  constexpr auto fp32 = core::Element::f32;
  constexpr std::size_t grain = 1 << 13;
  if (terms.size() == 1 && divisor == 1) return terms.front().subspan(first, count);
  kernels::split(count, grain, [&](std::size_t at, std::size_t n) {
    std::vector<const std::byte*> sources;
    for (const auto& t : terms) sources.push_back(reinterpret_cast<const std::byte*>(t.data() + first + at));
    auto* const to = reinterpret_cast<std::byte*>(scratch.data() + at);
    if (terms.size() > 1) allreduce::reduce(fp32, fp32, allreduce::Op::sum, to, sources, n);
    const std::byte* const sum = terms.size() > 1 ? to : sources.front();
    if (divisor > 1) allreduce::finish(fp32, allreduce::Op::average, to, sum, n, divisor);
  });
  return scratch.first(count);
}

/// Copies with the same split over threads as `sum_or_mean`, so that each thread finds its elements in its cache.
void copy_on_threads(std::span<const float> from, std::span<float> to) {
  constexpr std::size_t grain = 1 << 13;
  kernels::split(from.size(), grain, [&](std::size_t at, std::size_t n) {
    std::ranges::copy(from.subspan(at, n), to.subspan(at).begin());
  });
}

/// The parts of tensors that lie in the range, with offsets from its beginning.
std::vector<model::Tensor> clipped(std::span<const model::Tensor> tensors, Range r) {
  std::vector<model::Tensor> out;
  for (const auto& t : tensors) {
    const std::size_t first = std::max(t.offset, r.first), end = std::min(t.offset + t.count, r.end());
    if (first < end) out.push_back({t.name, {end - first}, first - r.first, end - first});
  }
  return out;
}

}  // namespace

std::vector<float> SpareMemory::take(std::size_t n) {
  std::vector<float> out;
  if (!spare_.empty()) {
    out = std::move(spare_.back());
    spare_.pop_back();
  }
  out.resize(n);
  return out;
}

std::span<float> SpareMemory::scratch(std::size_t n) {
  if (scratch_.size() < n) scratch_.resize(n);
  return std::span(scratch_).first(n);
}

ServedChunk::ServedChunk(const ServicePlan& plan, int local_worker, SpareMemory& spare, Range range,
                         std::span<const float> weights, std::span<const model::Tensor> tensors,
                         std::span<float> memory)
    : plan_(plan),
      spare_(spare),
      range_(range),
      changes_per_step_(plan.options.rule.changes_per_step(plan.workers)),
      weights_(memory, weights.subspan(range.first, range.count), plan.workers, local_worker),
      admission_(plan.workers, plan.options.staleness),
      staleness_(plan.workers) {
  const auto parts = clipped(tensors, range);
  const StepRule& rule = plan.options.rule;
  if (rule.compensation) compensation_.emplace(*rule.compensation, plan.workers, weights_.values());
  if (rule.fresh_only) least_readable_.resize(static_cast<std::size_t>(plan.workers), 0);
  const std::string& optimizer = plan.options.optimizer;
  if (optimizer == "add") {
    optimizer_ = std::make_unique<Add>();
  } else {
    optimizer_ = make_optimizer(optimizer, {.elements = range.count, .tensors = parts, .first = range.first});
  }
}

void ServedChunk::take(ExecutionContext& context, Port& port, const Message& message) {
  const MessageHeader& h = message.header;
  const int worker = message.from;
  if (h.clock != admission_.clock(worker)) throw std::logic_error(fmt::format("rank {} pushed out of turn", worker));
  note_gap(h.clock);  // the gap of the read on which the push is based; the worker may have had the weights already
  admission_.note_push(worker);
  resting_.erase(worker);
  auto* const answer = reinterpret_cast<float*>(port.peer_memory(worker, h.answer_place));
  weights_.offer(worker, {answer, answer ? range_.count : 0});
  std::vector<float> decoded;
  if (plan_.changes.encodes(range_.count)) decoded = spare_.take(range_.count);
  Change change{.worker = worker, .base = h.version, .size = static_cast<float>(h.value)};
  change.values = plan_.changes.numbers(context, "server.decode", message.payload, range_.count, decoded,
                                        draw_of_change(plan_.options.seed, worker, h.clock, h.first));
  if (admission_.is_bulk_synchronous()) {
    change.memory = std::move(decoded);
    take_in_turn(context, std::move(change), port);
  } else {
    take_as_it_comes(context, std::move(change));
    if (!decoded.empty()) spare_.give_back(std::move(decoded));
  }
}

void ServedChunk::take_as_it_comes(ExecutionContext& context, Change change) {
  if (plan_.options.rule.fresh_only) {
    least_readable_[static_cast<std::size_t>(change.worker)] = change.base + 1;
    if (change.base != version_) {
      const std::lock_guard lock(mutex_);
      return void(++observed_.dropped);
    }
  }
  if (compensation_)
    change.values = compensation_->compensated(context, change.worker, change.values, weights_.values());
  if (changes_per_step_ == 1) {
    count(change);
    return apply(context, {&change.values, 1}, 1, step_size_of(change));
  }
  add(std::move(change));
  finish_group(context);
  keep_sum(context);  // once a change is acknowledged, the worker may overwrite it
}

float ServedChunk::step_size_of(const Change& c) const {
  if (const int steps = plan_.options.rule.softsync_steps(plan_.workers); steps > 0)
    return c.size / static_cast<float>(steps);
  if (plan_.options.rule.fresh_only) return c.size;
  switch (plan_.options.rule.scale) {
    case ChangeScale::mean:
      return c.size / static_cast<float>(plan_.workers);
    case ChangeScale::staleness:
      return c.size / static_cast<float>(std::max<std::uint64_t>(1, version_ - c.base));
    case ChangeScale::sum:
      break;
  }
  return c.size;
}

/// The number of changes that make the next step: at most as many as there are workers that still send changes.
int ServedChunk::needed() const {
  return std::min(changes_per_step_, admission_.training_workers() - static_cast<int>(resting_.size()));
}

void ServedChunk::rest(ExecutionContext& context, int worker) {
  resting_.insert(worker);
  finish_group(context);
}

/// Makes a step if enough changes have come.
void ServedChunk::finish_group(ExecutionContext& context) {
  if (changes_in_sum_ == 0 || changes_in_sum_ < needed()) return;
  const int steps = plan_.options.rule.softsync_steps(plan_.workers);
  apply_sum(context, steps > 0 ? 1.0f / static_cast<float>(steps) : 1.0f);
}

void ServedChunk::count(const Change& c) {
  weights_.join_step(c.worker);
  const std::lock_guard lock(mutex_);
  if (admission_.all_train()) staleness_.applied(c.base, version_);
}

void ServedChunk::apply(ExecutionContext& context, Terms terms, int divisor, float size) {
  const ChunkWeights::Step weights = weights_.begin_step();
  const bool out_of_place = weights.from.data() != weights.to.data();
  const UpdateStep step{.step_size = size, .number = version_ + 1};
  const double n = double(range_.count), further_terms = double(terms.size() - 1);
  runtime::Cost cost = optimizer_->cost(range_.count);
  cost.flops += n * (further_terms + (divisor == 1 ? 0 : 1));
  cost.bytes += 4 * n * (further_terms + (out_of_place ? 1 : 0) + double(weights.copies.size()));
  context.submit("server.update", cost, [&] {
    const std::size_t block_elements = std::min(elements_at_once(), range_.count);
    const std::span<float> scratch = spare_.scratch(block_elements);
    for (std::size_t first = 0; first < range_.count; first += block_elements) {
      const std::size_t count = std::min(block_elements, range_.count - first);
      const std::span<float> to = weights.to.subspan(first, count);
      if (out_of_place) copy_on_threads(weights.from.subspan(first, count), to);
      optimizer_->apply(to, sum_or_mean(terms, first, count, divisor, scratch), first, step);
      for (const auto& copy : weights.copies) copy_on_threads(to, copy.subspan(first, count));
    }
  });
  weights_.end_step(weights);
  ++version_;
  const std::lock_guard lock(mutex_);
  observed_.applied = version_;
}

/// Adds a change of the present clock to the sum, or keeps it until all lower ranks' changes have been added. The
/// worker does not overwrite it in its own memory before it gets the weights of which the change becomes part.
void ServedChunk::take_in_turn(ExecutionContext& context, Change change, Port& port) {
  skip_gone();
  const bool is_next = change.worker == next_worker_;
  if (change.memory.empty()) change.message = port.keep();
  if (is_next) {
    add_next(std::move(change));
    finish_clock(context);
    return keep_sum(context);
  }
  if (!change.has_lasting_values()) copy(context, change);
  const int worker = change.worker;
  if (!early_.emplace(worker, std::move(change)).second) {
    throw std::logic_error(fmt::format("rank {} pushed before its last clock was applied", worker));
  }
}

void ServedChunk::copy(ExecutionContext& context, Change& change) {
  change.memory = spare_.take(range_.count);
  context.submit("server.copy", {0, 8.0 * double(range_.count)},
                 [&] { std::ranges::copy(change.values, change.memory.begin()); });
  change.values = change.memory;  // stays valid when the vector is moved
}

void ServedChunk::add(Change change) {
  count(change);
  ++changes_in_sum_;
  terms_.push_back(std::move(change));
}

void ServedChunk::add_next(Change change) {
  ++next_worker_;
  add(std::move(change));
}

std::vector<std::span<const float>> ServedChunk::terms() const {
  std::vector<std::span<const float>> out;
  for (const Change& t : terms_) out.push_back(t.values);
  return out;
}

/// Copies the sum of the terms if a term lies in a message that is about to be given back.
void ServedChunk::keep_sum(ExecutionContext& context) {
  if (!std::ranges::all_of(terms_, &Change::has_lasting_values)) add_up_terms(context);
}

/// Replaces the terms by their sum, in memory of its own.
void ServedChunk::add_up_terms(ExecutionContext& context) {
  const Change& first = terms_.front();
  Change sum{.worker = first.worker, .base = first.base, .size = first.size, .memory = spare_.take(range_.count)};
  const double n = double(range_.count), count = double(terms_.size());
  context.submit("server.sum", {n * (count - 1), 4 * n * (count + 1)}, [&] {
    const auto mean = sum_or_mean(terms(), 0, range_.count, 1, sum.memory);
    if (mean.data() != sum.memory.data()) std::ranges::copy(mean, sum.memory.begin());
  });
  sum.values = sum.memory;
  drop_terms();
  terms_.push_back(std::move(sum));
}

void ServedChunk::drop_terms() {
  for (Change& t : terms_) {
    if (!t.memory.empty()) spare_.give_back(std::move(t.memory));
  }
  terms_.clear();
}

void ServedChunk::skip_gone() {
  while (next_worker_ < plan_.workers && admission_.is_gone(next_worker_) && !early_.contains(next_worker_))
    ++next_worker_;
}

/// Adds the changes whose turn has come; applies the sum if it has the changes of all workers.
void ServedChunk::finish_clock(ExecutionContext& context) {
  for (skip_gone(); early_.contains(next_worker_); skip_gone()) {
    add_next(std::move(early_.extract(next_worker_).mapped()));
  }
  if (next_worker_ < plan_.workers) return;
  next_worker_ = 0;
  if (changes_in_sum_ > 0) apply_sum(context, 1);
}

void ServedChunk::apply_sum(ExecutionContext& context, float factor) {
  const int divisor = plan_.options.rule.scale == ChangeScale::sum ? 1 : changes_in_sum_;
  apply(context, terms(), divisor, factor * terms_.front().size);
  drop_terms();
  changes_in_sum_ = 0;
}

void ServedChunk::note_gap(std::uint64_t clock) {
  const std::lock_guard lock(mutex_);
  observed_.largest_gap = std::max(observed_.largest_gap, admission_.gap(clock));
}

void ServedChunk::ask(const Read& r) {
  if (admission_.is_gone(r.worker)) return;
  note_gap(r.header.clock);
  held_reads_.push_back(r);
}

void ServedChunk::leave(ExecutionContext& context, int worker) {
  if (admission_.all_train()) {
    const std::lock_guard lock(mutex_);
    observed_.staleness_under_way = staleness_.outstanding(version_);
  }
  admission_.note_gone(worker);
  resting_.erase(worker);
  weights_.forget(context, worker);
  std::erase_if(held_reads_, [worker](const Read& r) { return r.worker == worker; });
  if (admission_.is_bulk_synchronous()) {
    finish_clock(context);
  } else {
    finish_group(context);
  }
}

bool ServedChunk::may_read(const Read& r) const {
  if (!least_readable_.empty() && version_ < least_readable_[static_cast<std::size_t>(r.worker)]) return false;
  return admission_.may_read(r.worker, r.header.clock, r.header.version);
}

std::optional<Read> ServedChunk::next_read(ExecutionContext& context) {
  const auto it = std::ranges::find_if(held_reads_, [this](const Read& r) { return may_read(r); });
  if (it == held_reads_.end()) return std::nullopt;
  const Read read = *it;
  held_reads_.erase(it);
  if (compensation_) compensation_->read(context, read.worker, weights_.values());
  const std::lock_guard lock(mutex_);
  observed_.read_wait_s += context.now() - read.since;
  if (admission_.all_train()) staleness_.read(read.worker, version_);
  return read;
}

Observations ServedChunk::observed() const {
  const std::lock_guard lock(mutex_);
  Observations o = observed_;
  o.staleness = staleness_.histogram();
  return o;
}

}  // namespace gradmeter::dataparallel
