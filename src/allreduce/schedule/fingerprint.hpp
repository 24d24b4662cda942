// Symbolic values for the two verifiers: who contributed, how often, and in which order it was summed.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "allreduce/schedule/play.hpp"

namespace gradmeter::allreduce {

/// `sum` adds up the contributors' hashes, so it shows which are in and how often; `tree` hashes the order of the
/// additions; `count` is the number of summands (0: nothing here).
struct Fingerprint {
  std::uint64_t sum = 0, tree = 0;
  std::uint32_t count = 0, finishes = 0;
  bool operator==(const Fingerprint&) const = default;
};

struct FingerprintAlgebra {
  using Value = Fingerprint;
  std::string fault;  ///< the last meaningless operation, empty when there was none
  Fingerprint reduce(const std::vector<Operand<Fingerprint>>& operands);
  Fingerprint finish(Fingerprint v);
  /// What others decode of a value that `rank` encoded; another rank's encoding of it would differ.
  Fingerprint encode(Fingerprint v, std::uint32_t rank);
};

/// What every rank holds before the first round [ranks × blocks].
std::vector<Fingerprint> contributions(const Schedule&);
/// What rank `rank` must hold of `block` at the end, but for the order of the additions: `given` are the contributions.
/// Cost: O(ranks × blocks) once, then O(1).
class Due {
 public:
  Due(const Schedule&, const std::vector<Fingerprint>& given);
  const Fingerprint& at(std::uint32_t rank, std::uint32_t block) const;

 private:
  const Schedule& s_;
  const std::vector<Fingerprint>& given_;
  std::vector<Fingerprint> sums_;  ///< by block
};
/// Is there anything that rank `rank` must hold of `block` at the end?
bool must_hold(CollectiveKind, std::uint32_t rank, std::uint32_t block);

}  // namespace gradmeter::allreduce
