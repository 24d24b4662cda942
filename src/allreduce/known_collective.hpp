// Known data for every collective: what each rank gives, and what it must hold afterwards.
#pragma once
#include "allreduce/known_data.hpp"
#include "allreduce/schedule/schedule.hpp"

namespace gradmeter::allreduce {

/// One call of a collective on known data. Buffers are of the whole size on every rank; blocks are `block_begin`'s.
struct KnownCollective {
  CollectiveKind collective_kind = CollectiveKind::all_reduce;
  KnownData data = {};
  std::size_t count = 0;  ///< elements
  std::size_t root = 0;   ///< of a broadcast
};

/// Before the call: this rank's contribution. Other elements get a value that no result has.
void give(const KnownCollective&, std::size_t rank, std::span<std::byte> in);
/// Before a later call on the same data: this rank's contribution gets the data's stamp (see `restamp` of known data).
void restamp(const KnownCollective&, std::size_t rank, std::span<std::byte> in);
/// After the call: how far this rank's result is from the right one. Cost: O(ranks · count) for a reduction.
Verdict check(const KnownCollective&, std::size_t rank, std::span<const std::byte> result);
/// As `check`, for one of `ranks` shares of an all-reduce's result: ranks that hold the same bits can share the check.
/// Cost: O(count).
Verdict check_share(const KnownCollective&, std::size_t share, std::span<const std::byte> result);
/// As `check`, for an all-reduce's result that other ranks do not hold. All of it where that takes at most 2^26 inputs,
/// else that many, in runs spread over it and different on every rank. Cost: O(count), bounded.
Verdict check_some(const KnownCollective&, std::size_t rank, std::span<const std::byte> result);
/// Makes one element of this rank's result wrong, where it has one.
void inject_error(const KnownCollective&, std::size_t rank, std::span<std::byte> result);
/// Do all ranks end with the same data?
bool same_on_all_ranks(CollectiveKind);

}  // namespace gradmeter::allreduce
