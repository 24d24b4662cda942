// SPDX-License-Identifier: Apache-2.0
#include "bench/doctor/checkup.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <set>

#include "core/format.hpp"
#include "kernels/host/library.hpp"
#include "kernels/host/roofline.hpp"
#include "kernels/host/threads.hpp"
#include "runtime/clock.hpp"
#include "runtime/host/gpus.hpp"
#include "runtime/mpi/session.hpp"

namespace gradmeter::bench {
namespace {

constexpr core::Seconds time_of_each{0.25};  ///< time for each measurement of a rate

/// The CPUs of all ranks of this node. Workers are spread over them, since a launcher may have bound this rank to a
/// few.
cpu_set_t cpus_of_the_job(const runtime::Communicator& world) {
  cpu_set_t mine, node_cpus;
  CPU_ZERO(&mine);
  CPU_ZERO(&node_cpus);
  ::sched_getaffinity(0, sizeof mine, &mine);  // fails beyond 1024 CPUs: then no CPU is in the set, and workers stay
  for (const cpu_set_t& rank_cpus : world.split_by_node().all_gather_value(mine))
    CPU_OR(&node_cpus, &node_cpus, &rank_cpus);
  return node_cpus;
}

/// Measures the rate of each of `workers` threads while all compute; the share of one alone is still missing.
Crowding crowd(int workers, const cpu_set_t& cpus) {
  std::vector<std::future<double>> running;
  for (int i = 0; i < workers; ++i) {
    running.push_back(std::async(std::launch::async, [&cpus] {
      ::sched_setaffinity(0, sizeof cpus, &cpus);
      kernels::set_compute_threads(1);
      return kernels::measure_gemm_throughput(time_of_each).value;
    }));
  }
  std::vector<double> rates;
  for (auto& rate : running) rates.push_back(rate.get());
  return {workers, core::median(rates), 0};
}

std::vector<Crowding> measure_crowding(int cores, const cpu_set_t& cpus) {
  std::vector<Crowding> out;
  for (int workers : std::set<int>{1, cores, 2 * cores}) out.push_back(crowd(workers, cpus));
  for (auto& c : out) c.share_of_alone = c.flops_per_s_each / out.front().flops_per_s_each;
  return out;
}

Steadiness measure_steadiness(Session& s) {
  constexpr double long_enough = 1;  // [s]
  Canary canary(s, s.world());
  const double begin = runtime::host_clock();
  while (s.world().broadcast_value(runtime::host_clock() - begin < long_enough)) canary.round();
  const CanaryTimes& times = canary.times();
  Steadiness out{.value = times.steadiness(), .rounds = times.rounds()};
  const double best = times.best();
  for (std::size_t i = 0; i < times.rounds(); ++i) out.disturbed += times.disturbed_at(i, best);
  return out;
}

/// The median time of a call [s], begun after a barrier and timed on the slowest rank.
double median_time(const runtime::Communicator& c, const std::function<void()>& call) {
  constexpr int warm = 20, repeats = 200;
  std::vector<double> times;
  for (int i = 0; i < warm + repeats; ++i) {
    c.barrier();
    const double begin = runtime::host_clock();
    call();
    const double took = c.max(runtime::host_clock() - begin);
    if (i >= warm) times.push_back(took);
  }
  return core::median(times);
}

/// Finds problems from measurements and settings. Collective over the session's world.
class Findings {
 public:
  Findings(Session& s, const Checkup& c) : session_(s), checkup_(c) {}

  std::vector<CheckupFinding> all() {
    libraries();
    oversubscription();
    binding();
    host();
    gpu();
    for (auto& f : crowding_findings(checkup_.crowding, session_.cores_per_node())) out_.push_back(std::move(f));
    for (auto& f : steadiness_findings(checkup_.steadiness)) out_.push_back(std::move(f));
    return std::move(out_);
  }

 private:
  void add(std::string what, std::string why, std::string remedy) {
    out_.push_back({std::move(what), std::move(why), std::move(remedy)});
  }
  static bool is_set(const char* variable, char value) {
    const char* text = std::getenv(variable);
    return text && text[0] == value;
  }

  void libraries() {
    if (const auto why = kernels::onednn_refusal(); !why.empty()) {
      add("matrix products are a reference's", "every step takes many times as long as with a library", why);
    }
    if (const auto why = runtime::mpi_refusal(); !why.empty()) {
      add("ranks are threads of one process only", "nothing between processes or nodes can be measured", why);
    }
  }

  void oversubscription() {
    const int ranks = session_.ranks_per_node(session_.world().size()), cores = session_.cores_per_node();
    if (ranks <= cores) return;
    add(fmt::format("{} ranks share {} cores on a node", ranks, cores),
        fmt::format("a rank gets about {:.0f} % of a core's rate; step times, efficiencies and skew then say how the "
                    "cores are shared, not how training scales",
                    100 * share_of_a_rank(checkup_.crowding, ranks)),
        fmt::format("use mpirun -np {} for times; more ranks are for tests", cores));
    const bool yields = is_set("OMPI_MCA_mpi_yield_when_idle", '1') || is_set("OMPI_MCA_mpi_yield_when_idle", 't');
    const bool processes = session_.world().ranks_as() == runtime::RanksAs::processes;
    if (processes && session_.run_info().mpi.rfind("Open MPI", 0) == 0 && !yields &&
        checkup_.small_all_reduce_s > 1e-3) {
      add(fmt::format("a small MPI_Allreduce takes {}", core::to_text(core::Seconds{checkup_.small_all_reduce_s})),
          "waiting ranks keep the core from those they wait for", "export OMPI_MCA_mpi_yield_when_idle=1");
    }
  }

  void binding() {
    // Only ranks of the same node can share cores.
    const auto bindings = session_.world().split_by_node().all_gather_text(session_.host().binding);
    const auto& host = session_.host();
    const bool narrow = static_cast<int>(host.available_units) < session_.cores_per_node();
    if (session_.world().any(narrow && is_bound_too_narrowly(bindings, host.binding, host.available_units))) {
      add("several ranks are bound to the same cores", "they take turns while other cores idle",
          "mpirun --bind-to core --map-by core, or --bind-to none");
    }
  }

  void host() {
    const auto& host_facts = session_.host();
    if (host_facts.governor == "powersave" || host_facts.governor == "ondemand") {
      add(fmt::format("the frequency governor is {}", host_facts.governor),
          "short points run at a lower clock than long ones", "cpupower frequency-set -g performance");
    }
    const bool has_shm = std::filesystem::is_directory("/dev/shm");
    for (auto& f : shm_findings(has_shm ? std::optional(host_facts.shm_free_bytes) : std::nullopt))
      out_.push_back(std::move(f));
    if (const auto left = runtime::left_segments(); left.count > 0) {
      add(fmt::format("{} segments of Open MPI in /dev/shm belong to no process, {} in all", left.count,
                      core::to_text(core::Bytes{left.bytes})),
          "an mpirun that was killed leaves them, and they take memory that new jobs need",
          "while no other job runs on this host: rm /dev/shm/vader_segment.* /dev/shm/sm_segment.* /dev/shm/osc_*");
    }
    if (host_facts.transparent_hugepages == "never") {
      add("transparent huge pages are off", "large buffers move up to 1.3 times slower",
          "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
    }
  }

  void gpu() {
    const auto cuda = runtime::read_cuda();
    if (cuda.built && !cuda.problem.empty()) add("no GPU can be used", cuda.problem, "--device cpu works without");
  }

  Session& session_;
  const Checkup& checkup_;
  std::vector<CheckupFinding> out_;
};

}  // namespace

std::vector<CheckupFinding> crowding_findings(const std::vector<Crowding>& crowding, int cores) {
  constexpr double least = 0.75;  // clocks fall by less when all cores compute
  std::vector<CheckupFinding> out;
  for (const Crowding& c : crowding) {
    if (c.workers == 1 || c.workers > cores || c.share_of_alone >= least) continue;
    const double percent = 100 * c.share_of_alone;
    out.push_back(
        {fmt::format("{} workers on {} cores reach {:.0f} % each of what one alone does", c.workers, cores, percent),
         fmt::format("the cores are shared with others or are threads of one core; an efficiency reads {:.0f} "
                     "% before any byte is exchanged",
                     percent),
         "end what else runs (on a virtual machine: dedicated cores), and start one rank for each core that "
         "lscpu -e names"});
  }
  return out;
}

double share_of_a_rank(const std::vector<Crowding>& crowding, int ranks) {
  const Crowding& widest = crowding.back();
  return std::min(1.0, widest.share_of_alone * widest.workers / ranks);
}

bool is_bound_too_narrowly(std::span<const std::string> bindings, const std::string& own, std::size_t own_units) {
  return static_cast<std::size_t>(std::ranges::count(bindings, own)) > own_units;
}

std::vector<CheckupFinding> shm_findings(std::optional<std::size_t> free_bytes) {
  if (!free_bytes || *free_bytes >= (std::size_t{64} << 20)) return {};
  return {{fmt::format("/dev/shm has {} free", core::to_text(core::Bytes{*free_bytes})),
           "shared windows and MPI's shared memory live there",
           "start the container with --shm-size=1g, or use --transport mpi"}};
}

std::vector<CheckupFinding> steadiness_findings(const Steadiness& s) {
  constexpr double steady = 0.9, often = 0.2;
  if (s.rounds == 0) return {};
  const double disturbed = static_cast<double>(s.disturbed) / static_cast<double>(s.rounds);
  if (s.value >= steady && disturbed <= often) return {};
  return {{fmt::format("the same work takes {:.2f} times its best in the median, and over {:.1f} times in {:.0f} % of "
                       "the rounds",
                       1 / s.value, CanaryTimes::disturbance, 100 * disturbed),
           "others on this host take time, caches, memory bandwidth or clock, so two runs of one point will differ",
           "measure when the machine is quiet, and compare only what was measured in turn"}};
}

Checkup check_up(Session& s) {
  Checkup checkup;
  const cpu_set_t cpus = cpus_of_the_job(s.world());
  if (s.is_root()) {
    checkup.crowding = measure_crowding(s.cores_per_node(), cpus);
    checkup.copy_bytes_per_s = kernels::measure_copy_bandwidth(std::size_t{256} << 20, time_of_each).value;
  }
  s.world().sleeping_barrier();
  checkup.steadiness = measure_steadiness(s);
  if (s.world().size() > 1) {
    checkup.small_all_reduce_s = median_time(s.world(), [&] { s.world().sum(1.0); });
    checkup.barrier_s = median_time(s.world(), [&] { s.world().barrier(); });
  }
  // Finding problems takes communication, so all ranks do it; only rank 0's findings are shown. The other ranks have
  // measured no crowding.
  if (!s.is_root()) checkup.crowding = {{1, 0, 1}};
  checkup.findings = Findings(s, checkup).all();
  return checkup;
}

}  // namespace gradmeter::bench
