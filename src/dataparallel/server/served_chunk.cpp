#include "dataparallel/server/served_chunk.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "allreduce/reduce.hpp"
#include "core/format.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::dataparallel {
namespace {

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

std::unique_ptr<Optimizer> make_add() { return std::make_unique<Add>(); }

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

ServedChunk::ServedChunk(const ServerPlan& plan, SpareMemory& spare, Range range, std::span<const float> weights,
                         std::span<const model::Tensor> tensors, std::span<float> memory)
    : plan_(plan),
      spare_(spare),
      range_(range),
      group_(plan.rule.group(plan.workers)),
      weights_(memory, weights.subspan(range.first, range.count), plan.workers, plan.own_worker),
      admission_(plan.workers, plan.staleness),
      staleness_(plan.workers) {
  const auto parts = clipped(tensors, range);
  if (plan.rule.compensation) compensation_.emplace(*plan.rule.compensation, plan.workers, weights_.values());
  if (plan.rule.fresh_only) readable_.resize(static_cast<std::size_t>(plan.workers), 0);
  optimizer_ = plan.optimizer == "add"
                   ? make_add()
                   : make_optimizer(plan.optimizer, {.elements = range.count, .tensors = parts, .first = range.first});
}

void ServedChunk::take(ExecutionContext& f, Port& port, const Message& message) {
  const MessageHeader& h = message.header;
  const int worker = message.from;
  if (h.clock != admission_.clock(worker)) throw std::logic_error(fmt::format("rank {} pushed out of turn", worker));
  note_gap(h.clock);  // of the read that it was computed from, which may have been of weights that the worker had
  admission_.pushed(worker);
  resting_.erase(worker);
  auto* const answer = reinterpret_cast<float*>(port.peer_memory(worker, h.answer_place));
  weights_.offer(worker, {answer, answer ? range_.count : 0});
  std::vector<float> decoded;
  if (plan_.changes.encodes(range_.count)) decoded = spare_.take(range_.count);
  Change change{.worker = worker, .base = h.version, .size = static_cast<float>(h.value)};
  change.values = plan_.changes.numbers(f, "server.decode", message.payload, range_.count, decoded,
                                        draw_of_change(plan_.seed, worker, h.clock, h.first));
  if (admission_.grouped()) {
    take_in_turn(f, {.change = change, .memory = std::move(decoded)}, port);
  } else {
    take_as_it_comes(f, change);
    if (!decoded.empty()) spare_.give_back(std::move(decoded));
  }
}

void ServedChunk::take_as_it_comes(ExecutionContext& f, Change change) {
  if (plan_.rule.fresh_only) {
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
  add({.change = change});
  finish_group(f);
  keep_sum(f);  // the worker may write over its change when it is acknowledged
}

float ServedChunk::scaled(const Change& c) const {
  if (plan_.rule.softsync > 0) return c.size / static_cast<float>(plan_.rule.softsync);
  if (plan_.rule.fresh_only) return c.size;
  switch (plan_.rule.scale) {
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
  apply_sum(f, plan_.rule.softsync > 0 ? 1.0f / static_cast<float>(plan_.rule.softsync) : 1.0f);
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
void ServedChunk::take_in_turn(ExecutionContext& f, KeptChange kept, Port& port) {
  skip_gone();
  const bool is_next = kept.change.worker == next_;
  if (kept.memory.empty()) kept.message = port.keep();
  if (is_next) {
    add_next(std::move(kept));
    finish_clock(f);
    return keep_sum(f);
  }
  if (!kept.lasts()) copy(f, kept);
  const int worker = kept.change.worker;
  if (!early_.emplace(worker, std::move(kept)).second) {
    throw std::logic_error(fmt::format("rank {} pushed before its last clock was applied", worker));
  }
}

void ServedChunk::copy(ExecutionContext& f, KeptChange& kept) {
  kept.memory = spare_.take(range_.count);
  f.submit("server.copy", {0, 8.0 * double(range_.count)},
           [&] { std::ranges::copy(kept.change.values, kept.memory.begin()); });
  kept.change.values = kept.memory;  // stays where it is when the vector is moved
}

void ServedChunk::add(KeptChange kept) {
  count(kept.change);
  ++summed_;
  terms_.push_back(std::move(kept));
}

void ServedChunk::add_next(KeptChange kept) {
  ++next_;
  add(std::move(kept));
}

std::vector<std::span<const float>> ServedChunk::terms() const {
  std::vector<std::span<const float>> out;
  for (const KeptChange& t : terms_) out.push_back(t.change.values);
  return out;
}

/// Before a message is given back: its change must be in memory of its own.
void ServedChunk::keep_sum(ExecutionContext& f) {
  if (!std::ranges::all_of(terms_, &KeptChange::lasts)) fold(f);
}

/// Adds up what there is.
void ServedChunk::fold(ExecutionContext& f) {
  KeptChange sum{.change = terms_.front().change, .memory = spare_.take(range_.count)};
  const double n = double(range_.count), count = double(terms_.size());
  f.submit("server.sum", {n * (count - 1), 4 * n * (count + 1)}, [&] {
    const auto all = mean_of(terms(), 0, range_.count, 1, sum.memory);
    if (all.data() != sum.memory.data()) std::ranges::copy(all, sum.memory.begin());
  });
  sum.change.values = sum.memory;
  drop_terms();
  terms_.push_back(std::move(sum));
}

void ServedChunk::drop_terms() {
  for (KeptChange& t : terms_) {
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
  const int divisor = plan_.rule.scale == ChangeScale::sum ? 1 : summed_;
  apply(f, terms(), divisor, factor * terms_.front().change.size);
  drop_terms();
  summed_ = 0;
}

void ServedChunk::note_gap(std::uint64_t clock) {
  const std::lock_guard lock(mutex_);
  observed_.largest_gap = std::max(observed_.largest_gap, admission_.gap(clock));
}

void ServedChunk::ask(int worker, const ReadRequest& r) {
  if (admission_.is_gone(worker)) return;
  note_gap(r.clock);
  held_.push_back({worker, r});
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
  return admission_.may_read(r.worker, r.request.clock, r.request.own);
}

std::optional<ServedChunk::Read> ServedChunk::next_read(ExecutionContext& f) {
  const auto it = std::ranges::find_if(held_, [this](const Read& r) { return may_read(r); });
  if (it == held_.end()) return std::nullopt;
  const Read read = *it;
  held_.erase(it);
  if (compensation_) compensation_->read(f, read.worker, weights_.values());
  const std::lock_guard lock(mutex_);
  observed_.held_s += f.now() - read.request.since;
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
