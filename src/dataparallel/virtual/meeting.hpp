// Collectives in virtual time: they begin when their last member has come, and run the schedules that real ranks run.
#pragma once
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "allreduce/reduce.hpp"
#include "allreduce/slices.hpp"
#include "dataparallel/virtual/ground.hpp"
#include "dataparallel/virtual/operation.hpp"

namespace gradmeter::dataparallel {

class Meetings {
 public:
  explicit Meetings(Ground& g) : g_(g), free_(static_cast<std::size_t>(g.groups.size(everybody)), 0.0) {}
  /// One worker's part of one collective.
  Ticket join(Group, int worker, Buffer, allreduce::Goal, int root, allreduce::Op);

 private:
  /// What all members must agree on.
  struct Agenda {
    allreduce::Goal goal = allreduce::Goal::all_reduce;
    int root = 0;
    allreduce::Op op = allreduce::Op::sum;
    bool operator==(const Agenda&) const = default;
  };
  /// One collective call, waiting for its members.
  struct Meeting {
    Agenda agenda = {};
    std::vector<int> members = {};
    std::vector<VirtualTicket> tickets = {};
    std::vector<std::span<float>> buffers = {};
    std::size_t arrived = 0;
  };
  struct Method {
    std::string name;
    std::vector<allreduce::SchedulePtr> schedules;
  };
  const Method& method(std::uint32_t ranks, const Agenda&);
  void hold(Meeting&);
  /// Does a member die before it has done its part? Then nobody's part is ever complete.
  bool breaks(const Meeting&, const std::vector<double>& end) const;

  Ground& g_;
  std::vector<double> free_;  ///< by worker: one collective at a time
  std::map<std::pair<int, int>, std::uint64_t> calls_;
  std::map<std::pair<int, std::uint64_t>, Meeting> open_;
  std::map<std::tuple<std::uint32_t, allreduce::Goal, int>, Method> methods_;
};

}  // namespace gradmeter::dataparallel
