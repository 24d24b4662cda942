// The fields of a run's line, once for reading and for writing.
#pragma once
#include "core/result.hpp"

namespace gradmeter::core::detail {

/// visit(key, member) for each, in the order of the line. Info: RunInfo or const RunInfo.
template <class Info, class Visit>
void each_field(Info& info, const Visit& visit) {
  visit("run_id", info.run_id);
  visit("time", info.time);
  visit("command", info.command);
  visit("version", info.version);
  visit("commit", info.commit);
  visit("hosts", info.hosts);
  visit("ranks", info.ranks);
  visit("nodes", info.nodes);
  visit("mapping", info.mapping);
  visit("mpi", info.mpi);
  visit("mpi_threads", info.mpi_threads);
  visit("libraries", info.libraries);
  visit("cpu", info.cpu);
  visit("cores_per_node", info.cores_per_node);
  visit("memory_bytes_per_node", info.memory_bytes_per_node);
  visit("gpus", info.gpus);
  visit("binding", info.binding);
  visit("fingerprint", info.fingerprint);
  visit("environment", info.environment);
}

template <class Plan, class Visit>
void each_plan_field(Plan& plan, const Visit& visit) {
  visit("points", plan.points);
  visit("kept", plan.kept);
}

template <class End, class Visit>
void each_end_field(End& end, const Visit& visit) {
  visit("time", end.time);
  visit("exit", end.exit);
  visit("reason", end.reason);
}

}  // namespace gradmeter::core::detail
