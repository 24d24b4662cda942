// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/multicast.hpp"

#include <cuda.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::runtime {

/// The driver's functions. They are looked up when the program runs, so that it also starts without a driver.
struct MulticastFunctions {
  decltype(&cuGetErrorString) error_text;
  decltype(&cuDeviceGetAttribute) attribute;
  decltype(&cuMulticastCreate) create_group;
  decltype(&cuMulticastAddDevice) add_device;
  decltype(&cuMulticastBindMem) bind;
  decltype(&cuMulticastUnbind) unbind;
  decltype(&cuMulticastGetGranularity) granularity;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) give_back;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
  decltype(&cuMemExportToShareableHandle) to_file;
  decltype(&cuMemImportFromShareableHandle) from_file;
};

namespace {

constexpr unsigned needed_version = 12010;  // the first CUDA version with multicast objects

template <class Function>
bool find(Function& function, const char* name) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &address, needed_version, cudaEnableDefault, &found);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &found);
#endif
  if (error != cudaSuccess) cudaGetLastError();
  function = reinterpret_cast<Function>(address);
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess && function;
}

/// The name of a function that the driver lacks; empty: it has all.
std::string missing_function(MulticastFunctions& functions) {
  const char* missing = "";
  const auto get = [&](auto& function, const char* name) {
    if (!find(function, name)) missing = name;
  };
  get(functions.error_text, "cuGetErrorString");
  get(functions.attribute, "cuDeviceGetAttribute");
  get(functions.create_group, "cuMulticastCreate");
  get(functions.add_device, "cuMulticastAddDevice");
  get(functions.bind, "cuMulticastBindMem");
  get(functions.unbind, "cuMulticastUnbind");
  get(functions.granularity, "cuMulticastGetGranularity");
  get(functions.create, "cuMemCreate");
  get(functions.release, "cuMemRelease");
  get(functions.reserve, "cuMemAddressReserve");
  get(functions.give_back, "cuMemAddressFree");
  get(functions.map, "cuMemMap");
  get(functions.unmap, "cuMemUnmap");
  get(functions.set_access, "cuMemSetAccess");
  get(functions.to_file, "cuMemExportToShareableHandle");
  get(functions.from_file, "cuMemImportFromShareableHandle");
  return missing;
}

/// Rank 0's multicast group, as other processes can open it: an open file of rank 0's process.
struct ExportedGroup {
  pid_t process;
  int file;
};

/// A copy of another process's open file descriptor; -1: it failed, with the reason in errno.
int file_of(pid_t process, int file) {
  const auto opened = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (opened < 0) return -1;
  const auto copy = static_cast<int>(syscall(SYS_pidfd_getfd, opened, file, 0));
  const int why = errno;
  close(opened);
  errno = why;
  return copy;
}

}  // namespace

/// Owns what one rank takes from the driver. The destructor gives everything back in the reverse order.
class MulticastDriver {
 public:
  MulticastDriver(const Communicator& c, int device) : communicator_(c), device_(device) {}
  ~MulticastDriver() {
    select_gpu_to_release(device_);
    unmap(all_);
    if (is_bound_) (void)functions_.unbind(group_, device_, 0, bytes_);
    unmap(own_);
    if (memory_ != 0) (void)functions_.release(memory_);
    if (group_ != 0) (void)functions_.release(group_);
    if (file_ >= 0) close(file_);
  }
  MulticastDriver(const MulticastDriver&) = delete;
  MulticastDriver& operator=(const MulticastDriver&) = delete;

  /// Creates the group and its memory in steps. All ranks complete a step before the next one begins, and if one rank
  /// fails in a step, all ranks throw. So a rank binds memory only after all ranks have joined; otherwise the driver
  /// could wait for them without end.
  void create(std::size_t bytes) {
    on_all_ranks([&] { check_device(); });
    on_all_ranks([&] { make_group(bytes); });
    on_all_ranks([&] { join_group(); });
    on_all_ranks([&] { bind_memory(); });
    on_all_ranks([&] { map_group(); });
  }

  std::byte* own() const { return reinterpret_cast<std::byte*>(own_); }
  std::byte* all() const { return reinterpret_cast<std::byte*>(all_); }

 private:
  void on_all_ranks(const std::function<void()>& step) {
    if (const FirstReport failed = first_report(communicator_, reason_of(step)); !failed.text.empty())
      throw core::Unavailable(
          fmt::format("gpu-multimem needs multicast memory: rank {}: {}", failed.rank, failed.text));
  }
  static std::string reason_of(const std::function<void()>& step) {
    try {
      step();
    } catch (const core::Unavailable& e) {
      return e.what();
    }
    return {};
  }
  void check(CUresult result, const char* call) const {
    if (result == CUDA_SUCCESS) return;
    const char* text = nullptr;
    if (functions_.error_text(result, &text) != CUDA_SUCCESS || !text) text = "an unknown error";
    throw core::Unavailable(fmt::format("{}: {}", call, text));
  }

  void check_device() {
    select_gpu(device_);
    if (const std::string missing = missing_function(functions_); !missing.empty())
      throw core::Unavailable(fmt::format("the driver has no {}; it came with CUDA 12.1", missing));
    int has_multicast = 0;
    check(functions_.attribute(&has_multicast, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device_),
          "cuDeviceGetAttribute");
    if (has_multicast == 0)
      throw core::Unavailable(
          "this GPU has none: it takes Hopper or later on NVLink switches, with Fabric Manager running");
  }

  CUmulticastObjectProp properties() const {
    CUmulticastObjectProp p{};
    p.numDevices = static_cast<unsigned>(communicator_.size());
    p.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    p.size = bytes_;
    return p;
  }
  void make_group(std::size_t bytes) {
    CUmulticastObjectProp p = properties();
    p.size = bytes;
    check(functions_.granularity(&granularity_, &p, CU_MULTICAST_GRANULARITY_MINIMUM), "cuMulticastGetGranularity");
    bytes_ = (bytes + granularity_ - 1) / granularity_ * granularity_;
    if (communicator_.rank() != 0) return;
    p.size = bytes_;
    check(functions_.create_group(&group_, &p), "cuMulticastCreate");
    check(functions_.to_file(&file_, group_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
          "cuMemExportToShareableHandle");
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);  // lets other ranks of this node copy the file descriptor
  }
  void join_group() {
    const ExportedGroup exported =
        communicator_.all_gather_value(ExportedGroup{.process = getpid(), .file = file_}).front();
    if (communicator_.rank() != 0) {
      const bool is_here = exported.process == getpid();
      if (!is_here) file_ = file_of(exported.process, exported.file);
      const int file = is_here ? exported.file : file_;
      if (file < 0)
        throw core::Unavailable(
            fmt::format("no handle from the process of rank 0: pidfd_getfd: {}; start the ranks as "
                        "threads, or allow ptrace between them",
                        std::strerror(errno)));
      check(functions_.from_file(&group_, reinterpret_cast<void*>(static_cast<std::uintptr_t>(file)),
                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            "cuMemImportFromShareableHandle");
    }
    check(functions_.add_device(group_, device_), "cuMulticastAddDevice");
  }
  void bind_memory() {
    CUmemAllocationProp p{};
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location = location();
    check(functions_.create(&memory_, bytes_, &p, 0), "cuMemCreate");
    own_ = mapped(memory_);
    check(functions_.bind(group_, 0, memory_, 0, bytes_, 0), "cuMulticastBindMem");
    is_bound_ = true;
  }
  void map_group() { all_ = mapped(group_); }

  CUmemLocation location() const {
    CUmemLocation at{};
    at.type = CU_MEM_LOCATION_TYPE_DEVICE;
    at.id = device_;
    return at;
  }
  CUdeviceptr mapped(CUmemGenericAllocationHandle handle) {
    CUdeviceptr at = 0;
    check(functions_.reserve(&at, bytes_, granularity_, 0, 0), "cuMemAddressReserve");
    CUresult result = functions_.map(at, bytes_, 0, handle, 0);
    if (result != CUDA_SUCCESS) {
      (void)functions_.give_back(at, bytes_);
      check(result, "cuMemMap");
    }
    CUmemAccessDesc access{};
    access.location = location();
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    result = functions_.set_access(at, bytes_, &access, 1);
    if (result != CUDA_SUCCESS) {
      unmap(at);
      check(result, "cuMemSetAccess");
    }
    return at;
  }
  void unmap(CUdeviceptr at) const {
    if (at == 0) return;
    (void)functions_.unmap(at, bytes_);
    (void)functions_.give_back(at, bytes_);
  }

  const Communicator& communicator_;
  const CUdevice device_;
  MulticastFunctions functions_{};
  bool is_bound_ = false;
  std::size_t bytes_ = 0, granularity_ = 0;
  int file_ = -1;
  CUmemGenericAllocationHandle group_ = 0, memory_ = 0;
  CUdeviceptr own_ = 0, all_ = 0;
};

MulticastMemory::MulticastMemory(const Communicator& c, const CudaDevice& device, std::size_t bytes)
    : driver_(std::make_unique<MulticastDriver>(c, device.number())) {
  driver_->create(bytes);
}
MulticastMemory::~MulticastMemory() = default;
std::byte* MulticastMemory::own() const { return driver_->own(); }
std::byte* MulticastMemory::all() const { return driver_->all(); }

}  // namespace gradmeter::runtime
