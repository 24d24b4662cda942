// SPDX-License-Identifier: Apache-2.0
#include "allreduce/binding.hpp"

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/host/gpus.hpp"

namespace gradmeter::allreduce {

void on_all_ranks(const runtime::Communicator& c, const std::string& name, const std::function<void()>& step) {
  std::string mine;
  bool has_failed = false;
  try {
    step();
  } catch (const core::Unavailable& e) {
    mine = e.what();
  } catch (const core::BackendError& e) {
    if (!runtime::lost_gpu().empty()) throw;
    mine = e.what();
    has_failed = true;
  }
  const runtime::FirstReport first = runtime::first_report(c, mine);
  if (first.text.empty()) return;
  const std::string reason = fmt::format("rank {}: {}", first.rank, first.text);
  if (c.any(has_failed)) throw core::BackendError(name, "bind", reason);
  throw core::Unavailable(fmt::format("{}: {}", name, reason));
}

}  // namespace gradmeter::allreduce
