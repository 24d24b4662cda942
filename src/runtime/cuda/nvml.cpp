// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/nvml.hpp"

#include <dlfcn.h>

#include <array>
#include <utility>

#include "core/format.hpp"

namespace gradmeter::runtime {

// The part of nvml.h that is used here: the library's symbols and layouts have been stable since NVML 11.
// Source: NVML API Reference Guide.
namespace nvml {
using Result = int;
using Device = void*;
constexpr Result success = 0;
constexpr int sm_clock = 1;          // NVML_CLOCK_SM
constexpr int gpu_temperature = 0;   // NVML_TEMPERATURE_GPU
constexpr unsigned text_bytes = 96;  // NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE and _DRIVER_ are 80

struct Temperature {  // nvmlTemperature_v1_t
  unsigned version;
  int sensor;
  int celsius;
};
constexpr unsigned temperature_version = sizeof(Temperature) | 1u << 24;  // NVML_STRUCT_VERSION(Temperature, 1)

struct Event {
  std::uint64_t bit;
  const char* name;
};
constexpr std::array events{Event{0x1, "idle"},
                            Event{0x2, "applications clock"},
                            Event{0x4, "power cap"},
                            Event{0x8, "hardware slowdown"},
                            Event{0x10, "sync boost"},
                            Event{0x20, "software thermal"},
                            Event{0x40, "hardware thermal"},
                            Event{0x80, "power brake"},
                            Event{0x100, "display clock"}};
}  // namespace nvml

struct NvmlFunctions {
  nvml::Result (*init)();
  nvml::Result (*shut_down)();
  const char* (*error)(nvml::Result);
  nvml::Result (*device)(const char*, nvml::Device*);
  nvml::Result (*clock)(nvml::Device, int, unsigned*);
  nvml::Result (*power)(nvml::Device, unsigned*);
  nvml::Result (*temperature)(nvml::Device, nvml::Temperature*);  // null before NVML 12.9
  nvml::Result (*old_temperature)(nvml::Device, int, unsigned*);  // deprecated since 12.9; null once NVML drops it
  // reasons for a lower clock; the function has another name before NVML 12.2
  nvml::Result (*events)(nvml::Device, unsigned long long*);
  nvml::Result (*version)(char*, unsigned);
  nvml::Result (*driver)(char*, unsigned);
};

namespace {

template <class Function>
bool load(void* library, Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

/// Looks up all functions. Returns the name of one that is missing; empty: none is.
std::string missing_function(void* library, NvmlFunctions& functions) {
  if (!load(library, functions.init, "nvmlInit_v2")) return "nvmlInit_v2";
  if (!load(library, functions.shut_down, "nvmlShutdown")) return "nvmlShutdown";
  if (!load(library, functions.error, "nvmlErrorString")) return "nvmlErrorString";
  if (!load(library, functions.device, "nvmlDeviceGetHandleByPciBusId_v2")) return "nvmlDeviceGetHandleByPciBusId_v2";
  if (!load(library, functions.clock, "nvmlDeviceGetClockInfo")) return "nvmlDeviceGetClockInfo";
  if (!load(library, functions.power, "nvmlDeviceGetPowerUsage")) return "nvmlDeviceGetPowerUsage";
  if (!load(library, functions.version, "nvmlSystemGetNVMLVersion")) return "nvmlSystemGetNVMLVersion";
  if (!load(library, functions.driver, "nvmlSystemGetDriverVersion")) return "nvmlSystemGetDriverVersion";
  const bool temperature = load(library, functions.temperature, "nvmlDeviceGetTemperatureV");
  if (!load(library, functions.old_temperature, "nvmlDeviceGetTemperature") && !temperature)
    return "nvmlDeviceGetTemperature";
  if (!load(library, functions.events, "nvmlDeviceGetCurrentClocksEventReasons") &&
      !load(library, functions.events, "nvmlDeviceGetCurrentClocksThrottleReasons")) {
    return "nvmlDeviceGetCurrentClocksEventReasons";
  }
  return {};
}

std::string system_text(nvml::Result (*read)(char*, unsigned)) {
  std::array<char, nvml::text_bytes> text{};
  return read(text.data(), nvml::text_bytes) == nvml::success ? text.data() : "unknown";
}

/// Reads all values of one device, and keeps the first error.
class DeviceReader {
 public:
  DeviceReader(const NvmlFunctions& functions, nvml::Device device) : nvml_(functions), device_(device) {}

  GpuState all() {
    GpuState s;
    unsigned mhz = 0, milliwatts = 0;
    unsigned long long events = 0;
    if (ok(nvml_.clock(device_, nvml::sm_clock, &mhz), "nvmlDeviceGetClockInfo")) s.sm_clock_hz = 1e6 * mhz;
    if (ok(nvml_.power(device_, &milliwatts), "nvmlDeviceGetPowerUsage")) s.power_watts = 1e-3 * milliwatts;
    s.temperature_celsius = temperature();
    if (ok(nvml_.events(device_, &events), "nvmlDeviceGetCurrentClocksEventReasons")) s.clock_events = events;
    s.problem = std::move(problem_);
    return s;
  }

 private:
  bool ok(nvml::Result result, const char* call) {
    if (result == nvml::success) return true;
    if (problem_.empty()) problem_ = fmt::format("{}: {}", call, nvml_.error(result));
    return false;
  }
  std::optional<double> temperature() {
    // Tries the new function first. An older driver may have it and yet not know this version of the structure.
    nvml::Temperature t{.version = nvml::temperature_version, .sensor = nvml::gpu_temperature, .celsius = 0};
    if (nvml_.temperature && nvml_.temperature(device_, &t) == nvml::success) return t.celsius;
    unsigned celsius = 0;
    if (!nvml_.old_temperature) return std::nullopt;
    if (!ok(nvml_.old_temperature(device_, nvml::gpu_temperature, &celsius), "nvmlDeviceGetTemperature"))
      return std::nullopt;
    return celsius;
  }

  const NvmlFunctions& nvml_;
  nvml::Device device_;
  std::string problem_;
};

}  // namespace

std::vector<std::string> clock_event_names(std::uint64_t bits) {
  std::vector<std::string> names;
  for (const auto& [bit, name] : nvml::events) {
    if (bits & bit) names.emplace_back(name);
    bits &= ~bit;
  }
  if (bits) names.push_back(fmt::format("0x{:x}", bits));
  return names;
}

void LibraryTraits::free(type library) noexcept { dlclose(library); }

GpuGauge::GpuGauge(std::string bus_id, const char* library)
    : bus_id_(std::move(bus_id)), library_(dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
  if (!library_) {
    const char* reason = dlerror();
    problem_ = fmt::format("NVML cannot be loaded: {}", reason ? reason : library);
    return;
  }
  auto functions = std::make_unique<NvmlFunctions>();
  if (const auto missing = missing_function(library_.get(), *functions); !missing.empty()) {
    problem_ = fmt::format("{} has no {}: update the driver", library, missing);
    return;
  }
  if (const auto result = functions->init(); result != nvml::success) {
    problem_ = fmt::format("nvmlInit_v2: {}", functions->error(result));
    return;
  }
  functions_ = std::move(functions);
}

GpuGauge::~GpuGauge() {
  if (functions_) functions_->shut_down();
}

std::string GpuGauge::version() const {
  if (!functions_) return {};
  return fmt::format("NVML {}, driver {}", system_text(functions_->version), system_text(functions_->driver));
}

GpuState GpuGauge::read() const {
  GpuState none;
  none.problem = problem_;
  if (!functions_) return none;
  nvml::Device device = nullptr;
  if (const auto result = functions_->device(bus_id_.c_str(), &device); result != nvml::success) {
    none.problem = fmt::format("nvmlDeviceGetHandleByPciBusId_v2 for {}: {}", bus_id_, functions_->error(result));
    return none;
  }
  return DeviceReader(*functions_, device).all();
}

}  // namespace gradmeter::runtime
