// SPDX-License-Identifier: Apache-2.0
// The adapter of NVML, which it loads at run time. After each measured block it reads the GPU's clock, power and
// temperature, and what slows the GPU down. Neither NVML's header nor the library is needed to build.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/handle.hpp"

namespace gradmeter::runtime {

/// One reading. A value that the device or the driver does not give is empty; `problem` has the reason for the first
/// empty value.
struct GpuState {
  std::optional<double> sm_clock_hz;
  std::optional<double> power_watts;  ///< power of the board; an average over a second on most devices since Ampere
  std::optional<double> temperature_celsius;
  std::optional<std::uint64_t> clock_events;  ///< bits that `clock_event_names` turns into text
  std::string problem;
};

/// The names of the bits that are set in `clock_events`. They are the reasons why the clock is below its highest,
/// "idle" included: {"power cap", "hardware thermal"}. Bits without a name are given as one number: "0x200". Source:
/// NVML API Reference, nvmlClocksEventReasons.
std::vector<std::string> clock_event_names(std::uint64_t bits);

struct LibraryTraits {
  using type = void*;
  static type null() noexcept { return nullptr; }
  static void free(type library) noexcept;
};
struct NvmlFunctions;

/// Reads NVML for the GPU on which a rank computes, after each measured block. Any thread may use it.
class GpuGauge {
 public:
  /// Loads the library. bus_id: the GPU, as cudaDeviceGetPCIBusId gives it ("0000:65:00.0"), because NVML may
  /// number devices in another order than CUDA.
  /// Errors: none; if the library, a driver or a function is missing, `problem` says so in one line.
  explicit GpuGauge(std::string bus_id, const char* library = "libnvidia-ml.so.1");
  ~GpuGauge();
  GpuGauge(const GpuGauge&) = delete;
  GpuGauge& operator=(const GpuGauge&) = delete;

  /// The reason why NVML cannot be used; empty: it can.
  const std::string& problem() const { return problem_; }
  /// "NVML 13.580.65, driver 580.65.06"; empty if there is a `problem`.
  std::string version() const;
  /// Cost: some tens of microseconds to some milliseconds, depending on the driver. Errors: none; if there is a
  /// `problem`, all values are empty.
  GpuState read() const;

 private:
  std::string bus_id_;
  Handle<LibraryTraits> library_;
  std::unique_ptr<const NvmlFunctions> functions_;
  std::string problem_;
};

}  // namespace gradmeter::runtime
