#include "allreduce/schedule/fingerprint.hpp"

namespace gradmeter::allreduce {
namespace {

std::uint64_t mix(std::uint64_t x) {  // SplitMix64's finaliser
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

bool gives(const Schedule& s, std::uint32_t rank, std::uint32_t block) {
  switch (s.collective_kind()) {
    case CollectiveKind::all_gather:
      return rank == block;
    case CollectiveKind::broadcast:
      return rank == s.root();
    default:
      return true;
  }
}

}  // namespace

Fingerprint FingerprintAlgebra::reduce(const std::vector<Operand<Fingerprint>>& operands) {
  Fingerprint out = *operands.front().value;
  for (const auto& o : operands) {
    if (o.value->count == 0) fault = fmt::format("rank {} sums a block that holds nothing", o.rank);
    if (o.value->finishes) fault = fmt::format("rank {}'s finished block is summed again", o.rank);
  }
  for (std::size_t i = 1; i < operands.size(); ++i) {
    const Fingerprint& x = *operands[i].value;
    out.sum += x.sum;
    out.tree = mix(mix(out.tree) + 3 * mix(x.tree));  // 3: a+b differs from b+a
    out.count += x.count;
  }
  return out;
}

Fingerprint FingerprintAlgebra::finish(Fingerprint v) {
  ++v.finishes;
  return v;
}

Fingerprint FingerprintAlgebra::encode(Fingerprint v, std::uint32_t rank) {
  if (v.count == 0) fault = fmt::format("rank {} encodes a block that holds nothing", rank);
  v.tree = mix(v.tree + mix(std::uint64_t{rank} + 0x51ED270B));
  return v;
}

std::vector<Fingerprint> contributions(const Schedule& s) {
  std::vector<Fingerprint> values(std::size_t{s.ranks()} * s.blocks());
  for (std::uint32_t r = 0; r < s.ranks(); ++r) {
    for (std::uint32_t b = 0; b < s.blocks(); ++b) {
      if (!gives(s, r, b)) continue;
      const std::uint64_t h = mix((std::uint64_t{r} << 32 | b) + 1);
      values[std::size_t{r} * s.blocks() + b] = {h, h, 1, 0};
    }
  }
  return values;
}

Due::Due(const Schedule& s, const std::vector<Fingerprint>& given) : s_(s), given_(given), sums_(s.blocks()) {
  for (std::size_t i = 0; i < given.size(); ++i) {
    sums_[i % s.blocks()].sum += given[i].sum;
    sums_[i % s.blocks()].count += given[i].count;
  }
}

const Fingerprint& Due::at(std::uint32_t rank, std::uint32_t block) const {
  auto given = [&](std::uint32_t r, std::uint32_t b) -> const Fingerprint& {
    return given_[std::size_t{r} * s_.blocks() + b];
  };
  if (s_.collective_kind() == CollectiveKind::all_to_all) return given(block, rank);
  if (s_.collective_kind() == CollectiveKind::send_receive) return given((rank + s_.ranks() - 1) % s_.ranks(), block);
  return sums_[block];
}

bool must_hold(CollectiveKind g, std::uint32_t rank, std::uint32_t block) {
  return g != CollectiveKind::reduce_scatter || rank == block;
}

}  // namespace gradmeter::allreduce
