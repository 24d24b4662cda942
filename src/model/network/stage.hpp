// SPDX-License-Identifier: Apache-2.0
// The layers of a network that one rank holds, with their tensors and first weights (`HeldLayers`), and how one
// micro-batch is passed through these layers, forward and backward (`Stage`).
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

/// Stands for the number of a tensor that another stage owns.
inline constexpr std::size_t of_other_stage = std::numeric_limits<std::size_t>::max();

/// The layers that a rank holds of a network, which may be split into stages and among tensor ranks.
/// Stages are runs of consecutive layers, as equal as possible in the FLOP of a forward pass. (The backward pass of
/// each layer but the first costs twice as much.) The number of weights would be no measure of cost, since convolutions
/// and recurrent layers use each weight many times. Tensors are ordered from the last layer to the first, and within a
/// layer in the layer's own order. Each tensor starts at a multiple of 16 floats. The gaps between tensors are zero in
/// both flat buffers, parameters and gradients, and stay so.
/// Tensor ranks share pairs of layers, the first of a pair cut by outputs and the second by inputs (`cut_pairs`); they
/// also share such pairs inside a layer that is made of layers. Every tensor rank holds all other layers whole. A stage
/// may end between the two layers of a pair, but not within a layer. The gradients of layers that all tensor ranks hold
/// are equal on all of them, to the bit: sums have equal bits on all ranks, and whole layers do the same operations on
/// equal numbers.
/// Errors: UsageError when a layer's input does not have the size of the previous output, when the last layer gives an
/// image, when there are more stages than layers, when a weight is shared across stages other than by the first and the
/// last layer, or when tensor ranks find no pair or cannot share one evenly.
class HeldLayers {
 public:
  /// layers: all layers of the network, whichever part of them this rank holds.
  HeldLayers(std::string name, std::vector<std::unique_ptr<Layer>> layers, const Part&);

  /// This and the next three describe the whole network, not the part.
  const std::string& name() const { return name_; }
  std::size_t input_features() const { return input_features_; }
  std::size_t classes() const { return classes_; }
  /// The labels of a sample: one for each step if the last layer gives tokens, else one.
  std::size_t labels() const { return labels_; }

  /// The layers that this rank holds. The functions below count only these.
  std::span<const std::unique_ptr<Layer>> layers() const { return layers_; }
  /// The number of floats that a sample has in the first layer's input, and in the output of each layer; 0 for an
  /// output that stays in the layer's own memory (`Layer::keeps_activations`).
  std::size_t input_width() const { return input_width_; }
  std::span<const std::size_t> widths() const { return widths_; }
  /// The sums over tensor ranks that a layer needs. The gradient with respect to the network's input is never summed.
  const LayerSums& sums(std::size_t layer) const { return sums_[layer]; }
  /// True if the gradient with respect to the layer's input is needed: for every layer but the network's first.
  bool has_input_gradient(std::size_t layer) const { return begin_ + layer > 0; }
  std::span<const Tensor> tensors() const { return tensors_; }
  std::size_t element_count() const { return element_count_; }
  /// The number of floats of the weight that the last of several stages shares with the first. It is 0 on the stages
  /// between them, and if no weight is shared.
  std::size_t tied_between_stages() const { return tied_between_stages_; }
  /// The number of a layer's tensor among all tensors of this rank. For a tied tensor it is the number of its
  /// owner's tensor, or `of_other_stage` if another stage has the owner.
  std::size_t tensor_of(std::size_t layer, std::size_t tensor) const;
  /// A layer's tensors in a flat buffer. A buffer is empty if another stage owns the tensor.
  template <class AnyBuffer>
  std::vector<AnyBuffer> parts_of(const AnyBuffer& flat, std::size_t layer) const {
    std::vector<AnyBuffer> all;
    for (std::size_t t = 0; t < layers_[layer]->tensors().size(); ++t) {
      const std::size_t tensor = tensor_of(layer, t);
      all.push_back(tensor == of_other_stage ? AnyBuffer(runtime::empty_buffer)
                                             : flat.part(tensors_[tensor].offset, tensors_[tensor].count));
    }
    return all;
  }

  std::vector<RepeatedProblem> problems(std::size_t samples, bool backward) const;
  /// Draws the initial weights. They depend on the seed and on the positions of layer and tensor in the whole network,
  /// not on the part.
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
  std::size_t begin_ = 0;  ///< number of the first layer held, in the whole network
  std::size_t input_width_ = 0;
  std::vector<std::size_t> widths_;
  std::vector<LayerSums> sums_;
  std::vector<Tensor> tensors_;
  std::vector<std::size_t> first_tensor_;  ///< by layer held
  std::size_t element_count_ = 0, tied_between_stages_ = 0;
};

using runtime::empty_buffer;

/// The buffers, of samples × width floats, that one micro-batch holds from its forward to its backward pass.
struct StageSlot {
  Buffer input = empty_buffer;              ///< received from the previous stage; empty on the first stage
  std::vector<Buffer> outputs;              ///< one for each layer
  std::vector<std::vector<Buffer>> shared;  ///< by layer: buffers for the sums within the layer
  Buffer top_delta = empty_buffer;          ///< gradient of the loss with respect to the last output
  /// The gradient with respect to the input, for the previous stage; empty on the first stage.
  Buffer input_gradient = empty_buffer;
  /// The gradients with respect to the outputs of all layers but the last. All slots use the same memory for them,
  /// since only one micro-batch at a time is in its backward pass.
  std::vector<Buffer> deltas;
};

/// Runs one micro-batch through the layers that a rank holds: the computation, and the sums over tensor ranks.
/// `Network` decides when and from where micro-batches come. Memory, besides the slots: that of prepared layers, for
/// each number of samples and each micro-batch that waits for its backward pass.
class Stage {
 public:
  /// The held layers must outlive this object. Peers may be null if the model is not split.
  Stage(const HeldLayers&, Peers*);

  struct Pass {
    Queue& queue;
    ConstBuffer parameters;
    ConstBuffer input;
    std::size_t samples;
    std::size_t slot = 0;  ///< index of the micro-batch among those that wait for their backward pass
    /// For the last of several stages: the weight that the first stage owns, and the memory for its gradient.
    ConstBuffer tied_weight = empty_buffer;
    Buffer tied_gradient = empty_buffer;
  };
  /// Fills the slot's outputs.
  void forward(const Pass&, const StageSlot&);
  /// Runs the backward pass from the slot's top delta, which it may overwrite, down to the slot's input gradient. Calls
  /// `ready(i)`, with ascending i, when the work for tensor i's gradient and for the gap behind that tensor is
  /// submitted.
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
  /// A layer's tensor in the flat buffers. These facts are copied here, side by side, since the layers themselves have
  /// left the caches when a pass returns to them.
  struct TensorPlace {
    std::size_t tensor;  ///< number among the part's tensors, or of_other_stage
    std::size_t offset, count;
    bool is_tied;
  };
  const PreparedLayers& prepared(const Pass&);
  /// Fills `to` with the tensors of all layers in a flat buffer, layer by layer. `tied`: the buffer of a tensor that
  /// another stage owns.
  template <class AnyBuffer>
  void list_tensors(const AnyBuffer& flat, const AnyBuffer& tied, std::vector<AnyBuffer>& to) const;
  template <class Listed>
  std::span<const Listed> of_layer(const std::vector<Listed>& listed, std::size_t layer) const {
    return std::span(listed).subspan(first_[layer], first_[layer + 1] - first_[layer]);
  }
  /// The part of a buffer, of layer outputs or of their gradients, that the pass's samples take.
  Buffer of_samples(const Buffer& memory, const Pass&, std::size_t layer) const;

  const HeldLayers& held_;
  Peers* peers_;
  std::vector<TensorPlace> places_;  ///< tensors of all layers, layer by layer
  /// For each layer: the index of its first tensor in places_. One more element holds the size of places_.
  std::vector<std::size_t> first_;
  std::vector<Prepared> prepared_;  ///< few elements, since a run has few different numbers of samples
  /// This member and the next list the tensors of the pass being submitted; as members they keep their memory from pass
  /// to pass.
  std::vector<ConstBuffer> parameters_;
  std::vector<Buffer> gradients_;
  std::uint64_t passes_ = 0;  ///< number of backward passes so far
};

}  // namespace gradmeter::model
