// Input is judged once: rank 0 decides, all ranks hear it, before any of them works.
#pragma once
#include <functional>
#include <string>

#include "core/error.hpp"
#include "runtime/mpi.hpp"

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

}  // namespace gradmeter::cli
