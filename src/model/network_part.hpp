// Which layers of a network one rank holds: their tensors, where these are in the whole network, and their first
// weights.
#pragma once
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/layers/layer.hpp"
#include "model/model.hpp"
#include "model/part.hpp"

namespace gradmeter::model {

/// Instead of a tensor's number: it is lent by another stage.
inline constexpr std::size_t of_another_stage = std::numeric_limits<std::size_t>::max();

/// Stages are runs of layers, as equal in the FLOP of a forward pass as runs can be (backward costs each layer twice
/// that, but for the first one): weights would not do, since convolutions and recurrent layers use theirs many times.
/// Tensors: last layer first, and each layer's in its own order; each starts on a multiple of 16 floats, the gaps
/// between are zero in both buffers and stay so.
/// Tensor ranks share pairs of layers, the first cut by outputs and the second by inputs (`cut_pairs`), and those
/// within layers of layers; they all hold the others whole. A stage may end inside such a pair, but not within a layer.
/// What they all hold has equal gradients on them, to the bit: a sum has equal bits on all ranks, and whole layers
/// compute what follows, forward and backward, by the same operations from equal numbers.
/// Errors: UsageError when a layer does not take what the one before gives, the last one gives no features, there are
/// more stages than layers or stages of layers that share a weight with one before the last, or tensor ranks that find
/// no pair or cannot share one evenly.
class NetworkPart {
 public:
  /// layers: of the whole network, whatever the part.
  NetworkPart(std::string name, std::vector<std::unique_ptr<Layer>> layers, const Part&);

  const std::string& name() const { return name_; }  ///< of the whole network, as are the next three
  std::size_t input_features() const { return input_features_; }
  std::size_t classes() const { return classes_; }
  std::size_t labels() const { return labels_; }  ///< one for each step where the last layer gives tokens

  /// Those that are held.
  std::span<const std::unique_ptr<Layer>> layers() const { return layers_; }
  /// Nobody needs the gradient by what the network reads.
  bool has_input_gradient(std::size_t layer) const { return begin_ + layer > 0; }
  std::span<const Tensor> tensors() const { return tensors_; }
  std::size_t element_count() const { return element_count_; }
  /// Floats of the weight that the first of several stages lends to the last one, on these two; else 0.
  std::size_t lent_between_stages() const { return lent_between_stages_; }
  /// A layer's tensor among all; of one that is lent, the first layer's, or `of_another_stage`.
  std::size_t tensor_of(std::size_t layer, std::size_t tensor) const;
  /// A layer's tensors in a flat buffer; of another stage: an empty one.
  template <class AnyBuffer>
  std::vector<AnyBuffer> parts_of(const AnyBuffer& flat, std::size_t layer) const {
    std::vector<AnyBuffer> all;
    for (std::size_t t = 0; t < layers_[layer]->tensors().size(); ++t) {
      const std::size_t tensor = tensor_of(layer, t);
      all.push_back(tensor == of_another_stage ? AnyBuffer(runtime::no_floats)
                                               : flat.part(tensors_[tensor].offset, tensors_[tensor].count));
    }
    return all;
  }

  std::vector<RepeatedProblem> problems(std::size_t samples, bool backward) const;
  /// By the seed, the layer's and the tensor's place in the whole network.
  void initialise(Queue&, Buffers, std::uint64_t seed) const;

 private:
  using Layers = std::vector<std::unique_ptr<Layer>>;
  void check(const Layers& whole) const;
  /// Cuts them for the part's tensor rank, and keeps those of its stage.
  void choose(Layers& whole, const Part&);
  /// whole_offsets: by layer and tensor of the whole network.
  void add_tensors(const std::vector<std::vector<std::size_t>>& whole_offsets);

  std::string name_;
  std::size_t input_features_ = 0, classes_ = 0, labels_ = 0;
  Layers layers_;
  std::size_t begin_ = 0;  ///< of those held, in the whole network
  std::vector<Tensor> tensors_;
  std::vector<std::size_t> first_tensor_;  ///< by layer held
  std::size_t element_count_ = 0, lent_between_stages_ = 0;
};

}  // namespace gradmeter::model
