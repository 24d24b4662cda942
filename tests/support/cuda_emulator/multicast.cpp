// SPDX-License-Identifier: Apache-2.0
// The driver's calls about multicast memory, between ranks that are threads: a group's address has no memory of its
// own, only multimem instructions may use it, and memory is bound when all devices have been added.
#include "support/cuda_emulator/multicast.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <map>
#include <string_view>

#include "support/cuda_emulator/device.hpp"
#include "support/cuda_emulator/hardware.hpp"
#include "support/cuda_emulator/lock.hpp"
#include "support/cuda_emulator/memory.hpp"

namespace cuda_emulator {
namespace {

constexpr std::size_t granularity = std::size_t{64} << 10;

/// Memory of one device, or a group of several.
struct Object {
  bool is_group = false;
  std::size_t bytes = 0;
  std::byte* pages = nullptr;   ///< of memory: what its file's pages are named by
  std::byte* mapped = nullptr;  ///< of memory: the address at which kernels reach it
  unsigned devices = 0, added = 0, references = 1;
  std::vector<Object*> bound;
};

/// Under a lock, as all that is below.
auto& groups_at = *new std::map<const std::byte*, Object*>;  ///< by the address of the mapping
auto& reserved = *new std::map<const std::byte*, std::size_t>;
auto& files = *new std::map<ino_t, Object*>;  ///< by the file that stands for the handle

Object* object_of(CUmemGenericAllocationHandle h) { return reinterpret_cast<Object*>(h); }
CUmemGenericAllocationHandle handle_of(Object* o) { return reinterpret_cast<CUmemGenericAllocationHandle>(o); }

bool inode_of(int file, ino_t& number) {
  struct stat s {};
  if (fstat(file, &s) != 0) return false;
  number = s.st_ino;
  return true;
}

CUresult error_text(CUresult r, const char** text) {
  *text = r == CUDA_ERROR_NOT_SUPPORTED   ? "operation not supported"
          : r == CUDA_ERROR_INVALID_VALUE ? "invalid argument"
          : r == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory"
                                          : "an error that the emulator does not name";
  return CUDA_SUCCESS;
}
CUresult attribute(int* value, CUdevice_attribute which, CUdevice device) {
  const Lock lock;
  if (device != 0 || which != CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED) return CUDA_ERROR_INVALID_VALUE;
  const Hardware h = hardware_now();
  *value = h.is_shared && h.has_switches ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult group_granularity(std::size_t* bytes, const CUmulticastObjectProp*, CUmulticastGranularity_flags) {
  *bytes = granularity;
  return CUDA_SUCCESS;
}
CUresult create_group(CUmemGenericAllocationHandle* h, const CUmulticastObjectProp* p) {
  const Lock lock;
  if (p->size == 0 || p->size % granularity != 0 || p->numDevices == 0) return CUDA_ERROR_INVALID_VALUE;
  auto* const o = new Object;
  o->is_group = true, o->bytes = p->size, o->devices = p->numDevices;
  *h = handle_of(o);
  return CUDA_SUCCESS;
}
CUresult add_device(CUmemGenericAllocationHandle h, CUdevice) {
  const Lock lock;
  Object* const o = object_of(h);
  if (!o->is_group || o->added == o->devices) return CUDA_ERROR_INVALID_VALUE;
  ++o->added;
  return CUDA_SUCCESS;
}
CUresult bind_memory(CUmemGenericAllocationHandle group, std::size_t at, CUmemGenericAllocationHandle memory,
                     std::size_t from, std::size_t bytes, unsigned long long) {
  const Lock lock;
  Object* const o = object_of(group);
  if (o->added < o->devices) {
    report("cuMulticastBindMem: %u of %u devices have been added; the driver would wait", o->added, o->devices);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (at != 0 || from != 0 || bytes != o->bytes || bytes != object_of(memory)->bytes) return CUDA_ERROR_INVALID_VALUE;
  o->bound.push_back(object_of(memory));
  return CUDA_SUCCESS;
}
/// Ranks share the device, and all unbind before the group goes: which part it is does not matter.
CUresult unbind(CUmemGenericAllocationHandle group, CUdevice, std::size_t, std::size_t) {
  const Lock lock;
  object_of(group)->bound.clear();
  return CUDA_SUCCESS;
}
CUresult create(CUmemGenericAllocationHandle* h, std::size_t bytes, const CUmemAllocationProp*, unsigned long long) {
  const Lock lock;
  if (bytes == 0 || bytes % granularity != 0) return CUDA_ERROR_INVALID_VALUE;
  auto* const o = new Object;
  o->bytes = bytes, o->pages = take_addresses(bytes);
  if (!o->pages) return CUDA_ERROR_OUT_OF_MEMORY;
  *h = handle_of(o);
  return CUDA_SUCCESS;
}
CUresult release_handle(CUmemGenericAllocationHandle h) {
  const Lock lock;
  Object* const o = object_of(h);
  if (--o->references > 0) return CUDA_SUCCESS;
  std::erase_if(files, [o](const auto& f) { return f.second == o; });
  delete o;
  return CUDA_SUCCESS;
}
CUresult reserve(CUdeviceptr* at, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
  const Lock lock;
  std::byte* const p = take_addresses(bytes);
  if (!p) return CUDA_ERROR_OUT_OF_MEMORY;
  reserved[p] = bytes;
  *at = reinterpret_cast<CUdeviceptr>(p);
  return CUDA_SUCCESS;
}
CUresult give_back(CUdeviceptr at, std::size_t) {
  const Lock lock;
  return reserved.erase(reinterpret_cast<const std::byte*>(at)) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult map(CUdeviceptr at, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle h, unsigned long long) {
  const Lock lock;
  auto* const p = reinterpret_cast<std::byte*>(at);
  Object* const o = object_of(h);
  if (!reserved.contains(p) || bytes != o->bytes) return CUDA_ERROR_INVALID_VALUE;
  if (o->is_group) {
    groups_at[p] = o;
    return CUDA_SUCCESS;
  }
  if (!map_device_memory(p, bytes, o->pages)) return CUDA_ERROR_OUT_OF_MEMORY;
  fill_with_noise(p, bytes);
  o->mapped = p;
  return CUDA_SUCCESS;
}
CUresult unmap(CUdeviceptr at, std::size_t) {
  const Lock lock;
  auto* const p = reinterpret_cast<std::byte*>(at);
  if (groups_at.erase(p) == 1 || close_device_memory(p)) return CUDA_SUCCESS;
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult set_access(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) { return CUDA_SUCCESS; }

/// An empty file stands for the handle. Other processes get nothing for it.
CUresult to_file(void* file, CUmemGenericAllocationHandle h, CUmemAllocationHandleType, unsigned long long) {
  const Lock lock;
  const int opened = memfd_create("handle", MFD_CLOEXEC);
  ino_t number = 0;
  if (opened < 0 || !inode_of(opened, number)) return CUDA_ERROR_NOT_SUPPORTED;
  files[number] = object_of(h);
  std::memcpy(file, &opened, sizeof opened);
  return CUDA_SUCCESS;
}
CUresult from_file(CUmemGenericAllocationHandle* h, void* file, CUmemAllocationHandleType) {
  const Lock lock;
  ino_t number = 0;
  if (!inode_of(static_cast<int>(reinterpret_cast<std::uintptr_t>(file)), number)) return CUDA_ERROR_INVALID_VALUE;
  const auto found = files.find(number);
  if (found == files.end()) return CUDA_ERROR_NOT_SUPPORTED;
  ++found->second->references;
  *h = handle_of(found->second);
  return CUDA_SUCCESS;
}

struct Entry {
  std::string_view name;
  void* function;
};
template <class Function>
Entry entry(const char* name, Function* f) {
  return {name, reinterpret_cast<void*>(f)};
}

}  // namespace

const std::vector<std::byte*>& parts_behind(const std::byte* all) {
  static thread_local std::vector<std::byte*> parts;
  parts.clear();
  auto it = groups_at.upper_bound(all);
  if (it == groups_at.begin() || all >= (--it)->first + it->second->bytes) {
    report("a multimem instruction on an address that is no multicast memory");
    return parts;
  }
  for (const Object* const o : it->second->bound) parts.push_back(o->mapped + (all - it->first));
  if (parts.size() != it->second->devices) report("a multimem instruction where not all devices have bound memory");
  return parts;
}

}  // namespace cuda_emulator

using namespace cuda_emulator;

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                                        unsigned long long, cudaDriverEntryPointQueryResult* found) {
  static const Entry entries[] = {entry("cuGetErrorString", error_text),
                                  entry("cuDeviceGetAttribute", attribute),
                                  entry("cuMulticastCreate", create_group),
                                  entry("cuMulticastAddDevice", add_device),
                                  entry("cuMulticastBindMem", bind_memory),
                                  entry("cuMulticastUnbind", unbind),
                                  entry("cuMulticastGetGranularity", group_granularity),
                                  entry("cuMemCreate", create),
                                  entry("cuMemRelease", release_handle),
                                  entry("cuMemAddressReserve", reserve),
                                  entry("cuMemAddressFree", give_back),
                                  entry("cuMemMap", map),
                                  entry("cuMemUnmap", unmap),
                                  entry("cuMemSetAccess", set_access),
                                  entry("cuMemExportToShareableHandle", to_file),
                                  entry("cuMemImportFromShareableHandle", from_file)};
  *found = cudaDriverEntryPointSymbolNotFound;
  for (const Entry& e : entries) {
    if (e.name != symbol) continue;
    *function = e.function;
    *found = cudaDriverEntryPointSuccess;
  }
  return cudaSuccess;
}
