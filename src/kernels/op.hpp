// SPDX-License-Identifier: Apache-2.0
// An operation prepared for a device. Models, kernel cases and benchmarks run the same operations, so a time measured
// for an operation alone also holds in training.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/number_format.hpp"
#include "kernels/problems/problem.hpp"
#include "runtime/device.hpp"

namespace gradmeter::kernels {

/// An input or output of an operation. Plain form: dense and row-major, as the problem's shape defines it. Stored form:
/// as `run` takes it. The two differ where the backend has a layout of its own (`packed`).
struct Operand {
  std::string_view name;         ///< "filters"; a gradient is "filters gradient"
  const NumberFormat* format;    ///< format of the plain form; null: there is no plain form, only the backend reads it
  std::size_t elements = 0;      ///< elements of the plain form
  std::size_t stored_bytes = 0;  ///< bytes of the stored form, padding included
  bool packed = false;
  bool is_added_to = false;  ///< for an output: the operation adds to its present contents

  std::size_t plain_bytes() const { return elements * format->bytes; }
};

/// A view of the buffers of a call, listed in braces or as a container. The list must live until the function that
/// takes it returns: a queue that runs the work later keeps a copy of the list. The buffers' memory must live until the
/// work is done.
template <class AnyBuffer>
class BufferList : public std::span<const AnyBuffer> {
 public:
  using std::span<const AnyBuffer>::span;
  BufferList(std::span<const AnyBuffer> listed)  // NOLINT(google-explicit-constructor)
      : std::span<const AnyBuffer>(listed) {}
  BufferList(std::initializer_list<AnyBuffer> listed)  // NOLINT(google-explicit-constructor)
      : std::span<const AnyBuffer>(listed.begin(), listed.size()) {}
};

struct OpOptions;

/// The operands of each kind of operation, in the order of `inputs` and `outputs`. An operand whose name is in brackets
/// exists only in some problems; other brackets are shapes.
/// - gemm: a, b, [bias] to c, each with the matrices of all `count` products. With GemmShape::accumulate c is read as
/// well.
/// - conv: input, filters to output; output gradient, filters to input gradient; input, output gradient to filters
///   gradient. Images [batch x channels x height x width], filters [filters x channels x height x width].
/// - rnn forward: input, state, [memory], weights, recurrent, bias to output, [kept]. Input [steps x batch x input],
///   output [steps x batch x hidden], states [batch x hidden], weights [input x gates x hidden], recurrent [hidden in x
///   gates x hidden out], bias [gates x hidden]. Backward: inputs are those of forward, then its output, `kept` and the
///   output gradient; outputs are the gradients of forward's inputs. The gradients of weights, recurrent and bias are
///   added to.
/// One thread at a time may call an operation. It must have as many compute_threads() as the thread that prepared the
/// operation.
class Op {
 public:
  virtual ~Op() = default;
  virtual std::span<const Operand> inputs() const = 0;
  virtual std::span<const Operand> outputs() const = 0;
  /// The problem given to `prepare`; empty: this operation packs an operand.
  const std::optional<Problem>& problem() const { return problem_; }
  /// FLOP and bytes of a call by the operation's definition, whatever the backend does.
  virtual runtime::Cost cost() const = 0;
  /// The bytes of memory that belong to the operation and that every call uses.
  virtual std::size_t scratch_bytes() const = 0;
  /// The backend's choice of algorithm: "onednn brgemm:avx512_core".
  virtual std::string implementation() const = 0;
  /// `packing` makes the operation that converts an input from its plain to its stored form, `unpacking` the operation
  /// that converts an output back. Layers run these conversions in each step, so their time counts too. Errors:
  /// std::logic_error when the operand is not packed.
  virtual std::unique_ptr<Op> packing(std::size_t input) const = 0;
  virtual std::unique_ptr<Op> unpacking(std::size_t output) const = 0;
  /// As `packing`, but from and to fp32 whatever the operation's own format, for parameters and gradients that are kept
  /// in fp32. Errors: std::logic_error when the operand is plain fp32 already.
  virtual std::unique_ptr<Op> packing_from_fp32(std::size_t input) const = 0;
  virtual std::unique_ptr<Op> unpacking_to_fp32(std::size_t output) const = 0;
  /// The offset of an element of an operand in its stored form [bytes]; empty: unknown. With it, a check of single
  /// elements does without `unpacking`, which may be the work of the very library that is being checked.
  virtual std::optional<std::size_t> stored_offset(const Operand&, std::size_t element) const;

  using Inputs = std::span<const runtime::ConstBuffer>;  ///< the stored forms
  using Outputs = std::span<const runtime::Buffer>;
  /// Runs the operation; called within work of a queue of the device. Errors: std::invalid_argument when a buffer's
  /// length is not its operand's.
  virtual void execute(Inputs, Outputs) = 0;
  /// Makes the objects that the backend keeps for these buffers, so that the first call with them takes no longer than
  /// later calls. Called within work of a queue, as `execute`.
  virtual void bind(Inputs, Outputs) = 0;

  /// Submits a call, which reads its operands only when it runs. The operation must live until the work is done.
  void run(runtime::Queue& queue, std::string_view label, BufferList<runtime::ConstBuffer> inputs,
           BufferList<runtime::Buffer> outputs) {
    run(queue, label, cost(), inputs, outputs);
  }
  /// Does the same for a caller that has kept the cost, so that submitting does not read the operation's memory, which
  /// may have left the caches since the last call.
  void run(runtime::Queue&, std::string_view label, runtime::Cost, BufferList<runtime::ConstBuffer> inputs,
           BufferList<runtime::Buffer> outputs);

 private:
  friend std::unique_ptr<Op> prepare(const Problem&, const OpOptions&, runtime::Device&);
  std::optional<Problem> problem_;
};

/// The index of the operand with this name. Errors: std::logic_error when there is none.
std::size_t index_of(std::span<const Operand>, std::string_view name);

/// Errors: std::invalid_argument when there are more or fewer buffers, or one differs from its operand's stored bytes.
void require_lengths(std::span<const Operand>, Op::Inputs);
void require_lengths(std::span<const Operand>, Op::Outputs);

struct OpOptions {
  /// Prepares passes that depend on one another. Forward also writes the data that its backward reads besides inputs
  /// and outputs (rnn: `kept`). Backward takes images in the layouts of its forward, not in those that would be best
  /// for it alone (conv).
  bool training = false;
  std::string_view backend = {};  ///< empty: the first that takes the problem
  /// For int8: how packing_from_fp32 turns real numbers into whole ones, and how unpacking_to_fp32 turns sums of
  /// products into real ones. Empty: a whole number stands for itself; an rnn uses rnn_quantum, rnn_zero_point and
  /// rnn_weights_scale.
  std::optional<Quantization> quantization = {};
  AlgorithmSearch algorithm = AlgorithmSearch::estimated;
};

/// A row of op_backends(). `refusal`: why the backend cannot run a problem of this operation and precision; empty: it
/// can.
struct OpBackend {
  std::string_view name, source;
  KernelKind operation;
  Precision precision;
  std::string_view device;  ///< runtime::Device::name
  std::string (*refusal)(const Problem&);
  std::unique_ptr<Op> (*make)(const Problem&, const OpOptions&, runtime::Device&);
  /// True: the backend's time does not describe the device, so models and tests may run it, but no kernel case does.
  bool is_untimed = false;
};
std::span<const OpBackend> op_backends();
/// Adds a row after the existing ones. Call it before threads begin; it invalidates spans of the table.
void add_op_backend(const OpBackend&);

/// Why no backend of the device takes the problem: the reason of the last one asked. Empty: one takes it.
std::string op_refusal(const Problem&, const runtime::Device& = runtime::host_device());
/// Takes the device's name in place of the device. A name without a row in op_backends() counts as "host"; a GPU's rows
/// are added when it is opened.
std::string op_refusal(const Problem&, std::string_view device);
/// True if software can emulate the problem's precision (`PrecisionInfo::emulated`) and the device has no timed backend
/// for the problem: none takes it, or the one that takes it `is_untimed`. A time then says nothing about hardware that
/// has the precision. device: as for `op_refusal`.
bool is_rounded_by_software(const Problem&, std::string_view device);
/// The first words of `Op::implementation` if the device leaves the operation to the host, which works on copies. A
/// time then does not describe the device.
inline constexpr std::string_view left_to_host = "on the host: ";
/// Prepares the problem on the first backend that takes it. Errors: UsageError with the reason why none takes it, or
/// with the known backends if `options.backend` is unknown; BackendError when the library refuses; std::bad_alloc.
std::unique_ptr<Op> prepare(const Problem&, const OpOptions& = {}, runtime::Device& = runtime::host_device());

}  // namespace gradmeter::kernels
