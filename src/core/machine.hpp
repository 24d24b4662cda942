// SPDX-License-Identifier: Apache-2.0
// The description of a machine, from which times are predicted: devices, links, ports, rates and noise. Its values come
// from data sheets and measurements. LinksInUse computes when messages leave on such a machine.
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

/// The bus bandwidth of a ring among `ranks` ranks, all joined by links of the same class.
struct GroupRate {
  std::uint32_t ranks = 0;
  double bytes_per_s = 0;
  bool operator==(const GroupRate&) const = default;
};

/// The properties of one class of links, such as all links within a node.
struct Link {
  std::string name = {};  ///< "NVLink 4"; may be empty
  double latency_s = 0;
  double overhead_s = 0;  ///< time of the CPU for each message
  /// Entries are in ascending order of `from_bytes`, and the first begins at 0. A single entry is Hockney's model.
  std::vector<Bandwidth> bandwidth = {Bandwidth{}};
  /// Rates by the number of ranks in a ring, ascending. They differ from `bandwidth` if not all ranks are neighbours,
  /// as in a mesh of GPUs.
  std::vector<GroupRate> groups = {};

  /// The bandwidth for a message of so many bytes. Cost: O(log n) for n entries.
  double bytes_per_s(std::uint64_t bytes) const;
  /// overhead + latency + bytes / bandwidth [s]. Source: Hockney, Parallel Computing 1994.
  double seconds(std::uint64_t bytes) const;
  /// The rate in `groups` for the largest number of ranks up to `ranks`; the first rate if all entries have more ranks;
  /// the bandwidth of long messages if `groups` is empty.
  double group_bytes_per_s(std::uint32_t ranks) const;
  bool operator==(const Link&) const = default;
};

/// The limit of the rate at which all ranks of a node together send, and of the rate at which they together receive.
struct NodePort {
  double bytes_per_s = 0;  ///< 0: no limit besides those of the links
  bool operator==(const NodePort&) const = default;
};

/// The rate of an operation ("gemm") in a precision ("fp32") on a class of shapes ("square"). An empty text stands for
/// every operation, precision or class.
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

/// A block of a matrix product's result that one multiprocessor computes at a time, and the share of its peak rate that
/// the multiprocessor reaches with such blocks.
struct Tile {
  std::uint32_t rows = 0, columns = 0;
  double share = 1;
  bool operator==(const Tile&) const = default;
};

/// One kind of accelerator, as its vendor describes it. Rates are for dense operands. A member is 0 or empty if no
/// source states its value.
struct DeviceProfile {
  std::string name = {}, source = {};
  std::map<std::string, double, std::less<>> peaks = {};  ///< FLOP/s by precision; for integers: operations/s
  double memory_bytes = 0, memory_bytes_per_s = 0;
  /// Tiles run in waves, one tile on each multiprocessor, and times are rounded up to whole waves. If the number of
  /// multiprocessors is 0 (unknown), times are not rounded.
  std::uint32_t multiprocessors = 0;
  std::vector<Tile> tiles = {{256, 128, 1.0}, {128, 128, 0.93}, {128, 64, 0.8}, {64, 64, 0.65}};
  double launch_s = 0;  ///< the least time of a kernel [s]
  double power_w = 0;
  double price_usd = 0;  ///< list price when the device was launched

  /// Returns the peak for a precision as users name it ("bf16", "amp_bf16", "fp16", "amp", "tf32", "fp32", "fp8",
  /// "fp4"). If `peaks` has no entry for that precision, returns the peak of the next wider one: fp8 for fp4, 16 bits
  /// for fp8, fp32 for 16 bits and tf32. 0: unknown.
  double peak(std::string_view precision) const;
  bool operator==(const DeviceProfile&) const = default;
};

/// The result of fitting the prediction to measured training steps (`gradmeter predict --calibrate`). Its quality is
/// judged by cross-validation: the steps are divided into groups, and each step is predicted by a fit without its
/// group.
struct MachineFit {
  /// Fitted values of predict/step.hpp's terms, by name, each above 0.
  std::map<std::string, double, std::less<>> terms = {};
  /// 90th percentile of |log(predicted / measured)| over the steps, in the cross-validation.
  double spread = 0;
  double ranks = 1;        ///< the largest number of ranks among the measured steps
  std::uint64_t rows = 0;  ///< number of measured steps
  /// log(predicted / measured) of each step in the cross-validation, by the step's id.
  std::map<std::string, double, std::less<>> residuals = {};
  bool operator==(const MachineFit&) const = default;
};

struct Machine {
  std::string name = {};
  std::uint32_t ranks_per_node = 0;  ///< on the fullest node; by convention 0: all ranks are on one node
  Link within_node = {}, between_nodes = {};
  std::optional<Link> trunk = {};  ///< link that all nodes share; empty: there is none
  NodePort node_port = {};
  double reduce_bytes_per_s = 1;  ///< received bytes that a rank adds to its own data, per second
  double flops_per_s = 1;         ///< rate if no entry of `compute` fits
  double memory_bytes_per_s = 1;
  std::vector<ComputeRate> compute = {};
  std::map<std::string, CodecRates, std::less<>> codecs = {};  ///< rates by the codec's name
  double noise = 0;                                            ///< standard deviation of times, relative to their mean
  std::optional<DeviceProfile> device = {};                    ///< each rank's device; empty: not known
  std::optional<MachineFit> fit = {};

  /// The class of the link between two ranks. Rank r is on node r / ranks_per_node.
  const Link& link(std::uint32_t from, std::uint32_t to) const;
  /// Returns the rate of the entry of `compute` that fits with the fewest empty texts (the first of several such
  /// entries); flops_per_s if no entry fits.
  double compute_rate(std::string_view operation, std::string_view precision, std::string_view shape_class) const;
  /// This machine with all bandwidths of links and ports multiplied by `factor`, so that `factor` as many bytes take
  /// the same time.
  Machine with_links_faster(double factor) const;
  bool operator==(const Machine&) const = default;
};

/// Writes JSON, with all digits of every number; empty names, groups, trunk, device and fit are left out. indent:
/// spaces for each level; negative: everything is on one line.
std::string to_json(const Machine&, int indent = -1);
/// Missing keys keep their defaults. Errors: UsageError of one line for text that is no JSON, an unknown key, or a
/// number out of its range. file: the name that errors begin with ("FILE:LINE: "); empty: errors name no place.
Machine machine_from_json(std::string_view text, const std::string& file = "");

/// Computes when messages leave. A rank's outgoing link, each direction of a node's port, and the trunk between nodes
/// carry one message at a time. Messages get shared links in the order in which `send` is called. Source of the times:
/// Hockney, Parallel Computing 1994.
class LinksInUse {
 public:
  /// The machine must outlive this object. free_at_s: the time at which each rank's outgoing link becomes free [s].
  LinksInUse(const Machine& machine, std::vector<double> free_at_s);

  struct Passage {
    double begin = 0;       ///< when the first byte leaves [s]
    double occupied_s = 0;  ///< time for which the message occupies its links
    double latency_s = 0;   ///< time until the first byte arrives
  };
  /// Reserves the links for a message that is ready at `ready` [s].
  Passage send(std::uint32_t from, std::uint32_t to, std::uint64_t bytes, double ready);

 private:
  std::size_t node_of(std::uint32_t rank);

  const Machine& machine_;
  // The times at which links become free [s].
  std::vector<double> out_;                 ///< by rank
  std::vector<double> port_out_, port_in_;  ///< by node, up to the highest node that has sent or received
  double trunk_ = 0;
};

}  // namespace gradmeter::core
