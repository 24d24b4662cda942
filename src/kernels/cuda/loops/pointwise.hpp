// The small loops of a training step on a GPU: the functions of kernels/pointwise.hpp.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/adam_rates.hpp"
#include "kernels/cuda/loops/update_gate.hpp"
#include "kernels/pointwise.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

using runtime::DeviceSpan;

/// All are queued on the stream and have the host's bits; of a NaN that is stored as fp32 they are the device's. Costs
/// are the host's bytes. Errors: std::invalid_argument when lengths differ; BackendError when a launch fails.

void relu_backward(DeviceSpan<const float> activation, DeviceSpan<float> gradient, cudaStream_t);
void column_sums(DeviceSpan<const float> matrix, std::size_t columns, DeviceSpan<float> out, cudaStream_t);
void scale(DeviceSpan<float> values, float factor, cudaStream_t);

void to_floats(DeviceSpan<const Bf16>, DeviceSpan<float>, cudaStream_t);
void to_bf16(DeviceSpan<const float>, DeviceSpan<Bf16>, cudaStream_t);
void to_floats(DeviceSpan<const Fp16>, DeviceSpan<float>, cudaStream_t);
void to_fp16(DeviceSpan<const float>, DeviceSpan<Fp16>, cudaStream_t);

void sgd(DeviceSpan<float> w, DeviceSpan<const float> g, float step, UpdateGate, cudaStream_t);
void sgd(DeviceSpan<Bf16> w, DeviceSpan<const Bf16> g, float step, UpdateGate, cudaStream_t);
void momentum(DeviceSpan<float> w, DeviceSpan<float> v, DeviceSpan<const float> g, MomentumParameters, UpdateGate,
              cudaStream_t);
void momentum(DeviceSpan<Bf16> w, DeviceSpan<Bf16> v, DeviceSpan<const Bf16> g, MomentumParameters, UpdateGate,
              cudaStream_t);
/// `kept`: what w is multiplied by first, 1 − step·decay of AdamW, in the same pass. 1: Adam.
void adam(DeviceSpan<float> w, DeviceSpan<float> m, DeviceSpan<float> v, DeviceSpan<const float> g, AdamParameters,
          float kept, cudaStream_t);
void adam(DeviceSpan<Bf16> w, DeviceSpan<Bf16> m, DeviceSpan<Bf16> v, DeviceSpan<const Bf16> g, AdamParameters,
          float kept, cudaStream_t);

/// The same where the scale of a loss may skip updates: of the number that is counted, with epsilon as algorithm 1 has
/// it. rates [1]: memory for this call, written by one thread before.
void adam_step(DeviceSpan<float> w, DeviceSpan<float> m, DeviceSpan<float> v, DeviceSpan<const float> g, AdamParameters,
               float kept, UpdateGate, DeviceSpan<AdamRates> rates, cudaStream_t);

}  // namespace gradmeter::kernels::cuda
