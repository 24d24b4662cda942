// SPDX-License-Identifier: Apache-2.0
// The small loops of a training step on a GPU: activations, optimizers, the loss and its scale.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/host_device.hpp"
#include "kernels/loops.hpp"
#include "kernels/pointwise/pointwise.hpp"
#include "kernels/pointwise/row_sums.hpp"
#include "kernels/pointwise/updates.hpp"
#include "runtime/device_memory.hpp"

namespace gradmeter::kernels::cuda {

/// Lets the GPU decide whether an update is made, so that the host need not know whether a step is skipped. Only
/// kernels read the counts, which are in device memory, where earlier work of the stream changes them.
struct UpdateGate {
  std::uint64_t number = 1;                 ///< the update's number if no step had been skipped
  const LossScaleCounts* counts = nullptr;  ///< null: every update is made
  GRADMETER_HOST_DEVICE bool is_skipped() const { return counts && counts->skips_step != 0; }
  /// The update's number when skipped steps are not counted.
  GRADMETER_HOST_DEVICE std::uint64_t number_without_skipped() const {
    return counts ? number - static_cast<std::uint64_t>(counts->skipped) : number;
  }
};

// The small loops of a training step on a GPU: the functions of kernels/pointwise/pointwise.hpp.

using runtime::DeviceSpan;

/// All functions queue their work on the stream. Their results have the host's bits, except that a NaN stored as fp32
/// has the device's bits. Bytes moved are those of the host's functions. Errors: std::invalid_argument when lengths
/// differ; BackendError when a launch fails.

void relu_backward(DeviceSpan<const float> activation, DeviceSpan<float> gradient, cudaStream_t);
/// The most rows that one block of threads adds up. If there are more, each block writes the sum of its rows, and the
/// next launch adds up these sums.
inline constexpr std::size_t rows_of_block = rows_of_piece * rows_of_piece;
/// Floats of workspace for sums over rows: none for up to rows_of_block rows.
std::size_t column_sums_workspace(std::size_t rows, std::size_t columns);
/// Needs a workspace of column_sums_workspace(rows, columns) floats.
void column_sums(DeviceSpan<const float> matrix, std::size_t columns, DeviceSpan<float> out,
                 DeviceSpan<float> workspace, cudaStream_t);
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
/// `decay_factor`: a factor by which w is multiplied first, in the same pass: 1 for Adam, 1 − step·decay for AdamW.
void adam(DeviceSpan<float> w, DeviceSpan<float> m, DeviceSpan<float> v, DeviceSpan<const float> g, AdamParameters,
          float decay_factor, cudaStream_t);
void adam(DeviceSpan<Bf16> w, DeviceSpan<Bf16> m, DeviceSpan<Bf16> v, DeviceSpan<const Bf16> g, AdamParameters,
          float decay_factor, cudaStream_t);

/// As `adam`, where a loss scale may skip updates: the update's number counts only updates that were made, and epsilon
/// is that of algorithm 1 of Adam's paper (AdamParameters). rates [1]: memory for this call alone, to which its first
/// kernel writes.
void adam_step(DeviceSpan<float> w, DeviceSpan<float> m, DeviceSpan<float> v, DeviceSpan<const float> g, AdamParameters,
               float decay_factor, UpdateGate, DeviceSpan<AdamRates> rates, cudaStream_t);

// Weights on a GPU that are rounded to bf16 but stored as fp32: the functions of
// kernels/pointwise/bf16_weights.hpp for each number of a buffer.

using runtime::DeviceSpan;

/// w becomes `target` rounded to bf16. All functions queue their work on the stream, and their results have the host's
/// bits. Errors: std::invalid_argument when lengths differ; BackendError when a launch fails.

/// Rounds to nearest; target may be w. Cost: 8 bytes an element.
void bf16_nearest(DeviceSpan<const float> target, DeviceSpan<float> w, UpdateGate, cudaStream_t);
/// Keeps the rounding error in `carry`. Cost: 20 bytes an element.
void bf16_kahan(DeviceSpan<float> w, DeviceSpan<const float> target, DeviceSpan<float> carry, UpdateGate, cudaStream_t);
/// Rounds away from zero with a probability equal to the fraction that is cut off, else towards zero. `place`: index of
/// w's first element among all weights; together with the update's number it is the key of the draws. Cost: 8 bytes an
/// element, and a Philox block for every four elements.
void bf16_stochastic(DeviceSpan<float> w, DeviceSpan<const float> target, std::uint64_t place, UpdateGate,
                     cudaStream_t);

// LARS and LAMB on a GPU: the functions of kernels/pointwise/updates.hpp, with many tensors in a launch.

using runtime::DeviceSpan;
using Pieces = std::span<const TensorPiece>;

/// All functions queue their work on the stream. Their results have the host's bits, since sums are in the host's
/// order. sums: one NormSquares for each piece. Errors: std::invalid_argument when lengths differ or a piece does not
/// lie within the buffers; BackendError when a launch fails.

/// Bytes of workspace: at most 16 for each block of 4096 elements of a piece, or part of such a block.
std::size_t norms_workspace(Pieces);

void lars_norms(DeviceSpan<const float> w, DeviceSpan<const float> g, Pieces, DeviceSpan<NormSquares> sums,
                DeviceSpan<NormSquares> workspace, cudaStream_t);
void lars(DeviceSpan<float> w, DeviceSpan<float> v, DeviceSpan<const float> g, Pieces,
          DeviceSpan<const NormSquares> sums, LarsParameters, UpdateGate, cudaStream_t);
void lamb_norms(DeviceSpan<const float> w, DeviceSpan<float> m, DeviceSpan<float> v, DeviceSpan<const float> g, Pieces,
                DeviceSpan<NormSquares> sums, DeviceSpan<NormSquares> workspace, LambParameters, UpdateGate,
                cudaStream_t);
void lamb(DeviceSpan<float> w, DeviceSpan<const float> m, DeviceSpan<const float> v, Pieces,
          DeviceSpan<const NormSquares> sums, LambParameters, UpdateGate, cudaStream_t);

// A loss scale that adapts, on a GPU: kernels check gradients, skip updates and change the scale.

using runtime::DeviceSpan;

/// All functions queue their work on the stream, and their results have the host's bits. scale [1], counts [1]. Errors:
/// std::invalid_argument when a length differs; BackendError when a launch fails.

/// gradients ×= 1/scale. Cost: 8 bytes an element.
void unscale(DeviceSpan<float> gradients, DeviceSpan<const float> scale, cudaStream_t);
/// Sets counts->skips_step if a gradient is infinite or NaN. Cost: 4 bytes an element.
void note_non_finite(DeviceSpan<const float> gradients, DeviceSpan<LossScaleCounts> counts, cudaStream_t);
/// Calls kernels::end_step in one thread of the GPU.
void end_step(DeviceSpan<float> scale, DeviceSpan<LossScaleCounts> counts, std::int64_t growth_interval, cudaStream_t);

// Softmax cross-entropy on a GPU.

using runtime::DeviceSpan;

/// Bytes of workspace: 16 for each row.
std::size_t cross_entropy_workspace(std::size_t rows);

/// Computes kernels::softmax_cross_entropy. `total` [1] is in device memory, and valid once the stream has passed the
/// call. `correct` is exact. Losses and gradients differ from the host's in their last bits, since the GPU's
/// exponentials do: the relative error of a row's sum is at most 2^-21, the error of a gradient at most
/// 2^-21·loss_scale/rows. A label outside the classes makes the loss NaN, since a kernel cannot throw.
/// Shape:  logits [rows × classes], labels [rows], gradient [rows × classes] or empty; a workspace of
///         cross_entropy_workspace(rows) bytes at a multiple of 8; loss_scale [1], or empty for 1.
/// Errors: std::invalid_argument when a length differs; BackendError when a launch fails.
void softmax_cross_entropy(DeviceSpan<const float> logits, DeviceSpan<const std::int32_t> labels, std::size_t classes,
                           DeviceSpan<const float> loss_scale, DeviceSpan<float> gradient,
                           DeviceSpan<CrossEntropy> total, DeviceSpan<std::byte> workspace, cudaStream_t);

// The other functions of kernels/loops.hpp; the host computes these within `Loops` itself.

using runtime::DeviceSpan;

/// All functions queue their work on the stream. The bits of their results, their shapes and costs are the host's.
/// Errors: std::invalid_argument when lengths differ; BackendError when a launch fails.

void fill(DeviceSpan<float>, float value, cudaStream_t);
void add(DeviceSpan<const float> a, DeviceSpan<const float> b, DeviceSpan<float> to, cudaStream_t);
void add_and_scale(DeviceSpan<const float> a, DeviceSpan<const float> b, float factor, DeviceSpan<float> to,
                   cudaStream_t);
void add_row(DeviceSpan<const float> x, DeviceSpan<const float> row, bool is_relu, DeviceSpan<float> to, cudaStream_t);
void add_channels_and_relu(DeviceSpan<const float> bias, std::size_t pixels, DeviceSpan<float> images, cudaStream_t);
/// A warp sums one channel of one image. The sums of all images are then added up in the order of row_sums.hpp, with a
/// workspace of channel_sums_workspace(images, channels) floats.
std::size_t channel_sums_workspace(std::size_t images, std::size_t channels);
void channel_sums(DeviceSpan<const float> images, std::size_t pixels, DeviceSpan<float> sums,
                  DeviceSpan<float> workspace, cudaStream_t);
/// A word outside the table gives NaN.
void embed(DeviceSpan<const float> words, DeviceSpan<const float> table, std::size_t width, DeviceSpan<float> to,
           cudaStream_t);
/// A block of threads handles one row of the table and looks at all words. That keeps the host's order of sums, at the
/// cost of reading all words once for each row.
void embed_backward(DeviceSpan<const float> words, DeviceSpan<const float> delta, std::size_t width, bool clears,
                    DeviceSpan<float> table, cudaStream_t);
void swap_rows_and_columns(DeviceSpan<const float> from, std::size_t rows, std::size_t columns, std::size_t width,
                           DeviceSpan<float> to, cudaStream_t);
void reorder_heads(DeviceSpan<const float> from, const HeadLayout&, DeviceSpan<float> to, cudaStream_t);

}  // namespace gradmeter::kernels::cuda
