// What an exchange of encoded gradients lost: the sum that came out beside the exact one.
#pragma once
#include <cstdint>
#include <span>

#include "allreduce/reduce.hpp"
#include "runtime/mpi.hpp"

namespace gradmeter::bench {

/// A worker's gradient as exchanges are tried with: a Gaussian of its own, and half of one that all workers have in
/// common. (The published figures of docs/measurement.md are of such workers; at equal shares of variance the sum is
/// longer and its relative error smaller, by 0.53 on 8 ranks.)
void draw_worker_gradient(std::uint64_t seed, int rank, std::span<float> out);

struct CodedSum {
  double error = 0;             ///< relative and squared: sum of (result - exact)^2 / sum of exact^2
  bool same_bits = true;        ///< on all ranks
  std::uint64_t differing = 0;  ///< elements, over all ranks, that are not what rank 0 holds
};

/// Collective. `mine`: what this rank gave; `result`: what came out; op: sum or average. The exact sum is taken in
/// double, by MPI. Cost: 8 bytes an element over MPI, in pieces.
CodedSum compare_coded_sum(const runtime::Communicator&, std::span<const float> mine, std::span<const float> result,
                           allreduce::Op op);

}  // namespace gradmeter::bench
