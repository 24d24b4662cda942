// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine and the libraries around them; none is required. It says which GPUs can be used, or why none
// can, and which one a rank drives.
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
  std::string
      /// 32 hexadecimal digits: they identify a device even where ranks see different devices, or parts of one (MIG)
      uuid{};
  std::string bus_id{};  ///< PCI bus id, "0000:65:00.0": NVML's and the kernel's name for the device
};

struct CudaFacts {
  bool built = false;   ///< whether this program was built with CUDA
  std::string version;  ///< version of the runtime library, "13.0"; empty when not built
  std::string driver;   ///< the newest runtime that the driver serves, "13.0"; empty without a driver
  std::string problem;  ///< one line: why no GPU can be used, and what to do; empty when one can be used
  std::vector<GpuFacts> gpus;
};

/// Makes no context on any device. Errors: none; a missing driver or device is a `problem`.
/// Cost: up to a second at the first call where there is a driver.
CudaFacts read_cuda();

/// Why the GPU that this thread drives answers no call any more, and what the thread has given to it last; empty: it
/// answers, or the thread drives none. An illegal access, for one, leaves a process without its GPU, and every later
/// call fails: whoever catches an error of a GPU asks, before another point is blamed. It waits for no work.
std::string lost_gpu();

/// Sets two variables that CUDA reads when it is first called, where the user has not: CUDA_MODULE_LOADING=EAGER, since
/// a kernel that is loaded at its first launch may wait for one that runs, and that one for it; and
/// CUDA_DEVICE_MAX_CONNECTIONS=32, since streams beyond that number (8 by default) stand in a queue behind each other,
/// also behind a kernel that waits. Must be called before there are other threads. Without CUDA it does nothing.
/// Source: CUDA C++ Programming Guide, "Lazy Loading" and "CUDA Environment Variables"
void set_cuda_defaults();

/// "NVIDIA H100 80GB HBM3, sm_90, 79.1 GiB, PCI 0000:65:00.0".
std::string describe(const GpuFacts& gpu);

/// "4 x NVIDIA H100, 2 x NVIDIA A100", for `machine_fingerprint` and a run's record; empty without GPUs.
std::string accelerator_names(const CudaFacts& cuda);

// The choice of a rank's device. It takes plain values: neither CUDA nor a communicator is needed to decide, or to test
// it.

/// The devices that CUDA shows to one rank: their identities (GpuFacts::uuid) in the order of CUDA's own numbers. These
/// are what CUDA_VISIBLE_DEVICES and Slurm (--gpus-per-task, --gpu-bind) leave, so both are respected.
using VisibleDevices = std::vector<std::string>;

/// CUDA's device number for each rank of a node, ranks in the order of their node-local numbers. Ranks that see the
/// same devices get their node-local number modulo the devices; a rank that sees one gets that one; otherwise each
/// takes the device that fewest ranks have, those with the smallest choice first. Where a launcher binds ranks, the
/// same number means different devices, so identities decide. Shape:  one element a rank; empty for a rank that sees no
/// device (no_device_reason). Errors: none.
std::vector<std::optional<int>> choose_devices(std::span<const VisibleDevices> ranks_of_a_node);

/// The largest number of ranks that drive one device; 1: every rank has its own. 0 for no ranks. `devices`: the
/// identity of each rank's device.
int most_ranks_on_a_device(std::span<const std::string> devices);

/// One sentence for a result's notes: ranks that share a device take turns, so their times say nothing of scaling.
/// Empty where every rank has a device of its own.
std::string shared_devices_note(std::span<const std::string> devices);

/// Why this rank sees no device, from the environment, and what to do.
std::string no_device_reason(const ReadVariable& variable);

/// A library around GPUs: whether it is here, in which version, and what is missing without it.
struct GpuLibrary {
  std::string name;
  /// version of the library that this program runs with, not of its header; empty: it is missing
  std::string version{};
  std::string needed_for{};  ///< text that completes "needed for ..."
  std::string remedy{};      ///< what to do where the library is missing
  std::string absence = "not built in";
  std::string place = {};  ///< the file that it was loaded from; empty: it is in the program, or not known
};

/// CUDA's runtime and driver, NCCL, cuBLASLt, cuDNN, cuSPARSE, cuSPARSELt, MPI's own support of device memory, and
/// NVML. The running process tells whether a library is there: those linked or loaded, and NVML by loading it. Cost:
/// some milliseconds; up to a second at the first call where there is a driver. Errors: none.
std::vector<GpuLibrary> gpu_libraries();

/// One line without the library's name: its version and place, or "not built in: needed for ...; ...".
std::string availability(const GpuLibrary& library);

/// The libraries that are there, by name, for a run's record.
std::map<std::string, std::string> gpu_library_versions();

}  // namespace gradmeter::runtime
