// The tables of the logarithmic number system in a GPU's memory.
#pragma once
#include "kernels/lns/conversion.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

/// Of one system, some 360 KB.
struct DeviceLnsTables {
  runtime::DeviceSpan<const std::int16_t> doubled;  ///< LnsTables::doubled()
  LnsConversion conversion;
  /// exp x as a word, by x's code, of x ≤ 0: [32768]. Where it is too small for the system: zero.
  runtime::DeviceSpan<const std::uint16_t> exponential;
};

/// Of the calling thread's current device; made at first use and kept while the process lives. Any thread.
/// Errors: BackendError without memory for them; UsageError when fraction_bits is not 6, 7 or 8.
const DeviceLnsTables& device_lns_tables(unsigned fraction_bits);

}  // namespace gradmeter::kernels::cuda
