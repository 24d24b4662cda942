// SPDX-License-Identifier: Apache-2.0
// An MPI that takes memory of the emulated device, for programs that link it: it stands before the library's calls that
// MpiTransport makes, by MPI's profiling interface, and brings device memory through a buffer of its own by CUDA's
// blocking copies, as a CUDA-aware library does. It knows no streams: what is not in memory when a call is made is not
// sent.
#pragma once
#include <cstdint>

namespace gradmeter::test {

/// Messages of device memory that this rank has sent and received so far.
struct DeviceMessages {
  std::uint64_t sent = 0, received = 0;
};
DeviceMessages device_messages();

}  // namespace gradmeter::test
