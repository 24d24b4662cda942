// NVML, loaded at run time: what a GPU's clock, power and temperature are while a block is measured, and what slows it.
// Neither NVML's header nor the library is needed to build.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/handle.hpp"

namespace gradmeter::runtime {

/// One reading. What the device or the driver does not tell is nothing, and `problem` says why for the first of these.
struct GpuState {
  std::optional<double> sm_clock_hz;
  std::optional<double> power_watts;  ///< of the board; an average over a second on most devices since Ampere
  std::optional<double> temperature_celsius;
  std::optional<std::uint64_t> clock_events;  ///< bits: clock_event_names
  std::string problem;
};

/// Names of the bits that hold the clock below its highest, "idle" included: {"power cap", "hardware thermal"}.
/// A bit without a name is its number: "0x200".
/// Source: NVML API Reference, nvmlClocksEventReasons.
std::vector<std::string> clock_event_names(std::uint64_t bits);

struct LibraryTraits {
  using type = void*;
  static type null() noexcept { return nullptr; }
  static void free(type library) noexcept;
};
struct NvmlFunctions;

/// The library, started. Thread-safe as NVML is.
class Nvml {
 public:
  /// Errors: none; without a library, a driver or a function, `problem` is one line.
  explicit Nvml(const char* library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Empty where it can be used.
  const std::string& problem() const { return problem_; }
  /// "NVML 13.580.65, driver 580.65.06"; empty with a problem.
  std::string version() const;
  /// `pci_bus_id`: as cudaDeviceGetPCIBusId gives it, "0000:65:00.0"; CUDA's numbers are not NVML's.
  /// Cost: some tens of microseconds to some milliseconds, by the driver. Errors: none; all is nothing with a problem.
  GpuState read(const std::string& pci_bus_id) const;

 private:
  Handle<LibraryTraits> library_;
  std::unique_ptr<const NvmlFunctions> functions_;
  std::string problem_;
};

}  // namespace gradmeter::runtime
