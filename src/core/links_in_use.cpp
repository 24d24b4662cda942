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
    const std::optional<Link>& trunk = machine_.trunk;
    const bool has_port = machine_.node_port.bytes_per_s > 0;
    const double in_port = has_port ? size / machine_.node_port.bytes_per_s : 0;
    const double in_trunk = trunk ? size / trunk->bytes_per_s(bytes) : 0;
    if (trunk) p.latency_s += trunk->latency_s;
    if (trunk) p.begin = std::max(p.begin, trunk_);
    if (has_port) p.begin = std::max({p.begin, ports_of(from).out, ports_of(to).in - p.latency_s});
    p.seconds = std::max({p.seconds, in_port, in_trunk});
    if (trunk) trunk_ = p.begin + in_trunk;
    if (has_port) {
      ports_of(from).out = p.begin + in_port;
      ports_of(to).in = p.begin + p.latency_s + in_port;
    }
  }
  out_[from] = p.begin + p.seconds;
  return p;
}

}  // namespace gradmeter::core
