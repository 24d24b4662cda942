#include "bench/collective_limit.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/backoff.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::bench {

core::BytesPerSecond measure_wire(Session& session, const NodeMap& map) {
  if (map.nodes() < 2) return {0};
  const auto& c = session.world();
  constexpr std::size_t bytes = std::size_t{4} << 20, page = 4096;
  constexpr int rounds = 9;
  runtime::Network network(c, {.transport = runtime::TransportKind::mpi, .memory_bytes = 2 * (bytes + page)});
  const auto link = network.connect(c, 1);
  const auto out = network.arena().take(bytes), in = network.arena().take(bytes);
  std::fill(out.begin(), out.end(), std::byte{1});
  // A rank's counterpart on the next node, where nodes are equally full and ranks lie node after node.
  const int step = map.ranks_per_node(), p = c.size();
  const int to = (c.rank() + step) % p, from = (c.rank() + p - step) % p;
  runtime::Backoff backoff(runtime::patience_for(session.ranks_per_node(p), session.cores_per_node()));
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    c.barrier();
    const double begin = runtime::host_clock();
    auto received = link->receive(from, 0, in);
    auto sent = link->send(to, 0, out);
    while (!link->arrived(received) || !link->left(sent)) {
      session.activity().waiting({.operation = "neighbour exchange", .peer = from});
      link->progress();
      backoff.wait();
    }
    link->release(received);
    session.activity().arrived();
    times.push_back(c.max(runtime::host_clock() - begin));
  }
  // The first opens connections and touches memory.
  const auto of_a_rank = core::Bytes{bytes} / core::Seconds{core::median(std::span(times).subspan(1))};
  return of_a_rank * static_cast<double>(map.ranks_per_node());
}

NodeMap find_nodes(const Session& s, const std::vector<int>& fake) {
  const auto& world = s.world();
  if (!fake.empty()) {
    if (fake.size() != static_cast<std::size_t>(world.size())) {
      throw core::UsageError(fmt::format("--fake-nodes names {} nodes for {} ranks; give one number for each rank",
                                         fake.size(), world.size()));
    }
    return {.node_of = fake, .fake = true};
  }
  return s.map();
}

}  // namespace gradmeter::bench
