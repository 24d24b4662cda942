// The table of models, and how a name becomes one.
#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "core/name.hpp"
#include "model/model.hpp"
#include "model/network.hpp"
#include "model/part.hpp"

namespace gradmeter::model {

/// What a model is made for.
struct ModelRequest {
  std::size_t features = 0, classes = 0;  ///< of the data
  std::size_t labels = 1;                 ///< of a sample: as many as features, where samples are sentences
  kernels::Precision precision = kernels::Precision::fp32;
  kernels::Precision loss_precision = kernels::Precision::fp32;  ///< of softmax cross-entropy: fp32 or logarithms
  Part part = {};
  std::uint64_t worker = 0;          ///< of the data axis: models that bring their own data differ by it
  std::string_view device = "host";  ///< runtime::Device::name: what its operations run on
};

/// One row of the table that `gradmeter list models` prints.
struct ModelEntry {
  std::string_view name, description, source;
  std::string_view
      default_name;  ///< what the bare name means on 28 × 28 images of ten digits, or on the built-in language
  /// Its micro-batches are those of pipeline stages alone.
  std::unique_ptr<Model> (*make)(const core::ParsedName&, const ModelRequest&);
  bool reads_text = false;  ///< sentences, each token to be predicted
};
std::span<const ModelEntry> model_table();

/// "mlp" takes its outer widths from the data and two hidden layers of 1024; "mlp:784-100-10" gives all widths.
/// "resnet50" and "FILE.csv" are layer tables (table/layer_table.hpp), with shrink=2 their widths are halved. The
/// part's micro-batches are taken by the pipeline where there are stages, else one after another (`Accumulate`).
/// Errors: UsageError on an unknown name, on parameters it does not take, when the model does not fit the data or has
/// no such precision, and when it cannot be split, or not so.
std::unique_ptr<Model> make_model(std::string_view name, const ModelRequest&);
/// Does software round to the precision in some of the model's operations, so that its times say nothing of it?
bool is_rounded_by_software(std::string_view name, const ModelRequest&);

/// Of models that are lists of layers, mlp too, as inference takes them: tensors are those of make_model, at the same
/// places. Null: a layer table. Errors: as above.
std::unique_ptr<Network> make_network(std::string_view name, ModelRequest);

}  // namespace gradmeter::model
