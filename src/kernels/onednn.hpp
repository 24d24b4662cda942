// Shared by all uses of oneDNN: its errors as BackendError, tensors with our own memory, random data.
#pragma once
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "kernels/aligned.hpp"
#include "kernels/problems/problem.hpp"

namespace gradmeter::kernels::onednn {

using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

/// Turns oneDNN's exception into a BackendError that names the failed call.
template <class Work>
auto checked(const char* call, Work&& work) {
  try {
    return work();
  } catch (const dnnl::error& e) {
    throw core::BackendError("oneDNN", call, e.message);
  }
}

inline dnnl::memory::dim dim(std::size_t n) { return static_cast<dnnl::memory::dim>(n); }

/// Why there is no bf16 on this processor; empty: there is.
std::string bf16_refusal();

/// A tensor in a layout, with memory of its own on cache lines.
class Tensor {
 public:
  Tensor(const dnnl::memory::desc&, const dnnl::engine&);
  dnnl::memory& memory() { return memory_; }
  const dnnl::memory& memory() const { return memory_; }
  /// Random numbers, from a seed of its own for each tensor: Gaussian for floats (times `scale`, rounded to the type),
  /// uniform over all of its values for integers (-127 … 127, times `scale`, for s8). Dense layouts only.
  void fill(std::uint64_t seed, double scale = 1);
  /// All elements, in the dense layout `tag` of the same dimensions, as doubles.
  std::vector<double> values(Tag tag) const;
  /// The same numbers and type in a dense layout; there `at` and `floats` read them in order. Floats hold every element
  /// of the types up to 16 bits, and s32 up to 2^24.
  Tensor dense(Tag tag) const;
  double at(std::size_t index) const;
  std::vector<float> floats() const;
  std::size_t elements() const;
  Type type() const { return type_; }
  std::size_t bytes() const { return storage_.size(); }
  std::byte* data() { return storage_.data(); }

 private:
  AlignedVector<std::byte> storage_;
  dnnl::memory memory_;
  Type type_;  // the memory's: asking it copies its whole description
};

/// The same numbers in another layout, or quantized as the attributes say.
void reorder(Tensor& from, Tensor& to, const dnnl::primitive_attr& = {});
/// Whether oneDNN has kernels for bf16 here (AVX-512, emulated where the processor has no bf16 product), and whether
/// products of 8-bit integers are summed exactly (VNNI; before it pairs of them saturated at 16 bits).
bool has_bf16();
bool has_exact_int8();
/// The types of a product or convolution: of its operands, and of its sums.
struct OperandTypes {
  Type left, right, result;
};
OperandTypes operand_types(Precision);
/// Adds to one element of a dense tensor (rounded to its type).
void add_to_element(Tensor&, std::size_t index, double by);

}  // namespace gradmeter::kernels::onednn
