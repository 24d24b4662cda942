// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/onednn.hpp"

#include <hwy/targets.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <array>

#include "core/format.hpp"
#include "kernels/host/library.hpp"
#include "kernels/number_format.hpp"

namespace gradmeter::kernels {

namespace onednn {
namespace {
/// True if oneDNN may use this instruction set. Its code of a set is a bit mask, which includes the bits of each set
/// that it extends.
bool has(dnnl::cpu_isa wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}
}  // namespace

std::string bf16_refusal() {
  return has_bf16_kernels() ? "" : "oneDNN has bf16 only on processors with AVX-512 (BW, DQ, VL)";
}

OperandTypes operand_types(Precision p) {
  if (p == Precision::bf16) return {Type::bf16, Type::bf16, Type::bf16};
  if (p == Precision::int8) return {Type::u8, Type::s8, Type::s32};
  return {Type::f32, Type::f32, Type::f32};
}

}  // namespace onednn

void limit_loops_to_onednn_isa() {
  // In Highway, better instruction sets have lower bits: X - 1 is the mask of all sets that are better than X.
  if (!onednn::has(dnnl::cpu_isa::avx2)) {
    hwy::DisableTargets(HWY_SSE4 - 1);
  } else if (!onednn::has(dnnl::cpu_isa::avx512_core)) {
    hwy::DisableTargets(HWY_AVX2 - 1);
  }
}

bool has_bf16_kernels() { return onednn::has(dnnl::cpu_isa::avx512_core); }

std::string how_multiplied(Precision p) {
  if (p != Precision::bf16) return {};
  if (!has_bf16_kernels()) return "the processor has no bf16: operands are converted to fp32 and results rounded";
  if (onednn::has(dnnl::cpu_isa::avx512_core_amx)) return "the processor multiplies bf16 in AMX tiles";
  if (onednn::has(dnnl::cpu_isa::avx512_core_bf16)) return "the processor multiplies bf16 by AVX-512 BF16";
  return "bf16 is emulated: the processor has no instruction that multiplies it";
}

double largest_int8_weight() {
  // Without VNNI two products are summed in 16 bits, which saturate.
  const bool sums_exactly = onednn::has(dnnl::cpu_isa::avx512_core_vnni) || onednn::has(dnnl::cpu_isa::avx2_vnni);
  return sums_exactly ? 127 : 63;
}

std::map<std::string, std::string> library_versions() {
  const dnnl_version_t* v = dnnl_version();
  return {{"oneDNN", fmt::format("{}.{}.{}", v->major, v->minor, v->patch)}};
}

std::string onednn_refusal() { return {}; }

}  // namespace gradmeter::kernels

namespace gradmeter::kernels::onednn {
namespace {

const NumberFormat& format_of(Type t) {
  switch (t) {
    case Type::f32:
      return number_format(core::Element::f32);
    case Type::bf16:
      return number_format(core::Element::bf16);
    case Type::s32:
      return number_format(core::Element::i32);
    case Type::s8:
      return number_format(core::Element::i8);
    case Type::u8:
      return format_u8();
    default:
      throw core::BackendError("oneDNN", "data type", "a type that no operation uses");
  }
}

std::vector<Operand> operands(const std::vector<Argument>& arguments) {
  std::vector<Operand> operands;
  for (const Argument& a : arguments) {
    Operand& o = operands.emplace_back(
        Operand{.name = a.name, .format = nullptr, .stored_bytes = a.stored.get_size(), .is_added_to = a.is_added_to});
    if (a.plain.is_zero()) continue;
    o.format = &format_of(a.plain.data_type());
    o.elements = a.plain.get_size() / o.format->bytes;
    o.packed = a.stored != a.plain;
  }
  return operands;
}

/// The same layout with another type of numbers.
dnnl::memory::desc of_type(dnnl::memory::desc d, Type t) {
  d.data.data_type = dnnl::memory::convert_to_c(t);
  return d;
}
dnnl::memory::desc as_floats(const dnnl::memory::desc& plain) { return of_type(plain, Type::f32); }
bool is_plain_floats(const Argument& a) { return a.stored == a.plain && a.plain.data_type() == Type::f32; }

using Indices = std::array<dnnl_dim_t, DNNL_MAX_NDIMS>;

/// The index in each dimension of an element of a dense layout; empty: the layout is not dense.
std::optional<Indices> indices_in(const dnnl_memory_desc_t& dense, std::size_t element) {
  const auto& layout = dense.format_desc.blocking;
  if (dense.format_kind != dnnl_blocked || layout.inner_nblks > 0) return std::nullopt;
  const auto dimensions = static_cast<std::size_t>(dense.ndims);
  Indices at{};
  for (std::size_t d = 0; d < dimensions; ++d)
    at.at(d) = static_cast<dnnl_dim_t>(element) / layout.strides[d] % dense.dims[d];
  return at;
}

/// The offset of an element in a blocked layout, by the definition of dnnl_blocking_desc_t; empty: another layout.
std::optional<std::size_t> offset_in(const dnnl_memory_desc_t& d, Indices at) {
  if (d.format_kind != dnnl_blocked) return std::nullopt;
  const auto& layout = d.format_desc.blocking;
  dnnl_dim_t offset = d.offset0, inner_stride = 1;
  const auto dimensions = static_cast<std::size_t>(d.ndims);
  for (std::size_t i = 0; i < dimensions; ++i) at.at(i) += d.padded_offsets[i];
  for (int block = layout.inner_nblks - 1; block >= 0; --block) {
    dnnl_dim_t& index = at.at(static_cast<std::size_t>(layout.inner_idxs[block]));
    offset += index % layout.inner_blks[block] * inner_stride;
    index /= layout.inner_blks[block], inner_stride *= layout.inner_blks[block];
  }
  for (std::size_t i = 0; i < dimensions; ++i) offset += at.at(i) * layout.strides[i];
  return static_cast<std::size_t>(offset);
}

class PrimitiveOp final : public HostOp {
  /// The library's memory objects for the addresses of one call. To change an object's address may cost a pass over its
  /// padding, so each combination of addresses keeps its own objects.
  struct Binding {
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
    std::vector<dnnl::memory> memories;
    /// The list that the C interface takes, which refers to `memories`. The C++ interface makes such a list in each
    /// call, which costs 3 % of a product of 16 by 16 by 16 (`compare-speed.py --only kernels`).
    std::vector<dnnl_exec_arg_t> arguments;

    void add(int number, dnnl::memory memory) {
      arguments.push_back({number, memory.get()});
      memories.push_back(std::move(memory));
    }
  };

 public:
  PrimitiveOp(PreparedPrimitive p, runtime::Cost cost, const dnnl::engine& engine, runtime::Device& device)
      : HostOp(operands(p.inputs), operands(p.outputs), cost),
        prepared_(std::move(p)),
        engine_(engine),
        stream_(engine),
        device_(device),
        scratchpad_(device.allocate(core::Element::i8, std::max<std::size_t>(prepared_.scratchpad.get_size(), 1))) {}

  std::size_t scratch_bytes() const override { return prepared_.scratchpad.get_size(); }
  std::string implementation() const override { return fmt::format("onednn {}", prepared_.implementation); }
  std::unique_ptr<Op> packing(std::size_t input) const override {
    const Argument& a = prepared_.inputs.at(input);
    return inputs()[input].packed ? reorder_op(a, a.plain, a.stored, prepared_.packing_attributes)
                                  : HostOp::packing(input);
  }
  std::unique_ptr<Op> unpacking(std::size_t output) const override {
    const Argument& a = prepared_.outputs.at(output);
    return outputs()[output].packed ? reorder_op(a, a.stored, a.plain, prepared_.packing_attributes)
                                    : HostOp::unpacking(output);
  }
  std::unique_ptr<Op> packing_from_fp32(std::size_t input) const override {
    const Argument& a = prepared_.inputs.at(input);
    return is_plain_floats(a)
               ? HostOp::packing(input)
               : reorder_op(a, as_floats(a.plain), a.stored, a.fp32_conversion.value_or(prepared_.packing_attributes));
  }
  std::unique_ptr<Op> unpacking_to_fp32(std::size_t output) const override {
    const Argument& a = prepared_.outputs.at(output);
    return is_plain_floats(a)
               ? HostOp::unpacking(output)
               : reorder_op(a, a.stored, as_floats(a.plain), a.fp32_conversion.value_or(prepared_.packing_attributes));
  }
  std::optional<std::size_t> stored_offset(const Operand& o, std::size_t element) const override {
    if (!o.packed) return HostOp::stored_offset(o, element);
    const bool is_input = &o >= inputs().data() && &o < inputs().data() + inputs().size();
    const Argument& a = is_input ? prepared_.inputs[static_cast<std::size_t>(&o - inputs().data())]
                                 : prepared_.outputs[static_cast<std::size_t>(&o - outputs().data())];
    const auto indices = indices_in(a.plain.data, element);
    const auto offset = indices ? offset_in(a.stored.data, *indices) : std::nullopt;
    if (!offset) return std::nullopt;
    return *offset * format_of(a.stored.data_type()).bytes;
  }

 protected:
  void bind_addresses(Reads inputs, Writes outputs) override { binding_of(inputs, outputs); }
  void compute(Reads inputs, Writes outputs) override {
    checked("primitive", [&] {
      const auto& arguments = binding_of(inputs, outputs).arguments;
      dnnl::error::wrap_c_api(dnnl_primitive_execute(prepared_.primitive.get(), stream_.get(),
                                                     static_cast<int>(arguments.size()), arguments.data()),
                              "could not execute a primitive");
      stream_.wait();
    });
  }

 private:
  /// The binding of these addresses; makes it if there is none. Callers usually take their sets of operands in turn, so
  /// the search begins behind the binding that was used last.
  const Binding& binding_of(Reads inputs, Writes outputs) {
    for (std::size_t i = 0; i < bindings_.size(); ++i) {
      if (++last_ >= bindings_.size()) last_ = 0;
      const Binding& b = bindings_[last_];
      if (std::ranges::equal(b.inputs, inputs) && std::ranges::equal(b.outputs, outputs)) return b;
    }
    constexpr std::size_t most = 1 << 14;
    if (bindings_.size() == most) bindings_.clear();
    last_ = bindings_.size();
    return bindings_.emplace_back(bound_to(inputs, outputs));
  }

  Binding bound_to(Reads inputs, Writes outputs) {
    Binding b{{inputs.begin(), inputs.end()}, {outputs.begin(), outputs.end()}, {}, {}};
    // oneDNN takes no pointer to const; of its inputs, it writes nothing but the padding of its own layouts.
    for (std::size_t i = 0; i < inputs.size(); ++i)
      b.add(prepared_.inputs[i].number,
            dnnl::memory(prepared_.inputs[i].stored, engine_, const_cast<std::byte*>(inputs[i])));
    for (std::size_t i = 0; i < outputs.size(); ++i)
      b.add(prepared_.outputs[i].number, dnnl::memory(prepared_.outputs[i].stored, engine_, outputs[i]));
    b.add(DNNL_ARG_SCRATCHPAD, dnnl::memory(prepared_.scratchpad, engine_, scratchpad_.buffer.host()));
    return b;
  }

  std::unique_ptr<Op> reorder_op(const Argument& a, const dnnl::memory::desc& from, const dnnl::memory::desc& to,
                                 dnnl::primitive_attr attributes) const {
    return checked("creation of a reorder", [&] {
      attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
      const dnnl::reorder::primitive_desc d(engine_, from, engine_, to, attributes);
      const double bytes = static_cast<double>(from.get_size() + to.get_size());
      return make_primitive_op({.primitive = dnnl::reorder(d),
                                .scratchpad = d.scratchpad_desc(),
                                .implementation = d.impl_info_str(),
                                .inputs = {{a.name, DNNL_ARG_FROM, from, of_type(a.plain, from.data_type())}},
                                .outputs = {{a.name, DNNL_ARG_TO, to, of_type(a.plain, to.data_type())}}},
                               {.flops = 0, .bytes = bytes}, engine_, device_);
    });
  }

  PreparedPrimitive prepared_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  runtime::Device& device_;
  runtime::OwnedBuffer scratchpad_;
  std::vector<Binding> bindings_;
  std::size_t last_ = 0;
};

}  // namespace

void quantize(const Quantization& q, int weights_output_dimension, PreparedPrimitive& p) {
  std::vector<float> weight_scales, sum_scales;
  for (const float weight_quantum : q.weight_quanta) {
    weight_scales.push_back(1 / weight_quantum);
    sum_scales.push_back(q.quantum * weight_quantum);
  }
  dnnl::primitive_attr input, weights, output;
  input.set_output_scales(0, {1 / q.quantum});
  if (q.zero_point != 0) input.set_zero_points(DNNL_ARG_TO, 0, {q.zero_point});
  weights.set_output_scales(1 << weights_output_dimension, weight_scales);
  output.set_output_scales(1 << 1, sum_scales);
  p.inputs.at(0).fp32_conversion = input, p.inputs.at(1).fp32_conversion = weights,
  p.outputs.at(0).fp32_conversion = output;
}

std::unique_ptr<Op> make_primitive_op(PreparedPrimitive p, runtime::Cost cost, const dnnl::engine& engine,
                                      runtime::Device& device) {
  return std::make_unique<PrimitiveOp>(std::move(p), cost, engine, device);
}

}  // namespace gradmeter::kernels::onednn
