// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/fabric/decorators/fault_injector.hpp"

#include <bit>
#include <cstring>
#include <utility>

#include "allreduce/schedule/slices.hpp"

namespace gradmeter::dataparallel {
namespace {

/// The index of the element to corrupt in call number `number`; consecutive calls get distant elements (Knuth's
/// multiplicative hash).
std::size_t corrupted_element(std::uint64_t number, std::size_t elements) {
  return static_cast<std::size_t>(number * 0x9e3779b97f4a7c15u >> 16) % elements;
}

void corrupt(std::byte* value, core::Element element) {
  if (element == core::Element::f32) {
    float before;
    std::memcpy(&before, value, sizeof before);
    const float after = before + 1;
    if (std::bit_cast<std::uint32_t>(before) != std::bit_cast<std::uint32_t>(after))
      return void(std::memcpy(value, &after, sizeof after));
  }
  *value ^= std::byte{1};
}

void corrupt(const Buffer& b, std::uint64_t number) {
  const std::size_t width = b.bytes() / b.count();
  corrupt(b.host() + corrupted_element(number, b.count()) * width, b.element());
}

class FaultyPort final : public ForwardingPort {
 public:
  FaultyPort(std::unique_ptr<Port> inner, std::shared_ptr<FaultyCalls> calls)
      : ForwardingPort(std::move(inner)), calls_(std::move(calls)) {}

  std::optional<std::span<std::byte>> draft(int to, std::size_t bytes) override {
    const auto room = inner_->draft(to, bytes);
    if (room) drafts_[to] = *room;
    return room;
  }
  Ticket post(int to, const MessageHeader& h, const char* label) override {
    if (h.bytes > 0) {
      if (const auto number = calls_->count_call()) corrupt_payload(drafts_[to].first(h.bytes), h, *number);
    }
    return inner_->post(to, h, label);
  }
  /// Copies the payload to a draft, so that the copy is corrupted and not the caller's memory.
  Ticket post_from(int to, const MessageHeader& h, std::span<const std::byte> payload, const char* label) override {
    return post_by_draft(*this, to, h, payload, label);
  }
  Ticket post_written(int to, const MessageHeader& h, std::span<std::byte> payload, const char* label) override {
    if (!inner_->draft(to, 0)) return nullptr;
    if (const auto number = calls_->count_call()) corrupt_payload(payload, h, *number);
    return inner_->post_written(to, h, payload, label);
  }

 private:
  /// In encoded data the last byte is changed; it is never part of a length, but of a value or of padding.
  static void corrupt_payload(std::span<std::byte> payload, const MessageHeader& h, std::uint64_t number) {
    if (payload.size() == h.count * sizeof(float)) {
      corrupt(payload.data() + corrupted_element(number, h.count) * sizeof(float), core::Element::f32);
    } else {
      payload.back() ^= std::byte{1};
    }
  }

  std::shared_ptr<FaultyCalls> calls_;
  std::unordered_map<int, std::span<std::byte>> drafts_;  ///< the last draft for each rank
};

void compute_slowly(ExecutionContext& inner, double slowdown, std::string_view label, runtime::Cost cost,
                    const runtime::Work& work) {
  if (slowdown == 1) return inner.submit(label, cost, work);
  inner.submit(label, cost, [&inner, slowdown, work = work.stored()] {
    const double begin = inner.now();
    work();
    const double end = begin + slowdown * (inner.now() - begin);
    while (inner.now() < end) {
    }
  });
}

/// The context in which a background task on a slow rank computes.
class SlowContext final : public ForwardingContext<ExecutionContext> {
 public:
  SlowContext(ExecutionContext& inner, double slowdown) : ForwardingContext(inner), slowdown_(slowdown) {}
  void submit(std::string_view label, runtime::Cost cost, const runtime::Work& work) override {
    compute_slowly(inner_, slowdown_, label, cost, work);
  }

 private:
  double slowdown_;
};

template <class Fault>
std::optional<std::uint64_t> first_faulty(const std::optional<Fault>& f, int rank) {
  return f && f->rank == rank ? std::optional(f->call) : std::nullopt;
}

}  // namespace

FaultInjector::FaultInjector(Fabric& inner, const core::Injection& i, int rank)
    : ForwardingFabric(inner),
      slowdown_(i.slow ? i.slow->of(rank) : 1.0),
      calls_(std::make_shared<FaultyCalls>(first_faulty(i.flip, rank))),
      omitted_(first_faulty(i.omit, rank)) {}

void FaultInjector::omit(Buffer contribution) {
  if (contribution.count() == 0 || !omitted_.count_call()) return;
  run_and_wait([&] { std::memset(contribution.host(), 0, contribution.bytes()); });
}

Ticket FaultInjector::watch(Ticket t, Buffer result) {
  if (result.count() == 0) return t;
  if (const auto number = calls_->count_call()) faults_.insert_or_assign(t, Fault{result, *number});
  return t;
}

Ticket FaultInjector::start(const FabricCall& call) {
  Buffer result = call.out;
  if (call.kind == CallKind::reduce_scatter) {
    const auto ranks = static_cast<std::uint32_t>(size(call.group)), own = static_cast<std::uint32_t>(rank(call.group));
    const std::size_t first = allreduce::block_begin(result.count(), ranks, own);
    result = result.part(first, allreduce::block_begin(result.count(), ranks, own + 1) - first);
  }
  if (call.kind == CallKind::all_reduce || call.kind == CallKind::reduce_scatter) omit(call.out);
  return watch(inner_.start(call), result);
}

void FaultInjector::wait(const Ticket& t) {
  inner_.wait(t);
  const auto it = faults_.find(t);
  if (it == faults_.end()) return;
  run_and_wait([&] { corrupt(it->second.result, it->second.number); });
  faults_.erase(it);
}

Ports FaultInjector::open(Group g, const PortOptions& o) {
  Ports p = inner_.open(g, o);
  p.worker = std::make_unique<FaultyPort>(std::move(p.worker), calls_);
  p.server = std::make_unique<FaultyPort>(std::move(p.server), calls_);
  return p;
}

std::unique_ptr<BackgroundTask> FaultInjector::launch(BackgroundProgram program) {
  return inner_.launch([slowdown = slowdown_, program = std::move(program)](ExecutionContext& context) {
    SlowContext background(context, slowdown);
    program(background);
  });
}

void FaultInjector::submit(std::string_view label, runtime::Cost cost, const runtime::Work& work) {
  compute_slowly(inner_, slowdown_, label, cost, work);
}

}  // namespace gradmeter::dataparallel
