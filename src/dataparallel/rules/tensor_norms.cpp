#include "dataparallel/rules/tensor_norms.hpp"

#include <algorithm>
#include <stdexcept>

#include "core/format.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::dataparallel {

TwoSums sum_blocks(std::size_t n, const std::function<TwoSums(std::size_t, std::size_t)>& block) {
  constexpr std::size_t length = 1 << 12, grain = 16;  // 64 Ki elements for each thread at least
  const std::size_t blocks = (n + length - 1) / length;
  std::vector<TwoSums> parts(blocks);
  kernels::split(blocks, grain, [&](std::size_t first, std::size_t count) {
    for (std::size_t b = first; b < first + count; ++b) {
      parts[b] = block(b * length, std::min(length, n - b * length));
    }
  });
  TwoSums sum;
  for (const TwoSums& p : parts) sum.first += p.first, sum.second += p.second;
  return sum;
}

TensorRanges::TensorRanges(const RuleScope& scope) {
  for (const auto& t : scope.tensors) tensors_.push_back({t.offset, t.count});
  if (tensors_.empty()) tensors_.push_back({0, scope.elements});
  std::ranges::sort(tensors_, {}, &Range::offset);
}

std::vector<TensorRanges::Range> TensorRanges::in(const std::string& rule, std::size_t offset,
                                                  std::size_t count) const {
  std::vector<Range> found;
  const std::size_t end = offset + count;
  for (const Range& t : tensors_) {
    if (t.offset + t.count <= offset || t.offset >= end) continue;
    if (t.offset < offset || t.offset + t.count > end) {
      throw std::logic_error(
          fmt::format("{} was given elements [{}, {}), which cut the tensor at [{}, {}): it takes "
                      "norms of whole tensors",
                      rule, offset, end, t.offset, t.offset + t.count));
    }
    found.push_back(t);
  }
  return found;
}

}  // namespace gradmeter::dataparallel
