#include "core/links_in_use.hpp"

#include <algorithm>

namespace gradmeter::core {

LinksInUse::LinksInUse(const Machine& machine, std::vector<double> free) : machine_(machine), out_(std::move(free)) {}

LinksInUse::NodePorts& LinksInUse::ports_of(std::uint32_t rank) {
  const std::size_t node = rank / machine_.ranks_per_node;
  if (nodes_.size() <= node) nodes_.resize(node + 1);
  return nodes_[node];
}

LinksInUse::Passage LinksInUse::send(std::uint32_t from, std::uint32_t to, std::uint64_t bytes, double ready) {
  const Link& link = machine_.link(from, to);
  const auto size = static_cast<double>(bytes);
  Passage p{.begin = std::max(ready + link.overhead_s, out_[from]),
            .seconds = size / link.bytes_per_s(bytes),
            .latency_s = link.latency_s};
  if (&link == &machine_.between_nodes) {
    const double node_rate = machine_.node_port.bytes_per_s;
    const double in_port = node_rate > 0 ? size / node_rate : 0;
    const double in_trunk = machine_.trunk ? size / machine_.trunk->bytes_per_s(bytes) : 0;
    if (machine_.trunk) p.latency_s += machine_.trunk->latency_s;
    ports_of(std::max(from, to));  // makes room, so that both references last
    NodePorts &sender = ports_of(from), &receiver = ports_of(to);
    p.begin = std::max({p.begin, sender.out, receiver.in - p.latency_s, trunk_});
    p.seconds = std::max({p.seconds, in_port, in_trunk});
    sender.out = p.begin + in_port;
    receiver.in = p.begin + p.latency_s + in_port;
    if (machine_.trunk) trunk_ = p.begin + in_trunk;
  }
  out_[from] = p.begin + p.seconds;
  return p;
}

}  // namespace gradmeter::core
