// Which libraries the kernels use, and in which versions.
#pragma once
#include <map>
#include <string>

namespace gradmeter::kernels {

/// {"oneDNN": "2.6.3"}.
std::map<std::string, std::string> library_versions();

}  // namespace gradmeter::kernels
