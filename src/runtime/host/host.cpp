// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/host.hpp"

#include <hwloc.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/units.hpp"
#include "runtime/handle.hpp"
#include "runtime/host/kernel_files.hpp"

namespace gradmeter::runtime {

namespace {

struct TopologyTraits {
  using type = hwloc_topology_t;
  static type null() noexcept { return nullptr; }
  static void free(type topology) noexcept { hwloc_topology_destroy(topology); }
};
using Topology = Handle<TopologyTraits>;

struct BitmapTraits {
  using type = hwloc_bitmap_t;
  static type null() noexcept { return nullptr; }
  static void free(type bitmap) noexcept { hwloc_bitmap_free(bitmap); }
};
using Bitmap = Handle<BitmapTraits>;

void check_hwloc(int result, const char* call) {
  if (result < 0) throw core::BackendError("hwloc", call, std::strerror(errno));
}

Topology load_topology() {
  Topology topology;
  check_hwloc(hwloc_topology_init(topology.out_address()), "hwloc_topology_init");
  // Loads the whole machine, since the part that a job may use is recorded separately and must not change the
  // fingerprint.
  check_hwloc(hwloc_topology_set_flags(topology.get(), HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED),
              "hwloc_topology_set_flags");
  check_hwloc(hwloc_topology_load(topology.get()), "hwloc_topology_load");
  return topology;
}

std::size_t count(hwloc_topology_t topology, hwloc_obj_type_t type) {
  return static_cast<std::size_t>(std::max(0, hwloc_get_nbobjs_by_type(topology, type)));
}

std::size_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t type) {
  const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
  return cache ? cache->attr->cache.size : 0;
}

/// The size of all caches of the last level that serve a processing unit of `units`. On machines with several such
/// caches (one for each socket, or for each group of cores), one alone says little of what a process can keep in
/// caches.
std::size_t last_cache_bytes(hwloc_topology_t topology, hwloc_const_bitmap_t units) {
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE}) {
    std::size_t sum = 0;
    for (hwloc_obj_t cache = nullptr; (cache = hwloc_get_next_obj_by_type(topology, type, cache));) {
      if (hwloc_bitmap_intersects(cache->cpuset, units)) sum += cache->attr->cache.size;
    }
    if (sum > 0) return sum;
  }
  return 0;
}

std::string cpu_model(hwloc_topology_t topology) {
  const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
  if (!package) return {};
  const auto info = [&](const char* name) {
    const char* value = hwloc_obj_get_info_by_name(package, name);
    return std::string(value ? value : "");
  };
  const std::string family = info("CPUFamilyNumber"), model = info("CPUModelNumber");
  std::string name = info("CPUModel");
  if (family.empty() || model.empty()) return name;
  return fmt::format("{}{}family {} model {}", name, name.empty() ? "" : ", ", family, model);
}

struct Affinity {
  std::size_t unit_count = 0;
  std::string list;
  std::vector<std::size_t> unit_numbers = {};
  std::size_t last_cache_bytes = 0;
  int first = 0;
};

Affinity read_affinity(hwloc_topology_t topology) {
  const Bitmap set(hwloc_bitmap_alloc());
  if (!set) throw core::BackendError("hwloc", "hwloc_bitmap_alloc", "out of memory");
  // Asks for the union over all threads, since the binding of the main thread says nothing about its OpenMP team.
  if (hwloc_get_cpubind(topology, set.get(), HWLOC_CPUBIND_PROCESS) != 0) {
    check_hwloc(hwloc_bitmap_copy(set.get(), hwloc_topology_get_allowed_cpuset(topology)), "hwloc_bitmap_copy");
  }
  char* text = nullptr;
  check_hwloc(hwloc_bitmap_list_asprintf(&text, set.get()), "hwloc_bitmap_list_asprintf");
  Affinity affinity{.list = text, .first = std::max(0, hwloc_bitmap_first(set.get()))};
  std::free(text);
  affinity.unit_count = static_cast<std::size_t>(std::max(1, hwloc_bitmap_weight(set.get())));
  // A set without an end has the weight -1; its members cannot be listed.
  for (int unit = hwloc_bitmap_first(set.get()); hwloc_bitmap_weight(set.get()) > 0 && unit >= 0;
       unit = hwloc_bitmap_next(set.get(), unit))
    affinity.unit_numbers.push_back(static_cast<std::size_t>(unit));
  affinity.last_cache_bytes = last_cache_bytes(topology, set.get());
  return affinity;
}

std::string kernel_release() {
  utsname names{};
  return ::uname(&names) == 0 ? std::string(names.release) : std::string();
}

std::string trimmed_file(const std::filesystem::path& path) {
  const auto text = read_small_file(path);
  return text ? std::string(trimmed(*text)) : std::string();
}

/// The choice that the kernel marks by brackets: "always [madvise] never".
std::string hugepage_mode() {
  const auto text = read_small_file("/sys/kernel/mm/transparent_hugepage/enabled");
  if (!text) return {};
  const std::size_t open = text->find('['), close = text->find(']');
  return open < close && close != std::string::npos ? text->substr(open + 1, close - open - 1) : std::string();
}

std::string virtualisation() {
  const auto cpuinfo = read_small_file("/proc/cpuinfo");
  const auto flags = cpuinfo ? value_of(*cpuinfo, "flags") : std::nullopt;
  if (!flags) return {};
  const auto names = words(*flags);
  return std::ranges::find(names, std::string_view("hypervisor")) == names.end() ? "none" : "vm";
}

void read_memory(HostFacts& host, const CgroupLimits& limits) {
  const auto meminfo = read_small_file("/proc/meminfo").value_or(std::string());
  host.memory_bytes = kib_value_of(meminfo, "MemTotal:").value_or(0);
  host.available_memory_bytes = kib_value_of(meminfo, "MemAvailable:").value_or(0);
  if (limits.memory_bytes) host.available_memory_bytes = std::min(host.available_memory_bytes, *limits.memory_bytes);
  host.shm_free_bytes = shm_free_bytes();
}

/// The 64-bit hash FNV-1a. Source: Fowler, Noll, Vo.
std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// True if the name looks like a container's name: Docker uses 12 hexadecimal digits of its identity, new at every
/// start.
bool looks_random(std::string_view name) {
  return name.size() == 12 && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}
}  // namespace

std::size_t shm_free_bytes() {
  struct statvfs shm {};
  return ::statvfs("/dev/shm", &shm) == 0 ? shm.f_bavail * shm.f_frsize : 0;
}

LeftSegments left_segments(const std::filesystem::path& shm, const std::filesystem::path& proc) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::map<std::string, std::size_t> sizes;
  for (const auto& entry : fs::directory_iterator(shm, error)) {
    const std::string file = entry.path().filename().string();
    const bool is_segment =
        file.starts_with("vader_segment.") || file.starts_with("sm_segment.") || file.starts_with("osc_");
    // Leaves segments of other users out: the maps of their processes cannot be read.
    struct stat status {};
    const bool is_checkable =
        ::stat(entry.path().c_str(), &status) == 0 && (::geteuid() == 0 || status.st_uid == ::geteuid());
    if (is_segment && is_checkable) sizes[entry.path().string()] = entry.file_size(error);
  }
  for (const auto& process : sizes.empty() ? fs::directory_iterator() : fs::directory_iterator(proc, error)) {
    const std::string maps = read_small_file(process.path() / "maps").value_or("");
    for (const auto line : lines(maps)) {
      if (const auto path = line.find('/'); path != std::string_view::npos) sizes.erase(std::string(line.substr(path)));
    }
  }
  LeftSegments left{.count = sizes.size()};
  for (const auto& [file, bytes] : sizes) left.bytes += bytes;
  return left;
}

std::string short_of_shm(std::size_t needs, std::size_t free) {
  return fmt::format(
      "needs {} of /dev/shm where {} are free: start the container with --shm-size={}m, or take --transport mpi",
      core::to_text(core::Bytes{needs}), core::to_text(core::Bytes{free}), (needs >> 20) + (std::size_t{64}));
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return {};
  return core::printable(name.data());
}

HostFacts read_host() {
  const Topology topology = load_topology();
  const Affinity affinity = read_affinity(topology.get());
  const CgroupLimits limits = read_cgroup_limits();
  HostFacts host;
  host.hostname = host_name();
  host.cpu_model = cpu_model(topology.get());
  host.packages = count(topology.get(), HWLOC_OBJ_PACKAGE);
  host.processing_units = count(topology.get(), HWLOC_OBJ_PU);
  host.cores = count(topology.get(), HWLOC_OBJ_CORE);
  if (host.cores == 0) host.cores = host.processing_units;  // some virtual machines show no cores
  host.numa_nodes = count(topology.get(), HWLOC_OBJ_NUMANODE);
  host.l2_bytes = cache_bytes(topology.get(), HWLOC_OBJ_L2CACHE);
  host.l3_bytes = cache_bytes(topology.get(), HWLOC_OBJ_L3CACHE);
  host.reached_last_cache_bytes = affinity.last_cache_bytes;
  host.all_last_cache_bytes = last_cache_bytes(topology.get(), hwloc_topology_get_complete_cpuset(topology.get()));
  host.available_units = affinity.unit_count;
  host.bound_units = affinity.unit_numbers;
  host.cpu_quota = limits.cpus;
  if (limits.cpus) {
    const auto whole = static_cast<std::size_t>(*limits.cpus);
    host.available_units = std::clamp<std::size_t>(whole, 1, affinity.unit_count);
  }
  read_memory(host, limits);
  host.kernel = kernel_release();
  host.governor = trimmed_file(fmt::format("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", affinity.first));
  host.transparent_hugepages = hugepage_mode();
  host.virtualisation = virtualisation();
  host.binding = affinity.list;
  return host;
}

std::string host_stem(std::string_view hostname) {
  const std::size_t dot = std::min(hostname.find('.'), hostname.size());
  std::string_view label = hostname.substr(0, dot);
  const std::string_view domain = hostname.substr(dot);
  if (looks_random(label)) return std::string(domain);
  const auto without_number = [](std::string_view name) {
    while (!name.empty() && is_digit(name.back())) name.remove_suffix(1);
    return name;
  };
  // A number behind a hyphen or underscore is a node's number, and there may be several of them. Digits behind a letter
  // may belong to a product ("a100-12"), so they are removed only if no such number was.
  bool had_separate_number = false;
  for (;;) {
    const std::string_view shorter = without_number(label);
    if (shorter.size() == label.size() || !(shorter.ends_with('-') || shorter.ends_with('_'))) break;
    label = shorter.substr(0, shorter.size() - 1);
    had_separate_number = true;
  }
  if (!had_separate_number) label = without_number(label);
  return std::string(label) + std::string(domain);
}

std::string machine_fingerprint(const HostFacts& host, std::string_view mpi_version, std::string_view accelerators) {
  constexpr std::size_t gib = std::size_t{1} << 30;
  const std::string text = fmt::format(
      "{}\n{} {} {} {}\n{} {}\n{}\n{}\n{}\n{}\n{}", host.cpu_model, host.packages, host.cores, host.processing_units,
      host.numa_nodes, host.l2_bytes, host.l3_bytes, (host.memory_bytes + gib / 2) / gib, host.virtualisation,
      mpi_version.substr(0, mpi_version.find_first_of(",\n")), accelerators, host_stem(host.hostname));
  return fingerprint_of(text);
}

std::string fingerprint_of(std::string_view facts) { return fmt::format("{:016x}", fnv1a(facts)); }

}  // namespace gradmeter::runtime
