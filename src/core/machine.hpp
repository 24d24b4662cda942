// SPDX-License-Identifier: Apache-2.0
// The description of a machine, from which times are predicted: devices, links, ports, rates and noise. Data sheets and
// measurements give its values. Below: the times at which messages leave on such a machine.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradmeter::core {

/// A bandwidth that holds for messages of at least `from_bytes` bytes.
struct Bandwidth {
  std::uint64_t from_bytes = 0;
  double bytes_per_s = 1;
  bool operator==(const Bandwidth&) const = default;
};

/// The rate of a ring among `ranks` ranks of one link class, as bus bandwidth [bytes/s].
struct GroupRate {
  std::uint32_t ranks = 0;
  double bytes_per_s = 0;
  bool operator==(const GroupRate&) const = default;
};

/// A class of links, all alike.
struct Link {
  std::string name = {};  ///< "NVLink 4"; may be empty
  double latency_s = 0;
  double overhead_s = 0;  ///< time of the CPU for each message
  /// Entries ascend by size; the first holds from 0 bytes on. A single entry is Hockney's model.
  std::vector<Bandwidth> bandwidth = {Bandwidth{}};
  /// Rates by the size of the group, ascending by ranks. They differ on meshes, where not all ranks are neighbours.
  std::vector<GroupRate> groups = {};

  /// The bandwidth for a message of so many bytes. Cost: O(log of the entries).
  double bytes_per_s(std::uint64_t bytes) const;
  /// overhead + latency + bytes / bandwidth [s]. Source: Hockney, Parallel Computing 1994.
  double seconds(std::uint64_t bytes) const;
  /// The rate of the largest known group of at most `ranks` ranks, else of the smallest one; where no group is known,
  /// the bandwidth for long messages.
  double group_bytes_per_s(std::uint32_t ranks) const;
  bool operator==(const Link&) const = default;
};

/// The limit of what the ranks of one node together send at once, and also of what they receive.
struct NodePort {
  double bytes_per_s = 0;  ///< 0: no limit besides those of the links
  bool operator==(const NodePort&) const = default;
};

/// The rate of an operation ("gemm") in a precision ("fp32") on a class of shapes ("square") [FLOP/s]. An empty text
/// matches every operation, precision or class.
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

/// One kind of accelerator, as its vendor describes it. Rates are for dense operands. 0 or empty: no source states it.
struct DeviceProfile {
  std::string name = {}, source = {};
  std::map<std::string, double, std::less<>> peaks = {};  ///< FLOP/s by precision; whole numbers: operations/s
  double memory_bytes = 0, memory_bytes_per_s = 0;
  std::uint32_t multiprocessors = 0;  ///< 0: the time of tiles is not rounded to whole waves over the multiprocessors
  std::vector<Tile> tiles = {{256, 128, 1.0}, {128, 128, 0.93}, {128, 64, 0.8}, {64, 64, 0.65}};
  double launch_s = 0;  ///< the least time of a kernel [s]
  double power_w = 0;
  double price_usd = 0;  ///< list price when it was launched

  /// The peak of the precision that runs where this one is asked for ("bf16", "amp_bf16", "fp16", "amp", "tf32",
  /// "fp32", "fp8"): a device without fp8 uses 16 bits, and one without 16 bits uses fp32. 0: unknown.
  double peak(std::string_view precision) const;
  bool operator==(const DeviceProfile&) const = default;
};

/// What a fit to measured steps tells about the machine (`gradmeter predict --calibrate`).
struct MachineFit {
  std::map<std::string, double, std::less<>> terms = {};  ///< by name, each above 0
  /// 90th percentile of |log(predicted / measured)|, each predicted by a fit that left out the row's group.
  double spread = 0;
  double ranks = 1;        ///< the most ranks of a measured step
  std::uint64_t rows = 0;  ///< measured steps
  /// log(predicted / measured) of each row, by the row's name, where the fit left out the row's group.
  std::map<std::string, double, std::less<>> residuals = {};
  bool operator==(const MachineFit&) const = default;
};

struct Machine {
  std::string name = {};
  std::uint32_t ranks_per_node = 0;  ///< 0: all ranks are on one node
  Link within_node = {}, between_nodes = {};
  std::optional<Link> trunk = {};  ///< link shared by all nodes; empty: nodes share none
  NodePort node_port = {};
  double reduce_bytes_per_s = 1;
  double flops_per_s = 1;  ///< rate where no entry of `compute` fits
  double memory_bytes_per_s = 1;
  std::vector<ComputeRate> compute = {};
  std::map<std::string, CodecRates, std::less<>> codecs = {};  ///< rates by the codec's name
  double noise = 0;                                            ///< standard deviation of times, relative to their mean
  std::optional<DeviceProfile> device = {};                    ///< of each rank; empty: not known
  std::optional<MachineFit> fit = {};

  /// The link between two ranks. Rank r is on node r / ranks_per_node.
  const Link& link(std::uint32_t from, std::uint32_t to) const;
  /// Returns the rate of the entry that fits with the fewest empty texts (the first of several), else flops_per_s.
  double compute_rate(std::string_view operation, std::string_view precision, std::string_view shape_class) const;
  /// This machine with links and ports of `times` the bandwidth, so that `times` as many bytes take the same time.
  Machine with_links_faster(double times) const;
  bool operator==(const Machine&) const = default;
};

/// Writes one line of JSON, with all digits of every number. Names, groups, device and fit are written where there are
/// any. indent: spaces of each level, on many lines; negative: one line.
std::string to_json(const Machine&, int indent = -1);
/// Missing keys keep their defaults. Errors: UsageError of one line for text that is no JSON, an unknown key, or a
/// number out of its range. file: its name, with which the error then begins ("FILE:LINE: ").
Machine machine_from_json(std::string_view text, const std::string& file = "");

/// The times at which messages leave on a machine whose links each carry one message at a time: each rank's outgoing
/// link, each node's port in both directions, and the trunk between nodes. Messages get shared links in the order in
/// which `send` is called. Source of the cost: Hockney, Parallel Computing 1994, with a serialised port.
class LinksInUse {
 public:
  /// The machine must outlive it. free: the time at which each rank's outgoing link becomes free [s].
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

  // The members hold the time at which each link becomes free [s].
  const Machine& machine_;
  std::vector<double> out_;                 ///< by rank
  std::vector<double> port_out_, port_in_;  ///< by node, up to the last node that sent or received
  double trunk_ = 0;
};

}  // namespace gradmeter::core
