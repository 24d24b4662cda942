// An operation that a GPU runs: work on the stream of the queue that executes it.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/op.hpp"

namespace gradmeter::kernels::cuda {

/// A backend derives from it and writes `launch`.
class DeviceOp : public Op {
 public:
  DeviceOp(std::vector<Operand> inputs, std::vector<Operand> outputs, runtime::Cost);

  std::span<const Operand> inputs() const override { return inputs_; }
  std::span<const Operand> outputs() const override { return outputs_; }
  runtime::Cost cost() const override { return cost_; }
  std::size_t scratch_bytes() const override { return 0; }
  std::unique_ptr<Op> packing(std::size_t input) const override;
  std::unique_ptr<Op> unpacking(std::size_t output) const override;
  std::unique_ptr<Op> packing_floats(std::size_t input) const override;
  std::unique_ptr<Op> unpacking_floats(std::size_t output) const override;
  /// Errors also: std::logic_error for memory of the host.
  void execute(Inputs, Outputs) final;
  void bind(Inputs, Outputs) final;

 protected:
  using Reads = std::span<const std::byte* const>;  ///< one address on the device for each operand
  using Writes = std::span<std::byte* const>;
  /// Queues the work, and does not wait.
  virtual void launch(Reads, Writes, cudaStream_t) = 0;
  virtual void prepare_for(Reads, Writes) {}

 private:
  void find_addresses(Inputs, Outputs);

  std::vector<Operand> inputs_, outputs_;
  runtime::Cost cost_;
  std::vector<const std::byte*> read_;  // addresses of the call that is queued
  std::vector<std::byte*> written_;
};

/// From one operand to another by a function that queues a kernel.
using Conversion = std::function<void(const std::byte* from, std::byte* to, cudaStream_t)>;
std::unique_ptr<Op> make_conversion(const Operand& from, const Operand& to, std::string implementation, Conversion);

/// The plain operand in fp32.
Operand as_plain_floats(Operand);

}  // namespace gradmeter::kernels::cuda
