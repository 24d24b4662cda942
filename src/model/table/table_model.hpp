// A network given by the table of its layers, as a workload: it runs every product, convolution and recurrent layer of
// the table, forward and backward, and its gradients have the real sizes and become ready in the real order. It does
// not learn.
#pragma once
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "model/model.hpp"
#include "model/table/table_passes.hpp"

namespace gradmeter::model {

struct TableModelOptions {
  std::string name;                       ///< canonical: "resnet50:shrink=2"
  std::size_t features = 0, classes = 0;  ///< of the data that a run draws; the table's operations do not read it
  kernels::Precision precision = kernels::Precision::fp32;  ///< of its operations; parameters and gradients are fp32
  std::uint64_t worker = 0;                                 ///< ranks with different numbers have different data
};

/// Layers run in the table's order. A layer reads what the one before wrote wherever the sizes agree, which skips
/// activation functions, norms and pooling; elsewhere it reads random data. So does backward with gradients. Biases,
/// norms and other tensors that no operation computes get a gradient that is copied from random data.
/// Where a row has no geometry, the product that its shape and FLOP imply runs, and the note says so.
///
/// Weights start with a variance of 1/(inputs), which keeps values near 1 through the layers. The gradient that enters
/// from above is random with signs that vary from pass to pass, so that weights stay where they are however long it
/// runs.
///
/// Cost: the operations of `problems_of`, and where the library has other layouts, bringing weights into them and
/// gradients back; an embedding's gradient is zeroed and its rows are added to. Memory: `workspace_bytes`.
/// Errors: those of layers_of; UsageError when no backend takes an operation in this precision; std::invalid_argument
/// on buffers of the wrong size.
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
  double step_flops(std::size_t samples) const override;
  std::vector<std::string> layer_names() const override;
  std::vector<RepeatedProblem> pass_problems(std::size_t n) const override { return problems(n, true); }
  std::vector<RepeatedProblem> forward_problems(std::size_t n) const override { return problems(n, false); }
  /// Activations, the two largest gradients of activations, and layouts of the library's; its own scratch is not
  /// counted.
  std::size_t workspace_bytes(std::size_t samples) const override;

  void initialise(Queue&, Buffers, std::uint64_t seed) const override;
  void run_forward(Queue&, Buffers, const Batch&, const OutcomePlace&) override;
  void run_pass(Queue&, Buffers, const Batch&, const Ready&, const OutcomePlace&) override;

 private:
  std::vector<RepeatedProblem> problems(std::size_t samples, bool backward) const;
  TablePasses& passes_for(Queue&, std::size_t samples);
  void check(Buffers, const Batch&, bool backward) const;

  LayerTable table_;
  TableModelOptions options_;
  std::vector<TableLayer> layers_;
  std::vector<Tensor> tensors_;             ///< last row first
  std::vector<TensorPlace> places_;         ///< by row
  std::vector<std::size_t> tensor_of_row_;  ///< SIZE_MAX: it has none
  std::size_t element_count_ = 0;
  std::uint64_t passes_done_ = 0;
  std::list<std::unique_ptr<TablePasses>> passes_;  ///< a run sees few numbers of samples
};

}  // namespace gradmeter::model
