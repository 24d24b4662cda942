// SPDX-License-Identifier: Apache-2.0
// The two limits of the roofline model, measured by our own loops: the rate of multiply-adds on registers, and the rate
// of memory. At the end of this file: the rates that oneDNN and memcpy reach.
#pragma once
#include <algorithm>
#include <cstddef>
#include <span>

#include "core/units.hpp"
#include "kernels/problems/problem.hpp"

namespace gradmeter::kernels {

/// The fp32 FLOP/s of compute_threads() cores in multiply-adds (two FLOP each) on registers alone, with the processor's
/// widest vectors. Each core has twelve independent chains, which keep two units with a latency of four to six cycles
/// busy. Returns the rate of the fastest run, since interruptions can only slow a run; as many runs are made as fit in
/// `budget`, at least ten of about 0.1 ms.
/// Source: Williams, Waterman and Patterson, CACM 52(4), 2009.
core::FlopsPerSecond measure_fma_peak(core::Seconds budget);

/// An upper bound of the rate of products in a precision on this processor, as a multiple of measure_fma_peak: the rate
/// of the processor's best instruction for that precision, plus a quarter, since clocks differ. A library that seems
/// faster did not compute. The multiples without that quarter: AVX-512 BF16 2, VNNI 4, AMX 16 (bf16) and 32 (int8).
/// Infinite for precisions other than fp32, bf16 and int8.
/// Source: Intel, "64 and IA-32 Architectures Optimization Reference Manual": AMX has 1024 and 2048 operations a cycle
/// where AVX-512 has 64 of fp32.
double product_rate_bound(Precision);

/// The rates of memory with compute_threads() threads in three access patterns. Which pattern is fastest depends on the
/// processor: on some, streaming stores are slower than ordinary ones.
struct MemoryRates {
  /// a = b + s·c with streaming stores, counted as 12 bytes an element, since no line of `a` is read before it is
  /// overwritten (a processor without such stores moves 4 more).
  /// Source: McCalpin, "Memory bandwidth and machine balance", IEEE TCCA newsletter 1995 (STREAM).
  core::BytesPerSecond triad;
  core::BytesPerSecond update;  ///< updates three arrays in place from a fourth, as Adam does: 28 bytes an element
  core::BytesPerSecond read;    ///< reads four arrays: 16 bytes an element
  /// The highest of the three, which no kernel can exceed.
  core::BytesPerSecond best() const { return {std::max({triad.value, update.value, read.value})}; }
};
/// Each rate is that of the fastest pass; as many passes are made as fit in a third of `budget`, at least six. A pass
/// goes over three or four arrays of about pass_bytes / 3 bytes each, so the call needs 4/3 · pass_bytes of memory.
/// pass_bytes 0 stands for memory_pass_bytes(). The budget does not include the time in which memory is first touched,
/// which on virtual machines may be seconds a GiB. Errors: WrongResult when a pass computed a wrong number.
MemoryRates measure_memory(core::Seconds budget, std::size_t pass_bytes = 0);

/// The sum of all values, each loaded once by compute_threads() threads on the widest vectors. No kernel that reads
/// these values, or writes them, takes less time than this function: a written line is either loaded first, or stored
/// no faster than it is loaded.
float read_once(std::span<const float> values);

/// The bytes that a pass over memory touches: four times the last-level cache, but at least 64 and at most 512 MiB. A
/// cache of up to 128 MiB then serves at most a quarter of a pass. (STREAM's rules ask for four times the cache in each
/// of three arrays.) cache: the size of that cache [bytes]; 0: not known, so the C library's figure is used, which may
/// be larger than any cache of this machine (on many AMD processors it is the sum of all caches of a socket, whether or
/// not a virtual machine has them).
std::size_t memory_pass_bytes(std::size_t cache = 0);

// The rates that libraries reach, measured in the same run as the kernels that are compared with them. They are below
// the limits above, which are the hardware's.

/// The best fp32 rate of the calling thread's compute_threads() cores: the fastest run among square oneDNN products of
/// 384, 768 and 1536 on random data, repeated in turn for `budget` (each at least twice). On one core small products
/// are fastest, since operands stay in its cache; many cores need large ones. Errors: BackendError when oneDNN fails;
/// WrongResult when a product is wrong.
core::FlopsPerSecond measure_gemm_peak(core::Seconds budget);

/// The calling thread's mean rate over `budget`, while other work may run: the FLOP of all its products of 512 by 512
/// by 512, divided by the whole time. It is below the peak by the share of the cores that other work takes. Errors: as
/// measure_gemm_peak.
core::FlopsPerSecond measure_gemm_throughput(core::Seconds budget);

/// The bytes a second that compute_threads() threads copy from one buffer of `bytes` bytes to another: the median of as
/// many copies as fit in `budget`, at least three. The traffic of memory is about twice that, a read and a write. For
/// the rate of memory, `bytes` must be well above the last-level cache. Errors: std::invalid_argument when bytes is 0;
/// WrongResult when the copy differs from its source.
core::BytesPerSecond measure_copy_bandwidth(std::size_t bytes, core::Seconds budget);

}  // namespace gradmeter::kernels
