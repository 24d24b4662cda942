// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/kernel_files.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradmeter::runtime {
namespace {
constexpr std::string_view blanks = " \t\r\n";

std::vector<std::string_view> split_at(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> found;
  for (std::size_t start = text.find_first_not_of(separators); start != std::string_view::npos;
       start = text.find_first_not_of(separators, start)) {
    const std::size_t end = std::min(text.find_first_of(separators, start), text.size());
    found.push_back(text.substr(start, end - start));
    start = end;
  }
  return found;
}
}  // namespace

std::optional<std::string> read_small_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) return std::nullopt;
  return text;
}

std::vector<std::string_view> words(std::string_view text) { return split_at(text, blanks); }
std::vector<std::string_view> lines(std::string_view text) { return split_at(text, "\n"); }

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::optional<std::string_view> value_of(std::string_view text, std::string_view key) {
  for (std::string_view line : lines(text)) {
    if (line.starts_with(key)) return trimmed(line.substr(key.size()));
  }
  return std::nullopt;
}

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
    const auto separator = std::ranges::find(fields, std::string_view("-"));
    if (fields.size() < 5 || fields.end() - separator < 4) continue;
    if (separator[1] == "cgroup" || separator[1] == "cgroup2")
      mounts.push_back({separator[1], fields[3], fields[4], separator[3]});
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

/// The directories of this process' control group and of the groups above it, up to the mount's root. Each may hold a
/// limit.
std::vector<fs::path> group_directories(const fs::path& root, const Mount& mount, std::string_view group) {
  // Inside a container the group may have the name that it has on the host; only the mount itself can then be read.
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
    quota = read_number<double>(group / "cpu.cfs_quota_us");  // -1: no limit
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
  // `usage` includes pages of files that were not used lately, which the kernel gives back before an allocation fails.
  const auto stat = read_small_file(group / "memory.stat");
  const auto inactive_files = value_of(stat ? std::string_view(*stat) : std::string_view{},
                                       version2 ? "inactive_file " : "total_inactive_file ");
  const std::size_t reclaimable = inactive_files ? leading_number<std::size_t>(*inactive_files).value_or(0) : 0;
  const std::size_t unreclaimable = *usage - std::min(*usage, reclaimable);
  return *limit - std::min(*limit, unreclaimable);
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
      for (const fs::path& group : group_directories(root, mount, line.substr(second + 1))) {
        if (cpu) tighten(limits.cpus, cpu_quota(group, version2));
        if (memory) tighten(limits.memory_bytes, memory_left(group, version2));
      }
    }
  }
  return limits;
}

std::optional<std::size_t> kib_value_of(std::string_view text, std::string_view key) {
  const auto value = value_of(text, key);
  const auto kib = value ? leading_number<std::size_t>(*value) : std::nullopt;
  return kib ? std::optional(*kib * 1024) : std::nullopt;
}

void forget_peak_memory() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::size_t peak_memory_bytes() {
  const auto status = read_small_file("/proc/self/status"), now = read_small_file("/proc/self/smaps_rollup");
  const auto peak = status ? kib_value_of(*status, "VmHWM:") : std::nullopt;
  if (!peak) return 0;
  const auto resident = now ? kib_value_of(*now, "Rss:") : std::nullopt,
             proportional = now ? kib_value_of(*now, "Pss:") : std::nullopt;
  if (!resident || !proportional || *resident - *proportional > *peak) return *peak;
  return *peak - (*resident - *proportional);
}

}  // namespace gradmeter::runtime
