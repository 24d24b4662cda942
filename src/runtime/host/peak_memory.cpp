#include "runtime/host/peak_memory.hpp"

#include <fstream>
#include <optional>
#include <string_view>

#include "runtime/host/proc_files.hpp"

namespace gradmeter::runtime {
namespace {

/// A value that the kernel writes in units of 1024 bytes.
std::optional<std::size_t> bytes_of(std::string_view text, std::string_view key) {
  const auto value = value_of(text, key);
  const auto kib = value ? leading_number<std::size_t>(*value) : std::nullopt;
  return kib ? std::optional(*kib * 1024) : std::nullopt;
}

}  // namespace

void forget_peak_memory() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::size_t peak_memory_bytes() {
  const auto status = read_small_file("/proc/self/status"), now = read_small_file("/proc/self/smaps_rollup");
  const auto peak = status ? bytes_of(*status, "VmHWM:") : std::nullopt;
  if (!peak) return 0;
  const auto resident = now ? bytes_of(*now, "Rss:") : std::nullopt, own = now ? bytes_of(*now, "Pss:") : std::nullopt;
  if (!resident || !own || *resident - *own > *peak) return *peak;
  return *peak - (*resident - *own);
}

}  // namespace gradmeter::runtime
