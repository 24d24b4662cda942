// SPDX-License-Identifier: Apache-2.0
// Sets of operands for one operation, in the backend's layouts, for kernel cases of operations.
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
  OperandSet(const Op&, runtime::Device&);
  std::vector<runtime::OwnedBuffer> memory;
  std::vector<runtime::ConstBuffer> inputs;
  std::vector<runtime::Buffer> outputs;  ///< inputs and outputs are `memory` in this order
};

/// The numbers of an operand in its plain (dense, row-major) form.
struct PlainNumbers {
  std::vector<std::byte> bytes;
  const NumberFormat* format;
  double at(std::size_t i) const { return format->load(bytes.data() + i * format->bytes); }
  std::size_t size() const { return bytes.size() / format->bytes; }
  /// Converts to fp32: exact for floating-point formats and for whole numbers up to 2^24; logarithmic numbers are
  /// rounded.
  std::vector<float> floats() const;
  /// Adds to one element, rounded to the format.
  void add(std::size_t i, double by);
};

/// One operation and its operand sets on one device. Numbers that the host draws or checks are copied to the device and
/// back.
class OpCase {
 public:
  /// Prepares the operation and `sets` sets of its operands. The device must outlive the case.
  OpCase(const Problem&, std::size_t sets, const OpOptions& = {}, runtime::Device& = runtime::host_device());

  const Op& op() const { return *op_; }
  /// Submits a call; on the host the call is done when this returns.
  void run(std::size_t set) { op_->run(*queue_, "kernel", sets_[set].inputs, sets_[set].outputs); }
  runtime::Queue* queue() { return on_host_ ? nullptr : queue_.get(); }  ///< as KernelCase::queue
  /// Binds the operation to all sets (Op::bind), so that the first timed run of a set takes no longer than later runs.
  /// Call it after the sets have been filled.
  void bind();

  /// Draws random numbers as fill_random does.
  PlainNumbers draw(std::string_view input, std::uint64_t seed, double scale = 1) const;
  void set_input(std::size_t set, std::string_view name, const PlainNumbers&);
  PlainNumbers input(std::size_t set, std::string_view name) const;  ///< reads an input that is not packed
  PlainNumbers output(std::size_t set, std::string_view name);
  /// The stored form of an input, read when all calls so far are done.
  std::vector<std::byte> stored_input(std::size_t set, std::string_view name) const;
  std::vector<std::byte> stored_output(std::size_t set, std::string_view name) const;
  void store_input(std::size_t set, std::string_view name, std::span<const std::byte>);
  void store_output(std::size_t set, std::string_view name, std::span<const std::byte>);
  /// Overwrites these elements of an output with a value that no operation writes (`unwritten_byte`; in 8-bit formats a
  /// result may have this value). If there are many elements, only every k-th is overwritten, but `enough_poisoned` at
  /// least. If the backend does not tell where its layout has the elements, the whole output is overwritten. An output
  /// without a format is left as it is.
  void poison(std::size_t set, std::string_view output, std::span<const std::size_t> elements);
  /// Counts how many of these elements still have the value that `poison` wrote; 0 where the backend does not tell
  /// where they are.
  std::size_t count_poisoned(std::size_t set, std::string_view output, std::span<const std::size_t> elements) const;
  static constexpr std::size_t enough_poisoned = 64;
  /// Copies an input from the output that another operation of the device wrote in its first operand set.
  void take_input(std::size_t set, std::string_view name, const OpCase& from, std::string_view output);

 private:
  const runtime::Buffer& input_buffer(std::size_t set, std::string_view name) const;
  const runtime::Buffer& output_buffer(std::size_t set, std::string_view name) const;
  std::vector<std::byte> download(const runtime::ConstBuffer&) const;
  void upload(std::span<const std::byte>, const runtime::Buffer& to);
  runtime::OwnedBuffer plain_memory(std::size_t bytes) const;

  runtime::Device& device_;
  const bool on_host_;
  std::unique_ptr<Op> op_;
  std::vector<std::unique_ptr<Op>> packing_;  // packing operations by input; null for inputs that are not packed
  std::deque<OperandSet> sets_;
  std::unique_ptr<runtime::Queue> queue_;  // destroyed first, since its destructor waits for calls under way
};

}  // namespace gradmeter::kernels
