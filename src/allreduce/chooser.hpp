// Selects the algorithm for a call by its bytes: from a table of sizes, or by any other Chooser.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allreduce/registry.hpp"

namespace gradmeter::allreduce {

/// All ranks must choose alike, so an implementation may use only what all ranks know. A model that predicts times can
/// implement it too.
class Chooser {
 public:
  virtual ~Chooser() = default;
  /// Equal names choose alike.
  virtual const std::string& name() const = 0;
  /// The algorithms that may be chosen, each once; none of them is itself a selection.
  virtual std::span<const AlgorithmPtr> candidates() const = 0;
  /// Index into the candidates. Cost: O(log of the ranges) for a table.
  virtual std::size_t choose(std::uint64_t bytes) const = 0;
  /// The longest call that this candidate can be chosen for [bytes].
  virtual std::uint64_t longest(std::size_t candidate) const = 0;
};

/// From `first` bytes up to where the next one begins; the last has no end.
struct SizeRange {
  std::uint64_t first = 0;
  std::size_t candidate = 0;
};

class TableChooser final : public Chooser {
 public:
  /// "0-64K:recursive-doubling,64K-:torus2d:rows=2": ranges from the first size up to below the second; K, M, G are
  /// binary.
  /// Errors: UsageError in one line: the gap or the overlap, a size or an algorithm that is not understood.
  explicit TableChooser(std::string_view text);

  /// Canonical: ranges in order, neighbours that agree joined, sizes in their largest whole unit.
  const std::string& name() const override { return name_; }
  std::span<const AlgorithmPtr> candidates() const override { return candidates_; }
  std::size_t choose(std::uint64_t bytes) const override;
  std::uint64_t longest(std::size_t candidate) const override;
  std::span<const SizeRange> ranges() const { return ranges_; }
  /// "64K-1M", of the i-th range.
  std::string range_text(std::size_t i) const;

 private:
  std::size_t candidate_of(AlgorithmPtr);

  std::vector<AlgorithmPtr> candidates_;
  std::vector<SizeRange> ranges_;
  std::string name_;
};

/// Does the text begin with a range of sizes ("0-64K:ring")?
bool is_table(std::string_view text);
/// Rejoins the items of a split comma list that are ranges of one table; a range from 0 opens a new table.
/// "mpi", "0-64K:ring", "64K-:direct", "ring" becomes mpi, one table, ring.
std::vector<std::string> join_tables(std::vector<std::string> items);

/// An algorithm that passes each call to the candidate that the chooser selects.
AlgorithmPtr choice_by(std::shared_ptr<const Chooser>);

}  // namespace gradmeter::allreduce
