// The layers that one rank holds, forward and backward over one micro-batch: computation, and the sums over tensor
// ranks within it. `mlp` decides when micro-batches come, and from where.
#pragma once
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/op.hpp"
#include "model/mlp_shard.hpp"

namespace gradmeter::model {

using runtime::no_floats;

/// Allocates floats, private ones and ones that peers see. Without memory it only counts them.
class Allotment {
 public:
  Allotment() = default;
  Allotment(const Buffer& own, const Buffer& seen) : own_{own}, seen_{seen} {}
  /// Aligned to a cache line. Empty while it only counts.
  Buffer take(std::size_t floats, bool seen_by_peers);
  std::size_t own() const { return own_.used; }
  std::size_t seen() const { return seen_.used; }

 private:
  struct Block {
    Buffer memory = no_floats;
    std::size_t used = 0;
  };
  Block own_, seen_;
};

/// What one micro-batch keeps between its forward and its backward pass [samples × width].
struct StageSlot {
  Buffer input = no_floats;        ///< that the previous stage sent; empty on the first
  std::vector<Buffer> outputs;     ///< of each layer
  Buffer top_delta = no_floats;    ///< the loss's gradient by the last of them
  Buffer input_delta = no_floats;  ///< and by the input, for the previous stage; empty on the first
};

struct StageMemory {
  std::vector<StageSlot> slots;
  std::vector<Buffer> deltas;  ///< by the outputs of all layers but the last, of the micro-batch that is in its
                               ///< backward pass
};
/// For so many micro-batches at once of at most so many samples.
StageMemory lay_out(const MlpShard&, std::size_t slots, std::size_t samples, Allotment&);

class MlpStage {
 public:
  /// The shard must outlive it. Peers may be null where there are no others.
  MlpStage(const MlpShard&, const Part&, std::string gemm_backend);

  struct Pass {
    Queue& queue;
    ConstBuffer parameters;
    ConstBuffer input;
    std::size_t samples;
  };
  /// Fills the slot's outputs.
  void forward(const Pass&, const StageSlot&);
  /// From the slot's top delta, already passed through the last output's ReLU, to its input delta, not yet passed
  /// through that of the stage before. `ready(i)` when tensor i's gradient is submitted, i ascending.
  void backward(const Pass&, const StageSlot&, std::span<const Buffer> deltas, const Buffer& gradients,
                const Model::Ready& ready);
  /// Floats of the sums over tensor ranks in a forward and a backward pass over so many samples.
  std::vector<std::size_t> sums(std::size_t samples) const;
  std::vector<std::size_t> forward_sums(std::size_t samples) const;

 private:
  struct Products {
    std::unique_ptr<kernels::Op> forward, weight, input;
  };
  /// All layers at one number of samples and of threads, on one device.
  struct Prepared {
    std::size_t samples;
    int threads;
    runtime::Device* device;
    std::vector<Products> layers;
  };
  std::vector<Products>& prepared(const Pass&);
  Products prepare(const MlpLayer&, std::size_t samples, runtime::Device&) const;
  void sum(const Buffer& partial) const;
  void weight_gradients(const Pass&, const Products&, const MlpLayer&, const ConstBuffer& input,
                        const ConstBuffer& delta, const Buffer& gradients, const Model::Ready&) const;

  const MlpShard& shard_;
  Peers* peers_;
  std::string gemm_backend_;
  std::list<Prepared> prepared_;  ///< a run sees few numbers of samples
};

}  // namespace gradmeter::model
