// Which layers of a fully connected network, and which rows or columns of their weights, one rank holds.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/gemm.hpp"
#include "model/model.hpp"
#include "model/part.hpp"

namespace gradmeter::model {

/// How a layer's weight [out × in] is divided among the tensor ranks of its stage.
enum class Cut : std::uint8_t {
  none,     ///< every rank has it all and computes the same
  outputs,  ///< each has some outputs: its activations are split afterwards, and so is its bias
  inputs    ///< each has some inputs: their partial sums must be added; the bias is on every rank
};

/// This rank's part of one layer.
struct MlpLayer {
  std::size_t number = 0;  ///< in the whole network, from 0
  Cut cut = Cut::none;
  bool first = false, last = false;         ///< of the whole network
  std::size_t in = 0, out = 0;              ///< of the part
  std::size_t whole_in = 0;                 ///< of the layer
  std::size_t first_in = 0, first_out = 0;  ///< where the part begins in the layer
  std::size_t weight = 0, bias = 0;         ///< their places among the tensors
};

/// A layer's matrix products over one micro-batch. The first layer of a network has no use for its input's gradient.
struct LayerProducts {
  kernels::GemmShape forward, weight_gradient, input_gradient;
};
LayerProducts products_of(const MlpLayer&, std::size_t samples);

/// Layers go in pairs: the first of a pair is cut by outputs, the second by inputs, so that the activations between
/// them need no exchange: a pair costs one sum of [samples × out] forward and one of [samples × in] backward, the
/// network's first pair none backward. The last layer of an odd number stays whole on every rank. Stages are runs of
/// layers, as equal in weights as runs can be; a stage may end inside a pair.
/// Tensors, last layer first: for each layer its weight [out × in], then its bias [out]; each starts on a multiple of
/// 16 floats, the gaps between are zero in both buffers and stay so.
/// Errors: UsageError for fewer than 2 widths, more than 64, a width outside 1 … 65536 or one that the tensor ranks
/// cannot share evenly, more stages than layers, and tensor ranks for a single layer.
/// Sources: Shoeybi et al., "Megatron-LM", 2019, section 3 (pairs).
class MlpShard {
 public:
  /// widths: features, hidden layers, classes; of the whole network, whatever the part.
  explicit MlpShard(std::vector<std::size_t> widths, const Part& = {});

  const std::string& name() const { return name_; }  ///< of the whole network
  std::span<const std::size_t> widths() const { return widths_; }
  std::span<const MlpLayer> layers() const { return layers_; }
  std::span<const Tensor> tensors() const { return tensors_; }
  const Tensor& weight(const MlpLayer& l) const { return tensors_[l.weight]; }
  const Tensor& bias(const MlpLayer& l) const { return tensors_[l.bias]; }
  std::size_t element_count() const { return element_count_; }
  /// Of forward and backward, by the weights that are held; the first layer of the network has no input gradient.
  double step_flops(std::size_t samples) const;
  /// Of a pass and of a forward pass over one micro-batch.
  std::vector<RepeatedProblem> pass_problems(std::size_t samples) const;
  std::vector<RepeatedProblem> forward_problems(std::size_t samples) const;

  /// The part's share of the whole network's draws: the same values however the network is split.
  void initialise(Queue&, Buffers, std::uint64_t seed) const;
  /// A tensor's part of a flat buffer with the gap behind it, which whoever writes the one sets to zero.
  static Buffer with_padding(const Buffer&, const Tensor&);

 private:
  static void draw(const MlpLayer&, std::uint64_t seed, std::span<float> weight);
  void add_layer(std::size_t number, const Part&);
  std::size_t add_tensor(std::string name, std::vector<std::size_t> shape, bool is_part, WholePlace);
  std::size_t whole_offset(std::size_t layer) const;

  std::vector<std::size_t> widths_;
  std::string name_;
  std::vector<MlpLayer> layers_;
  std::vector<Tensor> tensors_;
  std::size_t element_count_ = 0;
};

/// Where each of `stages` runs of `weights` ends, so that the heaviest is as light as it can be.
std::vector<std::size_t> balanced_runs(std::span<const std::size_t> weights, std::size_t stages);

/// A tensor's part of a flat buffer.
template <class AnyBuffer>
AnyBuffer part_of(const AnyBuffer& b, const Tensor& t) {
  return b.part(t.offset, t.count);
}

}  // namespace gradmeter::model
