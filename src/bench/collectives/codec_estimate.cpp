#include "bench/collectives/codec_estimate.hpp"

#include <algorithm>

#include "bench/engine/coded_data.hpp"
#include "core/statistics.hpp"
#include "dataparallel/ranks/fabric.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::bench {
namespace {

// What the executor encodes at once: a slice's block, which stays in cache.
constexpr std::size_t chunk = std::size_t{64} << 10;
constexpr int repeats = 15;

/// fp32 bytes in a second, of the slowest rank while all work.
template <class Work>
double rate(const runtime::Communicator& c, const Work& work) {
  std::vector<double> times;
  c.barrier();
  for (int i = 0; i < repeats; ++i) {
    const double begin = runtime::host_clock();
    work();
    times.push_back(runtime::host_clock() - begin);
  }
  return static_cast<double>(chunk * sizeof(float)) / c.max(core::median(times));
}

/// What a rank sends to its neighbour while all do.
core::Link measure_link(Session& session, runtime::TransportKind kind) {
  const auto& c = session.world();
  constexpr std::size_t bytes = std::size_t{4} << 20;
  constexpr int rounds = 9;
  const bool crowded = session.ranks_per_node(c.size()) > session.cores_per_node();
  dataparallel::RankFabric fabric(c,
                                  {.transport = kind,
                                   .spin_policy = runtime::spin_policy_for(crowded ? 2 : 1, 1),
                                   .memory_bytes = 2 * (bytes + 4096)},
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
  return {.bandwidth = {{.bytes_per_s = static_cast<double>(bytes) / core::median(std::span(times).subspan(1))}}};
}

}  // namespace

void CodecEstimator::measure(const compression::CodecChoice& choice) {
  if (machine_.codecs.contains(choice.name)) return;
  const auto& c = session_.world();
  const runtime::Computing note(session_.activity(), "codec speed");
  const compression::Codec& codec = *choice.codec;
  std::vector<float> x(chunk), sum(chunk);
  draw_worker_gradient(1, c.rank(), x);
  std::vector<std::byte> wire(codec.wire_bytes(chunk));
  core::CodecRates& rates = machine_.codecs[choice.name];
  rates.encode = rate(c, [&] { codec.encode(x, wire.data(), {}); });
  rates.decode = rate(c, [&] { codec.decode(wire, sum); });
  rates.add = rate(c, [&] { codec.decode_add(wire, sum, sum); });
}

std::optional<compression::CodecEstimate> CodecEstimator::of(const CollectivePoint& p) {
  const int ranks = session_.world().size();
  if (!p.codec || !p.codec->codec || p.codec->info->exchange != compression::Exchange::schedule || ranks < 2 ||
      !p.transport || p.count < p.codec->min_elements || p.count == 0) {
    return std::nullopt;
  }
  measure(*p.codec);
  if (!links_.contains(*p.transport)) links_[*p.transport] = measure_link(session_, *p.transport);
  machine_.within_node = links_[*p.transport];
  const double bits = 8.0 * static_cast<double>(p.codec->codec->wire_bytes(p.count)) / static_cast<double>(p.count);
  return compression::estimate(machine_,
                               {.codec = p.codec->name, .ranks = ranks, .elements = p.count, .wire_bits = bits});
}

}  // namespace gradmeter::bench
