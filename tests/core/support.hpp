// SPDX-License-Identifier: Apache-2.0
// What the core tests share: a folder of their own, files, messages, and a point that has every kind of value.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "core/error.hpp"
#include "core/result_file.hpp"

namespace gradmeter::core {

/// A new folder, removed with its files.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "gradmeter-test-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  ASSERT_TRUE(out.flush()) << path;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The message of the UsageError that `act` throws; empty when it throws none.
template <class Act>
std::string refusal(Act act) {
  try {
    act();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

inline RunInfo sample_run(const std::string& run_id = "r1", const std::string& fingerprint = "machine-a") {
  return {.run_id = run_id,
          .time = "2024-05-01T12:00:00Z",
          .command = "gradmeter scale --model \"mlp\" --out r.jsonl",
          .version = "0.1.0",
          .commit = "abc1234",
          .hosts = {"node1", "node2"},
          .ranks = 4,
          .nodes = 2,
          .mapping = "block",
          .mpi = "Open MPI v4.1.4",
          .mpi_threads = "funneled",
          .mpi_copy_mechanism = "cma",
          .cpu = "A CPU \xC2\xB5",
          .binding = "core",
          .fingerprint = fingerprint,
          .cores_per_node = 64,
          .memory_bytes_per_node = 1LL << 40,
          .libraries = {{"oneDNN", "3.0"}},
          .environment = {{"OMP_NUM_THREADS", "1"}, {"QUOTED", "a \"b\" \\"}},
          .gpus = {"H200"}};
}

/// Every kind of value, finite and not.
inline Point sample_point() {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  Point point{.experiment = "scale",
              .status = Status::ok,
              .reason = "",
              .factors = {},
              .metrics = {},
              .raw_times_s = {0.1, 1e-300, 5e-324, 0.3, 1.0 / 3.0}};
  point.factors[Factor::ranks] = std::int64_t{4};
  point.factors[Factor::model] = std::string("mlp:784-1024-1024-10");
  point.factors[Factor::in_place] = true;
  point.factors[Factor::bucket_bytes] = std::int64_t{1} << 40;
  point.metrics[Metric::time_s] = Summary{.median = 0.1,
                                          .q1 = 0.09,
                                          .q3 = 1.0 / 7.0,
                                          .ci95_low = none,
                                          .ci95_high = none,
                                          .p95 = 0.2,
                                          .p99 = 0.25,
                                          .min = 0.05,
                                          .max = 1e22,
                                          .n = 5,
                                          .stop = Stop::budget};
  point.metrics[Metric::efficiency] = 0.1 + 0.2;
  point.metrics[Metric::baseline_ranks] = std::int64_t{1};
  point.metrics[Metric::implementation] = std::string("brg:avx512_core \"x\" \\");
  point.metrics[Metric::oversubscribed] = false;
  point.metrics[Metric::wait_s] = none;
  point.metrics[Metric::timeline_exchange] =
      Spans{{.name = "0 fc2", .begin_s = 0.25, .end_s = none, .ready_s = 0.125, .bytes = 4096},
            {.name = "1 \"fc1\"", .begin_s = 0.5, .end_s = 0.75}};
  return point;
}

}  // namespace gradmeter::core
