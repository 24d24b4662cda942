// A convolution with bias and ReLU.
#pragma once
#include <memory>

#include "model/layers/layer.hpp"

namespace gradmeter::model {

struct ConvolutionOptions {
  std::size_t filters = 1, side = 3;  ///< square filters
  std::size_t stride = 1, pad = 0;
};
/// y = relu(x ∗ F + b). Tensors: filters [filters × channels × side × side], bias [filters].
/// Cost: 2·outputs·channels·side² FLOP a sample in each of its three passes; a pass over images and filters where the
/// backend has layouts of its own. Initial filters: He et al., ICCV 2015 (uniform, variance 2/(channels·side²)).
std::unique_ptr<Layer> make_convolution_layer(const ImageShape& input, const ConvolutionOptions&,
                                              kernels::Precision = kernels::Precision::fp32);

}  // namespace gradmeter::model
