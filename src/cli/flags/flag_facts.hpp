// A usage as plain values: what completions of shells and the manual are written from.
#pragma once
#include <string>
#include <vector>

#include "cli/flags/flags.hpp"

namespace gradmeter::cli {

struct FlagFacts {
  std::string name;        ///< "--out"
  std::string short_name;  ///< "-o"; empty: none
  bool takes_value = false;
  std::string usual;  ///< its default; empty: none
  std::string help;
  std::vector<std::string> values;  ///< that gradmeter list knows; empty: numbers, files, any text
};

/// In the order of --help.
std::vector<FlagFacts> flag_facts(const Usage&);

}  // namespace gradmeter::cli
