// SPDX-License-Identifier: Apache-2.0
// Collectives in virtual time. A collective is computed when the last member of its group has made its call, by the
// same schedule as over real ranks. Each member begins its part at the time of its own call.
#pragma once
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "allreduce/executor/executor.hpp"
#include "allreduce/reduce.hpp"
#include "allreduce/schedule/slices.hpp"
#include "dataparallel/fabric/simulation/context.hpp"

namespace gradmeter::dataparallel {

class SimCollectives {
 public:
  explicit SimCollectives(SimContext& context)
      : context_(context), last_end_(static_cast<std::size_t>(context.groups.size(everybody)), 0.0) {}
  /// Makes one rank's call of a collective.
  Ticket join(int world_rank, const FabricCall&);

 private:
  /// A collective that not all members of its group have called yet.
  struct PendingCollective {
    CallKind kind = CallKind::all_reduce;
    int root = 0;
    allreduce::Op op = allreduce::Op::sum;
    bool is_same_call(const FabricCall& c) const { return kind == c.kind && root == c.peer && op == c.op; }
    std::vector<int> members = {};
    std::vector<SimTicket> tickets = {};
    std::vector<std::span<float>> buffers = {};
    std::size_t arrived = 0;
    bool is_coded = false;
  };
  /// A codec's rates, and the share of the bytes that it sends.
  struct CodecCost {
    core::CodecRates rates;
    double share;  ///< encoded bytes for each byte of fp32
  };
  const allreduce::ScheduledAlgorithm& algorithm(std::uint32_t ranks, CallKind, int root);
  CodecCost codec_cost(std::size_t elements) const;
  std::vector<double> finish_times(const PendingCollective&, std::span<const allreduce::SchedulePtr>,
                                   const allreduce::Slices&, std::vector<double> begin) const;
  void complete(PendingCollective&);
  /// True if a member dies before its part of the collective ends. Then no member's call completes.
  bool is_cut_short(const PendingCollective&, const std::vector<double>& end) const;

  SimContext& context_;
  /// The time at which the last collective of each rank in the world ends [s]. Its next collective begins no earlier.
  std::vector<double> last_end_;
  /// The number of calls so far, by group and rank in the world.
  std::map<std::pair<int, int>, std::uint64_t> calls_;
  std::map<std::pair<int, std::uint64_t>, PendingCollective> pending_;  ///< by group and number of the call
  std::map<std::tuple<std::uint32_t, CallKind, int>, allreduce::ScheduledAlgorithm>
      algorithms_;  ///< by ranks, kind and root
};

}  // namespace gradmeter::dataparallel
