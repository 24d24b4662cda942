// Input is checked once, before any rank works: all ranks get the result, and one line is printed.
#pragma once
#include <functional>
#include <string>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/agreement.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::cli {

/// Thrown on every rank when rank 0 found the input wrong; only rank 0 has something to print.
class Refused : public core::UsageError {
 public:
  using core::UsageError::UsageError;
};

/// Runs `check` on rank 0; when it throws a UsageError, all ranks throw Refused with its text.
template <class Check>
void agree(const runtime::Communicator& world, Check check) {
  std::string refusal;
  if (world.rank() == 0) {
    try {
      check();
    } catch (const core::UsageError& e) {
      refusal = e.what();
    }
  }
  refusal = world.broadcast_text(refusal);
  if (!refusal.empty()) throw Refused(refusal);
}

/// Runs `check` on every rank, for what may differ between them: files of their nodes. When it throws a UsageError on
/// any, all ranks throw Refused with the text of the lowest such rank, named where others found nothing wrong.
template <class Check>
void agree_everywhere(const runtime::Communicator& world, Check check) {
  std::string mine;
  try {
    check();
  } catch (const core::UsageError& e) {
    mine = e.what();
  }
  const auto bad = runtime::first_report(world, mine);
  if (bad.text.empty()) return;
  throw Refused(bad.by_all ? bad.text : fmt::format("rank {}: {}", bad.rank, bad.text));
}

}  // namespace gradmeter::cli
