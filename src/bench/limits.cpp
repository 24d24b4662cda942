#include "bench/limits.hpp"

#include <algorithm>

#include "kernels/peak.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::bench {

core::FlopsPerSecond measure_peak(Session& session, const runtime::Communicator& c, int threads) {
  kernels::set_compute_threads(threads);
  c.barrier();
  const runtime::Computing note(session.activity(), "peak GEMM");
  const auto mine = kernels::measure_gemm_peak(core::Seconds{0.15});
  return {-c.max(-mine.value)};
}

core::BytesPerSecond measure_link(Session& session, const runtime::Communicator& c, dataparallel::TransportKind kind) {
  if (c.size() == 1) return {0};
  constexpr std::size_t bytes = std::size_t{4} << 20;
  constexpr int rounds = 9;
  const bool crowded = session.ranks_per_node(c.size()) > session.cores_per_node();
  dataparallel::WorldFabric fabric(
      c, {.transport = kind, .patience = runtime::patience_for(crowded ? 2 : 1, 1), .memory_bytes = 2 * (bytes + 4096)},
      session.activity());
  const auto out = fabric.arena().take_of<float>(bytes / sizeof(float));
  const auto in = fabric.arena().take_of<float>(bytes / sizeof(float));
  std::fill(out.begin(), out.end(), 1.0f);
  std::fill(in.begin(), in.end(), 0.0f);
  const int next = (c.rank() + 1) % c.size(), previous = (c.rank() + c.size() - 1) % c.size();
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    c.barrier();
    const double begin = fabric.now();
    const auto sent = fabric.send(dataparallel::everybody, next, std::span<const float>(out), {});
    const auto received = fabric.receive(dataparallel::everybody, previous, in);
    fabric.wait(received);
    fabric.wait(sent);
    times.push_back(c.max(fabric.now() - begin));
  }
  // The first touches memory and opens connections.
  return core::Bytes{bytes} / core::Seconds{core::median(std::span(times).subspan(1))};
}

LowerBound lower_bound(const Limits& l, double flops, double bytes) {
  LowerBound b;
  if (l.peak.value > 0) b.compute_s = (core::Flops{flops} / l.peak).value;
  if (l.link.value > 0) b.exchange_s = bytes / l.link.value;
  return b;
}

}  // namespace gradmeter::bench
