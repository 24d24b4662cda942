// SPDX-License-Identifier: Apache-2.0
// Known data for every collective: the input of each rank, and the result that it must hold afterwards.
#include <algorithm>
#include <cstring>

#include "allreduce/schedule/slices.hpp"
#include "allreduce/test_data.hpp"

namespace gradmeter::allreduce {
namespace {

ElementRange whole(const KnownCollective& known) { return {0, known.count}; }

ElementRange block(const KnownCollective& known, std::size_t b) {
  return block_range(known.count, static_cast<std::uint32_t>(known.data.ranks), static_cast<std::uint32_t>(b));
}

template <class Byte>
std::span<Byte> bytes_of(const KnownCollective& known, std::span<Byte> memory, ElementRange part) {
  const std::size_t width = core::size_of(known.data.element);
  return memory.subspan(part.begin * width, part.count * width);
}

/// The part of the buffer that this rank contributes.
ElementRange input_range(const KnownCollective& known, std::size_t rank) {
  if (known.collective_kind == CollectiveKind::all_gather) return block(known, rank);
  if (known.collective_kind == CollectiveKind::broadcast && rank != known.root) return {};
  return whole(known);
}

/// The part of the result that this rank must hold.
ElementRange result_range(const KnownCollective& known, std::size_t rank) {
  return known.collective_kind == CollectiveKind::reduce_scatter ? block(known, rank) : whole(known);
}

/// Checks a rank's result of a collective that reduces nothing.
CheckResult check_moved(const KnownCollective& known, std::size_t rank, std::span<const std::byte> result) {
  const std::size_t ranks = known.data.ranks;
  const auto elements = bytes_of(known, result, whole(known));
  if (known.collective_kind == CollectiveKind::broadcast) return check_copied(known.data, known.root, 0, elements);
  if (known.collective_kind == CollectiveKind::send_receive)
    return check_copied(known.data, (rank + ranks - 1) % ranks, 0, elements);
  CheckResult v;
  for (std::size_t b = 0; b < ranks; ++b) {
    const ElementRange sent_range = block(known, known.collective_kind == CollectiveKind::all_gather ? b : rank);
    v += check_copied(known.data, b, sent_range.begin, bytes_of(known, result, block(known, b)));
  }
  return v;
}

}  // namespace

void write_input(const KnownCollective& known, std::size_t rank, std::span<std::byte> in) {
  constexpr auto poison = 0xa5;
  if (in.empty()) return;
  std::memset(in.data(), poison, in.size());
  const ElementRange part = input_range(known, rank);
  fill(known.data, rank, part.begin, bytes_of(known, in, part));
}

void restamp(const KnownCollective& known, std::size_t rank, std::span<std::byte> in) {
  const ElementRange part = input_range(known, rank);
  restamp(known.data, rank, part.begin, bytes_of(known, in, part));
}

CheckResult check(const KnownCollective& known, std::size_t rank, std::span<const std::byte> result) {
  if (!reduces(known.collective_kind)) return check_moved(known, rank, result);
  const ElementRange part = result_range(known, rank);
  return check_reduced(known.data, part.begin, bytes_of(known, result, part));
}

CheckResult check_share(const KnownCollective& known, std::size_t share, std::span<const std::byte> result) {
  const ElementRange part = block(known, share);
  return check_reduced(known.data, part.begin, bytes_of(known, result, part));
}

CheckResult check_sample(const KnownCollective& known, std::size_t rank, std::span<const std::byte> result) {
  constexpr std::size_t most_inputs = std::size_t{1} << 26;  // drawing so many takes some 0.2 s
  constexpr std::size_t run = 64;                            // elements
  const std::size_t most_elements = std::max(run, most_inputs / known.data.ranks);
  if (known.count <= most_elements) return check(known, rank, result);
  CheckResult v;
  // Run i begins in part i of as many equal parts of the buffer, at one of `starts` elements.
  const std::size_t runs = most_elements / run, starts = known.count / runs - run + 1;
  for (std::size_t i = 0; i < runs; ++i) {
    const ElementRange sampled{i * known.count / runs + rank * run % starts, run};
    v += check_reduced(known.data, sampled.begin, bytes_of(known, result, sampled));
  }
  return v;
}

void inject_error(const KnownCollective& known, std::size_t rank, std::span<std::byte> result) {
  const ElementRange part = result_range(known, rank);
  if (part.count > 0)
    inject_error(known.data.element, bytes_of(known, result, {part.begin + part.count / 2, 1}).data());
}

bool same_on_all_ranks(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::all_gather || kind == CollectiveKind::broadcast;
}

}  // namespace gradmeter::allreduce
