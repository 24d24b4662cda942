// Collectives in virtual time: they begin when the last member has called, and run the schedules of real ranks.
#pragma once
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "allreduce/reduce.hpp"
#include "allreduce/schedule/slices.hpp"
#include "dataparallel/simulation/context.hpp"
#include "dataparallel/simulation/operation.hpp"

namespace gradmeter::dataparallel {

class SimCollectives {
 public:
  explicit SimCollectives(SimContext& g) : g_(g), free_(static_cast<std::size_t>(g.groups.size(everybody)), 0.0) {}
  /// One worker's part of one collective.
  Ticket join(int worker, const FabricCall&);

 private:
  /// What all members must agree on.
  struct CallSignature {
    CallKind kind = CallKind::all_reduce;
    int root = 0;
    allreduce::Op op = allreduce::Op::sum;
    bool operator==(const CallSignature&) const = default;
  };
  /// One collective call, waiting for its members.
  struct Rendezvous {
    CallSignature signature = {};
    std::vector<int> members = {};
    std::vector<SimTicket> tickets = {};
    std::vector<std::span<float>> buffers = {};
    std::size_t arrived = 0;
    bool is_coded = false;
  };
  /// share: bytes on the wire for each byte of the numbers.
  struct Coding {
    core::CodecRates rates;
    double share;
  };
  struct Method {
    std::string name;
    std::vector<allreduce::SchedulePtr> schedules;
  };
  const Method& method(std::uint32_t ranks, const CallSignature&);
  Coding coding_of(std::size_t elements) const;
  std::vector<double> finish_times(const Rendezvous&, std::span<const allreduce::SchedulePtr>, const allreduce::Slices&,
                                   std::vector<double> begin) const;
  void complete(Rendezvous&);
  /// Does a member die before it has done its part? Then no member's call ever completes.
  bool is_cut_short(const Rendezvous&, const std::vector<double>& end) const;

  SimContext& g_;
  std::vector<double> free_;  ///< by worker: one collective at a time
  std::map<std::pair<int, int>, std::uint64_t> calls_;
  std::map<std::pair<int, std::uint64_t>, Rendezvous> open_;
  std::map<std::tuple<std::uint32_t, CallKind, int>, Method> methods_;
};

}  // namespace gradmeter::dataparallel
