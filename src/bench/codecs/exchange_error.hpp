// How the error of an encoded sum grows with the ranks, by exchange: the real executor on threads.
#pragma once
#include <string>
#include <vector>

#include "allreduce/registry.hpp"
#include "bench/codecs/codecs.hpp"

namespace gradmeter::bench {

struct ExchangeErrorOptions {
  std::vector<compression::CodecChoicePtr> codecs;
  std::vector<allreduce::AlgorithmPtr> algorithms;
  std::vector<int> ranks;
  std::size_t size_bytes = std::size_t{1} << 20;  ///< of each worker's gradient
  std::uint64_t seed = 1;
  int cores = 1;                 ///< that the threads share
  std::size_t memory_bytes = 0;  ///< a point that needs more is skipped; 0: unknown, none is
};

struct ExchangeErrorPoint {
  compression::CodecChoicePtr codec;
  allreduce::AlgorithmPtr algorithm;
  int ranks = 1;
  std::string unsupported;  ///< why it cannot be measured; empty: it can
  core::Factors factors;
};
/// By codec, algorithm, ranks, in the order given; each once.
std::vector<ExchangeErrorPoint> plan_exchange_errors(const ExchangeErrorOptions&);

/// Relative squared error of the exchanged sum of `draw_worker_gradient`s, without error feedback. Ranks are threads of
/// this process that read each other's memory. Status wrong where ranks end with different bits. `finished`, the
/// listener: as run_codecs. Cost: memory of ranks × size; some seconds for 64 ranks. Errors: Interrupted.
std::size_t run_exchange_errors(const ExchangeErrorOptions&, const FinishedRows& finished, const runtime::SignalWatch&,
                                const RowListener&);

}  // namespace gradmeter::bench
