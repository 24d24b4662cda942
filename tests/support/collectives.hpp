// SPDX-License-Identifier: Apache-2.0
// One collective call on known data, and what was wrong with it: shared by ranks that are threads and real ones.
#pragma once
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "allreduce/registry.hpp"
#include "allreduce/test_data.hpp"
#include "core/format.hpp"
#include "runtime/threads/backoff.hpp"
#include "support/run_to_end.hpp"
#include "support/sanitized.hpp"

namespace gradmeter::test {

/// A test's name may have nothing but letters, digits and underscores.
inline std::string test_name(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return text;
}

/// Lengths that have caused errors: nothing, one, fewer than ranks, not divided by them, more slices than channels.
inline std::vector<std::size_t> odd_counts(allreduce::CollectiveKind collective_kind, std::size_t ranks) {
  if (collective_kind == allreduce::CollectiveKind::all_to_all) return {0, ranks, 17 * ranks, 5003 * ranks};
  return {0, 1, ranks - 1, ranks + 1, 257, 20'011};
}

/// Ranks in pairs on fake nodes of one host; the last may be alone.
inline std::vector<int> pairs_on_nodes(int ranks) {
  std::vector<int> out;
  for (int r = 0; r < ranks; ++r) out.push_back(r / 2);
  return out;
}

/// The types and operations that mean something together.
struct TypeAndOp {
  core::Element element;
  allreduce::Op op;
};
/// An element of each size, for what is not about how each type is added.
inline std::vector<TypeAndOp> few_types_and_ops() {
  return {{core::Element::f64, allreduce::Op::max},
          {core::Element::f32, allreduce::Op::average},
          {core::Element::bf16, allreduce::Op::sum},
          {core::Element::i8, allreduce::Op::product},
          {core::Element::i64, allreduce::Op::product}};
}

inline std::vector<TypeAndOp> types_and_ops() {
  if (sanitized) return few_types_and_ops();
  std::vector<TypeAndOp> out;
  for (const auto& e : core::elements) {
    for (const auto op :
         {allreduce::Op::sum, allreduce::Op::average, allreduce::Op::min, allreduce::Op::max, allreduce::Op::product}) {
      if (op == allreduce::Op::average && core::is_integer(e.element)) continue;
      out.push_back({e.element, op});
    }
  }
  return out;
}

struct CollectiveCase {
  allreduce::KnownCollective known;
  allreduce::Placement placement = allreduce::Placement::out_of_place;
  bool accumulate_wide = false;
};

inline std::string describe(const CollectiveCase& c) {
  return fmt::format("{} {} {} {} of {} elements{}", name(c.known.collective_kind),
                     c.known.data.pattern == allreduce::Pattern::exact ? "exact" : "random",
                     core::info(c.known.data.element).name, name(c.known.data.op), c.known.count,
                     c.placement == allreduce::Placement::in_place ? " in place" : "");
}

struct CollectiveOutcome {
  std::string fault;       ///< empty: right on this rank
  std::uint64_t hash = 0;  ///< of the result, to compare with the other ranks'
};

/// Gives known data, runs the call to its end, checks result and untouched input. `memory`: room for two buffers,
/// where the transport's peers can read them. An empty fault and equal hashes mean right.
inline CollectiveOutcome run_known(allreduce::Collective& collective, const CollectiveCase& c, std::size_t rank,
                                   std::span<std::byte> memory, runtime::SpinPolicy spin_policy) {
  const std::size_t bytes = c.known.count * core::size_of(c.known.data.element);
  const bool in_place = c.placement == allreduce::Placement::in_place;
  const std::size_t second = (bytes + 63) / 64 * 64;
  const std::span<std::byte> in = memory.subspan(0, bytes), out = in_place ? in : memory.subspan(second, bytes);
  write_input(c.known, rank, in);
  const std::uint64_t before = allreduce::hash_of(in);
  const core::Element element = c.known.data.element;
  allreduce::Call call{.in = {element, in}, .out = {element, out}, .op = c.known.data.op};
  if (c.accumulate_wide) call.accumulate = core::Element::f32;
  collective.start(call);
  run_to_end(collective, spin_policy);
  CollectiveOutcome o{.fault = {}, .hash = allreduce::hash_of(out)};
  const auto verdict = check(c.known, rank, out);
  if (verdict.wrong > 0) {
    o.fault = fmt::format("{}: {} wrong, the first at {}", describe(c), verdict.wrong, verdict.first_wrong);
  } else if (!in_place && allreduce::hash_of(in) != before) {
    o.fault = fmt::format("{}: the input was changed", describe(c));
  } else if (collective.sent() && collective.bytes_required() &&
             collective.sent()->bytes != *collective.bytes_required()) {
    o.fault =
        fmt::format("{}: {} bytes sent, {} due", describe(c), collective.sent()->bytes, *collective.bytes_required());
  }
  return o;
}

}  // namespace gradmeter::test
