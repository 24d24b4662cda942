// SPDX-License-Identifier: Apache-2.0
// The codec sweep: its points, its runs, and its tables.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allreduce/registry.hpp"
#include "bench/engine/sweep.hpp"
#include "compression/registry.hpp"
#include "compression/test_gradients.hpp"
#include "core/result.hpp"
#include "core/stopping_rule.hpp"
#include "core/table.hpp"
#include "report/cells.hpp"
#include "runtime/cuda/nvml.hpp"
#include "runtime/process/signals.hpp"

namespace gradmeter::bench {

using GradientSourcePtr = std::shared_ptr<const compression::GradientSource>;

/// The dense exchange that a codec is compared with: fp32 as it is, or cast to bf16, which costs next to nothing.
enum class WireBaseline : std::uint8_t { fp32, bf16 };
std::string_view name(WireBaseline);
double wire_bits(WireBaseline);  ///< bits of an element as sent

struct CodecFactors {
  std::vector<compression::CodecChoicePtr> codecs;  ///< none of them is null
  std::vector<std::size_t> sizes;                   ///< [bytes of fp32]
  bool takes_recorded_size = false;  ///< true: a recorded gradient is measured at its own length, not at `sizes`
  std::vector<GradientSourcePtr> distributions;
  std::size_t parts = 4;  ///< number of encoded gradients that CodecCall::reduce_encode adds up and encodes again
  int ranks = 8;          ///< ranks of the exchange for which the codec's break-even rate is computed
  WireBaseline baseline = WireBaseline::fp32;
  std::string device = "cpu";  ///< device that encodes and decodes
};

struct CodecPoint {
  compression::CodecChoicePtr codec;
  GradientSourcePtr distribution;
  std::size_t size_bytes = 0;
  std::string unsupported;  ///< why it cannot be measured; empty: it can
  core::Factors factors;
  std::size_t elements() const { return size_bytes / sizeof(float); }
};

/// The points by size, distribution, codec, in the order given; each once. A point is unsupported where its codec
/// cannot encode so many elements. Errors: UsageError for a size that is not a positive multiple of 4.
std::vector<CodecPoint> plan_codecs(const CodecFactors&);

/// Two sizes [bytes]: 256 KiB, at which the caches hold all buffers; and the least power of two that is at least twice
/// the last cache, but from 64 to 512 MiB.
std::vector<std::size_t> usual_codec_sizes(std::size_t last_cache_bytes);

/// Memory that a point needs at once [bytes]: three gradients in fp32 (five if the codec consists of collectives), and
/// the encodings of `parts` gradients and of their sum.
std::size_t codec_memory(const CodecPoint&, std::size_t parts);

// The codec sweep: encode, decode, reduce, error and wire size of each codec, in one process.

struct CodecOptions {
  CodecFactors factors;
  core::StoppingRule rule;
  std::optional<TimeBudget> time_budget;  ///< for all points together, shared out evenly
  std::uint64_t seed = 1;
  runtime::Device* device = nullptr;         ///< device that encodes and decodes; null: the host
  const runtime::GpuGauge* gauge = nullptr;  ///< gauge of that device; null: there is nothing to read
  std::size_t memory_bytes = 0;              ///< a point that needs more is skipped; 0: unknown, so no point is skipped
};

/// Runs on one thread, without ranks. `finished`: points of earlier runs by Factors::key(). Returns the number of wrong
/// points.
/// Cost: at most 3 s a point, not counting checks, unless a budget is given. Errors: Interrupted.
std::size_t run_codecs(const CodecOptions&, const FinishedRows& finished, const runtime::SignalWatch&,
                       const RowListener&);

// Measures how the error of an encoded sum grows with the number of ranks, for each algorithm, with the real executor
// on threads.

struct ExchangeErrorOptions {
  std::vector<compression::CodecChoicePtr> codecs;
  std::vector<allreduce::AlgorithmPtr> algorithms;
  std::vector<int> ranks;
  std::size_t size_bytes = std::size_t{1} << 20;  ///< bytes of each worker's gradient
  std::uint64_t seed = 1;
  int cores = 1;                 ///< number of cores that the threads share
  std::size_t memory_bytes = 0;  ///< a point that needs more is skipped; 0: unknown, so no point is skipped
};

struct ExchangeErrorPoint {
  compression::CodecChoicePtr codec;
  allreduce::AlgorithmPtr algorithm;
  int ranks = 1;
  std::string unsupported;  ///< why it cannot be measured; empty: it can
  core::Factors factors;
};
/// The points by codec, algorithm, ranks, in the order given; each once.
std::vector<ExchangeErrorPoint> plan_exchange_errors(const ExchangeErrorOptions&);

/// Measures the relative squared error of the sum that ranks exchange without error feedback. Their gradients are those
/// of `draw_worker_gradient`. Ranks are threads of this process that read each other's memory. A row has the status
/// `wrong` where ranks end with different bits.
/// `finished`, the listener and the result are as in run_codecs. Cost: memory of 2 × ranks × size, and scratch; some
/// seconds for 64 ranks. Errors: Interrupted.
std::size_t run_exchange_errors(const ExchangeErrorOptions&, const FinishedRows& finished, const runtime::SignalWatch&,
                                const RowListener&);

/// One table for each size and distribution of gradients, in the order of their first point. Rows that were not
/// measured show why.
std::string codec_tables(std::span<const core::Point>, std::size_t width = core::any_width);
/// Explains the columns; to be printed below the last table.
std::string codec_legend(report::Legend);

const report::CsvColumns& codec_csv();
/// A row for each codec and exchange, a column for each number of ranks; refused points have their reason below.
std::string exchange_error_tables(std::span<const core::Point>, std::size_t width = core::any_width);

}  // namespace gradmeter::bench
