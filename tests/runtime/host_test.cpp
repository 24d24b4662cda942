// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/host.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "core/format.hpp"
#include "runtime/fake_root.hpp"

namespace gradmeter::runtime {
namespace {

TEST(Host, AgreesWithTheSystemCalls) {
  const HostFacts host = read_host();
  EXPECT_EQ(host.processing_units, static_cast<std::size_t>(::sysconf(_SC_NPROCESSORS_ONLN)));
  EXPECT_EQ(host.memory_bytes,
            static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
  std::array<char, 256> name{};
  ASSERT_EQ(::gethostname(name.data(), name.size()), 0);
  EXPECT_EQ(host.hostname, name.data());
}

TEST(Host, ItsNumbersFitTogether) {
  const HostFacts host = read_host();
  EXPECT_GE(host.packages, 1u);
  EXPECT_GE(host.cores, host.packages);
  EXPECT_GE(host.processing_units, host.cores);
  EXPECT_GE(host.numa_nodes, 1u);
  EXPECT_GE(host.available_units, 1u);
  EXPECT_LE(host.available_units, host.processing_units);
  EXPECT_GT(host.available_memory_bytes, 0u);
  EXPECT_LE(host.available_memory_bytes, host.memory_bytes);
  EXPECT_FALSE(host.cpu_model.empty());
  EXPECT_FALSE(host.kernel.empty());
  EXPECT_FALSE(host.binding.empty());
  EXPECT_TRUE(host.virtualisation == "vm" || host.virtualisation == "none" || host.virtualisation.empty());
}

/// Every thread of the process: earlier cases, and sanitizers, may have left some.
void bind_process(const cpu_set_t& to) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    ASSERT_EQ(::sched_setaffinity(std::stoi(task.path().filename()), sizeof to, &to), 0);
}

TEST(Host, ABoundProcessSeesItsShareAndTheWholeMachine) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  std::size_t last = 0;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) last = cpu;
  }
  const HostFacts free = read_host();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  bind_process(one);
  const HostFacts bound = read_host();
  bind_process(before);
  EXPECT_EQ(bound.available_units, 1u);
  EXPECT_EQ(bound.binding, std::to_string(last));
  EXPECT_EQ(bound.processing_units, free.processing_units);
  EXPECT_EQ(machine_fingerprint(bound, "Open MPI v4"), machine_fingerprint(free, "Open MPI v4"));
}

HostFacts example() {
  HostFacts host;
  host.hostname = "node017";
  host.cpu_model = "Some Processor 9000, family 6 model 207";
  host.packages = 2, host.cores = 64, host.processing_units = 128, host.numa_nodes = 2;
  host.l2_bytes = 1u << 20, host.l3_bytes = 32u << 20;
  host.memory_bytes = std::size_t{512} << 30;
  host.virtualisation = "none";
  return host;
}

constexpr std::string_view mpi = "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, May 26, 2022";

TEST(LeftSegments, AreThoseThatNoProcessMaps) {
  const testing::FakeRoot root;
  for (const char* file : {"vader_segment.node.0.1.0", "vader_segment.node.0.1.1", "osc_rdma.node.3", "somebody's"})
    root.write(std::string("shm/") + file, "12345678");
  root.write("proc/17/maps", fmt::format("7f00-7f40 rw-s 00000000 00:1a 5  {}\n",
                                         (root.path() / "shm/vader_segment.node.0.1.1").string()));
  const auto left = left_segments(root.path() / "shm", root.path() / "proc");
  EXPECT_EQ(left.count, 2u);
  EXPECT_EQ(left.bytes, 16u);
  EXPECT_EQ(left_segments(root.path() / "none").count, 0u);
}

TEST(MachineFingerprint, IsTheSameOnAnotherNodeOfTheKind) {
  HostFacts other = example();
  other.hostname = "node003";
  other.kernel = "6.9", other.governor = "performance", other.binding = "0-3", other.available_units = 4;
  other.available_memory_bytes = 1, other.shm_free_bytes = 2;
  other.memory_bytes -= std::size_t{300} << 20;  // what the kernel keeps for itself varies
  EXPECT_EQ(machine_fingerprint(example(), mpi), machine_fingerprint(other, mpi));
  EXPECT_EQ(machine_fingerprint(example(), mpi), machine_fingerprint(example(), "Open MPI v4.1.4, package: elsewhere"));
}

TEST(MachineFingerprint, EachThingThatChangesTimesChangesIt) {
  const std::vector<std::function<void(HostFacts&)>> changes{[](HostFacts& h) { h.cpu_model += "X"; },
                                                             [](HostFacts& h) { h.packages = 1; },
                                                             [](HostFacts& h) { h.cores = 32; },
                                                             [](HostFacts& h) { h.processing_units = 64; },
                                                             [](HostFacts& h) { h.numa_nodes = 8; },
                                                             [](HostFacts& h) { h.l2_bytes *= 2; },
                                                             [](HostFacts& h) { h.l3_bytes *= 2; },
                                                             [](HostFacts& h) { h.memory_bytes /= 2; },
                                                             [](HostFacts& h) { h.virtualisation = "vm"; },
                                                             [](HostFacts& h) { h.hostname = "fat017"; },
                                                             [](HostFacts& h) { h.hostname = "node017.b"; }};
  std::set<std::string> seen{machine_fingerprint(example(), mpi)};
  for (const auto& change : changes) {
    HostFacts other = example();
    change(other);
    EXPECT_TRUE(seen.insert(machine_fingerprint(other, mpi)).second);
  }
  EXPECT_TRUE(seen.insert(machine_fingerprint(example(), "Open MPI v5.0.0, package: x")).second);
  EXPECT_TRUE(seen.insert(machine_fingerprint(example(), mpi, "4 x NVIDIA H100")).second);
}

TEST(MachineFingerprint, StaysWhatItWasWhenOldFilesAreResumed) {
  EXPECT_EQ(machine_fingerprint(example(), mpi), "3bc496f6200e7556");
}

TEST(HostStem, DropsTheNodesNumberAndNothingElse) {
  EXPECT_EQ(host_stem("node017"), "node");
  EXPECT_EQ(host_stem("node017.hpc.org"), "node.hpc.org");
  EXPECT_EQ(host_stem("gpu-a100-12"), "gpu-a100");
  EXPECT_EQ(host_stem("ip-10-0-3-17"), "ip");
  EXPECT_EQ(host_stem("cn_0101"), "cn");
  EXPECT_EQ(host_stem("r01n13"), "r01n");
  EXPECT_EQ(host_stem("login"), "login");
  EXPECT_EQ(host_stem("42"), "");
  EXPECT_EQ(host_stem(""), "");
}

TEST(HostStem, AContainersRandomNameIsNoName) {
  EXPECT_EQ(host_stem("3f2a91bc77de"), "");
  EXPECT_EQ(host_stem("3f2a91bc77d"), "3f2a91bc77d") << "11 digits are a name";
}

/// hwloc shows the machine of HWLOC_SYNTHETIC instead of this one while it exists.
class SyntheticMachine {
 public:
  explicit SyntheticMachine(const char* description) { setenv("HWLOC_SYNTHETIC", description, 1); }
  ~SyntheticMachine() { unsetenv("HWLOC_SYNTHETIC"); }
  SyntheticMachine(const SyntheticMachine&) = delete;
  SyntheticMachine& operator=(const SyntheticMachine&) = delete;
};

TEST(Host, AddsUpTheLastCaches) {
  constexpr std::size_t mib = std::size_t{1} << 20;
  {
    const SyntheticMachine groups_of_cores("package:2 l3:4(size=33554432) l2:8(size=1048576) pu:1");
    const HostFacts host = read_host();
    EXPECT_EQ(host.l3_bytes, 32 * mib);
    EXPECT_EQ(host.all_last_cache_bytes, 8 * 32 * mib);
    EXPECT_EQ(host.reached_last_cache_bytes, 8 * 32 * mib);
    EXPECT_EQ(host.bound_units.size(), host.available_units);
  }
  const SyntheticMachine without_l3("package:1 l2:8(size=2097152) pu:1");
  EXPECT_EQ(read_host().all_last_cache_bytes, 8 * 2 * mib);
}

}  // namespace
}  // namespace gradmeter::runtime
