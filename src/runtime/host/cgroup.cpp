#include "runtime/host/cgroup.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/host/proc_files.hpp"

namespace gradmeter::runtime {

namespace {
namespace fs = std::filesystem;

struct Mount {
  std::string_view type, root, point, options;
};

/// Source: proc(5), /proc/PID/mountinfo: "id parent dev ROOT POINT options [optional ...] - TYPE source OPTIONS".
std::vector<Mount> cgroup_mounts(std::string_view mountinfo) {
  std::vector<Mount> mounts;
  for (std::string_view line : lines(mountinfo)) {
    const auto fields = words(line);
    const auto dash = std::ranges::find(fields, std::string_view("-"));
    if (fields.size() < 5 || fields.end() - dash < 4) continue;
    if (dash[1] == "cgroup" || dash[1] == "cgroup2") mounts.push_back({dash[1], fields[3], fields[4], dash[3]});
  }
  return mounts;
}

bool has_item(std::string_view comma_list, std::string_view item) {
  while (!comma_list.empty()) {
    const std::size_t end = std::min(comma_list.find(','), comma_list.size());
    if (comma_list.substr(0, end) == item) return true;
    comma_list.remove_prefix(std::min(end + 1, comma_list.size()));
  }
  return false;
}

/// The directories from this process' group up to the mount's root: each may hold a limit.
std::vector<fs::path> chain(const fs::path& root, const Mount& mount, std::string_view group) {
  // Inside a container the group may be named as the host sees it: then only the mount itself is ours to read.
  if (mount.root != "/") {
    group = group.starts_with(mount.root) ? group.substr(mount.root.size()) : std::string_view{};
  }
  if (group.find("..") != std::string_view::npos) group = {};
  const fs::path top = root / fs::path(mount.point).relative_path();
  std::vector<fs::path> directories;
  for (fs::path inside = fs::path(group).relative_path(); !inside.empty(); inside = inside.parent_path()) {
    directories.push_back(top / inside);
  }
  directories.push_back(top);
  return directories;
}

template <class T>
void tighten(std::optional<T>& limit, std::optional<T> other) {
  if (other && (!limit || *other < *limit)) limit = other;
}

std::optional<double> cpu_quota(const fs::path& group, bool version2) {
  std::optional<double> quota, period;
  if (version2) {
    const auto text = read_small_file(group / "cpu.max");  // "max 100000" or "200000 100000"
    const auto fields = words(text ? std::string_view(*text) : std::string_view{});
    if (fields.size() < 2) return std::nullopt;
    quota = leading_number<double>(fields[0]);
    period = leading_number<double>(fields[1]);
  } else {
    quota = read_number<double>(group / "cpu.cfs_quota_us");  // -1: none
    period = read_number<double>(group / "cpu.cfs_period_us");
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

std::optional<std::size_t> memory_left(const fs::path& group, bool version2) {
  const auto limit = read_number<std::size_t>(group / (version2 ? "memory.max" : "memory.limit_in_bytes"));
  const auto usage = read_number<std::size_t>(group / (version2 ? "memory.current" : "memory.usage_in_bytes"));
  // Version 1 says "no limit" with the largest number of whole pages.
  constexpr std::size_t unlimited = std::size_t{1} << 62;
  if (!limit || !usage || *limit >= unlimited) return std::nullopt;
  // File pages that nobody touched lately count as used but are given back before anything fails.
  const auto stat = read_small_file(group / "memory.stat");
  const auto idle = value_of(stat ? std::string_view(*stat) : std::string_view{},
                             version2 ? "inactive_file " : "total_inactive_file ");
  const std::size_t reclaimable = idle ? leading_number<std::size_t>(*idle).value_or(0) : 0;
  const std::size_t held = *usage - std::min(*usage, reclaimable);
  return *limit - std::min(*limit, held);
}
}  // namespace

CgroupLimits read_cgroup_limits(const fs::path& root) {
  const auto mountinfo = read_small_file(root / "proc/self/mountinfo");
  const auto groups = read_small_file(root / "proc/self/cgroup");
  CgroupLimits limits;
  if (!mountinfo || !groups) return limits;
  const auto mounts = cgroup_mounts(*mountinfo);
  for (std::string_view line : lines(*groups)) {  // "id:controllers:path", no controllers in version 2
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool version2 = controllers.empty();
    for (const Mount& mount : mounts) {
      if (version2 != (mount.type == "cgroup2")) continue;
      const bool cpu = version2 || (has_item(controllers, "cpu") && has_item(mount.options, "cpu"));
      const bool memory = version2 || (has_item(controllers, "memory") && has_item(mount.options, "memory"));
      if (!cpu && !memory) continue;
      for (const fs::path& group : chain(root, mount, line.substr(second + 1))) {
        if (cpu) tighten(limits.cpus, cpu_quota(group, version2));
        if (memory) tighten(limits.memory_bytes, memory_left(group, version2));
      }
    }
  }
  return limits;
}

}  // namespace gradmeter::runtime
