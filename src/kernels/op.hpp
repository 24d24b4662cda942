// An operation prepared for a device: what models, kernel cases and benchmarks run, so that what is timed alone is what
// trains.
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
#include "kernels/quantization.hpp"
#include "runtime/device.hpp"
#include "runtime/queue.hpp"

namespace gradmeter::kernels {

/// What an operation reads or writes. Plain: dense and row-major, as the problem's shape defines it. Stored: as `run`
/// takes it. They differ where the backend has a layout of its own (`packed`).
struct Operand {
  std::string_view name;         ///< "filters"; of a gradient "filters gradient"
  const NumberFormat* format;    ///< of the plain form; null: only the backend reads it, there is no plain form
  std::size_t elements = 0;      ///< of the plain form
  std::size_t stored_bytes = 0;  ///< of the stored form, padding included
  bool packed = false;
  bool added_to = false;  ///< of an output: the operation adds to what is there

  std::size_t plain_bytes() const { return elements * format->bytes; }
};

/// Buffers that a call lists, in braces or as a container, both of which outlive it: nothing is copied.
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

/// Its operands by operation, in the order of `inputs` and `outputs`; those in brackets where the problem has them.
/// - gemm: a, b, [bias] to c, each of `count` products. With GemmShape::accumulate c is read as well.
/// - conv: input, filters to output; output gradient, filters to input gradient; input, output gradient to filters
///   gradient. Images [batch x channels x height x width], filters [filters x channels x height x width].
/// - rnn forward: input, state, [memory], weights, recurrent, bias to output, [kept]. Input [steps x batch x input],
///   output [steps x batch x hidden], states [batch x hidden], weights [input x gates x hidden], recurrent [hidden in x
///   gates x hidden out], bias [gates x hidden]. Backward: these, the output, what is kept and the output gradient to
///   all inputs' gradients. Those of weights, recurrent and bias are added to.
/// One call at a time, by threads that have the compute_threads() of the one that prepared it.
class Op {
 public:
  virtual ~Op() = default;
  virtual std::span<const Operand> inputs() const = 0;
  virtual std::span<const Operand> outputs() const = 0;
  /// What `prepare` was asked for; empty: it is the packing of an operand.
  const std::optional<Problem>& problem() const { return problem_; }
  /// What the operation costs by its definition.
  virtual runtime::Cost cost() const = 0;
  /// Memory of its own that every call uses.
  virtual std::size_t scratch_bytes() const = 0;
  /// What the backend says it chose: "onednn brgemm:avx512_core".
  virtual std::string implementation() const = 0;
  /// Brings an input from its plain into its stored form; an output back. Layers pay for these in each step.
  /// Errors: std::logic_error when the operand is not packed.
  virtual std::unique_ptr<Op> packing(std::size_t input) const = 0;
  virtual std::unique_ptr<Op> unpacking(std::size_t output) const = 0;
  /// The same where the plain form is fp32, whatever the operation's own format: for parameters and gradients that are
  /// kept in fp32. Errors: std::logic_error when the operand is plain fp32 itself.
  virtual std::unique_ptr<Op> packing_floats(std::size_t input) const = 0;
  virtual std::unique_ptr<Op> unpacking_floats(std::size_t output) const = 0;
  /// Where an element of the plain form of one of `inputs()` or `outputs()` lies in its stored form [bytes]: whoever
  /// looks at single elements needs no packing, which may be the library's that is looked at. Empty: not known.
  virtual std::optional<std::size_t> stored_at(const Operand&, std::size_t element) const;

  using Inputs = std::span<const runtime::ConstBuffer>;  ///< the stored forms
  using Outputs = std::span<const runtime::Buffer>;
  /// Within work of a queue of the device. Errors: std::invalid_argument when a buffer's length is not its operand's.
  virtual void execute(Inputs, Outputs) = 0;
  /// Within such work: makes what the backend keeps for these buffers, so that their first call takes as long as
  /// others.
  virtual void bind(Inputs, Outputs) = 0;

  /// Submits the call, which looks at its operands only then. The operation must live until the work is done.
  void run(runtime::Queue& queue, std::string_view label, BufferList<runtime::ConstBuffer> inputs,
           BufferList<runtime::Buffer> outputs) {
    run(queue, label, cost(), inputs, outputs);
  }
  /// The same for a caller that has its cost at hand: the operation, out of the caches since its last call, is then
  /// looked at only within the work.
  void run(runtime::Queue&, std::string_view label, runtime::Cost, BufferList<runtime::ConstBuffer> inputs,
           BufferList<runtime::Buffer> outputs);

 private:
  friend std::unique_ptr<Op> prepare(const Problem&, const OpOptions&, runtime::Device&);
  std::optional<Problem> problem_;
};

/// Where the operand of this name is. Errors: std::logic_error when there is none.
std::size_t index_of(std::span<const Operand>, std::string_view name);

/// Errors: std::invalid_argument when there are more or fewer buffers, or one has not its operand's stored bytes.
void require_lengths(std::span<const Operand>, Op::Inputs);
void require_lengths(std::span<const Operand>, Op::Outputs);

struct OpOptions {
  /// For passes that read what others wrote: forward also writes what its backward reads, where that is more than
  /// inputs and outputs (rnn: `kept`); backward takes images as its forward has them, not in the layouts that are best
  /// for it alone (conv).
  bool training = false;
  std::string_view backend = {};  ///< empty: the first that takes the problem
  /// int8: how packing_floats makes whole numbers, and unpacking_floats makes their sums real numbers again. Empty:
  /// numbers are what they are; of an rnn by rnn_quantum, rnn_zero_point and rnn_weights_scale.
  std::optional<Quantization> quantization = {};
  AlgorithmSearch algorithm = AlgorithmSearch::estimated;
};

/// One row of the table. `refusal`: why it cannot run a problem of this operation and precision; empty: it can.
struct OpBackend {
  std::string_view name, source;
  KernelKind operation;
  Precision precision;
  std::string_view device;  ///< runtime::Device::name
  std::string (*refusal)(const Problem&);
  std::unique_ptr<Op> (*make)(const Problem&, const OpOptions&, runtime::Device&);
  bool is_definition = false;  ///< slow and exact: models and tests may run it, no kernel case times it
};
std::span<const OpBackend> op_backends();
/// Below those that there are. Before threads begin; spans of the table end here.
void add_op_backend(const OpBackend&);

/// Empty: some backend of the device takes the problem. Else the reason of the last one that does not.
std::string op_refusal(const Problem&, const runtime::Device& = runtime::host_device());
/// The same by the name of the device. One that has no rows, since it was not opened, counts as the host.
std::string op_refusal(const Problem&, std::string_view device);
/// Does software round to the precision, so that a time says nothing of it? On GPUs it does where they have no such
/// products. device: as for `op_refusal`.
bool is_rounded_by_software(const Problem&, std::string_view device);
/// How the implementation of an operation begins whose device leaves it to the host, on copies: its time is no
/// device's.
inline constexpr std::string_view left_to_host = "on the host: ";
/// By the first backend that takes it.
/// Errors: UsageError with the reason, or with the known backends; BackendError when the library refuses;
/// std::bad_alloc.
std::unique_ptr<Op> prepare(const Problem&, const OpOptions& = {}, runtime::Device& = runtime::host_device());

}  // namespace gradmeter::kernels
