// One line of `gradmeter list`.
#pragma once
#include <string>

namespace gradmeter::cli {

struct Member {
  std::string name, about, source;
  std::string wire = {}, parameters = {};  ///< of a codec: bits of an element, what its name takes with defaults
};

}  // namespace gradmeter::cli
