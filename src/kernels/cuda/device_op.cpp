#include "kernels/cuda/device_op.hpp"

#include <stdexcept>
#include <utility>

#include "core/format.hpp"
#include "kernels/ops/operand_lengths.hpp"
#include "runtime/cuda/stream.hpp"

namespace gradmeter::kernels::cuda {
namespace {

[[noreturn]] void refuse(const Operand& o) { throw std::logic_error(fmt::format("{} is not packed", o.name)); }

class ConversionOp final : public DeviceOp {
 public:
  ConversionOp(const Operand& from, const Operand& to, std::string implementation, Conversion convert)
      : DeviceOp({from}, {to}, {.flops = 0, .bytes = static_cast<double>(from.stored_bytes + to.stored_bytes)}),
        implementation_(std::move(implementation)),
        convert_(std::move(convert)) {}
  std::string implementation() const override { return implementation_; }

 protected:
  void launch(Reads in, Writes out, cudaStream_t stream) override { convert_(in[0], out[0], stream); }

 private:
  std::string implementation_;
  Conversion convert_;
};

}  // namespace

DeviceOp::DeviceOp(std::vector<Operand> inputs, std::vector<Operand> outputs, runtime::Cost cost)
    : inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      cost_(cost),
      read_(inputs_.size()),
      written_(outputs_.size()) {}

std::unique_ptr<Op> DeviceOp::packing(std::size_t input) const { refuse(inputs_.at(input)); }
std::unique_ptr<Op> DeviceOp::unpacking(std::size_t output) const { refuse(outputs_.at(output)); }
std::unique_ptr<Op> DeviceOp::packing_floats(std::size_t input) const { refuse(inputs_.at(input)); }
std::unique_ptr<Op> DeviceOp::unpacking_floats(std::size_t output) const { refuse(outputs_.at(output)); }

void DeviceOp::find_addresses(Inputs inputs, Outputs outputs) {
  require_lengths(std::span<const Operand>(inputs_), inputs);
  require_lengths(std::span<const Operand>(outputs_), outputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) read_[i] = inputs[i].device().device_address();
  for (std::size_t i = 0; i < outputs.size(); ++i) written_[i] = outputs[i].device().device_address();
}

void DeviceOp::execute(Inputs inputs, Outputs outputs) {
  find_addresses(inputs, outputs);
  launch(read_, written_, gpu::stream());
}

void DeviceOp::bind(Inputs inputs, Outputs outputs) {
  find_addresses(inputs, outputs);
  prepare_for(read_, written_);
}

std::unique_ptr<Op> make_conversion(const Operand& from, const Operand& to, std::string implementation,
                                    Conversion convert) {
  return std::make_unique<ConversionOp>(from, to, std::move(implementation), std::move(convert));
}

Operand as_plain_floats(Operand o) {
  o.format = &number_format(core::Element::f32);
  o.stored_bytes = o.plain_bytes();
  o.packed = false;
  return o;
}

}  // namespace gradmeter::kernels::cuda
