#include <cassert>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "model/dataset.hpp"

namespace gradmeter::model {

Sampler::Sampler(std::size_t dataset_size, std::size_t batch_global, std::uint64_t seed)
    : size_(dataset_size), batch_(batch_global), steps_(0), seed_(seed) {
  if (batch_ == 0) throw core::UsageError("a batch of 0 samples trains nothing: give at least 1");
  if (batch_ > size_)
    throw core::UsageError(
        fmt::format("a batch of {} samples over all ranks is more than the {} samples of the data set: "
                    "take a smaller batch, fewer ranks or more samples",
                    batch_, size_));
  steps_ = size_ / batch_;
}

void Sampler::indices(std::size_t step, std::size_t part, std::span<std::uint64_t> indices) const {
  assert(!indices.empty() && batch_ % indices.size() == 0 && part < batch_ / indices.size());
  const std::uint64_t epoch = step / steps_;
  const core::Permutation shuffled(size_, core::Random(seed_, epoch).bits(0));
  const std::size_t first = step % steps_ * batch_ + part * indices.size();
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = shuffled(first + i);
}

}  // namespace gradmeter::model
