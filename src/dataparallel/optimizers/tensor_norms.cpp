#include "dataparallel/optimizers/tensor_norms.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/format.hpp"
#include "kernels/loops.hpp"

namespace gradmeter::dataparallel {

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
    : Optimizer(std::move(name)),
      tensors_(scope),
      parts_(scope.parts),
      sums_(scope.device.allocate(core::Element::f64, 2 * tensors_.count())) {}

void NormOptimizer::find_pieces(std::size_t offset, std::size_t count) {
  found_ = tensors_.in(name(), offset, count);
  pieces_.clear();
  for (const auto& t : found_) pieces_.push_back({t.offset - offset, t.count});
}

void NormOptimizer::measure(runtime::Buffer weights, runtime::ConstBuffer gradient, std::size_t offset,
                            UpdateStep step) {
  find_pieces(offset, weights.count());
  take_norms({weights, gradient, offset, pieces_}, sums(), step);
  shared_.resize(2 * pieces_.size());
  is_measured_ = true;
  kernels::loops().copy(sums(), shared_);  // `share` comes after the queue has done it
}

void NormOptimizer::share() {
  std::vector<double> values;
  for (std::size_t i = 0; i < found_.size(); ++i) {
    if (found_[i].is_part) values.insert(values.end(), {shared_[2 * i], shared_[2 * i + 1]});
  }
  if (values.empty()) return;
  parts_->sum(values);
  auto next = values.begin();
  for (std::size_t i = 0; i < found_.size(); ++i) {
    if (!found_[i].is_part) continue;
    shared_[2 * i] = *next++;
    shared_[2 * i + 1] = *next++;
  }
}

void NormOptimizer::apply(runtime::Buffer weights, runtime::ConstBuffer gradient, std::size_t offset, UpdateStep step) {
  find_pieces(offset, weights.count());
  const Range range{weights, gradient, offset, pieces_};
  if (!shares()) {
    take_norms(range, sums(), step);
  } else if (std::exchange(is_measured_, false) && shared_.size() == 2 * pieces_.size()) {
    kernels::loops().copy(shared_, sums());
  } else {
    throw std::logic_error(name() + " was given parts of tensors whose norms were not measured before");
  }
  move(range, sums(), step);
}

}  // namespace gradmeter::dataparallel
