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

constexpr unsigned needed_version = 12010;  // the first with multicast objects

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
std::string missing_function(MulticastFunctions& f) {
  const char* missing = "";
  const auto get = [&](auto& function, const char* name) {
    if (!find(function, name)) missing = name;
  };
  get(f.error_text, "cuGetErrorString");
  get(f.attribute, "cuDeviceGetAttribute");
  get(f.create_group, "cuMulticastCreate");
  get(f.add_device, "cuMulticastAddDevice");
  get(f.bind, "cuMulticastBindMem");
  get(f.unbind, "cuMulticastUnbind");
  get(f.granularity, "cuMulticastGetGranularity");
  get(f.create, "cuMemCreate");
  get(f.release, "cuMemRelease");
  get(f.reserve, "cuMemAddressReserve");
  get(f.give_back, "cuMemAddressFree");
  get(f.map, "cuMemMap");
  get(f.unmap, "cuMemUnmap");
  get(f.set_access, "cuMemSetAccess");
  get(f.to_file, "cuMemExportToShareableHandle");
  get(f.from_file, "cuMemImportFromShareableHandle");
  return missing;
}

/// The handle of rank 0's group for other processes: an open file of its process.
struct ShownGroup {
  pid_t process;
  int file;
};

/// A copy of another process's open file; -1: errno says why there is none.
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

/// Owns all that one rank takes from the driver. The destructor gives it back in the reverse order.
class MulticastDriver {
 public:
  MulticastDriver(const Communicator& c, int device) : c_(c), device_(device) {}
  ~MulticastDriver() {
    select_gpu_to_release(device_);
    unmap(all_);
    if (is_bound_) (void)f_.unbind(group_, device_, 0, bytes_);
    unmap(own_);
    if (memory_ != 0) (void)f_.release(memory_);
    if (group_ != 0) (void)f_.release(group_);
    if (file_ >= 0) close(file_);
  }
  MulticastDriver(const MulticastDriver&) = delete;
  MulticastDriver& operator=(const MulticastDriver&) = delete;

  /// Creates the group and its memory in parts. All ranks complete a part before the next part begins, and where one
  /// rank cannot do a part, all ranks throw. So a rank binds memory only after all have joined; the driver would wait
  /// for that without end.
  void take(std::size_t bytes) {
    together([&] { check_device(); });
    together([&] { make_group(bytes); });
    together([&] { join_group(); });
    together([&] { bind_memory(); });
    together([&] { map_group(); });
  }

  std::byte* own() const { return reinterpret_cast<std::byte*>(own_); }
  std::byte* all() const { return reinterpret_cast<std::byte*>(all_); }

 private:
  void together(const std::function<void()>& part) {
    if (const FirstReport failed = first_report(c_, reason_of(part)); !failed.text.empty())
      throw core::Unavailable(
          fmt::format("gpu-multimem needs multicast memory: rank {}: {}", failed.rank, failed.text));
  }
  static std::string reason_of(const std::function<void()>& part) {
    try {
      part();
    } catch (const core::Unavailable& e) {
      return e.what();
    }
    return {};
  }
  void check(CUresult result, const char* call) const {
    if (result == CUDA_SUCCESS) return;
    const char* text = nullptr;
    if (f_.error_text(result, &text) != CUDA_SUCCESS || !text) text = "an unknown error";
    throw core::Unavailable(fmt::format("{}: {}", call, text));
  }

  void check_device() {
    select_gpu(device_);
    if (const std::string missing = missing_function(f_); !missing.empty())
      throw core::Unavailable(fmt::format("the driver has no {}; it came with CUDA 12.1", missing));
    int has_multicast = 0;
    check(f_.attribute(&has_multicast, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device_), "cuDeviceGetAttribute");
    if (has_multicast == 0)
      throw core::Unavailable(
          "this GPU has none: it takes Hopper or later on NVLink switches, with Fabric Manager running");
  }

  CUmulticastObjectProp properties() const {
    CUmulticastObjectProp p{};
    p.numDevices = static_cast<unsigned>(c_.size());
    p.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    p.size = bytes_;
    return p;
  }
  void make_group(std::size_t bytes) {
    CUmulticastObjectProp p = properties();
    p.size = bytes;
    check(f_.granularity(&granularity_, &p, CU_MULTICAST_GRANULARITY_MINIMUM), "cuMulticastGetGranularity");
    bytes_ = (bytes + granularity_ - 1) / granularity_ * granularity_;
    if (c_.rank() != 0) return;
    p.size = bytes_;
    check(f_.create_group(&group_, &p), "cuMulticastCreate");
    check(f_.to_file(&file_, group_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "cuMemExportToShareableHandle");
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);  // so that a rank beside it may take the file
  }
  void join_group() {
    const ShownGroup shown = c_.all_gather_value(ShownGroup{.process = getpid(), .file = file_}).front();
    if (c_.rank() != 0) {
      const bool is_here = shown.process == getpid();
      if (!is_here) file_ = file_of(shown.process, shown.file);
      const int file = is_here ? shown.file : file_;
      if (file < 0)
        throw core::Unavailable(
            fmt::format("no handle from the process of rank 0: pidfd_getfd: {}; start the ranks as "
                        "threads, or allow ptrace between them",
                        std::strerror(errno)));
      check(f_.from_file(&group_, reinterpret_cast<void*>(static_cast<std::uintptr_t>(file)),
                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            "cuMemImportFromShareableHandle");
    }
    check(f_.add_device(group_, device_), "cuMulticastAddDevice");
  }
  void bind_memory() {
    CUmemAllocationProp p{};
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location = location();
    check(f_.create(&memory_, bytes_, &p, 0), "cuMemCreate");
    own_ = mapped(memory_);
    check(f_.bind(group_, 0, memory_, 0, bytes_, 0), "cuMulticastBindMem");
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
    check(f_.reserve(&at, bytes_, granularity_, 0, 0), "cuMemAddressReserve");
    CUresult result = f_.map(at, bytes_, 0, handle, 0);
    if (result != CUDA_SUCCESS) {
      (void)f_.give_back(at, bytes_);
      check(result, "cuMemMap");
    }
    CUmemAccessDesc access{};
    access.location = location();
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    result = f_.set_access(at, bytes_, &access, 1);
    if (result != CUDA_SUCCESS) {
      unmap(at);
      check(result, "cuMemSetAccess");
    }
    return at;
  }
  void unmap(CUdeviceptr at) const {
    if (at == 0) return;
    (void)f_.unmap(at, bytes_);
    (void)f_.give_back(at, bytes_);
  }

  const Communicator& c_;
  const CUdevice device_;
  MulticastFunctions f_{};
  bool is_bound_ = false;
  std::size_t bytes_ = 0, granularity_ = 0;
  int file_ = -1;
  CUmemGenericAllocationHandle group_ = 0, memory_ = 0;
  CUdeviceptr own_ = 0, all_ = 0;
};

MulticastMemory::MulticastMemory(const Communicator& c, const CudaDevice& device, std::size_t bytes)
    : driver_(std::make_unique<MulticastDriver>(c, device.number())) {
  driver_->take(bytes);
}
MulticastMemory::~MulticastMemory() = default;
std::byte* MulticastMemory::own() const { return driver_->own(); }
std::byte* MulticastMemory::all() const { return driver_->all(); }

}  // namespace gradmeter::runtime
