// Causal self-attention with several heads, between its projections.
#pragma once
#include <memory>

#include "model/layers/layer.hpp"

namespace gradmeter::model {

struct AttentionOptions {
  std::size_t width = 0, heads = 1;  ///< heads divide the width
  kernels::Precision precision = kernels::Precision::fp32;
};

/// A step's input is its query, key and value [3 × heads × width/heads], its output the heads' contexts [heads ×
/// width/heads]: softmax(q·kᵀ/√(width/heads))·v over the step itself and those before it. No tensors; dense layers
/// before and after it are the projections.
/// Cost: 4·steps²·width FLOP a sample forward, twice that backward, as products by the count of samples·heads; the half
/// above the diagonal is computed too. Operands are brought into the order of heads and back. Tensor ranks have some
/// heads each (`Cut::between`).
/// Source: Vaswani et al. 2017, section 3.2. Errors: UsageError when the heads do not divide the width, or
/// tensor ranks do not divide the heads.
std::unique_ptr<Layer> make_attention_layer(std::size_t steps, const AttentionOptions&);

}  // namespace gradmeter::model
