// The files of data/models, which are part of the program.
#pragma once
#include <span>

#include "kernels/problems/problem_file.hpp"

namespace gradmeter::model {

using kernels::EmbeddedFile;
/// A layer table each, and "index": the sample, source and totals of each.
std::span<const EmbeddedFile> embedded_layer_tables();

}  // namespace gradmeter::model
