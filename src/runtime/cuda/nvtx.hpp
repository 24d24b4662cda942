// SPDX-License-Identifier: Apache-2.0
// Names for a profiler's time line (Nsight Systems): NVTX ranges with the labels of a queue's work. Without NVTX's
// headers, which come with the CUDA toolkit, a range does nothing; while no profiler is attached, almost nothing.
#pragma once
#include <string_view>

#if defined(GRADMETER_HAS_CUDA) && __has_include(<nvtx3/nvtx3.hpp>)
#include <nvtx3/nvtx3.hpp>
#define GRADMETER_HAS_NVTX
#endif

namespace gradmeter::runtime {

#ifdef GRADMETER_HAS_NVTX
struct NvtxDomain {
  static constexpr const char* name = "gradmeter";
};

/// Marks a range on this thread up to the end of the scope; ranges may nest. Profilers group the kernels that are
/// launched within a range under that range. `label`: a string literal, as a queue's labels are, since NVTX reads up to
/// the terminating null. Cost: a load and a branch without a profiler. Source: NVTX 3, nvtx3.hpp.
class NvtxRange {
 public:
  explicit NvtxRange(std::string_view label) : range_(label.data()) {}

 private:
  nvtx3::scoped_range_in<NvtxDomain> range_;
};
#else
class NvtxRange {
 public:
  explicit NvtxRange(std::string_view) {}
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
  ~NvtxRange() {}  // `= default` would make it trivial, and compilers would then warn about unused variables
};
#endif

}  // namespace gradmeter::runtime
