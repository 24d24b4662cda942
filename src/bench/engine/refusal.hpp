// What only some ranks may refuse, on all of them.
#pragma once
#include <new>
#include <string>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/agreement.hpp"

namespace gradmeter::bench {

/// Runs `work`; a refusal by a library or of memory becomes a text, since other ranks may have succeeded.
template <class Work>
std::string refusal_of(Work work) {
  try {
    work();
    return {};
  } catch (const core::BackendError& e) {
    return e.what();
  } catch (const core::UsageError& e) {
    return e.what();
  } catch (const std::bad_alloc&) {
    return "memory ran out";
  }
}

/// Collective over `c`: the refusal of the first rank that has one, on all.
inline std::string refused_anywhere(const runtime::Communicator& c, const std::string& mine) {
  if (c.size() == 1) return mine;
  const auto first = runtime::first_report(c, mine);
  return first.text.empty() ? "" : fmt::format("rank {}: {}", first.rank, first.text);
}

}  // namespace gradmeter::bench
