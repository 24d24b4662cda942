// SPDX-License-Identifier: Apache-2.0
// The algorithm `auto`, and tables of sizes. A table names an algorithm for each range of sizes, and each call is
// served by the algorithm that is named for the call's size. The table is given by the user, measured on this machine
// (tuned_tables.hpp), shipped with the program (shipped_tables.hpp), or predicted by the cost model.
#pragma once
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "allreduce/collective.hpp"
#include "allreduce/request.hpp"
#include "allreduce/selection/size_table.hpp"
#include "core/machine.hpp"

namespace gradmeter::allreduce {

/// Passes each call to the collective that the table has for the call's size. Calls run one at a time, so collectives
/// may share scratch, but must keep nothing in it between calls.
class SelectedCollective final : public Collective {
 public:
  /// collectives[i] is the table's i-th candidate, bound.
  SelectedCollective(std::shared_ptr<const SizeTable>, std::vector<std::unique_ptr<Collective>> collectives);
  const std::string& name() const override { return table_->name(); }
  const std::string& algorithm_for(std::uint64_t bytes) const override {
    return table_->candidates()[table_->choose(bytes)]->name;
  }
  const Collective& serving(std::uint64_t bytes) const override {
    return collectives_[table_->choose(bytes)]->serving(bytes);
  }
  bool takes_device_memory() const override;
  bool holds_up_other_calls() const override;
  void start(const Call&) override;
  bool advance() override;
  Waiting waiting() const override;
  /// The sum of what the collectives have sent. Once a collective that does not count bytes (a vendor's) has served a
  /// call, the result is null from then on, since the sum would be incomplete.
  std::optional<runtime::Traffic> sent() const override;
  std::optional<std::uint64_t> bytes_required() const override;

 private:
  std::shared_ptr<const SizeTable> table_;
  std::vector<std::unique_ptr<Collective>> collectives_;  ///< in the order of the table's candidates
  Collective* current_ = nullptr;                         ///< the collective that serves the last call
  bool running_ = false, bytes_counted_ = true;
};

/// Selects by the request's table (given, or predicted for the request's machine), else by the tuned table for the use
/// of the calls (TableUse), else by the shipped table of the transport. Collectives with a schedule share one scratch
/// area. `arena_bytes` does not know the transport; so where a tuned or shipped table will be used, it gives the most
/// bytes that the table of any transport needs.
extern const AlgorithmInfo auto_row;

// The table of sizes that the cost model gives for a machine, for `auto:machine=FILE`.

/// The table that names, for each power of two from 1 KiB to 64 MiB, the algorithm whose slowest rank ends first by
/// `hockney_finish_times`, among the algorithms with a schedule that can serve the request. Errors: UsageError when
/// none can. Cost: O(steps of all schedules) for each size.
std::string predicted_table(const core::Machine&, const Request&);

/// Reads a machine's description. Errors: UsageError naming the file, if it is unreadable or describes no machine.
core::Machine read_machine_file(const std::filesystem::path&);

}  // namespace gradmeter::allreduce
