// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/kernel_files.hpp"

#include <gtest/gtest.h>

#include "runtime/fake_root.hpp"

namespace gradmeter::runtime {
namespace {

using testing::FakeRoot;

constexpr std::string_view version2_mount =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST(CgroupLimits, NothingToReadMeansNoLimit) {
  const FakeRoot root;
  const CgroupLimits limits = read_cgroup_limits(root.path());
  EXPECT_FALSE(limits.cpus);
  EXPECT_FALSE(limits.memory_bytes);
}

TEST(CgroupLimits, TheTightestGroupUpTheTreeDecides) {
  const FakeRoot root;
  root.write("proc/self/mountinfo", version2_mount);
  root.write("proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  root.write("sys/fs/cgroup/slurm/job_7/step_0/cpu.max", "max 100000\n");
  root.write("sys/fs/cgroup/slurm/job_7/cpu.max", "250000 100000\n");
  root.write("sys/fs/cgroup/slurm/cpu.max", "800000 100000\n");
  const CgroupLimits limits = read_cgroup_limits(root.path());
  ASSERT_TRUE(limits.cpus);
  EXPECT_DOUBLE_EQ(*limits.cpus, 2.5);
  EXPECT_FALSE(limits.memory_bytes);
}

TEST(CgroupLimits, MemoryLeftCountsIdleFilePagesAsFree) {
  const FakeRoot root;
  root.write("proc/self/mountinfo", version2_mount);
  root.write("proc/self/cgroup", "0::/job\n");
  root.write("sys/fs/cgroup/job/memory.max", "1000000\n");
  root.write("sys/fs/cgroup/job/memory.current", "700000\n");
  root.write("sys/fs/cgroup/job/memory.stat", "anon 500000\ninactive_file 150000\nactive_file 50000\n");
  EXPECT_EQ(read_cgroup_limits(root.path()).memory_bytes, 450000u);
  root.write("sys/fs/cgroup/job/memory.current", "5000000\n");  // the limit was lowered under the group
  EXPECT_EQ(read_cgroup_limits(root.path()).memory_bytes, 0u);
  root.write("sys/fs/cgroup/job/memory.max", "max\n");
  EXPECT_FALSE(read_cgroup_limits(root.path()).memory_bytes);
}

TEST(CgroupLimits, VersionOneHasAMountForEachController) {
  const FakeRoot root;
  root.write("proc/self/mountinfo",
             "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
             "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
             "36 31 0:33 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n");
  root.write("proc/self/cgroup", "4:memory:/box\n3:cpuset:/box\n2:cpu,cpuacct:/box\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "50000\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  root.write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "8000\n");
  root.write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "3000\n");
  root.write("sys/fs/cgroup/memory/box/memory.stat", "inactive_file 7\ntotal_inactive_file 1000\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "3000\n");
  const CgroupLimits limits = read_cgroup_limits(root.path());
  ASSERT_TRUE(limits.cpus);
  EXPECT_DOUBLE_EQ(*limits.cpus, 0.5);
  EXPECT_EQ(limits.memory_bytes, 6000u);
}

TEST(CgroupLimits, AContainerSeesOnlyItsOwnPartOfTheTree) {
  const FakeRoot root;
  root.write("proc/self/mountinfo", "30 23 0:26 /docker/f00 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n");
  root.write("proc/self/cgroup", "0::/docker/f00\n");
  root.write("sys/fs/cgroup/cpu.max", "400000 100000\n");
  ASSERT_TRUE(read_cgroup_limits(root.path()).cpus);
  EXPECT_DOUBLE_EQ(*read_cgroup_limits(root.path()).cpus, 4.0);
  root.write("proc/self/cgroup", "0::/../elsewhere\n");
  EXPECT_DOUBLE_EQ(read_cgroup_limits(root.path()).cpus.value_or(0), 4.0);
}

TEST(CgroupLimits, BrokenFilesAreNoLimits) {
  const FakeRoot root;
  root.write("proc/self/mountinfo", std::string(version2_mount) + "torn line - cgroup2\n\n");
  root.write("proc/self/cgroup", "no colons\n0::/\n");
  root.write("sys/fs/cgroup/cpu.max", "100000 0\n");
  root.write("sys/fs/cgroup/memory.max", "soon\n");
  const CgroupLimits limits = read_cgroup_limits(root.path());
  EXPECT_FALSE(limits.cpus);
  EXPECT_FALSE(limits.memory_bytes);
}

TEST(CgroupLimits, TheRealOnesAreReadWithoutComplaint) {
  const CgroupLimits limits = read_cgroup_limits();
  if (limits.cpus) {
    EXPECT_GT(*limits.cpus, 0);
  }
}

}  // namespace
}  // namespace gradmeter::runtime
