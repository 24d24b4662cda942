// What an exchange of encoded gradients lost: its result compared with the exact sum, and with what its codec may lose.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "bench/engine/coded_data.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {

struct CodedSum {
  double lost = 0, exact = 0;   ///< sums of (result - exact)^2 and of exact^2; an average is scaled to a sum
  double error = 0;             ///< relative and squared: lost / exact
  bool same_bits = true;        ///< on all ranks
  std::uint64_t differing = 0;  ///< elements that differ from rank 0's, over all ranks
  std::string fault;            ///< why this cannot be the codec's sum of all contributions; empty: it can
};

/// Collective; the same on every rank. The call must have begun without residuals of earlier calls. What of a
/// contribution the codec lets arrive (compression/identities) decides how the sum is checked:
///   all         the error is at most what the identity expects of every encoding on the way, a quarter more, and six
///               standard deviations; and of every rank's own numbers at least 3/4 and at most 5/4 are in the sum, less
///               six standard deviations of this share, sqrt(error · |exact|^2)/n: a dropped contribution is found
///               where
///               they are under 3/4 (qsgd4 over direct on 8 ranks: from some 200 elements on)
///   encoded     the sum is that of the ranks' own encodings, within fp32; where sums are encoded again on the way,
///   only
///               the error is checked, against the worst case
///   chosen      the exact sum at the places that arrived, within fp32, and as many places as the codec keeps
///   projected   the result's product with the exact sum is its own square (it is a projection of it), within 1e-3;
///               engine/projected_sum
/// Signs, of a codec that keeps them, whatever arrives: the result is the known sum within fp32, except for three
/// elements and as many as rounding near a level loses. A dropped contribution is found where it is more than 3/n of
/// the sum: up to some 200 ranks for the 1024 elements that a codec takes at least.
/// Cost: the gradient drawn and 8 bytes an element over MPI, in pieces; for `encoded` 16; for signs none.
CodedSum check_coded_sum(const runtime::Communicator&, const CodedTensor&, std::span<const float> result);

}  // namespace gradmeter::bench
