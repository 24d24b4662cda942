// SPDX-License-Identifier: Apache-2.0
// Small text files that the kernel writes (/proc, /sys, control groups), and two readers: the limits of control groups,
// and the process' peak memory.
#pragma once
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradmeter::runtime {

/// The whole text; empty if the file is missing or cannot be read, since no caller requires such a file.
std::optional<std::string> read_small_file(const std::filesystem::path& path);

/// The words of a text, which blanks separate.
std::vector<std::string_view> words(std::string_view text);
std::vector<std::string_view> lines(std::string_view text);
/// The rest of the first line that starts with `key`, without the key and surrounding blanks: the key "MemTotal:" gives
/// "47 kB" for /proc/meminfo's line "MemTotal: 47 kB". Empty where there is no such line.
std::optional<std::string_view> value_of(std::string_view text, std::string_view key);
std::string_view trimmed(std::string_view text);
/// Like `value_of`, for a number that the kernel writes in kB; the result is in bytes.
std::optional<std::size_t> kib_value_of(std::string_view text, std::string_view key);

/// The number at the beginning of `text`; empty where there is none, or one out of range.
template <class Number>
std::optional<Number> leading_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  return number;
}
/// The number at the beginning of a file's text.
template <class Number>
std::optional<Number> read_number(const std::filesystem::path& path) {
  const auto text = read_small_file(path);
  return text ? leading_number<Number>(trimmed(*text)) : std::nullopt;
}

/// The resources that control groups leave to this process: a container or a Slurm job may have 2 of 64 cores and 8 of
/// 512 GiB.
struct CgroupLimits {
  std::optional<double> cpus;               ///< CPU seconds that may be used in a second; empty: no quota
  std::optional<std::size_t> memory_bytes;  ///< bytes that may still be allocated; empty: no limit
};

/// The tightest limits set by this process' control group and the groups above it, up to the root, in both versions of
/// control groups (a hybrid system has both). `root` is the directory that holds /proc and the mounts. Missing files
/// mean no limit, not an error. Source: the kernel's admin-guide/cgroup-v2.rst, scheduler/sched-bwc.rst,
/// cgroup-v1/memory.rst.
CgroupLimits read_cgroup_limits(const std::filesystem::path& root = "/");

/// Restarts the measurement of `peak_memory_bytes`. If the kernel refuses, the measurement still covers the time since
/// the process began.
void forget_peak_memory();
/// The largest resident memory of this process since it began, or since forget_peak_memory. A page that n processes
/// share at the time of this call, as the ranks of a host do, counts as 1/n of a page. 0: the kernel does not tell.
/// Cost: some 10 us for each GiB.
std::size_t peak_memory_bytes();

}  // namespace gradmeter::runtime
