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
core::BytesPerSecond rate(const runtime::Communicator& c, const Work& work) {
  std::vector<double> times;
  c.barrier();
  for (int i = 0; i < repeats; ++i) {
    const double begin = runtime::host_clock();
    work();
    times.push_back(runtime::host_clock() - begin);
  }
  return core::Bytes{chunk * sizeof(float)} / core::Seconds{c.max(core::median(times))};
}

/// What a rank sends to its neighbour while all do.
core::BytesPerSecond measure_link(Session& session, runtime::TransportKind kind) {
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
  return core::Bytes{bytes} / core::Seconds{core::median(std::span(times).subspan(1))};
}

}  // namespace

core::BytesPerSecond CodecEstimator::link(runtime::TransportKind kind) {
  const auto it = links_.find(kind);
  if (it != links_.end()) return it->second;
  return links_[kind] = measure_link(session_, kind);
}

compression::CodecSpeeds CodecEstimator::speeds(const compression::CodecChoice& choice) {
  const auto it = speeds_.find(choice.name);
  if (it != speeds_.end()) return it->second;
  const auto& c = session_.world();
  const runtime::Computing note(session_.activity(), "codec speed");
  const compression::Codec& codec = *choice.codec;
  std::vector<float> x(chunk), sum(chunk);
  draw_worker_gradient(1, c.rank(), x);
  std::vector<std::byte> wire(codec.wire_bytes(chunk));
  compression::CodecSpeeds s;
  s.encode = rate(c, [&] { codec.encode(x, wire.data(), {}); });
  s.decode = rate(c, [&] { codec.decode(wire, sum); });
  s.add = rate(c, [&] { codec.decode_add(wire, sum, sum); });
  return speeds_[choice.name] = s;
}

std::optional<CodecEstimate> CodecEstimator::of(const CollectivePoint& p) {
  const int ranks = session_.world().size();
  if (!p.codec || !p.codec->codec || p.codec->info->exchange != compression::Exchange::schedule || ranks < 2 ||
      !p.transport || p.count < p.codec->min_elements || p.count == 0) {
    return std::nullopt;
  }
  const auto s = speeds(*p.codec);
  const double bits = 8.0 * static_cast<double>(p.codec->codec->wire_bytes(p.count)) / static_cast<double>(p.count);
  const double sent = 2.0 * (ranks - 1) / ranks * static_cast<double>(p.count) * bits / 8;
  CodecEstimate o;
  o.link = link(*p.transport);
  o.crossover = compression::crossover_link(s, ranks, bits, 32);
  o.predicted_s = sent / o.link.value + static_cast<double>(p.bytes()) / compression::exchange_speed(s, ranks).value;
  return o;
}

}  // namespace gradmeter::bench
