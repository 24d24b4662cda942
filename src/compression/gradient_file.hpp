// A recorded gradient: a buffer of real training before an exchange, to test codecs on.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradmeter::compression {

/// A tensor's place in the flat gradient [elements].
struct GradientTensor {
  std::string name;
  std::vector<std::size_t> shape;
  std::size_t offset = 0, count = 0;
};

struct RecordedGradient {
  std::string model;       ///< canonical name
  std::uint64_t step = 0;  ///< training steps before it
  std::vector<GradientTensor> tensors;
  std::vector<float> values;
};

/// The file: "GMGRAD1\n"; one line of JSON {"model", "step", "elements", "tensors": [{"name", "shape", "offset",
/// "count"}]}, tensors ascending and apart; then all `elements` values as fp32, little-endian, those between tensors
/// (padding) too.
/// The head's `values` are ignored, `values` are written. `replace`: an existing file is replaced.
/// Errors: UsageError when the file exists or cannot be made; BackendError when writing fails.
void write_gradient(const std::filesystem::path&, const RecordedGradient& head, std::span<const float> values,
                    bool replace);
/// The refusals of write_gradient, before any work is done.
void check_gradient_path(const std::filesystem::path&, bool replace);

/// Errors: UsageError "FILE: what is wrong" of one line, for a file that is not there, not of this kind, or damaged.
RecordedGradient read_gradient(const std::filesystem::path&);
/// The same of a file's bytes.
RecordedGradient parse_gradient(std::string_view bytes, const std::string& label);

}  // namespace gradmeter::compression
