// SPDX-License-Identifier: Apache-2.0
// Consecutive layers of a layer table on one rank: the operations that they call, and the passes that submit these
// calls.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/op.hpp"
#include "model/layers/layer.hpp"
#include "model/table/table_layers.hpp"

namespace gradmeter::model {

/// A layer, with the facts about it that its passes need.
struct RunLayer {
  TableLayer layer;
  /// The number of elements of each tensor, in the order of `TableLayer::rows`.
  std::vector<std::size_t> counts = {};
  bool needs_input_gradient = false;  ///< true if an earlier layer computes or is an embedding
};

/// A run of layers: all layers of the table, or those of one pipeline stage.
struct TableRunShape {
  std::vector<RunLayer> layers = {};
  std::size_t samples = 1;
  kernels::Precision precision = kernels::Precision::fp32;
  /// Floats of all samples that the run receives from the stage before and sends to the stage after; 0: the table
  /// begins or ends there.
  std::size_t input_floats = 0, output_floats = 0;
};

/// Tells where the memory of a `Call`'s operand is.
struct Place {
  enum class Kind : std::uint8_t {
    own,              ///< memory of this layer, or memory that it shares with a neighbouring layer
    scratch,          ///< memory for one call
    flow,             ///< the gradient that is passed down from layer to layer, in two buffers by turns
    random_gradient,  ///< the gradient that enters a layer if the layer above gives none
    tensor            ///< a parameter, or its gradient, in the network's flat buffers
  };
  Kind kind = Kind::own;
  runtime::Buffer memory = runtime::empty_buffer;  ///< for `own`
  std::size_t first = 0;  ///< scratch: byte offset; flow: index of its buffer, 0 or 1; tensor: first element
  std::size_t bytes = 0;  ///< bytes of the operand in the form that its operation reads or writes (its stored form)
  const kernels::NumberFormat* format = nullptr;
  // The next five are for a tensor.
  std::size_t row = 0;    ///< index of its row among the layer's rows
  std::size_t count = 0;  ///< number of its elements that the operation takes, from `first` on
  /// Converts between the flat buffers and the stored form in scratch at `stored_at`; null: both have the same form.
  kernels::Op* conversion = nullptr;
  std::size_t stored_at = 0;  ///< byte offset in scratch
  bool is_added_to = false;   ///< the operation adds to it, so it is set to zero first
};

struct Call {
  kernels::Op* op = nullptr;
  std::string_view label, conversion_label;
  std::vector<Place> inputs, outputs;
};

struct LayerCalls {
  std::vector<Call> forward;
  /// The gradients of weights come first, so that their exchange can begin early.
  std::vector<Call> weight_gradients, input_gradients;
  Place output = {}, output_gradient = {};  ///< memory of an embedding's output and its gradient, fp32
};

/// Numbers that come from another stage or go there, as plain fp32.
struct Crossing {
  Place place;                        ///< where the run's own layers read or write them
  kernels::Op* conversion = nullptr;  ///< null: they are copied as they are
};

/// The calls of all layers of a run. It owns the operations and the memory that layers keep; scratch, flows and random
/// gradients are in a `TableWorkspace`. Equal problems share an operation.
struct TableCalls {
  std::vector<LayerCalls> layers;
  /// The numbers that cross the ends of the run; empty: none. Numbers that arrive are left out if no layer of the run
  /// reads them. Where no layer gives the numbers that another stage expects, random ones are sent.
  std::optional<Crossing> input, output, output_gradient, input_gradient;
  std::size_t scratch_bytes = 0;
  std::array<std::size_t, 2> flow_bytes{};
  struct RandomGradientSize {
    const kernels::NumberFormat* format;
    std::size_t bytes;
    bool operator==(const RandomGradientSize&) const = default;
  };
  std::vector<RandomGradientSize> random_gradients;  ///< for each format, the size of the largest random gradient
  std::map<std::string, std::unique_ptr<kernels::Op>> operations;
  std::vector<runtime::OwnedBuffer> memory;
};

/// Makes calls for the queue's device and the calling thread's compute_threads(). seed: for random inputs. Errors:
/// UsageError or BackendError when no backend takes an operation; std::bad_alloc.
TableCalls make_table_calls(const TableRunShape&, runtime::Queue&, std::uint64_t seed);

/// The memory that a run uses only while it computes. The runs of micro-batches under way share it.
struct TableWorkspace {
  /// Random numbers, and the same numbers with the opposite sign. A pass uses one of these two buffers, and begins to
  /// read it at one of a few offsets.
  struct RandomGradient {
    const kernels::NumberFormat* format;
    std::array<runtime::OwnedBuffer, 2> signs;
  };
  struct Needs {
    runtime::Device* device;
    std::size_t samples, scratch_bytes;
    std::array<std::size_t, 2> flow_bytes;
    std::vector<TableCalls::RandomGradientSize> random_gradients;
    std::size_t copied_floats;  ///< of the largest tensor whose gradient no operation computes
    bool operator==(const Needs&) const = default;
  };
  /// worker: workspaces with different numbers have different random data.
  TableWorkspace(Needs, std::uint64_t worker);

  Needs needs;
  runtime::OwnedBuffer scratch;
  std::array<runtime::OwnedBuffer, 2> flows;
  std::vector<RandomGradient> random_gradients;
  RandomGradient copied_gradient;  ///< for tensors whose gradients no operation computes, fp32
};
using TableWorkspaces = std::vector<std::weak_ptr<const TableWorkspace>>;

/// Runs the forward and the backward pass over the layers of a run, one layer at a time, for queues of the device and
/// the calling thread's compute_threads(). Activations and their gradients stay in the run's own memory, in the layouts
/// of the library. Errors: those of make_table_calls.
class TableRun {
 public:
  /// worker: runs with different numbers have different random data.
  /// workspaces: those of the same table on this rank. The run shares the one with the same needs, or adds its own.
  TableRun(TableRunShape, runtime::Device&, std::uint64_t worker, TableWorkspaces& workspaces);

  void forward(std::size_t layer, const LayerForward&);
  /// The pass's number selects the random gradients that enter a layer if the layer above gives none.
  void backward(std::size_t layer, const LayerBackward&);

 private:
  /// A layer's tensors in a pass, in the order in which their gradients become ready (that of its `LayerTensor`s).
  struct Tensors {
    kernels::BufferList<runtime::ConstBuffer> parameters;
    kernels::BufferList<runtime::Buffer> gradients;
  };
  void run(runtime::Queue&, const Call&, const Tensors&);
  /// Brings numbers from another stage to where the run's layers read them.
  void enter(runtime::Queue&, std::string_view label, const std::optional<Crossing>&, const runtime::ConstBuffer&);
  /// Copies numbers for another stage to memory that holds them as plain fp32.
  void leave(runtime::Queue&, std::string_view label, const std::optional<Crossing>&, const runtime::Buffer&);
  runtime::Buffer memory_of(const Place&) const;
  runtime::Buffer random_part(const Place&) const;
  void embed(std::size_t layer, const LayerForward&) const;
  void embedding_gradient(std::size_t layer, const LayerBackward&) const;
  void fill_tensors(std::size_t layer, const LayerBackward&) const;

  TableRunShape shape_;
  std::uint64_t worker_;
  TableCalls calls_;
  std::shared_ptr<const TableWorkspace> workspace_;
  std::uint64_t pass_draw_ = 0;  ///< drawn for each pass; selects the sign and the offset of random gradients
};

}  // namespace gradmeter::model
