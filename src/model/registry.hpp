// The table of models, and how a name becomes one.
#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "core/name.hpp"
#include "model/model.hpp"
#include "model/part.hpp"

namespace gradmeter::model {

/// One row of the table that `gradmeter list models` prints.
struct ModelEntry {
  std::string_view name, description, source;
  std::string_view default_name;  ///< what the bare name means on 28 × 28 images of ten digits
  std::unique_ptr<Model> (*make)(const core::ParsedName&, std::size_t features, std::size_t classes);
  /// One rank's part of it; its micro-batches are those of pipeline stages alone. Null: it cannot be split.
  std::unique_ptr<Model> (*make_part)(const core::ParsedName&, std::size_t features, std::size_t classes,
                                      const Part&) = nullptr;
};
std::span<const ModelEntry> model_table();

/// A model for data of `features` inputs and `classes` classes. "mlp" takes its outer widths from the data and two
/// hidden layers of 1024; "mlp:784-100-10" gives all widths. The part's micro-batches are taken by the pipeline where
/// there are stages, else one after another (`Accumulate`).
/// Errors: UsageError on an unknown name, on parameters it does not take, when the model does not fit the data, and
/// when it cannot be split, or not so.
std::unique_ptr<Model> make_model(std::string_view name, std::size_t features, std::size_t classes, const Part& = {});

}  // namespace gradmeter::model
