// Which models there are, and how a name becomes one.
#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "core/name.hpp"
#include "model/model.hpp"

namespace gradmeter::model {

/// One row of the table that `gradmeter list models` prints.
struct ModelEntry {
  std::string_view name, description, source;
  std::string_view default_name;  ///< what the bare name means on 28 × 28 images of ten digits
  std::unique_ptr<Model> (*make)(const core::ParsedName&, std::size_t features, std::size_t classes);
};
std::span<const ModelEntry> model_table();

/// A model for data of `features` inputs and `classes` classes. "mlp" takes its outer widths from the data and two
/// hidden layers of 1024; "mlp:784-100-10" gives all widths.
/// Errors: UsageError on an unknown name, on parameters it does not take, and when the model does not fit the data.
std::unique_ptr<Model> make_model(std::string_view name, std::size_t features, std::size_t classes);

}  // namespace gradmeter::model
