// SPDX-License-Identifier: Apache-2.0
// The data that the program contains.
#pragma once
#include <span>
#include <string_view>

namespace gradmeter::predict {

struct EmbeddedFile {
  std::string_view name, text;
};
/// data/machines/devices.csv.
std::span<const EmbeddedFile> device_files();

}  // namespace gradmeter::predict
