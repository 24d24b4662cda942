#include "kernels/cuda/device_op.hpp"

#include <stdexcept>

#include "core/format.hpp"
#include "kernels/cuda/pointwise.hpp"
#include "runtime/cuda/stream.hpp"

namespace gradmeter::kernels::cuda {
namespace {

Operand as_floats(const Operand& o) { return plain_operand(o.name, core::Element::f32, o.elements); }
bool holds(const Operand& o, core::Element e) { return o.format && *o.format == number_format(e); }

enum class Cast : std::uint8_t { stored, floats };

/// One operand between fp32 and a format of 16 bits.
template <class T>
class FloatCast final : public DeviceOp {
 public:
  FloatCast(const Operand& o, Cast to)
      : DeviceOp({to == Cast::stored ? as_floats(o) : o}, {to == Cast::stored ? o : as_floats(o)},
                 {.flops = 0, .bytes = static_cast<double>((sizeof(float) + sizeof(T)) * o.elements)}),
        to_(to) {}
  std::string implementation() const override { return "own conversion"; }

 protected:
  void launch(Inputs in, Outputs out, cudaStream_t stream) override {
    if (to_ == Cast::floats) return to_floats(device_values<T>(in[0]), device_values<float>(out[0]), stream);
    if constexpr (std::is_same_v<T, Bf16>) {
      to_bf16(device_values<float>(in[0]), device_values<T>(out[0]), stream);
    } else {
      to_fp16(device_values<float>(in[0]), device_values<T>(out[0]), stream);
    }
  }

 private:
  Cast to_;
};

std::unique_ptr<Op> cast(const Operand& o, Cast to) {
  if (holds(o, core::Element::bf16)) return std::make_unique<FloatCast<Bf16>>(o, to);
  if (holds(o, core::Element::f16)) return std::make_unique<FloatCast<Fp16>>(o, to);
  throw std::logic_error(fmt::format("{} is not packed", o.name));
}

}  // namespace

Operand plain_operand(std::string_view name, core::Element element, std::size_t elements, bool added_to) {
  return {.name = name,
          .format = &number_format(element),
          .elements = elements,
          .stored_bytes = elements * core::size_of(element),
          .added_to = added_to};
}

DeviceOp::DeviceOp(std::vector<Operand> inputs, std::vector<Operand> outputs, runtime::Cost cost)
    : inputs_(std::move(inputs)), outputs_(std::move(outputs)), cost_(cost) {}

std::unique_ptr<Op> DeviceOp::packing(std::size_t input) const {
  throw std::logic_error(fmt::format("{} is not packed", inputs_.at(input).name));
}
std::unique_ptr<Op> DeviceOp::unpacking(std::size_t output) const {
  throw std::logic_error(fmt::format("{} is not packed", outputs_.at(output).name));
}
std::unique_ptr<Op> DeviceOp::packing_floats(std::size_t input) const { return cast(inputs_.at(input), Cast::stored); }
std::unique_ptr<Op> DeviceOp::unpacking_floats(std::size_t output) const {
  return cast(outputs_.at(output), Cast::floats);
}

void DeviceOp::execute(Inputs in, Outputs out) {
  require_lengths(inputs_, in);
  require_lengths(outputs_, out);
  launch(in, out, gpu::stream());
}

}  // namespace gradmeter::kernels::cuda
