// SPDX-License-Identifier: Apache-2.0
// gradmeter doctor: what is wrong or slow with this machine.
#include <algorithm>
#include <cstddef>

#include "bench/doctor/checkup.hpp"
#include "bench/engine/command.hpp"
#include "bench/engine/flags.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/table.hpp"
#include "runtime/host/gpus.hpp"
#include "runtime/mpi/session.hpp"

namespace gradmeter::bench {
namespace {

std::string bytes(std::size_t n) { return n ? core::to_text(core::Bytes{n}) : "unknown"; }

void print_gpus(const runtime::CudaFacts& cuda) {
  if (cuda.built && !cuda.problem.empty()) core::print("GPU         {}\n", cuda.problem);
  for (std::size_t n = 0; n < cuda.gpus.size(); ++n) {
    core::print("{:11} {}\n", fmt::format("GPU {}", n), runtime::describe(cuda.gpus[n]));
  }
}

void print_machine(const Session& s) {
  const auto& host_facts = s.host();
  const auto& info = s.run_info();
  core::print("host        {}  ({})\n", host_facts.hostname,
              host_facts.virtualisation.empty() ? "unknown" : host_facts.virtualisation);
  core::print("processor   {}\n", host_facts.cpu_model);
  core::print("cores       {} in {} package(s), {} usable by this job, binding {}\n", host_facts.cores,
              host_facts.packages, s.cores_per_node(), host_facts.binding);
  core::print("caches      L2 {}, L3 {}, {}\n", bytes(host_facts.l2_bytes), bytes(host_facts.l3_bytes),
              report::counted(host_facts.numa_nodes, "NUMA node"));
  core::print("memory      {} ({} free), /dev/shm {} free, huge pages {}\n", bytes(host_facts.memory_bytes),
              bytes(host_facts.available_memory_bytes), bytes(host_facts.shm_free_bytes),
              host_facts.transparent_hugepages);
  core::print("MPI         {}, {} on {}, mapping {}\n", info.mpi, report::counted(info.ranks, "rank"),
              report::counted(info.nodes, "node"), info.mapping);
  if (info.mpi == "none") core::print("            {}\n", runtime::mpi_refusal());
  const auto gpu_libraries = runtime::gpu_libraries();
  for (const auto& [name, version] : info.libraries) {
    if (std::ranges::find(gpu_libraries, name, &runtime::GpuLibrary::name) != gpu_libraries.end()) continue;
    core::print("{:11} {}\n", name, version);
  }
  for (const auto& library : gpu_libraries) core::print("{:11} {}\n", library.name, runtime::availability(library));
  print_gpus(runtime::read_cuda());
  core::print("fingerprint {}\n\n", info.fingerprint);
}

void print_speed(const Session& s, const Checkup& checkup) {
  core::Table table({{"computing at once", "", core::Align::left},
                     {"each", "GFLOP/s", core::Align::right},
                     {"of one alone", "%", core::Align::right}});
  for (const auto& w : checkup.crowding) {
    const bool over = w.workers > s.cores_per_node();
    table.add_row({fmt::format("{} worker{}{}", w.workers, w.workers == 1 ? "" : "s", over ? ", more than cores" : ""),
                   fmt::format("{:.1f}", w.flops_per_s_each / 1e9), fmt::format("{:.0f}", 100 * w.share_of_alone)});
  }
  core::print("{}\n", table.to_string());
  const auto& crowded = checkup.crowding.back();
  core::print(
      "What oversubscription does to the numbers: with {} ranks on {} cores each computes at {:.0f} % of its rate, so "
      "a\n"
      "step takes about {:.1f} times as long and an efficiency reads {:.0f} % before any byte is exchanged. Such rows "
      "carry\n"
      "a * in tables and \"oversubscribed\": true in result files: they test, they do not measure scaling.\n\n",
      crowded.workers, s.cores_per_node(), 100 * crowded.share_of_alone, 1 / crowded.share_of_alone,
      100 * crowded.share_of_alone);
  core::print("memory copy {}\n", core::to_text(core::BytesPerSecond{checkup.copy_bytes_per_s}));
  core::print(
      "steadiness  {:.2f}: best over median time of a small product and a copy on all ranks at once; {} of {} "
      "rounds over {:.1f} times the best\n",
      checkup.steadiness.value, checkup.steadiness.disturbed, checkup.steadiness.rounds, CanaryTimes::disturbance);
  if (s.world().size() > 1) {
    core::print("MPI         8-byte all-reduce {}, barrier {} (median of 200, {} ranks)\n",
                core::to_text(core::Seconds{checkup.small_all_reduce_s}),
                core::to_text(core::Seconds{checkup.barrier_s}), s.world().size());
  } else {
    core::print("MPI         one rank: run it under mpirun -np N to have the exchange looked at too\n");
  }
}

void print_findings(const std::vector<CheckupFinding>& findings) {
  if (findings.empty()) {
    core::print("\nNothing stands out.\n");
    return;
  }
  core::print("\n");
  for (const auto& f : findings) core::print("! {}: {}. Remedy: {}\n", f.what, f.why, f.remedy);
}

Usage doctor_usage() {
  FlagList list("Flags");
  add_switch(list, "help,h", "this text");
  add_text(list, "thread-ranks", "", thread_ranks_help);
  return {.flags = list,
          .about = "gradmeter doctor: what is wrong or slow with this machine\n\n[mpirun -np N] gradmeter doctor"};
}

int run_doctor_command(const Flags&, const Invocation& invocation) {
  Session session(*invocation.world, invocation.process, core::Seconds{300}, invocation.command_line);
  if (session.is_root()) print_machine(session);
  const auto checkup = check_up(session);
  if (!session.is_root()) return 0;
  print_speed(session, checkup);
  print_findings(checkup.findings);
  return 0;
}

}  // namespace

extern const Command doctor_command{.name = "doctor",
                                    .summary = "what is wrong or slow on this machine, with remedies",
                                    .with_ranks = true,
                                    .usage = doctor_usage,
                                    .run = run_doctor_command};

}  // namespace gradmeter::bench
