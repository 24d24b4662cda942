// Sets of operands for one operation, in the backend's layouts: what kernel cases of operations run on.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/op.hpp"

namespace gradmeter::kernels {

/// Memory for every operand of an operation, zeroed.
struct OperandSet {
  explicit OperandSet(const Op&);
  std::vector<runtime::OwnedBuffer> memory;
  std::vector<runtime::ConstBuffer> inputs;
  std::vector<runtime::Buffer> outputs;  ///< inputs and outputs are `memory` in this order
};

/// Numbers of an operand in its plain form.
struct PlainNumbers {
  std::vector<std::byte> bytes;
  const NumberFormat* format;
  double at(std::size_t i) const { return format->load(bytes.data() + i * format->bytes); }
  std::size_t size() const { return bytes.size() / format->bytes; }
  /// Every element of the formats up to 16 bits, fp32, and whole numbers up to 2^24 are floats.
  std::vector<float> floats() const;
  /// Adds to one element, rounded to the format.
  void add(std::size_t i, double by);
};

/// Of random operands' usual range: 8-bit integers have half of it where sums of two products would saturate.
double random_range(Precision);

/// One operation and its operand sets, on the host.
class OpCase {
 public:
  /// Prepares the operation and `sets` of its operands.
  OpCase(const Problem&, std::size_t sets, const OpOptions& = {});

  const Op& op() const { return *op_; }
  void run(std::size_t set) { op_->run(queue_, "kernel", sets_[set].inputs, sets_[set].outputs); }
  /// So that the first timed run of a set takes as long as others. After the sets have been filled.
  void bind();

  /// Random numbers, see fill_random.
  PlainNumbers draw(std::string_view input, std::uint64_t seed, double scale = 1) const;
  void set_input(std::size_t set, std::string_view name, const PlainNumbers&);
  PlainNumbers input(std::size_t set, std::string_view name) const;  ///< of one that is not packed
  PlainNumbers output(std::size_t set, std::string_view name);
  /// The stored form.
  std::span<std::byte> input_memory(std::size_t set, std::string_view name);
  std::span<std::byte> output_memory(std::size_t set, std::string_view name);

 private:
  runtime::HostQueue queue_;
  std::unique_ptr<Op> op_;
  std::vector<std::unique_ptr<Op>> packing_;  // by input, where it is packed
  std::deque<OperandSet> sets_;
};

}  // namespace gradmeter::kernels
