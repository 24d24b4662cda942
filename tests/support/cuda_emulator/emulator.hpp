// SPDX-License-Identifier: Apache-2.0
// An adversarial CUDA runtime on the host, for tests: what they ask of it. See README.md.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cuda_emulator {

/// 0: work runs in the order of its submission, as late as its dependencies allow. Others: in a random order that they
/// allow, some of it at once. Waits for all work first.
void set_seed(std::uint64_t);
/// What no CUDA call reports. Taking it clears it, and the error that all calls return after a kernel's failure.
std::vector<std::string> take_reports();

/// How long a wait may last while nothing ends, before it is reported as a hang. At first 20 s.
void set_patience(double seconds);
/// What the device has from now on: at first 16 GiB. Allocations beyond it fail as on a device that is full.
void set_device_memory(std::size_t bytes);
/// The n-th kernel that is launched from now on, 1 the next, ends by an illegal access instead of running; 0: none. All
/// calls fail from then on, until reports are taken.
void fail_kernel(std::uint64_t n);
/// NCCL's communicators of this rank have an asynchronous error from now on; -1: of none.
void fail_nccl(int rank);
/// NCCL_ALGO and NCCL_PROTO when this rank last made a communicator: "ring ll".
std::string nccl_environment(int rank);

/// What keeps kernels that wait for each other from running at once. A device has all of it.
struct Hardware {
  /// The device stands for one each rank: NCCL takes several ranks on it, and nothing below holds. At first so where
  /// GRADMETER_CUDA_EMULATOR_SHARED is 1.
  bool is_shared = false;
  /// Hardware queues, which more streams share: what stands in one behind a kernel that waits does not begin. At first
  /// 8, or CUDA_DEVICE_MAX_CONNECTIONS when CUDA is first called; 0: as many as streams.
  int queues = 8;
  /// The first launch of a kernel waits for kernels that may wait for others. At first so unless CUDA_MODULE_LOADING is
  /// EAGER.
  bool loads_lazily = true;
  bool frees_wait = true;            ///< cudaFree waits for such kernels, also those of other threads
  bool one_cooperative_grid = true;  ///< a second one begins when the first has ended
  /// Pieces of work that a stream holds before the launch of a kernel waits for the first of them; 0: any number. A
  /// shared device has this limit too.
  int pending_work = 1024;
  bool has_switches = true;  ///< a device that is shared has multicast memory, as GPUs on NVLink's switches
};
Hardware current_hardware();
void set_hardware(const Hardware&);
/// While one lives, the device is shared (Hardware::is_shared): for tests whose ranks are threads with a GPU each.
class SharedDevice {
 public:
  SharedDevice();
  ~SharedDevice();
  SharedDevice(const SharedDevice&) = delete;
  SharedDevice& operator=(const SharedDevice&) = delete;
};
bool ranks_share_device();

/// How long NCCL takes to launch a group of calls; two threads that do at once on one device are reported. At first 0.
void set_nccl_launch_time(double seconds);
/// From now on a communicator connects its ranks in its first group of collectives: ncclGroupEnd waits for all of them.
void set_nccl_connects(bool);

/// Since the program began.
struct Counts {
  std::uint64_t kernels = 0, threads = 0, products = 0;  ///< kernels: of the program's own; products: cuBLASLt's
  std::uint64_t copies = 0, memsets = 0, host_functions = 0;
  std::uint64_t waits = 0;  ///< calls in which the host waits: for a stream, an event or the device, or for a copy
  std::uint64_t allocations = 0;      ///< calls that a device may wait in: cudaMalloc, cudaFree, and of pinned memory
  std::uint64_t pageable_copies = 0;  ///< asynchronous ones that were not, since the host's memory is not pinned
  std::uint64_t full_streams = 0;     ///< launches that waited, since their stream was full (Hardware::pending_work)
  std::uint64_t unchosen = 0;         ///< calls that need a device, by threads that have chosen none
  std::uint64_t registered = 0;       ///< calls of NCCL whose buffers were all registered
};
Counts counts();
/// The release threshold of the pool that cudaMallocAsync takes from.
std::uint64_t pool_threshold();

}  // namespace cuda_emulator
