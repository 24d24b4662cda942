// Every all-reduce there is. A new one is a file of its own and one row in registry.cpp.
#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "allreduce/executor.hpp"
#include "allreduce/schedule.hpp"
#include "runtime/mpi.hpp"

namespace gradmeter::allreduce {

/// A vendor's has no schedule: make and cost are null.
struct AlgorithmInfo {
  std::string_view name, cost_text, source;
  std::vector<SchedulePtr> (*make)(Shape);
  StatedCost (*cost)(Shape);
  bool (*supports)(Shape);
  bool is_vendor() const { return make == nullptr; }
};

std::span<const AlgorithmInfo> algorithms();
/// Errors: UsageError that lists what there is.
const AlgorithmInfo& find_algorithm(std::string_view name);

/// Where an all-reduce is to run: the group's communicator, a transport over it and the arena for scratch.
struct Site {
  const runtime::Communicator& communicator;
  runtime::Transport& transport;
  runtime::Arena& arena;
  Shape shape;
};
std::unique_ptr<AllReduce> make_all_reduce(const AlgorithmInfo&, const Site&, ExecutorOptions);

}  // namespace gradmeter::allreduce
