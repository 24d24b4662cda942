// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine and the libraries for them; the program runs without them too. The functions tell which GPUs
// can be used, or why none can, and which GPU each rank uses.
#pragma once
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/host/environment.hpp"

namespace gradmeter::runtime {

struct GpuFacts {
  std::string name;
  std::size_t memory_bytes = 0;
  int compute_major = 0, compute_minor = 0;
  /// 32 hexadecimal digits, which identify a device even where ranks see different devices, or parts of one (MIG).
  std::string uuid{};
  std::string bus_id{};  ///< PCI bus id, "0000:65:00.0", by which NVML and the kernel name the device
};

struct CudaFacts {
  bool built = false;   ///< whether this program was built with CUDA
  std::string version;  ///< version of the runtime library, "13.0"; empty when not built
  std::string driver;   ///< newest runtime that the driver supports, "13.0"; empty without a driver
  std::string problem;  ///< one line: why no GPU can be used, or why one cannot, and what to do; empty: all can
  std::vector<GpuFacts> gpus;
};

/// Reads the facts without making a context on any device. Errors: none; a missing driver or device is a `problem`.
/// Cost: up to a second at the first call if there is a driver.
CudaFacts read_cuda();

/// The reason why the GPU of this thread answers no call any more, and which work the thread last gave to it; empty:
/// the GPU answers, or the thread has none. After an illegal access, for example, a process loses its GPU, and every
/// later call fails. So code that catches a GPU's error must call this function; otherwise each later point would be
/// reported as failed by itself. The function does not wait for work.
std::string lost_gpu();

/// Sets two variables that CUDA reads at its first call, unless the user has set them. CUDA_MODULE_LOADING=EAGER loads
/// all kernels at the start: if a kernel is loaded only at its first launch, the load may wait for a running kernel
/// that itself waits for the new one (a deadlock). CUDA_DEVICE_MAX_CONNECTIONS=32 lets 32 streams run independently (8
/// by default); further streams queue behind others, even behind a kernel that waits. Must be called before there are
/// other threads. Without CUDA it does nothing.
/// Source: CUDA C++ Programming Guide, "Lazy Loading" and "CUDA Environment Variables"
void set_cuda_defaults();

/// "NVIDIA H100 80GB HBM3, sm_90, 79.1 GiB, PCI 0000:65:00.0".
std::string describe(const GpuFacts& gpu);

/// "4 x NVIDIA H100, 2 x NVIDIA A100", for `machine_fingerprint` and a run's record; empty without GPUs.
std::string accelerator_names(const CudaFacts& cuda);

// The choice of a rank's device. It works on plain values, so it can be made and tested without CUDA and communicators.

/// The devices that CUDA shows to one rank: their identities (GpuFacts::uuid), indexed by CUDA's own numbers. CUDA
/// shows only devices that CUDA_VISIBLE_DEVICES and Slurm (--gpus-per-task, --gpu-bind) allow.
using VisibleDevices = std::vector<std::string>;

/// CUDA's device number for each rank of a node, with ranks in the order of their node-local numbers. Ranks choose one
/// after another, those that see the fewest devices first; each takes the device that the fewest ranks have chosen so
/// far. So a rank that sees one device gets it, and ranks that all see the same devices get their node-local number
/// modulo the number of devices. Devices are compared by identity, since one number means different devices on
/// different ranks where a launcher shows each rank its own. The result has one element for each rank; the element of a
/// rank that sees no device is empty (no_device_reason). Errors: none.
std::vector<std::optional<int>> choose_devices(std::span<const VisibleDevices> ranks_of_a_node);

/// The largest number of ranks that use the same device; 1: every rank has a device of its own; 0: there are no ranks.
/// `devices`: the identity of each rank's device.
int most_ranks_on_a_device(std::span<const std::string> devices);

/// A note for results whose ranks share devices: such ranks take turns, so their times say nothing about scaling. Empty
/// if every rank has a device of its own.
std::string shared_devices_note(std::span<const std::string> devices);

/// The reason why this rank sees no device, as far as the environment variables tell it, and what to do.
std::string no_device_reason(const ReadVariable& get_variable);

/// A library for GPUs: whether it is present, in which version, and what is missing without it.
struct GpuLibrary {
  std::string name;
  /// Version of the library that this program runs with, not of its header; empty: the library is missing.
  std::string version{};
  std::string needed_for{};  ///< text that completes "needed for ..."
  std::string remedy{};      ///< what to do where the library is missing
  std::string absence_reason = "not built in";
  std::string place = {};  ///< file from which it was loaded; empty: it is part of the program, or this is unknown
};

/// CUDA's runtime and driver, NCCL, cuBLASLt, cuDNN, cuSPARSE, cuSPARSELt, MPI's own support of device memory, and
/// NVML. A library is present if it is linked or loaded in the running process; NVML is loaded to find out. Cost: some
/// milliseconds; up to a second at the first call if there is a driver. Errors: none.
std::vector<GpuLibrary> gpu_libraries();

/// One line without the library's name: its version, and its place in brackets if that is known; for an absent library
/// the reason, what it is needed for, and the remedy.
std::string availability(const GpuLibrary& library);

/// The versions of the libraries that are present, by name, for a run's record.
std::map<std::string, std::string> gpu_library_versions();

}  // namespace gradmeter::runtime
