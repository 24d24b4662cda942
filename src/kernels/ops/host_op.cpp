#include "kernels/ops/host_op.hpp"

#include <stdexcept>

#include "core/format.hpp"
#include "kernels/threads.hpp"

namespace gradmeter::kernels {

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

}  // namespace gradmeter::kernels
