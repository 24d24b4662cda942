// One line of `gradmeter list`.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/table/table_summary.hpp"

namespace gradmeter::cli {

struct Member {
  std::string name, about, source;
  std::string wire = {};                           ///< of a codec: bits of an element
  std::string parameters = {};                     ///< that its name takes, with defaults
  std::string unit = {};                           ///< of a factor or metric
  std::string kind = {};                           ///< of a factor or metric: which values it takes
  std::string sends = {};                          ///< of a strategy: bytes of a rank and step, for a model of M bytes
  std::optional<model::TableSummary> layers = {};  ///< of a layer table
};

/// Of a kind that `gradmeter list` has; none of another.
std::vector<std::string> member_names(std::string_view kind);

}  // namespace gradmeter::cli
