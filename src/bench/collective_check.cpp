#include "bench/collective_check.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "bench/coded_sum.hpp"

namespace gradmeter::bench {
namespace {

/// 1 as a float of the type; 0 as an integer.
std::array<std::byte, 8> one_of(core::Element e) {
  std::array<std::byte, 8> out{};
  constexpr double wide = 1;
  constexpr float single = 1;
  if (core::is_integer(e)) return out;
  if (e == core::Element::f64) {
    std::memcpy(out.data(), &wide, sizeof wide);
  } else if (e == core::Element::f32) {
    std::memcpy(out.data(), &single, sizeof single);
  } else {
    allreduce::narrow(e, out.data(), &single, 1);
  }
  return out;
}

std::span<float> floats_of(std::span<std::byte> b) {
  return {reinterpret_cast<float*>(b.data()), b.size() / sizeof(float)};
}

}  // namespace

allreduce::KnownCollective known_call(const CollectivePoint& p, allreduce::Pattern pattern, std::uint64_t seed,
                                      int ranks) {
  return {.goal = p.collective->goal,
          .data = {.pattern = pattern,
                   .element = p.element,
                   .op = p.call_op(),
                   .ranks = static_cast<std::size_t>(ranks),
                   .seed = seed},
          .count = p.count,
          .root = static_cast<std::size_t>(p.root)};
}

void give_known(const allreduce::KnownCollective& k, int rank, CollectiveBuffers b) {
  constexpr int no_result = 0xa5;
  if (b.out.data() != b.in.data() && !b.out.empty()) std::memset(b.out.data(), no_result, b.out.size());
  allreduce::give(k, static_cast<std::size_t>(rank), b.in);
}

CheckFinding check_known(const allreduce::KnownCollective& k, const runtime::Communicator& c,
                         std::span<const std::byte> result) {
  CheckFinding f;
  if (allreduce::same_on_all_ranks(k.goal)) {
    const auto hashes = c.all_gather_value(allreduce::hash_of(result));
    f.same_bits = std::all_of(hashes.begin(), hashes.end(), [&](auto h) { return h == hashes.front(); });
  }
  // Where all hold the same bits each checks a share for all of them: a sum over many ranks is slow to work out.
  const bool together = f.same_bits && k.goal == allreduce::Goal::all_reduce;
  const auto rank = static_cast<std::size_t>(c.rank());
  const auto mine = together ? allreduce::check_share(k, rank, result) : allreduce::check(k, rank, result);
  f.wrong = static_cast<std::uint64_t>(c.sum(static_cast<double>(mine.wrong))) * (together ? k.data.ranks : 1);
  f.error = c.max(mine.error);
  return f;
}

void give_gradient(std::uint64_t seed, int rank, CollectiveBuffers b) {
  draw_worker_gradient(seed, rank, floats_of(b.in));
}

CheckFinding check_coded(const CollectivePoint& p, std::uint64_t seed, const runtime::Communicator& c,
                         std::span<const std::byte> result) {
  std::vector<float> mine(p.count);
  draw_worker_gradient(seed, c.rank(), mine);
  const std::span<const float> sum{reinterpret_cast<const float*>(result.data()), p.count};
  const CodedSum found = compare_coded_sum(c, mine, sum, p.call_op());
  CheckFinding f{.wrong = found.differing, .error = found.error, .same_bits = found.same_bits};
  if (!std::isfinite(found.error)) f.wrong += p.count;
  return f;
}

void fill_for_timing(const CollectivePoint& p, CollectiveBuffers b) {
  const std::size_t width = core::size_of(p.element);
  const auto one = one_of(p.element);
  for (const auto& buffer : {b.in, b.out}) {
    for (std::size_t i = 0; i < buffer.size(); i += width) std::memcpy(&buffer[i], one.data(), width);
  }
}

}  // namespace gradmeter::bench
