// What does the work underneath, and in which version.
#pragma once
#include <map>
#include <string>

namespace gradmeter::kernels {

/// {"oneDNN": "2.6.3"}.
std::map<std::string, std::string> library_versions();

}  // namespace gradmeter::kernels
