// SPDX-License-Identifier: Apache-2.0
// The description of a machine from which times are predicted: devices, links, ports, rates and noise, filled by data
// sheets and measurements; and the times at which messages leave on such a machine.
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

/// The rate of a ring among so many ranks of one link class, as bytes a second of its bus.
struct GroupRate {
  std::uint32_t ranks = 0;
  double bytes_per_s = 0;
  bool operator==(const GroupRate&) const = default;
};

/// A class of links, all alike.
struct Link {
  std::string name = {};  ///< "NVLink 4"; empty: it has none
  double latency_s = 0;
  double overhead_s = 0;  ///< time of the CPU for each message
  /// Entries ascend by size, and the first holds from 0 bytes on. With one entry this is Hockney's model.
  std::vector<Bandwidth> bandwidth = {Bandwidth{}};
  /// Rates by the size of the group, ascending by ranks. On meshes whose ranks are not all neighbours they differ.
  std::vector<GroupRate> groups = {};

  /// The bandwidth for a message of so many bytes. Cost: O(log of the entries).
  double bytes_per_s(std::uint64_t bytes) const;
  /// overhead + latency + bytes / bandwidth [s]. Source: Hockney, Parallel Computing 1994.
  double seconds(std::uint64_t bytes) const;
  /// The rate of the largest group of at most so many ranks, else of the smallest group; the bandwidth for long
  /// messages where no group is known.
  double group_bytes_per_s(std::uint32_t ranks) const;
  bool operator==(const Link&) const = default;
};

/// The limit of what the ranks of one node together send at once, and also of what they receive.
struct NodePort {
  double bytes_per_s = 0;  ///< 0: only the links' limits hold
  bool operator==(const NodePort&) const = default;
};

/// FLOP/s of an operation ("gemm") in a precision ("fp32") on a class of shapes ("square"). An empty text matches every
/// operation, precision or class.
struct ComputeRate {
  std::string operation, precision, shape_class;
  double flops_per_s = 0;
  bool operator==(const ComputeRate&) const = default;
};

/// A codec's rates on one rank, in fp32 bytes a second; 0: not known. `add` is the rate of decoding and adding.
struct CodecRates {
  double encode = 0, decode = 0, add = 0;
  bool operator==(const CodecRates&) const = default;
};

/// A block of a product's result that a multiprocessor computes at once, and the share of the peak that it reaches.
struct Tile {
  std::uint32_t rows = 0, columns = 0;
  double share = 1;
  bool operator==(const Tile&) const = default;
};

/// One kind of accelerator, as its vendor describes it. Rates are dense. 0 and empty: no source states it.
struct DeviceProfile {
  std::string name = {}, source = {};
  std::map<std::string, double, std::less<>> peaks = {};  ///< FLOP/s by precision; whole numbers: operations/s
  double memory_bytes = 0, memory_bytes_per_s = 0;
  std::uint32_t multiprocessors = 0;  ///< 0: tiles then fill the device
  std::vector<Tile> tiles = {{256, 128, 1.0}, {128, 128, 0.93}, {128, 64, 0.8}, {64, 64, 0.65}};
  double launch_s = 0;  ///< time that a kernel takes at least
  double power_w = 0;
  double price_usd = 0;  ///< list price when it was launched

  /// The peak of the precision that runs where this one is asked for ("bf16", "amp_bf16", "fp16", "amp", "tf32",
  /// "fp32", "fp8"): a device without fp8 takes 16 bits, one without either takes fp32. 0: none is known.
  double peak(std::string_view precision) const;
  bool operator==(const DeviceProfile&) const = default;
};

/// What a fit to measured steps says of the machine (`gradmeter predict --calibrate`).
struct MachineFit {
  std::map<std::string, double, std::less<>> terms = {};  ///< by name, each above 0
  double spread = 0;       ///< 90th percentile of |log(predicted / measured)| of groups that were left out
  double ranks = 1;        ///< the most ranks of a measured step
  std::uint64_t rows = 0;  ///< measured steps
  /// log(predicted / measured) of each row, by its name, predicted by a fit to the rows of other groups.
  std::map<std::string, double, std::less<>> residuals = {};
  bool operator==(const MachineFit&) const = default;
};

struct Machine {
  std::string name = {};
  std::uint32_t ranks_per_node = 0;  ///< 0: all ranks are on one node
  Link within_node = {}, between_nodes = {};
  std::optional<Link> trunk = {};  ///< shared by all nodes; empty: nodes share nothing
  NodePort node_port = {};
  double reduce_bytes_per_s = 1;
  double flops_per_s = 1;  ///< rate where no entry of `compute` fits
  double memory_bytes_per_s = 1;
  std::vector<ComputeRate> compute = {};
  std::map<std::string, CodecRates, std::less<>> codecs = {};  ///< rates by the codec's name
  double noise = 0;                                            ///< standard deviation of times, relative to their mean
  std::optional<DeviceProfile> device = {};                    ///< of each rank; empty: not known
  std::optional<MachineFit> fit = {};

  /// Rank r is on node r / ranks_per_node.
  const Link& link(std::uint32_t from, std::uint32_t to) const;
  /// Returns the rate of the entry that fits with the fewest empty texts (the first of several), else flops_per_s.
  double compute_rate(std::string_view operation, std::string_view precision, std::string_view shape_class) const;
  /// Returns this machine with `times` the bandwidth of links and ports, where `times` the bytes take the same time.
  Machine with_links_faster(double times) const;
  bool operator==(const Machine&) const = default;
};

/// Writes one line of JSON, every number with all its digits. Names, groups, device and fit stand in it where there are
/// any. indent: spaces of each level; negative: one line.
std::string to_json(const Machine&, int indent = -1);
/// Missing keys keep their defaults. Errors: UsageError of one line for text that is no JSON, an unknown key, or a
/// number out of its range; with the name of a file it begins with "FILE:LINE: ".
Machine machine_from_json(std::string_view text, const std::string& file = "");

/// The times at which messages leave on a machine whose links carry one at a time: each rank's way out, each node's
/// port in both directions, and the trunk between nodes. Messages get shared links in the order of the calls of `send`.
/// Source of the cost: Hockney, Parallel Computing 1994, with a serialised port.
class LinksInUse {
 public:
  /// The machine must outlive it. free: when each rank's way out becomes free [s].
  LinksInUse(const Machine& machine, std::vector<double> free);

  struct Passage {
    double begin = 0;      ///< when the first byte leaves [s]
    double seconds = 0;    ///< time for which the message occupies its links
    double latency_s = 0;  ///< time until the first byte arrives
  };
  /// Takes the links for a message that is ready at `ready` [s].
  Passage send(std::uint32_t from, std::uint32_t to, std::uint64_t bytes, double ready);

 private:
  std::size_t node_of(std::uint32_t rank);

  // The members say when each link is free [s].
  const Machine& machine_;
  std::vector<double> out_;                 ///< by rank
  std::vector<double> port_out_, port_in_;  ///< by node, up to the last node that sent or received
  double trunk_ = 0;
};

}  // namespace gradmeter::core
