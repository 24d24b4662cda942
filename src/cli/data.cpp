#include "cli/data.hpp"

#include "cli/agree.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "model/data.hpp"

namespace gradmeter::cli {

DataShape read_data_shape(const std::string& directory) {
  if (directory.empty()) return {};
  const auto data = model::make_data({.source = directory});
  return {.features = data.train->features(),
          .classes = data.train->classes(),
          .labels = data.train->labels(),
          .train_samples = model::is_drawn({.source = directory}) ? SIZE_MAX : data.train->size()};
}

DataShape agree_on_data(const runtime::Communicator& world, const std::string& directory) {
  DataShape shape;
  if (directory.empty()) return shape;
  const auto node = world.split_by_node();
  agree_everywhere(world, [&] {
    std::string fault;
    if (node.rank() == 0) {
      try {
        shape = read_data_shape(directory);
      } catch (const core::UsageError& e) {
        fault = e.what();
      }
    }
    if (fault = node.broadcast_text(fault); !fault.empty()) throw core::UsageError(fault);
  });
  shape = node.broadcast_value(shape);
  return shape;
}

void check_enough(const DataShape& shape, const std::string& directory, std::size_t batch_global) {
  if (batch_global <= shape.train_samples) return;
  throw core::UsageError(
      fmt::format("a step takes {} samples, batch times ranks, and {} holds {}; choose a smaller --batch", batch_global,
                  directory, shape.train_samples));
}

}  // namespace gradmeter::cli
