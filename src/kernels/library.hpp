// Which libraries the kernels use, and in which versions.
#pragma once
#include <map>
#include <string>

namespace gradmeter::kernels {

/// {"oneDNN": "2.6.3"}; empty in a build without it.
std::map<std::string, std::string> library_versions();
/// Why there is no oneDNN; empty: there is.
std::string onednn_refusal();
/// How the library multiplies bf16 here: by instructions of the processor, or emulated.
std::string bf16_products();

}  // namespace gradmeter::kernels
