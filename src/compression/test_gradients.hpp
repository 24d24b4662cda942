// SPDX-License-Identifier: Apache-2.0
// Gradients to test codecs on: recorded in real training, before an exchange; or drawn from a known distribution.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradmeter::compression {

/// A tensor's name, shape and place in the flat gradient [elements].
struct GradientTensor {
  std::string name;
  std::vector<std::size_t> shape;
  std::size_t offset = 0, count = 0;
};

struct RecordedGradient {
  std::string model;       ///< canonical name
  std::uint64_t step = 0;  ///< number of training steps before it
  std::vector<GradientTensor> tensors;
  std::vector<float> values;
};

/// Writes the file: "GMGRAD1\n"; one line of JSON {"model", "step", "elements", "tensors": [{"name", "shape", "offset",
/// "count"}]}, tensors ascending and disjoint; then the whole flat gradient, including the padding between tensors, as
/// `elements` little-endian fp32 values. The gradient written is `values`; head.values is ignored. `replace`: an
/// existing file is replaced.
/// Errors: UsageError when the file exists or cannot be made; BackendError when writing fails.
void write_gradient(const std::filesystem::path&, const RecordedGradient& head, std::span<const float> values,
                    bool replace);
/// Checks before any work is done that the file can be written. Errors: UsageError if it is a directory, if it exists
/// and `replace` is false, if its directory does not exist, or if this user may not write there.
void check_gradient_path(const std::filesystem::path&, bool replace);

/// Errors: UsageError, one line "FILE: what is wrong", for a file that is missing, not of this kind, or damaged;
/// BackendError when reading fails.
RecordedGradient read_gradient(const std::filesystem::path&);
/// Does what `read_gradient` does with the bytes of a file; `label` names the file in errors.
RecordedGradient parse_gradient(std::string_view bytes, const std::string& label);

/// A gradient, given by name. "gaussian": mean 0, variance 1. "laplace": mean 0, variance 2, heavier tails.
/// "sparse:density=0.05": 5 % of the elements are Gaussian, the rest zero. "file:PATH": a gradient that train
/// --dump-gradients has recorded, repeated if more elements are asked for.
/// Element i of a drawn gradient depends on (seed, stream, i) alone: their hash picks one of 2^16 numbers in a table, a
/// sign, and for "sparse" whether the element is zero. No libm is needed, so the bits are equal on every machine. Cost:
/// O(n). The table of "laplace" holds determinants of 2x2 matrices of Gaussians, which are Laplace-distributed (Kotz,
/// Kozubowski, Podgorski 2001, section 2.2).
class GradientSource {
 public:
  /// Errors: UsageError for a name that is not known, a density outside (0, 1], a file that cannot be read or holds
  /// values that are not finite.
  explicit GradientSource(std::string_view name);
  const std::string& name() const { return name_; }  ///< canonical
  /// Streams are independent of each other. A recorded gradient has one stream, and does not depend on the seed.
  void draw(std::uint64_t seed, std::uint64_t stream, std::span<float> out) const;
  /// The recorded gradient; null: the gradient is drawn.
  const RecordedGradient* recorded() const { return recorded_.get(); }

 private:
  std::string name_;
  std::vector<float> table_;         ///< for drawn gradients: 2^16 numbers, each used with either sign
  std::uint64_t nonzero_share_ = 0;  ///< number of elements, out of 2^32, that are not zero
  std::shared_ptr<const RecordedGradient> recorded_;
};

}  // namespace gradmeter::compression
