// What an exchange of encoded gradients lost: the sum that came out beside the exact one, and beside what its codec may
// lose.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "bench/engine/coded_data.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {

struct CodedSum {
  double lost = 0, exact = 0;   ///< sums of (result - exact)^2 and of exact^2, multiplied up to sums
  double error = 0;             ///< relative and squared: lost / exact
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
/// Signs, of a codec that keeps them, whatever arrives: the result is the known sum within fp32, but for three elements
/// and as many as rounding near a level loses. A contribution dropped is found where it is more than 3/n of the sum: up
/// to some 200 ranks for the 1024 elements that a codec takes at least.
/// Cost: the gradient drawn and 8 bytes an element over MPI, in pieces; for `encoded` 16; for signs none.
CodedSum check_coded_sum(const runtime::Communicator&, const CodedTensor&, std::span<const float> result);

}  // namespace gradmeter::bench
