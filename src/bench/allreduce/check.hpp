// SPDX-License-Identifier: Apache-2.0
// Compares a collective's results with known data, over all ranks.
#pragma once
#include <cstdint>
#include <string>

#include "allreduce/test_data.hpp"
#include "bench/allreduce/setup.hpp"
#include "bench/engine/coded_sum.hpp"

namespace gradmeter::bench {

/// The findings of a check over all ranks.
struct CheckOfAllRanks {
  std::uint64_t wrong = 0;  ///< elements outside the tolerance, summed over ranks
  double error = 0;         ///< the largest relative error; with a codec the relative squared error of the sum
  bool same_bits = true;    ///< false: ranks hold different bits where they must hold the same
  /// What a check has found besides wrong elements: a coded sum cannot come from its codec, or a result changed after
  /// its call had returned. Empty: nothing.
  std::string fault = {};
  bool is_right() const { return wrong == 0 && same_bits; }
  /// Merges another finding into this one: each member gets the worse of its two values.
  void add(const CheckOfAllRanks&);
};

/// The point's call on known data of this pattern.
allreduce::KnownCollective known_call(const CollectivePoint&, allreduce::Pattern, std::uint64_t seed, int ranks);
/// Prepares the buffers of a call: writes known data as input, and overwrites the output unless the call is in place.
void give_known(const allreduce::KnownCollective&, int rank, CollectiveBuffers);
/// Compares the result with known data, after the call. Collective over `c`.
CheckOfAllRanks check_known(const allreduce::KnownCollective&, const runtime::Communicator& c,
                            std::span<const std::byte> result);
/// Writes one worker's gradient as input, for timed calls with a codec.
void give_gradient(std::uint64_t seed, int rank, CollectiveBuffers);
/// Writes known data as input, for a checked call with a codec.
void give_coded(const CodedTensor&, const runtime::Communicator& c, CollectiveBuffers);
/// Checks the result of a call with a codec. Collective over `c`, after the call. In the finding, `error` is the
/// codec's loss, which does not count as wrong. `wrong` counts the elements that differ from rank 0's, over all ranks;
/// but if the sum cannot come from this codec, `fault` says why, and `wrong` is the length of the result [elements].
CheckOfAllRanks check_coded(const CodedTensor&, const runtime::Communicator& c, std::span<const std::byte> result);
/// Fills buffers for timing without a codec. Calls that are repeated in place work on their own results: integers are 0
/// and so do not overflow, floats are 1 and so never become subnormal. Floats are not 0, because some processors store
/// zeros in less time.
void fill_for_timing(const CollectivePoint&, CollectiveBuffers);

}  // namespace gradmeter::bench
