// Known numbers on which exchanges with a codec are tried.
#pragma once
#include <cstdint>
#include <span>

#include "allreduce/reduce.hpp"
#include "compression/registry.hpp"

namespace gradmeter::bench {

/// A worker's gradient as exchanges are tried with: a Gaussian of its own, and half of one that all workers have in
/// common. (The published figures of docs/measurement.md are of such workers; at equal shares of variance the sum is
/// longer and its relative error smaller, by 0.53 on 8 ranks.)
void draw_worker_gradient(std::uint64_t seed, int rank, std::span<float> out);
/// Of it the part that no other worker has.
void draw_own_gradient(std::uint64_t seed, int rank, std::span<float> out);

/// What workers give. gradient: `draw_worker_gradient`. signs: signs that all ranks have in common, at random by the
/// seed, times a magnitude of the rank's own, from ranks to 2·ranks - 1; of one encoding `ranks`, since ranks may share
/// its scale. Codecs that know a bucket by its largest or mean magnitude lose nothing of these, however often sums are
/// encoded again.
enum class CodedData : std::uint8_t { gradient, signs };

/// One tensor that was summed.
struct CodedTensor {
  const compression::CodecChoice& codec;
  std::uint32_t encodings;  ///< as `encodings_on_the_way`; 0: it went dense
  std::uint64_t seed;
  allreduce::Op op;  ///< sum or average
  CodedData data = CodedData::gradient;
};

/// Does this codec lose nothing of `CodedData::signs`? By its identity: dense tensors do not either.
bool keeps_signs(const compression::CodecChoice&);
/// What this rank gives.
void draw_coded(const CodedTensor&, int rank, int ranks, std::span<float> out);
/// Of signs: the magnitude of the sum of all ranks' numbers.
double magnitude_of_sum(const CodedTensor&, int ranks);

}  // namespace gradmeter::bench
