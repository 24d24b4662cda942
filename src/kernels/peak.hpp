// The rates that the libraries reach on these cores, measured in the same run as the kernels that are compared with
// them. They are below the limits of roofline.hpp, which are the hardware's.
#pragma once
#include <cstddef>

#include "core/units.hpp"

namespace gradmeter::kernels {

/// The best fp32 rate of the calling thread's compute_threads() cores: the fastest run among square oneDNN products of
/// 384, 768 and 1536 on random data, repeated in turn for `budget` (each at least twice). Small ones win on one core,
/// where operands stay in its cache; large ones feed many cores.
/// Errors: BackendError when oneDNN fails.
core::FlopsPerSecond measure_gemm_peak(core::Seconds budget);

/// The calling thread's rate over the whole of `budget`, whatever else runs: all its 512-cubed products divided by all
/// the time. Below the peak by the share that other work takes.
core::FlopsPerSecond measure_gemm_throughput(core::Seconds budget);

/// Bytes copied a second from one buffer of `bytes` to another, the median over at least three copies in `budget`;
/// memory sees about twice that, a read and a write. Take `bytes` well above the last-level cache for the rate of
/// memory. Errors: std::invalid_argument when bytes is 0; WrongResult when the copy differs from its source.
core::BytesPerSecond measure_copy_bandwidth(std::size_t bytes, core::Seconds budget);

}  // namespace gradmeter::kernels
