// Weights of recurrent layers between our form and a library's: ours [inputs x gates x hidden], in one piece; theirs a
// matrix [hidden x inputs] for each gate, wherever it says.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "core/element.hpp"

namespace gradmeter::kernels::cuda {

struct GateMatrix {
  std::size_t inputs, gates, hidden;
  std::size_t gate;  ///< which of the gates
};

/// Both are queued on the stream. Element: f32, f16, bf16. Errors: BackendError when a launch fails; std::logic_error
/// for another element.

void take_gate(const std::byte* ours, std::byte* theirs, core::Element, const GateMatrix&, cudaStream_t);
/// `ours` is fp32, and added to.
void add_gate(const std::byte* theirs, float* ours, core::Element, const GateMatrix&, cudaStream_t);

}  // namespace gradmeter::kernels::cuda
