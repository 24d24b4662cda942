// SPDX-License-Identifier: Apache-2.0
// What the executor costs besides moving and adding bytes: the time of one step (a message sent, or one received) with
// messages so short that other costs vanish.
//   mpirun -np 2 build/release/tests/bench/bench_executor
// Prints medians over repeats with their intervals: alone (a transport that has every message at once) and, on two or
// more ranks, over shared memory and over MPI.
#include <algorithm>

#include "allreduce/registry.hpp"
#include "core/format.hpp"
#include "core/statistics.hpp"
#include "runtime/clock.hpp"
#include "runtime/mpi/session.hpp"
#include "runtime/threads/backoff.hpp"
#include "runtime/transport/network.hpp"

namespace {

using namespace gradmeter;

constexpr std::size_t message = 64;  // bytes: one cache line
constexpr std::size_t elements = std::size_t{1} << 14;
constexpr std::size_t warmup = 5, repeats = 41;

/// Every message is there before it is asked for, and lies in one place.
class Instant final : public runtime::Transport {
 public:
  explicit Instant(int ranks) : ranks_(ranks) {}
  std::string_view name() const override { return "alone"; }
  int rank() const override { return 0; }
  int size() const override { return ranks_; }
  int channels() const override { return allreduce::most_lanes(size()); }
  bool zero_copy_from(int) const override { return true; }
  std::size_t message_bytes() const override { return message; }
  runtime::MessageHandle send(int, int, std::span<const std::byte>) override { return {1, nullptr}; }
  runtime::MessageHandle receive(int, int, std::span<std::byte>) override { return {1, nullptr}; }
  bool send_done(runtime::MessageHandle&) override { return true; }
  const std::byte* try_receive(runtime::MessageHandle&) override { return line_.data(); }

 private:
  int ranks_;
  alignas(64) std::array<std::byte, 2 * message> line_{};
};

/// Messages that rank 0 sends and receives in one call.
std::size_t steps_of(const allreduce::AlgorithmChoice& a, std::uint32_t ranks) {
  const auto schedule = a.make({ranks, ranks}).front();
  const allreduce::Slices slices(allreduce::SliceCut::run, elements, sizeof(float), schedule->blocks(), message, false);
  const auto plan = allreduce::compile(*schedule, 0, allreduce::Placement::in_place);
  return slices.count() * (plan.sends.size() + plan.receives.size());
}

void measure(const allreduce::AlgorithmChoice& a, runtime::Transport& t, runtime::Arena& arena,
             std::span<float> values) {
  const auto ranks = static_cast<std::uint32_t>(t.size());
  allreduce::Executor executor(
      {a.name, a.make({ranks, ranks})}, t, arena,
      {.placement = allreduce::Placement::in_place, .max_bytes = values.size_bytes(), .message_bytes = message});
  std::fill(values.begin(), values.end(), 0.0f);
  std::vector<double> nanoseconds;
  for (std::size_t i = 0; i < warmup + repeats; ++i) {
    const double begin = runtime::host_clock();
    executor.start({values, values});
    runtime::Backoff backoff(runtime::spin_policy_for(1, 1));
    while (!executor.advance()) backoff.wait();
    const double took = runtime::host_clock() - begin;
    if (i >= warmup) nanoseconds.push_back(took * 1e9 / static_cast<double>(steps_of(a, ranks)));
  }
  const auto s = core::summarise(nanoseconds);
  if (t.rank() == 0) {
    fmt::print("{:<20} {:<6} {:>5} {:>10.1f} {:>10.1f}-{:.1f}\n", a.name, t.name(), ranks, s.median, s.ci95_low,
               s.ci95_high);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const runtime::MpiSession mpi(argc, argv, runtime::MpiThreads::funneled);  // as `gradmeter allreduce`
  const auto world = runtime::MpiSession::world();
  if (world.rank() == 0) {
    fmt::print("{:<20} {:<6} {:>5} {:>10} {:>14}\n", "algorithm", "over", "ranks", "ns a step", "95 % interval");
  }
  runtime::PrivateArena own(std::size_t{1} << 20);
  const auto values = own.take_of<float>(elements);
  for (const auto* name : {"ring", "recursive-doubling", "direct"}) {
    const auto a = allreduce::find_algorithm(name);
    if (world.rank() == 0) {
      for (const int ranks : {2, 8, 64}) {
        Instant instant(ranks);
        measure(*a, instant, own, values);
      }
    }
    world.barrier();
    for (const auto kind : {runtime::TransportKind::shm, runtime::TransportKind::mpi}) {
      if (world.size() == 1) continue;
      runtime::Network network(world, {.transport = kind, .memory_bytes = std::size_t{1} << 20});
      const auto link = network.connect(world, allreduce::most_lanes(world.size()));
      measure(*a, *link, network.arena(), network.arena().take_of<float>(elements));
    }
  }
  return 0;
}
