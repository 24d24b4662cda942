#include "allreduce/compressed/tensor_calls.hpp"

namespace gradmeter::allreduce {

void TensorCalls::assign(const Call& call) {
  const TensorLayout& layout = call.tensor_layout;
  const TensorPart all{.offset = 0, .count = call.count()};
  const std::span<const TensorPart> tensors = layout.tensors.empty() ? std::span(&all, 1) : layout.tensors;
  whole_ = layout.difference;
  tensors_.assign(tensors.begin(), tensors.end());
  differences_.assign(whole_ ? tensors.size() : 0, {});
  calls_.assign(tensors.size(), call);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorPart& t = tensors[i];
    const std::size_t place = layout.first + t.offset;
    tensors_[i].offset = 0;
    Call& c = calls_[i];
    c.in = call.in.part(t.offset, t.count);
    c.out = call.out.part(t.offset, t.count);
    c.tensor_layout = {.first = place, .tensors = {&tensors_[i], 1}};
    c.encoding.tensor = static_cast<std::uint32_t>(place);
    if (c.encoding.worker_residual) c.encoding.worker_residual += t.offset;
    if (c.encoding.owner_residual) c.encoding.owner_residual += t.offset;
    if (!whole_) continue;
    differences_[i].values = whole_->values.subspan(t.offset, t.count);
    c.tensor_layout.difference = &differences_[i];
  }
}

void TensorCalls::add_squares() {
  for (const CodingDifference& d : differences_) whole_->squares += d.squares;
}

}  // namespace gradmeter::allreduce
