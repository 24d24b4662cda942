// What an exchange of encoded gradients lost: the sum that came out beside the exact one, and beside what its codec may
// lose.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "allreduce/reduce.hpp"
#include "compression/registry.hpp"
#include "runtime/mpi.hpp"

namespace gradmeter::bench {

/// A worker's gradient as exchanges are tried with: a Gaussian of its own, and half of one that all workers have in
/// common. (The published figures of docs/measurement.md are of such workers; at equal shares of variance the sum is
/// longer and its relative error smaller, by 0.53 on 8 ranks.)
void draw_worker_gradient(std::uint64_t seed, int rank, std::span<float> out);

/// One tensor of workers' gradients, by `seed`, that was summed.
struct CodedTensor {
  const compression::CodecChoice& codec;
  std::uint32_t encodings;  ///< as `encodings_on_the_way`; 0: it went dense
  std::uint64_t seed;
  allreduce::Op op;  ///< sum or average
};

struct CodedSum {
  double error = 0;             ///< relative and squared: sum of (result - exact)^2 / sum of exact^2
  bool same_bits = true;        ///< on all ranks
  std::uint64_t differing = 0;  ///< elements, over all ranks, that are not what rank 0 holds
  std::string fault;            ///< why this is no sum of all contributions by this codec; empty: it is
};

/// Collective; the same on every rank. The call must have had no error feedback from others before it. What its codec
/// lets arrive (compression/identities) decides how a sum is held to it:
///   all         the error is at most what the identity expects of every encoding on the way, a quarter more, and six
///               standard deviations; and of every rank's own numbers at least 3/4 and at most 5/4 are in the sum, less
///               six standard deviations of this share, sqrt(error · |exact|^2)/n: a contribution dropped is found
///               where they are under 3/4 (qsgd4 over direct on 8 ranks: from some 200 elements on)
///   encoded     the sum is what the ranks' own encodings add up to, within fp32; where sums are encoded again on the
///               way, only the error is held, to the worst case
///   chosen      the exact sum at the places that arrived, within fp32, and these are as many as the codec keeps
///   projected   the result's product with the exact sum is its own square (it is a projection of it), within 1e-3
/// Cost: the gradient drawn and 8 bytes an element over MPI, in pieces; for `encoded` 16.
CodedSum judge_coded_sum(const runtime::Communicator&, const CodedTensor&, std::span<const float> result);

/// Collective. `mine`: what this rank gave; `result`: what came out; op: sum or average. The exact sum is taken in
/// double, by MPI. Cost: 8 bytes an element over MPI, in pieces. Finds no fault.
CodedSum compare_coded_sum(const runtime::Communicator&, std::span<const float> mine, std::span<const float> result,
                           allreduce::Op op);

}  // namespace gradmeter::bench
