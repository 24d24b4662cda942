#include "model/layers/layer.hpp"

namespace gradmeter::model {

std::size_t elements(const SampleShape& shape) {
  if (const auto* i = std::get_if<ImageShape>(&shape)) return i->channels * i->height * i->width;
  if (const auto* t = std::get_if<TokenShape>(&shape)) return t->steps * t->features;
  return std::get<FeatureShape>(shape).count;
}

std::size_t elements(const LayerTensor& t) {
  std::size_t n = 1;
  for (const std::size_t side : t.shape) n *= side;
  return n;
}

}  // namespace gradmeter::model
