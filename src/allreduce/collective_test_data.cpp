// SPDX-License-Identifier: Apache-2.0
// Known data for every collective: the input of each rank, and the result that it must hold afterwards.
#include <algorithm>
#include <cstring>

#include "allreduce/schedule/slices.hpp"
#include "allreduce/test_data.hpp"

namespace gradmeter::allreduce {
namespace {

ElementRange whole(const KnownCollective& k) { return {0, k.count}; }

ElementRange block(const KnownCollective& k, std::size_t b) {
  return block_range(k.count, static_cast<std::uint32_t>(k.data.ranks), static_cast<std::uint32_t>(b));
}

template <class Byte>
std::span<Byte> bytes_of(const KnownCollective& k, std::span<Byte> memory, ElementRange part) {
  const std::size_t width = core::size_of(k.data.element);
  return memory.subspan(part.begin * width, part.count * width);
}

/// The part of the buffer that this rank contributes.
ElementRange input_range(const KnownCollective& k, std::size_t rank) {
  if (k.collective_kind == CollectiveKind::all_gather) return block(k, rank);
  if (k.collective_kind == CollectiveKind::broadcast && rank != k.root) return {};
  return whole(k);
}

/// The part of the result that this rank must hold.
ElementRange result_range(const KnownCollective& k, std::size_t rank) {
  return k.collective_kind == CollectiveKind::reduce_scatter ? block(k, rank) : whole(k);
}

/// Checks a rank's result of a collective that reduces nothing.
CheckResult check_moved(const KnownCollective& k, std::size_t rank, std::span<const std::byte> result) {
  const std::size_t ranks = k.data.ranks;
  const auto elements = bytes_of(k, result, whole(k));
  if (k.collective_kind == CollectiveKind::broadcast) return check_copied(k.data, k.root, 0, elements);
  if (k.collective_kind == CollectiveKind::send_receive)
    return check_copied(k.data, (rank + ranks - 1) % ranks, 0, elements);
  CheckResult v;
  for (std::size_t b = 0; b < ranks; ++b) {
    const ElementRange sent_range = block(k, k.collective_kind == CollectiveKind::all_gather ? b : rank);
    v += check_copied(k.data, b, sent_range.begin, bytes_of(k, result, block(k, b)));
  }
  return v;
}

}  // namespace

void write_input(const KnownCollective& k, std::size_t rank, std::span<std::byte> in) {
  constexpr auto poison = 0xa5;
  if (in.empty()) return;
  std::memset(in.data(), poison, in.size());
  const ElementRange part = input_range(k, rank);
  fill(k.data, rank, part.begin, bytes_of(k, in, part));
}

void restamp(const KnownCollective& k, std::size_t rank, std::span<std::byte> in) {
  const ElementRange part = input_range(k, rank);
  restamp(k.data, rank, part.begin, bytes_of(k, in, part));
}

CheckResult check(const KnownCollective& k, std::size_t rank, std::span<const std::byte> result) {
  if (!reduces(k.collective_kind)) return check_moved(k, rank, result);
  const ElementRange part = result_range(k, rank);
  return check_reduced(k.data, part.begin, bytes_of(k, result, part));
}

CheckResult check_share(const KnownCollective& k, std::size_t share, std::span<const std::byte> result) {
  const ElementRange part = block(k, share);
  return check_reduced(k.data, part.begin, bytes_of(k, result, part));
}

CheckResult check_sample(const KnownCollective& k, std::size_t rank, std::span<const std::byte> result) {
  constexpr std::size_t most_inputs = std::size_t{1} << 26;  // drawing so many takes some 0.2 s
  constexpr std::size_t run = 64;                            // elements
  const std::size_t affordable = std::max(run, most_inputs / k.data.ranks);
  if (k.count <= affordable) return check(k, rank, result);
  CheckResult v;
  // Run i begins in part i of as many equal parts of the buffer, at one of `starts` elements.
  const std::size_t runs = affordable / run, starts = k.count / runs - run + 1;
  for (std::size_t i = 0; i < runs; ++i) {
    const ElementRange sampled{i * k.count / runs + rank * run % starts, run};
    v += check_reduced(k.data, sampled.begin, bytes_of(k, result, sampled));
  }
  return v;
}

void inject_error(const KnownCollective& k, std::size_t rank, std::span<std::byte> result) {
  const ElementRange part = result_range(k, rank);
  if (part.count > 0) inject_error(k.data.element, bytes_of(k, result, {part.begin + part.count / 2, 1}).data());
}

bool same_on_all_ranks(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::all_gather || kind == CollectiveKind::broadcast;
}

}  // namespace gradmeter::allreduce
