// What the control groups of this process leave it: a container or a Slurm job may own 2 of 64 cores and 8 of 512 GiB.
#pragma once
#include <cstddef>
#include <filesystem>
#include <optional>

namespace gradmeter::runtime {

struct CgroupLimits {
  std::optional<double> cpus;               ///< CPU seconds a second; nothing: no quota
  std::optional<std::size_t> memory_bytes;  ///< what may still be allocated; nothing: no limit
};

/// The tightest limit between this process' group and the root, of both versions of control groups (a hybrid system
/// has both). `root` is where /proc and the mounts are looked for. Missing files mean no limit, not an error.
/// Source: the kernel's admin-guide/cgroup-v2.rst, scheduler/sched-bwc.rst, cgroup-v1/memory.rst.
CgroupLimits read_cgroup_limits(const std::filesystem::path& root = "/");

}  // namespace gradmeter::runtime
