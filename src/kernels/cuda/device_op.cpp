#include "kernels/cuda/device_op.hpp"

#include <stdexcept>
#include <utility>

#include "core/format.hpp"
#include "kernels/cuda/loops/pointwise.hpp"
#include "runtime/cuda/stream.hpp"

namespace gradmeter::kernels::cuda {
namespace {

[[noreturn]] void refuse(const Operand& o) { throw std::logic_error(fmt::format("{} is not packed", o.name)); }

bool holds(const Operand& o, core::Element e) { return o.format && *o.format == number_format(e); }

class ConversionOp final : public DeviceOp {
 public:
  ConversionOp(const Operand& from, const Operand& to, Conversion convert)
      : DeviceOp({{from}, {to}}, {.flops = 0, .bytes = static_cast<double>(from.stored_bytes + to.stored_bytes)}),
        convert_(std::move(convert)) {}
  std::string implementation() const override { return "own conversion"; }

 protected:
  void launch(Inputs in, Outputs out, cudaStream_t stream) override { convert_(in[0], out[0], stream); }

 private:
  Conversion convert_;
};

}  // namespace

DeviceOp::DeviceOp(OperandLists operands, runtime::Cost cost) : operands_(std::move(operands)), cost_(cost) {}

std::unique_ptr<Op> DeviceOp::packing(std::size_t input) const { refuse(inputs()[input]); }
std::unique_ptr<Op> DeviceOp::unpacking(std::size_t output) const { refuse(outputs()[output]); }

std::unique_ptr<Op> DeviceOp::packing_floats(std::size_t input) const {
  const Operand& o = inputs()[input];
  if (holds(o, core::Element::bf16))
    return make_conversion(as_plain_floats(o), o, [](const auto& from, const auto& to, cudaStream_t stream) {
      to_bf16(device_values<float>(from), device_values<Bf16>(to), stream);
    });
  if (holds(o, core::Element::f16))
    return make_conversion(as_plain_floats(o), o, [](const auto& from, const auto& to, cudaStream_t stream) {
      to_fp16(device_values<float>(from), device_values<Fp16>(to), stream);
    });
  refuse(o);
}

std::unique_ptr<Op> DeviceOp::unpacking_floats(std::size_t output) const {
  const Operand& o = outputs()[output];
  if (holds(o, core::Element::bf16))
    return make_conversion(o, as_plain_floats(o), [](const auto& from, const auto& to, cudaStream_t stream) {
      to_floats(device_values<Bf16>(from), device_values<float>(to), stream);
    });
  if (holds(o, core::Element::f16))
    return make_conversion(o, as_plain_floats(o), [](const auto& from, const auto& to, cudaStream_t stream) {
      to_floats(device_values<Fp16>(from), device_values<float>(to), stream);
    });
  refuse(o);
}

void DeviceOp::execute(Inputs in, Outputs out) {
  require_lengths(inputs(), in);
  require_lengths(outputs(), out);
  launch(in, out, gpu::stream());
}

void DeviceOp::bind(Inputs in, Outputs out) {
  require_lengths(inputs(), in);
  require_lengths(outputs(), out);
  prepare_for(in, out);
}

std::unique_ptr<Op> make_conversion(const Operand& from, const Operand& to, Conversion convert) {
  return std::make_unique<ConversionOp>(from, to, std::move(convert));
}

Operand as_plain_floats(const Operand& o) { return plain_operand(o.name, core::Element::f32, o.elements); }

}  // namespace gradmeter::kernels::cuda
