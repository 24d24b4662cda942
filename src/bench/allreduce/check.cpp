// SPDX-License-Identifier: Apache-2.0
#include "bench/allreduce/check.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "bench/engine/coded_sum.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::bench {
namespace {

/// The bytes of the number 1 in a floating-point type, or of 0 in an integer type.
std::array<std::byte, 8> timing_value(core::Element e) {
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

void CheckOfAllRanks::add(const CheckOfAllRanks& other) {
  wrong = std::max(wrong, other.wrong);
  error = std::max(error, other.error);
  same_bits &= other.same_bits;
  if (fault.empty()) fault = other.fault;
}

allreduce::KnownCollective known_call(const CollectivePoint& p, allreduce::Pattern pattern, std::uint64_t seed,
                                      int ranks) {
  return {.collective_kind = p.collective->collective_kind,
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
  allreduce::write_input(k, static_cast<std::size_t>(rank), b.in);
}

CheckOfAllRanks check_known(const allreduce::KnownCollective& k, const runtime::Communicator& c,
                            std::span<const std::byte> result) {
  CheckOfAllRanks found;
  if (allreduce::same_on_all_ranks(k.collective_kind)) {
    found.same_bits = runtime::same_on_all(c, allreduce::hash_of(result));
  }
  const auto rank = static_cast<std::size_t>(c.rank());
  const bool checks_whole_result = k.collective_kind != allreduce::CollectiveKind::all_reduce;
  // A sum over many ranks is slow to compute. Where all hold the same bits, each checks a share for all of them.
  const auto mine = checks_whole_result ? allreduce::check(k, rank, result)
                    : found.same_bits   ? allreduce::check_share(k, rank, result)
                                        : allreduce::check_sample(k, rank, result);
  found.wrong = static_cast<std::uint64_t>(c.sum(static_cast<double>(mine.wrong)));
  if (!checks_whole_result && found.same_bits) found.wrong *= k.data.ranks;
  // Exact data have one right result: if ranks differ, an element is wrong, even if it was not among those checked.
  if (!found.same_bits && k.data.pattern == allreduce::Pattern::exact)
    found.wrong = std::max<std::uint64_t>(found.wrong, 1);
  found.error = c.max(mine.error);
  return found;
}

void give_gradient(std::uint64_t seed, int rank, CollectiveBuffers b) {
  draw_worker_gradient(seed, rank, floats_of(b.in));
}

void give_coded(const CodedTensor& t, const runtime::Communicator& c, CollectiveBuffers b) {
  draw_coded(t, c.rank(), c.size(), floats_of(b.in));
}

CheckOfAllRanks check_coded(const CodedTensor& t, const runtime::Communicator& c, std::span<const std::byte> result) {
  const std::span<const float> sum{reinterpret_cast<const float*>(result.data()), result.size() / sizeof(float)};
  const CodedSum found = check_coded_sum(c, t, sum);
  return {.wrong = found.fault.empty() ? found.differing : sum.size(),
          .error = found.error,
          .same_bits = found.same_bits,
          .fault = found.fault};
}

void fill_for_timing(const CollectivePoint& p, CollectiveBuffers b) {
  const std::size_t width = core::size_of(p.element);
  const auto one = timing_value(p.element);
  for (const auto& buffer : {b.in, b.out}) {
    for (std::size_t i = 0; i < buffer.size(); i += width) std::memcpy(&buffer[i], one.data(), width);
  }
}

}  // namespace gradmeter::bench
