// Products and convolutions of inference: weights packed once, in int8 quantized.
#pragma once
#include <memory>

#include "model/layers/layer.hpp"

namespace gradmeter::model {

struct InferenceProduct {
  kernels::Problem problem;       ///< forward; of a precision that some backend takes
  std::size_t output_weights;     ///< of one output, one after another
  std::size_t output_places = 1;  ///< numbers of one output in a sample: pixels
  bool is_relu = false;
};

/// y = relu(x·w + b) or x·w + b. Parameters: weights, bias. A product adds the bias itself; after convolutions, and
/// after whole numbers, which have no bias, a pass over the outputs does.
/// int8: inputs in 8 bits without sign over the request's range, what is beyond it is cut off; weights in 8 bits with
/// sign, with a quantum for each output; sums exact. What the zero point adds to them is found by a pass over zeros and
/// taken off with the bias, at padded borders too.
std::unique_ptr<InferenceLayer> make_inference_product(const InferenceProduct&, const InferenceRequest&,
                                                       runtime::Queue&);

}  // namespace gradmeter::model
