#include "dataparallel/optimizers/tensor_norms.hpp"

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

TensorRanges::TensorRanges(const OptimizerScope& scope) {
  for (const auto& t : scope.tensors) tensors_.push_back({t.offset, t.count, t.is_part});
  if (tensors_.empty()) tensors_.push_back({0, scope.elements});
  // Empty parts stay before what follows them, on all ranks.
  std::ranges::stable_sort(tensors_, {}, &Range::offset);
}

std::vector<TensorRanges::Range> TensorRanges::in(const std::string& rule, std::size_t offset,
                                                  std::size_t count) const {
  std::vector<Range> found;
  const std::size_t end = offset + count;
  for (const Range& t : tensors_) {
    const bool is_empty = t.count == 0 && t.offset >= offset && t.offset <= end;
    if (!is_empty && (t.offset + t.count <= offset || t.offset >= end)) continue;
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

NormOptimizer::NormOptimizer(std::string name, const OptimizerScope& scope)
    : Optimizer(std::move(name)), tensors_(scope), parts_(scope.parts) {}

void NormOptimizer::measure(runtime::Buffer weights, runtime::ConstBuffer gradient, std::size_t offset,
                            UpdateStep step) {
  float* w = weights.values<float>().data();
  const float* g = gradient.values<float>().data();
  measured_ = tensors_.in(name(), offset, weights.count());
  sums_.clear();
  for (const auto& t : measured_) {
    sums_.push_back(squares_of({w + (t.offset - offset), g + (t.offset - offset), t.offset, t.count}, step));
  }
}

void NormOptimizer::share() {
  std::vector<double> values;
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    if (measured_[i].is_part) values.insert(values.end(), {sums_[i].first, sums_[i].second});
  }
  if (values.empty()) return;
  parts_->sum(values);
  auto next = values.begin();
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    if (!measured_[i].is_part) continue;
    sums_[i].first = *next++;
    sums_[i].second = *next++;
  }
}

void NormOptimizer::apply(runtime::Buffer weights, runtime::ConstBuffer gradient, std::size_t offset, UpdateStep step) {
  float* w = weights.values<float>().data();
  const float* g = gradient.values<float>().data();
  const auto found = tensors_.in(name(), offset, weights.count());
  if (shares() && sums_.size() != found.size()) {
    throw std::logic_error(name() + " was given parts of tensors whose norms were not measured before");
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::size_t at = found[i].offset - offset;
    const Piece piece{w + at, g + at, found[i].offset, found[i].count};
    move(piece, shares() ? sums_[i] : squares_of(piece, step), step);
  }
  sums_.clear();
}

}  // namespace gradmeter::dataparallel
