#include "bench/collective_limit.hpp"

#include <algorithm>
#include <iterator>
#include <map>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/backoff.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::bench {

WirePartners wire_partners(const NodeMap& map, int rank) {
  std::map<int, std::vector<int>> members;
  for (int r = 0; r < map.ranks(); ++r) members[map.node_of[static_cast<std::size_t>(r)]].push_back(r);
  if (members.size() < 2) return {};
  std::size_t fewest = members.begin()->second.size();
  for (const auto& [node, ranks] : members) fewest = std::min(fewest, ranks.size());
  const auto own = members.find(map.node_of[static_cast<std::size_t>(rank)]);
  const auto at = static_cast<std::size_t>(std::ranges::find(own->second, rank) - own->second.begin());
  if (at >= fewest) return {};
  const auto next = std::next(own) == members.end() ? members.begin() : std::next(own);
  const auto before = std::prev(own == members.begin() ? members.end() : own);
  return {.to = next->second[at], .from = before->second[at]};
}

WireRate measure_wire(Session& session, const NodeMap& map) {
  if (map.nodes() < 2) return {};
  const auto& c = session.world();
  constexpr std::size_t bytes = std::size_t{4} << 20, page = 4096;
  constexpr int rounds = 9;
  runtime::Network network(c, {.transport = runtime::TransportKind::mpi, .memory_bytes = 2 * (bytes + page)});
  const auto link = network.connect(c, 1);
  const auto out = network.arena().take(bytes), in = network.arena().take(bytes);
  std::fill(out.begin(), out.end(), std::byte{1});
  const auto [to, from] = wire_partners(map, c.rank());
  runtime::Backoff backoff(runtime::patience_for(session.ranks_per_node(c.size()), session.cores_per_node()));
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    c.barrier();
    const double begin = runtime::host_clock();
    if (to >= 0) {
      auto received = link->receive(from, 0, in);
      auto sent = link->send(to, 0, out);
      while (!link->arrived(received) || !link->left(sent)) {
        session.activity().waiting({.operation = "neighbour exchange", .peer = from});
        link->progress();
        backoff.wait();
      }
      link->release(received);
      session.activity().arrived();
    }
    times.push_back(c.max(runtime::host_clock() - begin));
  }
  const auto senders = c.sum(to >= 0 ? 1 : 0) / map.nodes();  // of a node
  const auto rate = [&](double seconds) { return core::Bytes{bytes} / core::Seconds{seconds} * senders; };
  // The first opens connections and touches memory.
  const auto counted = std::span(times).subspan(1);
  return {.usual = rate(core::median(counted)), .best = rate(*std::ranges::min_element(counted))};
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
