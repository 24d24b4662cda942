// What ranks must know of each other, without anybody holding all ranks' answers.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "runtime/communicator.hpp"

namespace gradmeter::runtime {

/// Collective: do all ranks that have an opinion have the same?
/// Cost: one all-reduce of 32 bytes.
bool same_on_all(const Communicator&, std::optional<std::uint64_t> mine);

/// What one rank said, and whether all others said something too.
struct FirstReport {
  std::string text = {};  ///< empty: nobody said anything
  int rank = -1;
  bool by_all = false;
};
/// Collective: the text of the lowest rank that has one.
/// Cost: three small all-reduces, and a broadcast where there is one.
FirstReport first_report(const Communicator&, const std::string& mine);

/// Collective: every rank's text to rank 0, in rank order, of which it holds one at a time beside its own.
/// Cost: three messages a rank, one after another.
void collect(const Communicator&, const std::string& mine, const std::function<void(const std::string&)>& take);

}  // namespace gradmeter::runtime
