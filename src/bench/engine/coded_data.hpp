// Known data for checks of exchanges with a codec.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "allreduce/reduce.hpp"
#include "compression/registry.hpp"

namespace gradmeter::bench {

/// A worker's test gradient: a Gaussian of its own, and half of one that all workers share. (The published figures of
/// docs/measurement.md are of such workers; at equal shares of variance the sum is longer and its relative error
/// smaller, by 0.53 on 8 ranks.)
void draw_worker_gradient(std::uint64_t seed, int rank, std::span<float> out);
/// The part of it that no other worker has.
void draw_own_gradient(std::uint64_t seed, int rank, std::span<float> out);

/// What workers contribute. gradient: `draw_worker_gradient`. signs: random signs that all ranks share, times a
/// magnitude of the rank's own, from ranks to 2·ranks - 1; `ranks` with one encoding, since ranks may share its scale.
/// Codecs that represent a bucket by its largest or mean magnitude lose nothing of these, however often sums are
/// encoded again.
enum class CodedData : std::uint8_t { gradient, signs };

/// One tensor that was summed.
struct CodedTensor {
  const compression::CodecChoice& codec;
  std::uint32_t encodings;  ///< as `encodings_on_the_way`; 0: it went dense
  std::uint64_t seed;
  allreduce::Op op;  ///< sum or average
  CodedData data = CodedData::gradient;
  std::size_t columns = 0;  ///< of a matrix; 0: a tensor without a shape
};

/// Does this codec lose nothing of `CodedData::signs`? By its identity; dense tensors lose nothing either.
bool keeps_signs(const compression::CodecChoice&);
/// This rank's contribution.
void draw_coded(const CodedTensor&, int rank, int ranks, std::span<float> out);
/// For signs: the magnitude of the sum of all ranks' numbers.
double magnitude_of_sum(const CodedTensor&, int ranks);

}  // namespace gradmeter::bench
