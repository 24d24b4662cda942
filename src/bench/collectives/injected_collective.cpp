#include "bench/collectives/injected_collective.hpp"

#include <cstring>

#include "allreduce/known_collective.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::bench {

InjectedCollective::InjectedCollective(std::unique_ptr<allreduce::Collective> inner,
                                       allreduce::CollectiveKind collective_kind, InjectedFaults& faults,
                                       runtime::Queue* queue)
    : inner_(std::move(inner)), collective_kind_(collective_kind), faults_(faults), queue_(queue) {
  if (faults.injection.slow) slower_ = faults.injection.slow->of(faults.rank);
}

void InjectedCollective::start(const allreduce::Call& call) {
  const std::size_t bytes = call.out.bytes();
  if (slower_ > 1 && bytes == last_bytes_) {
    const double until = runtime::host_clock() + (slower_ - 1) * last_s_;
    while (runtime::host_clock() < until) {
    }
  }
  last_bytes_ = bytes;
  call_ = call;
  running_ = true;
  omit();
  begin_ = runtime::host_clock();
  inner_->start(call);
}

void InjectedCollective::omit() {
  const auto& wanted = faults_.injection.omit;
  const bool sums = collective_kind_ == allreduce::CollectiveKind::all_reduce ||
                    collective_kind_ == allreduce::CollectiveKind::reduce_scatter;
  if (!sums || !wanted || wanted->rank != faults_.rank || faults_.calls < wanted->call) return;
  on_host([this] {
    auto* const in = const_cast<std::byte*>(call_.in.address());
    const std::size_t bytes = call_.in.bytes();
    const auto element = call_.in.element();
    const runtime::Buffer written = call_.in.on_device()
                                        ? runtime::Buffer(element, runtime::DeviceSpan<std::byte>(in, bytes))
                                        : runtime::Buffer(element, std::span(in, bytes));
    std::memset(written.host(), 0, bytes);
  });
}

void InjectedCollective::on_host(const runtime::Work& work) { queue_ ? queue_->at_once(work) : work(); }

bool InjectedCollective::advance() {
  if (!running_) return true;
  if (!inner_->advance()) return false;
  running_ = false;
  last_s_ = runtime::host_clock() - begin_;
  const std::uint64_t number = faults_.calls++;
  const auto& wanted = faults_.injection.flip;
  if (wanted && wanted->rank == faults_.rank && number >= wanted->call) flip();
  return true;
}

void InjectedCollective::flip() {
  const allreduce::KnownCollective whole{
      .collective_kind = collective_kind_,
      .data = {.element = call_.element(), .ranks = static_cast<std::size_t>(faults_.ranks)},
      .count = call_.count()};
  on_host([&] {
    allreduce::inject_error(whole, static_cast<std::size_t>(faults_.rank), {call_.out.host(), call_.out.bytes()});
  });
}

}  // namespace gradmeter::bench
