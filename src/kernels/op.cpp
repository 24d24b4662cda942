// SPDX-License-Identifier: Apache-2.0
#include "kernels/op.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "kernels/backends.hpp"
#include "kernels/call_check.hpp"
#include "kernels/host/threads.hpp"

namespace gradmeter::kernels {
namespace {

constexpr std::string_view gemm_source = "oneDNN matmul primitive, github.com/oneapi-src/oneDNN",
                           lns_backend_source = "own, on Highway; Coleman et al., IEEE Trans. Computers 2000",
                           conv_source = "oneDNN convolution primitive, direct algorithm",
                           converted_source = "operands converted to fp32, results rounded",
                           emulated_source = "operands rounded by software, the rest in fp32",
                           rnn_source = "oneDNN rnn, lstm and gru primitives";

std::vector<OpBackend>& table() {
  using enum Precision;
  using enum KernelKind;
  static std::vector<OpBackend> rows{
      {"onednn", gemm_source, gemm, fp32, "host", onednn_gemm_refusal, make_onednn_gemm},
      {"onednn", gemm_source, gemm, bf16, "host", onednn_gemm_refusal, make_onednn_gemm},
      {"onednn", gemm_source, gemm, int8, "host", onednn_gemm_refusal, make_onednn_gemm},
      {"reference", "definition, summed in float64 and rounded once", gemm, fp32, "host", gemm_reference_refusal,
       make_gemm_reference, true},
      {"lns", lns_backend_source, gemm, lns16, "host", lns_op_refusal, make_lns_op},
      {"lns", lns_backend_source, gemm, lns16_linear, "host", lns_op_refusal, make_lns_op},
      {"lns", lns_backend_source, gemm, lns16_f7, "host", lns_op_refusal, make_lns_op},
      {"lns", lns_backend_source, gemm, lns16_f6, "host", lns_op_refusal, make_lns_op},
      {"onednn", conv_source, conv, fp32, "host", onednn_conv_refusal, make_onednn_conv},
      {"onednn", conv_source, conv, bf16, "host", onednn_conv_refusal, make_onednn_conv},
      {"onednn", conv_source, conv, int8, "host", onednn_conv_refusal, make_onednn_conv},
      {"onednn", rnn_source, rnn, fp32, "host", onednn_rnn_refusal, make_onednn_rnn},
      {"onednn", rnn_source, rnn, bf16, "host", onednn_rnn_refusal, make_onednn_rnn},
      {"onednn", rnn_source, rnn, int8, "host", onednn_rnn_refusal, make_onednn_rnn},
      {"converted", converted_source, gemm, bf16, "host", converted_op_refusal, make_converted_op},
      {"converted", converted_source, conv, bf16, "host", converted_op_refusal, make_converted_op},
      {"converted", converted_source, rnn, bf16, "host", converted_op_refusal, make_converted_op},
      {"emulated", emulated_source, gemm, fp16, "host", emulated_op_refusal, make_emulated_op, true},
      {"emulated", emulated_source, gemm, fp8_e4m3, "host", emulated_op_refusal, make_emulated_op, true},
      {"emulated", emulated_source, gemm, fp8_e5m2, "host", emulated_op_refusal, make_emulated_op, true},
      {"emulated", emulated_source, gemm, int4, "host", emulated_op_refusal, make_emulated_op, true},
      {"emulated", emulated_source, conv, fp16, "host", emulated_op_refusal, make_emulated_op, true},
      {"emulated", emulated_source, conv, fp8_e4m3, "host", emulated_op_refusal, make_emulated_op, true},
      {"emulated", emulated_source, conv, fp8_e5m2, "host", emulated_op_refusal, make_emulated_op, true},
      {"emulated", emulated_source, conv, int4, "host", emulated_op_refusal, make_emulated_op, true},
  };
  return rows;
}

/// The row that takes the problem, or the reason of the last one that does not.
struct FoundBackend {
  const OpBackend* row = nullptr;
  std::string why;
};
FoundBackend find_backend(const Problem& p, std::string_view device, std::string_view backend) {
  FoundBackend found{nullptr, fmt::format("no backend has {} in {}", name(p.operation()), name(p.precision))};
  if (device != "host") found.why += fmt::format(" on {}", device);
  if (device == "host" && info(p.precision).is_gpu_mode)
    found.why = fmt::format("{} is a mode of products on a GPU: add --device cuda, or take another precision",
                            name(p.precision));
  for (const OpBackend& row : table()) {
    if (row.operation != p.operation() || row.precision != p.precision || row.device != device) continue;
    if (!backend.empty() && row.name != backend) continue;
    found.why = row.refusal(p);
    if (found.why.empty()) return {&row, {}};
  }
  return found;
}

void require_known(const Problem& p, std::string_view device, std::string_view backend) {
  std::vector<std::string> names;
  for (const OpBackend& row : table()) {
    if (row.operation != p.operation() || row.precision != p.precision || row.device != device) continue;
    if (row.name == backend) return;
    names.emplace_back(row.name);
  }
  core::refuse_unknown(fmt::format("{} backend", name(p.operation())), backend, names);
}

template <class AnyBuffer>
void require_stored_bytes(std::span<const Operand> operands, std::span<const AnyBuffer> buffers) {
  if (buffers.size() != operands.size())
    throw std::invalid_argument(fmt::format("{} buffers for {} operands", buffers.size(), operands.size()));
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (buffers[i].bytes() != operands[i].stored_bytes)
      throw std::invalid_argument(
          fmt::format("{} has {} bytes, not {}", operands[i].name, buffers[i].bytes(), operands[i].stored_bytes));
}

void execute(Op& op, Op::Inputs in, Op::Outputs out) {
  if (CallCheck* const check = CallCheck::current()) return check->execute(op, in, out);
  op.execute(in, out);
}

/// One call, with the operands that its submitter lists.
struct OpCall {
  Op& op;
  Op::Inputs inputs;
  Op::Outputs outputs;

  void operator()() const { execute(op, inputs, outputs); }
  runtime::StoredWork stored() const {
    return [&op = op, in = std::vector(inputs.begin(), inputs.end()),
            out = std::vector(outputs.begin(), outputs.end())] { execute(op, in, out); };
  }
};

}  // namespace

void Op::run(runtime::Queue& queue, std::string_view label, runtime::Cost cost, BufferList<runtime::ConstBuffer> in,
             BufferList<runtime::Buffer> out) {
  queue.submit(label, cost, OpCall{*this, in, out});
}

std::optional<std::size_t> Op::stored_offset(const Operand& o, std::size_t element) const {
  if (o.packed || !o.format) return std::nullopt;
  return element * o.format->bytes;
}

std::size_t index_of(std::span<const Operand> operands, std::string_view name) {
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (operands[i].name == name) return i;
  throw std::logic_error(fmt::format("the operation has no operand '{}'", name));
}

void require_lengths(std::span<const Operand> operands, Op::Inputs buffers) { require_stored_bytes(operands, buffers); }
void require_lengths(std::span<const Operand> operands, Op::Outputs buffers) {
  require_stored_bytes(operands, buffers);
}

std::span<const OpBackend> op_backends() { return table(); }
void add_op_backend(const OpBackend& row) { table().push_back(row); }

std::string op_refusal(const Problem& p, const runtime::Device& device) {
  return find_backend(p, device.name(), {}).why;
}

namespace {
std::string_view known_device(std::string_view device) {
  const bool is_known = std::ranges::any_of(table(), [&](const OpBackend& row) { return row.device == device; });
  return is_known ? device : "host";
}
}  // namespace

std::string op_refusal(const Problem& p, std::string_view device) {
  return find_backend(p, known_device(device), {}).why;
}

bool is_rounded_by_software(const Problem& p, std::string_view device) {
  if (!info(p.precision).emulated) return false;
  const FoundBackend found = find_backend(p, known_device(device), {});
  return !found.row || found.row->is_untimed;
}

std::unique_ptr<Op> prepare(const Problem& p, const OpOptions& options, runtime::Device& device) {
  if (!options.backend.empty()) require_known(p, device.name(), options.backend);
  const FoundBackend found = find_backend(p, device.name(), options.backend);
  if (!found.row) throw core::UsageError(found.why);
  auto op = found.row->make(p, options, device);
  op->problem_ = p;
  return op;
}

HostOp::HostOp(std::vector<Operand> inputs, std::vector<Operand> outputs, runtime::Cost cost)
    : inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      cost_(cost),
      threads_(compute_threads()),
      read_(inputs_.size()),
      written_(outputs_.size()) {}

std::unique_ptr<Op> HostOp::packing(std::size_t input) const {
  throw std::logic_error(fmt::format("{} is not packed", inputs_.at(input).name));
}
std::unique_ptr<Op> HostOp::unpacking(std::size_t output) const {
  throw std::logic_error(fmt::format("{} is not packed", outputs_.at(output).name));
}

void HostOp::find_addresses(Inputs inputs, Outputs outputs) {
  require_lengths(inputs_, inputs);
  require_lengths(outputs_, outputs);
  if (compute_threads() != threads_)
    throw std::logic_error(
        fmt::format("an operation for {} threads was run by a thread that has {}; "
                    "set_compute_threads",
                    threads_, compute_threads()));
  for (std::size_t i = 0; i < inputs.size(); ++i) read_[i] = inputs[i].host();
  for (std::size_t i = 0; i < outputs.size(); ++i) written_[i] = outputs[i].host();
}

void HostOp::execute(Inputs inputs, Outputs outputs) {
  find_addresses(inputs, outputs);
  compute(read_, written_);
}

void HostOp::bind(Inputs inputs, Outputs outputs) {
  find_addresses(inputs, outputs);
  bind_addresses(read_, written_);
}

namespace {

class HostConversionOp final : public HostOp {
 public:
  HostConversionOp(const Operand& from, const Operand& to, std::string_view implementation, HostConversion convert)
      : HostOp({from}, {to}, {.flops = 0, .bytes = static_cast<double>(from.stored_bytes + to.stored_bytes)}),
        implementation_(implementation),
        convert_(std::move(convert)) {}
  std::string implementation() const override { return implementation_; }

 protected:
  void compute(Reads in, Writes out) override { convert_(in[0], out[0]); }

 private:
  std::string implementation_;
  HostConversion convert_;
};

}  // namespace

std::unique_ptr<Op> make_host_conversion(const Operand& from, const Operand& to, std::string_view implementation,
                                         HostConversion convert) {
  return std::make_unique<HostConversionOp>(from, to, implementation, std::move(convert));
}

Operand in_plain_floats(const Operand& o) {
  return {.name = o.name,
          .format = &number_format(core::Element::f32),
          .elements = o.elements,
          .stored_bytes = o.elements * sizeof(float)};
}

// Refusals that hold for all backends of an operation, whatever the precision.

std::string gemm_shape_refusal(const Problem& p) {
  if (p.pass != Pass::forward) return "gemm has one pass; its backward is two products of other shapes";
  const auto& s = std::get<GemmShape>(p.shape);
  return s.m == 0 || s.n == 0 || s.k == 0 || s.count == 0 ? "gemm needs m, n, k and count of at least 1" : "";
}

std::string lns_shape_refusal(const Problem& p) {
  const auto& s = std::get<GemmShape>(p.shape);
  if (s.count > 1) return "lns16 has single products; leave count out";
  if (s.accumulate) return "lns16 has no accumulation; add its result";
  return s.packed ? "lns16 packs both operands in every call; leave packed out" : "";
}

std::string conv_shape_refusal(const Problem& p) {
  const auto& s = std::get<ConvShape>(p.shape);
  const std::array extents{s.width, s.height, s.channels, s.batch, s.filters, s.filter_width, s.filter_height};
  if (std::ranges::find(extents, 0U) != extents.end()) return "conv needs extents of at least 1";
  if (s.stride_width == 0 || s.stride_height == 0) return "conv needs strides of at least 1";
  if (s.width + 2 * s.pad_width < s.filter_width || s.height + 2 * s.pad_height < s.filter_height)
    return "conv needs a filter that fits into the padded input";
  return "";
}

std::string rnn_shape_refusal(const Problem& p) {
  const auto& s = std::get<RnnShape>(p.shape);
  if (s.hidden == 0 || s.batch == 0 || s.steps == 0) return "rnn needs hidden, batch and steps of at least 1";
  if (p.pass == Pass::backward_weights)
    return "all gradients of an rnn are computed in one backward pass: measured as backward-data";
  return "";
}

}  // namespace gradmeter::kernels
