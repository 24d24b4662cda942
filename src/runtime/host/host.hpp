// SPDX-License-Identifier: Apache-2.0
// The facts of this machine that decide how long work takes. This is the adapter of hwloc.
#pragma once
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradmeter::runtime {

/// Facts of this machine. A number that could not be read is 0 and a text is empty: both mean "unknown" here.
struct HostFacts {
  std::string hostname;
  std::string cpu_model;  ///< with family and model number, as some VMs name no product
  // Counts of the whole machine, even if a job may use only a part.
  std::size_t packages = 0, cores = 0, processing_units = 0, numa_nodes = 0;
  /// Processing units in this process' affinity and within its control groups' CPU quota (rounded down, at least 1).
  std::size_t available_units = 0;
  std::vector<std::size_t> bound_units = {};  ///< the numbers of the processing units in this process' affinity
  std::optional<double> cpu_quota = {};       ///< the CPU quota of its control groups [processing units]; empty: none
  std::size_t l2_bytes = 0, l3_bytes = 0;     ///< size of one cache of that level
  /// All caches of the last level (L3, or L2 where there is no L3) together: those that the processing units of this
  /// process' affinity use, and those of the whole machine.
  std::size_t reached_last_cache_bytes = 0, all_last_cache_bytes = 0;
  std::size_t memory_bytes = 0;
  std::size_t available_memory_bytes = 0;  ///< memory available without swapping, within the control groups' limit
  std::size_t shm_free_bytes = 0;          ///< free in /dev/shm, which holds shared windows
  std::string kernel;
  std::string governor;               ///< frequency governor of the first CPU that this process may use
  std::string transparent_hugepages;  ///< "always", "madvise" or "never"
  std::string virtualisation;         ///< "vm" under a hypervisor, "none" on bare metal
  std::string binding;                ///< this process' affinity, as a list of CPUs: "0-1"
};

/// Cost: some milliseconds. Errors: BackendError when hwloc cannot read the topology.
HostFacts read_host();
/// Bytes free in /dev/shm, where MPI keeps the windows that processes share; 0 if there is no /dev/shm.
std::size_t shm_free_bytes();
/// Shared-memory files that ended processes have left behind: how many, and their total size.
struct LeftSegments {
  std::size_t count = 0, bytes = 0;
};
/// This user's segments of Open MPI in `shm` (for root: all users') that no process under `proc` has mapped. A killed
/// mpirun leaves such segments.
LeftSegments left_segments(const std::filesystem::path& shm = "/dev/shm", const std::filesystem::path& proc = "/proc");
/// The message "needs 64 MiB of /dev/shm where 48 MiB are free: ...", with what to do about it. Both numbers are in
/// bytes.
std::string short_of_shm(std::size_t needs, std::size_t free);
/// The name of this host; empty when the system does not tell.
std::string host_name();

/// 16 hexadecimal digits that are equal on machines whose times may be compared. They are a hash of processor, counts,
/// caches, memory (rounded to GiB, since the kernel's own share varies), whether the machine is virtual, MPI version
/// (up to its first comma, since build dates do not matter), accelerators, and the stem of the host name. The stem
/// stands for the network, which a node cannot see: nodes of one partition share it, and clusters with other networks
/// have other names. The kernel's version is left out, since an update would make all old results incomparable.
/// `accelerators`: names of the GPUs in use; empty: none.
std::string machine_fingerprint(const HostFacts& host, std::string_view mpi_version,
                                std::string_view accelerators = {});

/// 16 hexadecimal digits that are equal for equal facts.
std::string fingerprint_of(std::string_view facts);

/// The part of a host name that nodes of one kind share: the name without the numbers at the end of its first label
/// ("node017.hpc.org" gives "node.hpc.org", "gpu-a100-12" gives "gpu-a100", "ip-10-0-3-17" gives "ip"). A first label
/// that looks random, as containers have it, is removed as a whole.
std::string host_stem(std::string_view hostname);

}  // namespace gradmeter::runtime
