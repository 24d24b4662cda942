// An operation that the processor of this process computes, on memory that the host can reach while its work runs.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/op.hpp"

namespace gradmeter::kernels {

/// A backend derives from it and writes `compute`.
class HostOp : public Op {
 public:
  HostOp(std::vector<Operand> inputs, std::vector<Operand> outputs, runtime::Cost);

  std::span<const Operand> inputs() const override { return inputs_; }
  std::span<const Operand> outputs() const override { return outputs_; }
  runtime::Cost cost() const override { return cost_; }
  std::size_t scratch_bytes() const override { return 0; }
  std::unique_ptr<Op> packing(std::size_t input) const override;
  std::unique_ptr<Op> unpacking(std::size_t output) const override;
  std::unique_ptr<Op> packing_floats(std::size_t input) const override { return packing(input); }
  std::unique_ptr<Op> unpacking_floats(std::size_t output) const override { return unpacking(output); }
  void execute(Inputs, Outputs) final;
  void bind(Inputs, Outputs) final;

 protected:
  using Reads = std::span<const std::byte* const>;  ///< one address for each operand
  using Writes = std::span<std::byte* const>;
  virtual void compute(Reads, Writes) = 0;
  virtual void bind_addresses(Reads, Writes) {}

 private:
  void find_addresses(Inputs, Outputs);

  std::vector<Operand> inputs_, outputs_;
  runtime::Cost cost_;
  int threads_;                         // that the backend has divided its work among
  std::vector<const std::byte*> read_;  // addresses of the call that runs
  std::vector<std::byte*> written_;
};

}  // namespace gradmeter::kernels
