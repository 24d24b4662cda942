// SPDX-License-Identifier: Apache-2.0
// A layer table as a model: the operations that its layers call, the passes that submit these calls, and the model.
#pragma once
#include <array>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/op.hpp"
#include "model/model.hpp"
#include "model/network/pipeline.hpp"
#include "model/table/table_layers.hpp"

namespace gradmeter::model {

/// Where the memory of an operand of a `Call` is.
struct Place {
  enum class Kind : std::uint8_t {
    own,              ///< memory of this layer, or memory that it shares with a neighbouring layer
    scratch,          ///< memory for one call
    flow,             ///< the gradient that is passed down from layer to layer, in two buffers by turns
    random_gradient,  ///< the gradient that enters a layer if the layer above gives none
    tensor            ///< part of the flat buffers: a parameter, or its gradient
  };
  Kind kind = Kind::own;
  runtime::Buffer memory = runtime::no_floats;  ///< for `own`
  std::size_t first = 0;  ///< scratch: byte offset; flow: index of its buffer, 0 or 1; tensor: element offset
  std::size_t bytes = 0;  ///< bytes of the operand in the form that its operation reads or writes (its stored form)
  const kernels::NumberFormat* format = nullptr;
  // The next four are for a tensor.
  std::size_t count = 0;  ///< elements in the flat buffers
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

/// The place of a row's tensor in the flat buffers; count 0: the row has no tensor.
struct TensorPlace {
  std::size_t first = 0, count = 0;
};

struct TableSetting {
  std::size_t samples = 1;
  kernels::Precision precision = kernels::Precision::fp32;
};

/// The calls of all layers for one number of samples. It owns the operations and the memory that layers keep;
/// `TablePasses` owns scratch, flows and random gradients. Equal problems share an operation.
struct TableCalls {
  std::vector<LayerCalls> layers;
  std::size_t scratch_bytes = 0;
  std::array<std::size_t, 2> flow_bytes{};
  struct Random {
    const kernels::NumberFormat* format;
    std::size_t bytes;
  };
  std::vector<Random> random_gradients;  ///< for each format, the size of the largest random gradient
  std::map<std::string, std::unique_ptr<kernels::Op>> operations;
  std::vector<runtime::OwnedBuffer> memory;
};

/// Makes calls for the queue's device and the calling thread's compute_threads(). tensors: by row. seed: for random
/// inputs. Errors: UsageError or BackendError when no backend takes an operation; std::bad_alloc.
TableCalls make_table_calls(std::span<const TableLayer>, std::span<const TensorPlace> tensors, const TableSetting&,
                            runtime::Queue&, std::uint64_t seed);

/// Fills the buffer by kernels::fill_repeating. Must be called within work of the buffer's device.
void fill_random(const runtime::Buffer&, const kernels::NumberFormat&, std::uint64_t seed, double scale = 1);

/// Runs the forward and the backward pass over a table's layers for one number of samples, for the queue's device and
/// the calling thread's compute_threads(). Layers and tensor places must outlive it. Errors: those of make_table_calls.
class TablePasses {
 public:
  TablePasses(std::span<const TableLayer>, std::span<const TensorPlace>, const TableSetting&, Queue&,
              std::uint64_t seed);

  bool fits(std::size_t samples, Queue&) const;
  void forward(Queue&, const ConstBuffer& parameters);
  /// turn: selects the random gradients that enter a layer if the layer above gives none. Calls `ready(row)` for each
  /// row with a tensor of its own, last row first, once the work of its gradient is submitted.
  void backward(Queue&, Buffers, std::uint64_t turn, const std::function<void(std::size_t row)>& ready);

 private:
  /// Random numbers, and the same numbers with the opposite sign. A pass uses one of these two buffers, and begins to
  /// read it at one of a few offsets.
  struct RandomGradient {
    const kernels::NumberFormat* format;
    std::array<runtime::OwnedBuffer, 2> signs;
  };
  void run(Queue&, const Call&, const ConstBuffer& parameters, const Buffer& gradients);
  Buffer memory_of(const Place&) const;
  Buffer random_part(const Place&) const;
  void embed(Queue&, std::size_t layer, const ConstBuffer& parameters) const;
  void embedding_gradient(Queue&, std::size_t layer, const Buffer& gradients) const;
  void fill_tensors(Queue&, std::size_t layer, const Buffer& gradients, const std::function<void(std::size_t)>& ready);
  TensorPlace tensor(std::size_t row) const { return tensors_[row]; }

  std::span<const TableLayer> layers_;
  std::span<const TensorPlace> tensors_;
  TableSetting setting_;
  int threads_;
  runtime::Device& device_;
  TableCalls calls_;
  runtime::OwnedBuffer scratch_;
  std::array<runtime::OwnedBuffer, 2> flows_;
  std::vector<RandomGradient> random_gradients_;
  RandomGradient computed_by_none_;  ///< random numbers for the fp32 gradients of tensors that no operation computes
  std::uint64_t turn_ = 0;
};

struct TableModelOptions {
  std::string name;  ///< canonical: "resnet50:shrink=2"
  /// Numbers of features and classes of the run's data set. The table's operations do not read its data.
  std::size_t features = 0, classes = 0;
  /// precision of its operations; parameters and gradients are fp32
  kernels::Precision precision = kernels::Precision::fp32;
  std::uint64_t worker = 0;  ///< ranks with different numbers have different data
  /// number of micro-batches into which a pass cuts its batch
  std::size_t micro_batches = 1;
};

/// A network given by the table of its layers, as a workload: it runs every product, convolution and recurrent layer of
/// the table, forward and backward. Its gradients have the real sizes and become ready in the real order. It does not
/// learn. Layers run in the table's order. A layer reads the output of the layer before if the sizes agree, so
/// activation functions, norms and pooling are skipped; otherwise it reads random data. Gradients are passed back in
/// the same way. Biases, norms and other tensors that no operation computes get a gradient copied from random data. For
/// a row without geometry, the model runs the product that the row's shape and FLOP imply, and says so in `note`.
/// Weights start with a variance of 1/(inputs), which keeps values near 1 through the layers. The gradient that enters
/// at the top is random, and its sign varies from pass to pass, so weights stay near their start however long the model
/// runs.
/// Cost: the operations of `problems_of`; converting weights and gradients if the library has other layouts; setting an
/// embedding's gradient to zero and adding its rows. Memory: `workspace_bytes`. Micro-batches run one after another.
/// Errors: those of layers_of; UsageError when no backend takes an operation in this precision, or a batch does not
/// divide into micro-batches; std::invalid_argument for buffers of the wrong size.
class TableModel final : public Model {
 public:
  TableModel(LayerTable, TableModelOptions);
  ~TableModel() override;

  const std::string& name() const override { return options_.name; }
  std::span<const Tensor> tensors() const override { return tensors_; }
  std::size_t element_count() const override { return element_count_; }
  std::size_t input_features() const override { return options_.features; }
  std::size_t classes() const override { return options_.classes; }
  bool learns() const override { return false; }
  std::string note() const override;
  double step_flops(std::size_t samples) const override { return flops_of(problems(samples, true)); }
  std::vector<std::string> layer_names() const override;
  std::vector<RepeatedProblem> pass_problems(std::size_t samples) const override;
  std::vector<RepeatedProblem> forward_problems(std::size_t n) const override { return problems(n, false); }
  /// An estimate: activations, two gradients of activations, random gradients of both signs, operands in the library's
  /// layouts, and the sum over micro-batches. The library's other scratch is not counted.
  std::size_t workspace_bytes(std::size_t samples) const override;

  void initialise(Queue&, Buffers, std::uint64_t seed) const override;
  void run_forward(Queue&, Buffers, const Batch&, const OutcomePlace&) override;
  void run_pass(Queue&, Buffers, const Batch&, const Ready&, const OutcomePlace&) override;

 private:
  std::vector<RepeatedProblem> problems(std::size_t samples, bool backward) const;
  TablePasses& passes_for(Queue&, std::size_t samples);
  void check(Buffers, const Batch&, bool backward) const;
  void pass_micro_batch(Queue&, Buffers, const Batch&, const Ready&, const OutcomePlace&);

  LayerTable table_;
  TableModelOptions options_;
  std::vector<TableLayer> layers_;
  std::vector<Tensor> tensors_;             ///< last row first
  std::vector<TensorPlace> places_;         ///< by row
  std::vector<std::size_t> tensor_of_row_;  ///< SIZE_MAX: the row has no tensor
  std::size_t element_count_ = 0;
  GradientSum sum_{0, 1};                           ///< the sum over the micro-batches of a pass
  std::uint64_t passes_done_ = 0;                   ///< counts micro-batches
  std::list<std::unique_ptr<TablePasses>> passes_;  ///< few, since a run has few different numbers of samples
};

}  // namespace gradmeter::model
