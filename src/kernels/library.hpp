// Which libraries the kernels use, and in which versions.
#pragma once
#include <map>
#include <string>

#include "kernels/problems/problem.hpp"

namespace gradmeter::kernels {

/// {"oneDNN": "2.6.3"}; empty in a build without it.
std::map<std::string, std::string> library_versions();
/// Why there is no oneDNN; empty: there is.
std::string onednn_refusal();
/// Whether oneDNN has kernels of bf16 here; else operations convert it to fp32.
bool has_bf16_kernels();
/// Of bf16: by instructions of the processor, emulated by the library, or in fp32. Of other precisions empty.
std::string how_multiplied(Precision);

}  // namespace gradmeter::kernels
