// SPDX-License-Identifier: Apache-2.0
// The layers of a network that one rank holds (`HeldLayers`: which they are, their tensors and first weights), and how
// one micro-batch is passed through them, forward and backward (`Stage`).
#pragma once
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/layers/layer.hpp"
#include "model/model.hpp"
#include "model/network/part.hpp"

namespace gradmeter::model {

/// The number of a tensor that another stage owns.
inline constexpr std::size_t of_other_stage = std::numeric_limits<std::size_t>::max();

/// Stages are runs of layers, as equal as possible in the FLOP of a forward pass (backward costs each layer twice that,
/// except the first). The number of weights would be no measure, since convolutions and recurrent layers use theirs
/// many times. Tensors are ordered from the last layer to the first, and within a layer in its own order. Each starts
/// at a multiple of 16 floats; the gaps between them are zero in both buffers and stay so.
/// Tensor ranks share pairs of layers, the first cut by outputs and the second by inputs (`cut_pairs`), and such pairs
/// within layers of layers. All of them hold the other layers whole. A stage may end inside such a pair, but not within
/// a layer. Layers that all tensor ranks hold have equal gradients, to the bit, since sums have equal bits on all
/// ranks, and whole layers do the same operations on equal numbers.
/// Errors: UsageError when a layer's input does not have the shape of the previous output, when the last layer gives no
/// features, when there are more stages than layers, when there are stages although a layer before the last shares the
/// first one's weight, or when tensor ranks find no pair or cannot share one evenly.
class HeldLayers {
 public:
  /// layers: those of the whole network, for any part.
  HeldLayers(std::string name, std::vector<std::unique_ptr<Layer>> layers, const Part&);

  /// This and the next three describe the whole network, not the part.
  const std::string& name() const { return name_; }
  std::size_t input_features() const { return input_features_; }
  std::size_t classes() const { return classes_; }
  std::size_t labels() const { return labels_; }  ///< one for each step where the last layer gives tokens

  /// The layers that this rank holds. The functions below count only these.
  std::span<const std::unique_ptr<Layer>> layers() const { return layers_; }
  /// The floats of a sample in the first layer's input, and in the output of each layer.
  std::size_t input_width() const { return input_width_; }
  std::span<const std::size_t> widths() const { return widths_; }
  /// The layer's sums over tensor ranks; the gradient by a network's input is never among them.
  const LayerSums& sums(std::size_t layer) const { return sums_[layer]; }
  /// Whether the gradient by the layer's input is needed. For the network's input it is not.
  bool has_input_gradient(std::size_t layer) const { return begin_ + layer > 0; }
  std::span<const Tensor> tensors() const { return tensors_; }
  std::size_t element_count() const { return element_count_; }
  /// Floats of the weight that the last of several stages shares with the first, on these two stages; else 0.
  std::size_t tied_between_stages() const { return tied_between_stages_; }
  /// The number of a layer's tensor among all; for a tied one, that of the first layer's tensor, or `of_other_stage`.
  std::size_t tensor_of(std::size_t layer, std::size_t tensor) const;
  /// A layer's tensors in a flat buffer. A buffer is empty if another stage owns the tensor.
  template <class AnyBuffer>
  std::vector<AnyBuffer> parts_of(const AnyBuffer& flat, std::size_t layer) const {
    std::vector<AnyBuffer> all;
    for (std::size_t t = 0; t < layers_[layer]->tensors().size(); ++t) {
      const std::size_t tensor = tensor_of(layer, t);
      all.push_back(tensor == of_other_stage ? AnyBuffer(runtime::no_floats)
                                             : flat.part(tensors_[tensor].offset, tensors_[tensor].count));
    }
    return all;
  }

  std::vector<RepeatedProblem> problems(std::size_t samples, bool backward) const;
  /// Draws the first weights from the seed and from the place of layer and tensor in the whole network.
  void initialise(Queue&, Buffers, std::uint64_t seed) const;

 private:
  using Layers = std::vector<std::unique_ptr<Layer>>;
  void check(const Layers& whole) const;
  /// Cuts the layers for the part's tensor rank, and keeps those of its stage.
  void choose(Layers& whole, const Part&);
  /// whole_offsets: offsets in the whole network, by layer and tensor.
  void add_tensors(const std::vector<std::vector<std::size_t>>& whole_offsets);

  std::string name_;
  std::size_t input_features_ = 0, classes_ = 0, labels_ = 0;
  Layers layers_;
  std::size_t begin_ = 0;  ///< the first layer held, in the whole network
  std::size_t input_width_ = 0;
  std::vector<std::size_t> widths_;
  std::vector<LayerSums> sums_;
  std::vector<Tensor> tensors_;
  std::vector<std::size_t> first_tensor_;  ///< by layer held
  std::size_t element_count_ = 0, tied_between_stages_ = 0;
};

using runtime::no_floats;

/// The buffers that one micro-batch holds from its forward to its backward pass [samples × width].
struct StageSlot {
  Buffer input = no_floats;                 ///< received from the previous stage; empty on the first
  std::vector<Buffer> outputs;              ///< one for each layer
  std::vector<std::vector<Buffer>> shared;  ///< for the sums within a layer, by layer
  Buffer top_delta = no_floats;             ///< the loss's gradient by the last output
  Buffer input_gradient = no_floats;        ///< the gradient by the input, for the previous stage; empty on the first
  /// The gradients by the outputs of all layers but the last. All slots use the same memory, since only one micro-batch
  /// is in its backward pass at a time.
  std::vector<Buffer> deltas;
};

/// Runs one micro-batch through a part's layers: computation, and the sums over tensor ranks. `Network` decides when
/// micro-batches come, and from where. Memory besides its buffers: that of prepared layers, for each number of samples
/// and each micro-batch that waits for its backward pass.
class Stage {
 public:
  /// The part must outlive it. Peers may be null where there are no others.
  Stage(const HeldLayers&, Peers*);

  struct Pass {
    Queue& queue;
    ConstBuffer parameters;
    ConstBuffer input;
    std::size_t samples;
    std::size_t slot = 0;  ///< index of the micro-batch among those that wait for their backward pass
    /// For the last of several stages: the weight that the first stage owns, and the memory for its gradient.
    ConstBuffer tied_weight = no_floats;
    Buffer tied_gradient = no_floats;
  };
  /// Fills the slot's outputs.
  void forward(const Pass&, const StageSlot&);
  /// Computes from the slot's top delta, which it may overwrite, to its input gradient. Calls `ready(i)`, with
  /// ascending i, when the work for tensor i's gradient and for the gap behind it is submitted.
  void backward(const Pass&, const StageSlot&, const Buffer& gradients, const Model::Ready&);

 private:
  using PreparedLayers = std::vector<std::unique_ptr<PreparedLayer>>;
  /// All layers, prepared for one number of samples, number of threads, device and slot.
  struct Prepared {
    std::size_t samples, slot;
    int threads;
    runtime::Device* device;
    PreparedLayers layers;
  };
  /// A layer's tensor in the flat buffers. What a pass must know of tensors and layers is kept side by side here, since
  /// the layers themselves have left the caches when a pass returns to them.
  struct TensorPlace {
    std::size_t tensor;  ///< number among the part's tensors, or of_other_stage
    std::size_t offset, count;
    bool is_tied;
  };
  const PreparedLayers& prepared(const Pass&);
  /// Fills `to` with the tensors of all layers in a flat buffer, layer by layer. `tied`: the tensor that another stage
  /// owns.
  template <class AnyBuffer>
  void list_tensors(const AnyBuffer& flat, const AnyBuffer& tied, std::vector<AnyBuffer>& to) const;
  template <class Listed>
  std::span<const Listed> of_layer(const std::vector<Listed>& listed, std::size_t layer) const {
    return std::span(listed).subspan(first_[layer], first_[layer + 1] - first_[layer]);
  }
  Buffer of_samples(const Buffer& memory, const Pass&, std::size_t layer) const;

  const HeldLayers& held_;
  Peers* peers_;
  std::vector<TensorPlace> places_;      ///< tensors of all layers, layer by layer
  std::vector<std::size_t> first_;       ///< by layer: index of its first tensor in places_; then the end
  std::vector<Prepared> prepared_;       ///< a run sees few numbers of samples
  std::vector<ConstBuffer> parameters_;  ///< lists of the pass being submitted, kept for their memory
  std::vector<Buffer> gradients_;
};

}  // namespace gradmeter::model
