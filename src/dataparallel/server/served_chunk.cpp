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

bool ChunkWeights::OwnCopy::unread() {
  std::erase_if(readers, [](const Ticket& t) { return t->done(); });
  return readers.empty();
}

/// Whatever is lent, one copy stays free for a step.
bool ChunkWeights::can_send() {
  return copies_[1 - last_written_].unread() && (owner_ == server_itself || copies_[last_written_].unread());
}

/// One of the server's that nobody reads.
std::span<float> ChunkWeights::free_copy() {
  if (!copies_[last_written_].unread()) last_written_ = 1 - last_written_;
  if (!copies_[last_written_].unread()) throw std::logic_error("both copies of a chunk are being read");
  return copies_[last_written_].memory;
}

std::span<const float> ChunkWeights::weights_to_send(ExecutionContext& f) {
  if (owner_ == server_itself) return newest_;
  const std::span<float> to = free_copy();
  f.submit("server.copy", {0, 8.0 * double(to.size())}, [&] { std::ranges::copy(newest_, to.begin()); });
  owner_ = server_itself;
  return newest_ = to;
}

void ChunkWeights::forget(ExecutionContext& f, int worker) {
  if (owner_ == worker) weights_to_send(f);
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

/// Elements that are summed and applied before the next: the sum stays in the caches of the threads that make it.
std::size_t elements_at_once() {
  constexpr std::size_t of_one = 1536, of_each = 1 << 14;  // a thread alone needs no more than its first cache
  const auto threads = static_cast<std::size_t>(kernels::compute_threads());
  return threads > 1 ? threads * of_each : of_one;
}

/// Elements [first, first + count) of the terms' sum, added from left to right and divided. One term undivided is
/// returned where it lies, all else in `scratch`.
std::span<const float> mean_of(std::span<const std::span<const float>> terms, std::size_t first, std::size_t count,
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

/// While the former are in the caches.
void copy_on_threads(std::span<const float> from, std::span<float> to) {
  constexpr std::size_t grain = 1 << 13;
  kernels::split(from.size(), grain, [&](std::size_t at, std::size_t n) {
    std::ranges::copy(from.subspan(at, n), to.subspan(at).begin());
  });
}

/// The tensors, as far as they lie in the range.
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
      group_(plan.options.rule.group(plan.workers)),
      weights_(memory, weights.subspan(range.first, range.count), plan.workers, local_worker),
      admission_(plan.workers, plan.options.staleness),
      staleness_(plan.workers) {
  const auto parts = clipped(tensors, range);
  const StepRule& rule = plan.options.rule;
  if (rule.compensation) compensation_.emplace(*rule.compensation, plan.workers, weights_.values());
  if (rule.fresh_only) readable_.resize(static_cast<std::size_t>(plan.workers), 0);
  const std::string& optimizer = plan.options.optimizer;
  if (optimizer == "add") {
    optimizer_ = std::make_unique<Add>();
  } else {
    optimizer_ = make_optimizer(optimizer, {.elements = range.count, .tensors = parts, .first = range.first});
  }
}

void ServedChunk::take(ExecutionContext& f, Port& port, const Message& message) {
  const MessageHeader& h = message.header;
  const int worker = message.from;
  if (h.clock != admission_.clock(worker)) throw std::logic_error(fmt::format("rank {} pushed out of turn", worker));
  note_gap(h.clock);  // the gap of the read on which the push is based; the worker may have had the weights already
  admission_.pushed(worker);
  resting_.erase(worker);
  auto* const answer = reinterpret_cast<float*>(port.peer_memory(worker, h.answer_place));
  weights_.offer(worker, {answer, answer ? range_.count : 0});
  std::vector<float> decoded;
  if (plan_.changes.encodes(range_.count)) decoded = spare_.take(range_.count);
  Change change{.worker = worker, .base = h.version, .size = static_cast<float>(h.value)};
  change.values = plan_.changes.numbers(f, "server.decode", message.payload, range_.count, decoded,
                                        draw_of_change(plan_.options.seed, worker, h.clock, h.first));
  if (admission_.grouped()) {
    change.memory = std::move(decoded);
    take_in_turn(f, std::move(change), port);
  } else {
    take_as_it_comes(f, std::move(change));
    if (!decoded.empty()) spare_.give_back(std::move(decoded));
  }
}

void ServedChunk::take_as_it_comes(ExecutionContext& f, Change change) {
  if (plan_.options.rule.fresh_only) {
    readable_[static_cast<std::size_t>(change.worker)] = change.base + 1;
    if (change.base != version_) {
      const std::lock_guard lock(mutex_);
      return void(++observed_.dropped);
    }
  }
  if (compensation_) change.values = compensation_->compensated(f, change.worker, change.values, weights_.values());
  if (group_ == 1) {
    count(change);
    return apply(f, {&change.values, 1}, 1, scaled(change));
  }
  add(std::move(change));
  finish_group(f);
  keep_sum(f);  // the worker may write over its change when it is acknowledged
}

float ServedChunk::scaled(const Change& c) const {
  if (plan_.options.rule.softsync > 0) return c.size / static_cast<float>(plan_.options.rule.softsync);
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

/// So many changes make a step; fewer, where fewer workers send any.
int ServedChunk::needed() const { return std::min(group_, admission_.training() - static_cast<int>(resting_.size())); }

void ServedChunk::rest(ExecutionContext& f, int worker) {
  resting_.insert(worker);
  finish_group(f);
}

/// A step, once so many changes have come as there can be.
void ServedChunk::finish_group(ExecutionContext& f) {
  if (summed_ == 0 || summed_ < needed()) return;
  apply_sum(f, plan_.options.rule.softsync > 0 ? 1.0f / static_cast<float>(plan_.options.rule.softsync) : 1.0f);
}

void ServedChunk::count(const Change& c) {
  weights_.join_step(c.worker);
  const std::lock_guard lock(mutex_);
  if (admission_.all_train()) staleness_.applied(c.base, version_);
}

void ServedChunk::apply(ExecutionContext& f, Terms terms, int divisor, float size) {
  const ChunkWeights::Step weights = weights_.begin_step();
  const bool moves = weights.from.data() != weights.to.data();
  const UpdateStep step{.size = size, .number = version_ + 1};
  const double n = double(range_.count), more = double(terms.size() - 1);
  runtime::Cost cost = optimizer_->cost(range_.count);
  cost.flops += n * (more + (divisor == 1 ? 0 : 1));
  cost.bytes += 4 * n * (more + (moves ? 1 : 0) + double(weights.copies.size()));
  f.submit("server.update", cost, [&] {
    const std::size_t at_once = std::min(elements_at_once(), range_.count);
    const std::span<float> scratch = spare_.scratch(at_once);
    for (std::size_t first = 0; first < range_.count; first += at_once) {
      const std::size_t count = std::min(at_once, range_.count - first);
      const std::span<float> to = weights.to.subspan(first, count);
      if (moves) copy_on_threads(weights.from.subspan(first, count), to);
      optimizer_->apply(to, mean_of(terms, first, count, divisor, scratch), first, step);
      for (const auto& copy : weights.copies) copy_on_threads(to, copy.subspan(first, count));
    }
  });
  weights_.end_step(weights);
  ++version_;
  const std::lock_guard lock(mutex_);
  observed_.applied = version_;
}

/// A change of the clock under way: added, or kept until its turn comes. Its worker changes it no more before it has
/// got the weights that it becomes part of.
void ServedChunk::take_in_turn(ExecutionContext& f, Change change, Port& port) {
  skip_gone();
  const bool is_next = change.worker == next_;
  if (change.memory.empty()) change.message = port.keep();
  if (is_next) {
    add_next(std::move(change));
    finish_clock(f);
    return keep_sum(f);
  }
  if (!change.lasts()) copy(f, change);
  const int worker = change.worker;
  if (!early_.emplace(worker, std::move(change)).second) {
    throw std::logic_error(fmt::format("rank {} pushed before its last clock was applied", worker));
  }
}

void ServedChunk::copy(ExecutionContext& f, Change& change) {
  change.memory = spare_.take(range_.count);
  f.submit("server.copy", {0, 8.0 * double(range_.count)},
           [&] { std::ranges::copy(change.values, change.memory.begin()); });
  change.values = change.memory;  // stays where it is when the vector is moved
}

void ServedChunk::add(Change change) {
  count(change);
  ++summed_;
  terms_.push_back(std::move(change));
}

void ServedChunk::add_next(Change change) {
  ++next_;
  add(std::move(change));
}

std::vector<std::span<const float>> ServedChunk::terms() const {
  std::vector<std::span<const float>> out;
  for (const Change& t : terms_) out.push_back(t.values);
  return out;
}

/// Before a message is given back: its change must be in memory of its own.
void ServedChunk::keep_sum(ExecutionContext& f) {
  if (!std::ranges::all_of(terms_, &Change::lasts)) fold(f);
}

/// Adds up what there is.
void ServedChunk::fold(ExecutionContext& f) {
  const Change& first = terms_.front();
  Change sum{.worker = first.worker, .base = first.base, .size = first.size, .memory = spare_.take(range_.count)};
  const double n = double(range_.count), count = double(terms_.size());
  f.submit("server.sum", {n * (count - 1), 4 * n * (count + 1)}, [&] {
    const auto mean = mean_of(terms(), 0, range_.count, 1, sum.memory);
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
  while (next_ < plan_.workers && admission_.is_gone(next_) && !early_.contains(next_)) ++next_;
}

/// Adds what has waited for its turn; applies the sum if it is whole.
void ServedChunk::finish_clock(ExecutionContext& f) {
  for (skip_gone(); early_.contains(next_); skip_gone()) {
    add_next(std::move(early_.extract(next_).mapped()));
  }
  if (next_ < plan_.workers) return;
  next_ = 0;
  if (summed_ > 0) apply_sum(f, 1);
}

void ServedChunk::apply_sum(ExecutionContext& f, float factor) {
  const int divisor = plan_.options.rule.scale == ChangeScale::sum ? 1 : summed_;
  apply(f, terms(), divisor, factor * terms_.front().size);
  drop_terms();
  summed_ = 0;
}

void ServedChunk::note_gap(std::uint64_t clock) {
  const std::lock_guard lock(mutex_);
  observed_.largest_gap = std::max(observed_.largest_gap, admission_.gap(clock));
}

void ServedChunk::ask(const Read& r) {
  if (admission_.is_gone(r.worker)) return;
  note_gap(r.header.clock);
  held_.push_back(r);
}

void ServedChunk::leave(ExecutionContext& f, int worker) {
  if (admission_.all_train()) {
    const std::lock_guard lock(mutex_);
    observed_.staleness_under_way = staleness_.outstanding(version_);
  }
  admission_.gone(worker);
  resting_.erase(worker);
  weights_.forget(f, worker);
  std::erase_if(held_, [worker](const Read& r) { return r.worker == worker; });
  if (admission_.grouped()) {
    finish_clock(f);
  } else {
    finish_group(f);
  }
}

bool ServedChunk::may_read(const Read& r) const {
  if (!readable_.empty() && version_ < readable_[static_cast<std::size_t>(r.worker)]) return false;
  return admission_.may_read(r.worker, r.header.clock, r.header.version);
}

std::optional<Read> ServedChunk::next_read(ExecutionContext& f) {
  const auto it = std::ranges::find_if(held_, [this](const Read& r) { return may_read(r); });
  if (it == held_.end()) return std::nullopt;
  const Read read = *it;
  held_.erase(it);
  if (compensation_) compensation_->read(f, read.worker, weights_.values());
  const std::lock_guard lock(mutex_);
  observed_.held_s += f.now() - read.since;
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
