#include "allreduce/schedule/verify.hpp"

#include "allreduce/schedule/fingerprint.hpp"

namespace gradmeter::allreduce {
namespace {

std::string wrong(std::uint32_t rank, std::uint32_t block, const Fingerprint& has, const Fingerprint& must,
                  bool is_sum) {
  if (has.count == 1 && must.count == 1 && has.sum != must.sum) {
    return fmt::format("rank {} ends with other contents in block {} than are due", rank, block);
  }
  if (has.sum != must.sum || has.count != must.count) {
    return fmt::format("rank {} ends with {} summands in block {} where {} different ones are due", rank, has.count,
                       block, must.count);
  }
  if (has.finishes != (is_sum ? 1u : 0u)) {
    return fmt::format("rank {} ends with block {} finished {} times", rank, block, has.finishes);
  }
  return {};
}

}  // namespace

ScheduleVerdict verify(const Schedule& s) {
  const std::vector<Fingerprint> given = contributions(s);
  std::vector<Fingerprint> values = given;
  const Due due(s, given);
  FingerprintAlgebra algebra;
  Played played = Player<FingerprintAlgebra>(s, algebra, values).play();
  ScheduleVerdict v{.fault = std::move(played.fault), .same_bits = true, .cost = std::move(played.cost)};
  if (v.ok()) v.fault = algebra.fault;
  const bool is_sum =
      s.collective_kind() == CollectiveKind::all_reduce || s.collective_kind() == CollectiveKind::reduce_scatter;
  for (std::size_t i = 0; i < values.size() && v.ok(); ++i) {
    const auto rank = static_cast<std::uint32_t>(i / s.blocks()), block = static_cast<std::uint32_t>(i % s.blocks());
    if (!must_hold(s.collective_kind(), rank, block)) continue;
    v.fault = wrong(rank, block, values[i], due.at(rank, block), is_sum);
    if (s.collective_kind() == CollectiveKind::all_reduce && values[i].tree != values[block].tree) v.same_bits = false;
  }
  return v;
}

}  // namespace gradmeter::allreduce
