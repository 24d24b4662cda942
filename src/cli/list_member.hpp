// One line of `gradmeter list`.
#pragma once
#include <string>

namespace gradmeter::cli {

struct Member {
  std::string name, about, source;
  std::string wire = {};        ///< of a codec: bits of an element
  std::string parameters = {};  ///< that its name takes, with defaults
};

}  // namespace gradmeter::cli
