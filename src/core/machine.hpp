// The description of a machine from which times are predicted: links, ports, rates and noise. Plain values;
// measurements fill them.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradmeter::core {

/// A bandwidth, for messages of at least `from_bytes`.
struct Bandwidth {
  std::uint64_t from_bytes = 0;
  double bytes_per_s = 1;
  bool operator==(const Bandwidth&) const = default;
};

/// One class of links.
struct Link {
  double latency_s = 0;
  double overhead_s = 0;  ///< of the CPU, for each message
  /// Ascending by size; the first is from 0. One entry is Hockney's model.
  std::vector<Bandwidth> bandwidth = {Bandwidth{}};

  /// Of a message of so many bytes. Cost: O(log of the entries).
  double bytes_per_s(std::uint64_t bytes) const;
  /// overhead + latency + bytes / bandwidth [s]. Source: Hockney, Parallel Computing 1994.
  double seconds(std::uint64_t bytes) const;
  bool operator==(const Link&) const = default;
};

/// What the ranks of one node together send, and as much receive, at once.
struct NodePort {
  double bytes_per_s = 0;  ///< 0: no other limit than the links'
  bool operator==(const NodePort&) const = default;
};

/// FLOP/s of an operation ("gemm") in a precision ("fp32") on a class of shapes ("square"). An empty text stands for
/// all of them.
struct ComputeRate {
  std::string operation, precision, shape_class;
  double flops_per_s = 0;
  bool operator==(const ComputeRate&) const = default;
};

/// Of one rank, in fp32 bytes a second; 0: not known. `add` decodes what it adds.
struct CodecRates {
  double encode = 0, decode = 0, add = 0;
  bool operator==(const CodecRates&) const = default;
};

struct Machine {
  std::uint32_t ranks_per_node = 0;  ///< 0: all ranks are on one node
  Link within_node = {}, between_nodes = {};
  std::optional<Link> trunk = {};  ///< shared by all nodes; empty: they share nothing
  NodePort node_port = {};
  double reduce_bytes_per_s = 1;
  double flops_per_s = 1;  ///< where no entry of `compute` fits
  double memory_bytes_per_s = 1;
  std::vector<ComputeRate> compute = {};
  std::map<std::string, CodecRates, std::less<>> codecs = {};  ///< by the codec's name
  double noise = 0;                                            ///< standard deviation of times, relative to their mean

  /// Rank r is on node r / ranks_per_node.
  const Link& link(std::uint32_t from, std::uint32_t to) const;
  /// Of the entry that fits with the fewest empty texts, the first of equals; else flops_per_s.
  double compute_rate(std::string_view operation, std::string_view precision, std::string_view shape_class) const;
  /// With this many times the bandwidth of all links and ports, so that messages of as many times the bytes take as
  /// long.
  Machine with_links_faster(double times) const;
  bool operator==(const Machine&) const = default;
};

/// One line of JSON, every number with all its digits.
std::string to_json(const Machine&);
/// Keys that are missing keep their defaults.
/// Errors: UsageError in one line: text that is no JSON, an unknown key, a number out of its range.
Machine machine_from_json(std::string_view text);

}  // namespace gradmeter::core
