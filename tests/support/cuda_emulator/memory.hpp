// SPDX-License-Identifier: Apache-2.0
// Device memory that the host cannot touch, and pinned memory of the host. Under a lock.
#pragma once
#include <cstddef>
#include <vector>

namespace cuda_emulator {

/// Full of noise, at addresses that were never used before; its end is the end of a page, but for up to 255 bytes that
/// align its beginning. Null: none left.
void* allocate_device(std::size_t bytes);
/// False: nothing was allocated there.
bool free_device(void*);
/// Do these bytes lie in one allocation?
bool is_device_memory(const void*, std::size_t bytes);

/// What the device has, and what lives there now.
struct DeviceMemory {
  std::size_t total = 0, used = 0;
};
DeviceMemory device_memory();

/// Where the allocation begins that this address is in; null: in none.
void* device_allocation_of(const void*);

void* allocate_pinned(std::size_t bytes);
/// False: nothing was allocated there.
bool free_pinned(void*);
/// Memory of the host's that becomes pinned. False: some of it is.
bool register_pinned(void*, std::size_t bytes);
/// False: it was not registered.
bool unregister_pinned(void*);

enum class Where { device, pinned, pageable, bad };  ///< bad: an address of devices', but no allocation
Where where_is(const void*, std::size_t bytes);

/// While one lives this thread may touch device memory. An allocation is opened, for the whole process, at its first
/// touch: to change the rights of all that there are cost more than most kernels do.
class DeviceOpen {
 public:
  DeviceOpen();
  ~DeviceOpen();
  DeviceOpen(const DeviceOpen&) = delete;
  DeviceOpen& operator=(const DeviceOpen&) = delete;
};
/// Before code of the host's goes on.
void close_device();

/// Of the order's: 0xff with seed 0.
void fill_with_noise(std::byte* at, std::size_t bytes);
/// Bytes beside allocations that are not what they were.
void report_overruns();

/// Memory of this process that others open: an own allocation's file and place there. False: it is no such beginning.
struct SharedPages {
  int process = 0, file = -1;
  std::size_t offset = 0, span = 0, head = 0, bytes = 0;
};
bool share_device_memory(const void*, SharedPages&);
/// Null: it cannot be opened.
void* open_device_memory(const SharedPages&);
/// False: nothing was opened there.
bool close_device_memory(void*);

/// Addresses of the device with nothing behind them; null: none are left. They are never used again.
std::byte* take_addresses(std::size_t bytes);
/// Puts what lies at `pages`, which are taken addresses, also at `at`, which are others. `close_device_memory` takes it
/// away again.
bool map_device_memory(std::byte* at, std::size_t bytes, const std::byte* pages);

/// Reserves addresses and catches faults: a side that touches the other's memory ends the process with exit code 86
/// and a line that says which.
void begin_memory();

}  // namespace cuda_emulator
