#include "allreduce/known_collective.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "allreduce/schedule/slices.hpp"

namespace gradmeter::allreduce {
namespace {

/// Elements.
struct Part {
  std::size_t first = 0, count = 0;
};

/// The result's elements `at` are rank `from`'s elements from `source` on.
struct Copied {
  Part at;
  std::size_t from, source;
};

Part whole(const KnownCollective& k) { return {0, k.count}; }

Part block(const KnownCollective& k, std::size_t b) {
  const auto blocks = static_cast<std::uint32_t>(k.data.ranks), at = static_cast<std::uint32_t>(b);
  const std::size_t first = block_begin(k.count, blocks, at);
  return {first, block_begin(k.count, blocks, at + 1) - first};
}

template <class Byte>
std::span<Byte> bytes_of(const KnownCollective& k, std::span<Byte> all, Part part) {
  const std::size_t width = core::size_of(k.data.element);
  return all.subspan(part.first * width, part.count * width);
}

Part given(const KnownCollective& k, std::size_t rank) {
  if (k.collective_kind == CollectiveKind::all_gather) return block(k, rank);
  if (k.collective_kind == CollectiveKind::broadcast && rank != k.root) return {};
  return whole(k);
}

Part held(const KnownCollective& k, std::size_t rank) {
  return k.collective_kind == CollectiveKind::reduce_scatter ? block(k, rank) : whole(k);
}

/// The source of a rank's result, for a collective that reduces nothing.
std::vector<Copied> copied(const KnownCollective& k, std::size_t rank) {
  if (k.collective_kind == CollectiveKind::broadcast) return {{whole(k), k.root, 0}};
  if (k.collective_kind == CollectiveKind::send_receive)
    return {{whole(k), (rank + k.data.ranks - 1) % k.data.ranks, 0}};
  std::vector<Copied> out;
  for (std::size_t b = 0; b < k.data.ranks; ++b) {
    out.push_back({block(k, b), b, block(k, k.collective_kind == CollectiveKind::all_gather ? b : rank).first});
  }
  return out;
}

}  // namespace

void give(const KnownCollective& k, std::size_t rank, std::span<std::byte> in) {
  constexpr auto poison = 0xa5;
  if (in.empty()) return;
  std::memset(in.data(), poison, in.size());
  const Part part = given(k, rank);
  fill(k.data, rank, part.first, bytes_of(k, in, part));
}

void restamp(const KnownCollective& k, std::size_t rank, std::span<std::byte> in) {
  const Part part = given(k, rank);
  restamp(k.data, rank, part.first, bytes_of(k, in, part));
}

Verdict check(const KnownCollective& k, std::size_t rank, std::span<const std::byte> result) {
  if (reduces(k.collective_kind)) {
    const Part part = held(k, rank);
    return check_reduced(k.data, part.first, bytes_of(k, result, part));
  }
  Verdict v;
  for (const auto& c : copied(k, rank)) v += check_copied(k.data, c.from, c.source, bytes_of(k, result, c.at));
  return v;
}

Verdict check_share(const KnownCollective& k, std::size_t share, std::span<const std::byte> result) {
  const Part part = block(k, share);
  return check_reduced(k.data, part.first, bytes_of(k, result, part));
}

Verdict check_some(const KnownCollective& k, std::size_t rank, std::span<const std::byte> result) {
  constexpr std::size_t most = std::size_t{1} << 26, run = 64;  // inputs to draw, some 0.2 s; elements
  const std::size_t affordable = std::max(run, most / k.data.ranks);
  if (k.count <= affordable) return check(k, rank, result);
  Verdict v;
  const std::size_t runs = affordable / run, room = k.count / runs - run + 1;
  for (std::size_t i = 0; i < runs; ++i) {
    const Part part{i * k.count / runs + rank * run % room, run};
    v += check_reduced(k.data, part.first, bytes_of(k, result, part));
  }
  return v;
}

void inject_error(const KnownCollective& k, std::size_t rank, std::span<std::byte> result) {
  const Part part = held(k, rank);
  if (part.count > 0) inject_error(k.data.element, bytes_of(k, result, {part.first + part.count / 2, 1}).data());
}

bool same_on_all_ranks(CollectiveKind g) {
  return g == CollectiveKind::all_reduce || g == CollectiveKind::all_gather || g == CollectiveKind::broadcast;
}

}  // namespace gradmeter::allreduce
