#include "kernels/cuda/host_fallback.hpp"

#include <utility>

namespace gradmeter::kernels::cuda {
namespace {

class HostFallback final : public Op {
 public:
  explicit HostFallback(std::unique_ptr<Op> op) : op_(std::move(op)) {}

  std::span<const Operand> inputs() const override { return op_->inputs(); }
  std::span<const Operand> outputs() const override { return op_->outputs(); }
  runtime::Cost cost() const override { return op_->cost(); }
  std::size_t scratch_bytes() const override { return op_->scratch_bytes(); }
  std::string implementation() const override { return std::string(left_to_host) + op_->implementation(); }
  std::unique_ptr<Op> packing(std::size_t input) const override { return op_->packing(input); }
  std::unique_ptr<Op> unpacking(std::size_t output) const override { return op_->unpacking(output); }
  std::unique_ptr<Op> packing_floats(std::size_t input) const override { return op_->packing_floats(input); }
  std::unique_ptr<Op> unpacking_floats(std::size_t output) const override { return op_->unpacking_floats(output); }
  void execute(Inputs in, Outputs out) override { op_->execute(in, out); }
  void bind(Inputs in, Outputs out) override { op_->bind(in, out); }

 private:
  std::unique_ptr<Op> op_;
};

}  // namespace

std::string host_fallback_refusal(const Problem& p) { return op_refusal(p); }

std::unique_ptr<Op> make_host_fallback(const Problem& p, const OpOptions& o, runtime::Device&) {
  return std::make_unique<HostFallback>(prepare(p, {.training = o.training, .quantization = o.quantization}));
}

}  // namespace gradmeter::kernels::cuda
