// SPDX-License-Identifier: Apache-2.0
// The classes that backends of operations derive from on the host, and the functions behind the tables of backends.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/op.hpp"

namespace gradmeter::kernels {

/// An operation that the processor of this process computes, in memory that the host can reach while the work runs. A
/// backend derives from it and implements `compute`.
class HostOp : public Op {
 public:
  HostOp(std::vector<Operand> inputs, std::vector<Operand> outputs, runtime::Cost);

  std::span<const Operand> inputs() const override { return inputs_; }
  std::span<const Operand> outputs() const override { return outputs_; }
  runtime::Cost cost() const override { return cost_; }
  std::size_t scratch_bytes() const override { return 0; }
  std::unique_ptr<Op> packing(std::size_t input) const override;
  std::unique_ptr<Op> unpacking(std::size_t output) const override;
  std::unique_ptr<Op> packing_from_fp32(std::size_t input) const override { return packing(input); }
  std::unique_ptr<Op> unpacking_to_fp32(std::size_t output) const override { return unpacking(output); }
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
  int threads_;                         // the number of threads that the backend has divided its work among
  std::vector<const std::byte*> read_;  // the addresses of the call that runs
  std::vector<std::byte*> written_;
};

/// A conversion of one operand to another number format, as an operation of the host. Neither `from` nor `to` is
/// packed.
using HostConversion = std::function<void(const std::byte* from, std::byte* to)>;
std::unique_ptr<Op> make_host_conversion(const Operand& from, const Operand& to, std::string_view implementation,
                                         HostConversion);
/// Describes the operand in plain fp32.
Operand in_plain_floats(const Operand&);

// The functions behind op_backends(), one group for each file of operations. Users call prepare.

/// Refuses the products that no backend takes.
std::string gemm_shape_refusal(const Problem&);
/// Refuses what the backends of the logarithmic precisions do not take: several products, accumulation, packed B.
std::string lns_shape_refusal(const Problem&);
std::string conv_shape_refusal(const Problem&);
std::string rnn_shape_refusal(const Problem&);

std::string gemm_reference_refusal(const Problem&);
std::unique_ptr<Op> make_gemm_reference(const Problem&, const OpOptions&, runtime::Device&);

std::string onednn_gemm_refusal(const Problem&);
std::unique_ptr<Op> make_onednn_gemm(const Problem&, const OpOptions&, runtime::Device&);

std::string lns_op_refusal(const Problem&);
std::unique_ptr<Op> make_lns_op(const Problem&, const OpOptions&, runtime::Device&);

/// Takes a bf16 problem if oneDNN can be used, and a backend takes the problem in fp32.
std::string converted_op_refusal(const Problem&);
std::unique_ptr<Op> make_converted_op(const Problem&, const OpOptions&, runtime::Device&);
/// True for operations of the backends `converted` and `emulated`, and for the packing and unpacking operations of
/// `converted`.
bool is_converted(const Op&);
/// The format in which an operand's numbers lie in memory. It is the operand's own format, except for packed weights of
/// operations that convert (is_converted), which lie in fp32.
const NumberFormat& stored_format(const Op&, const Operand&);

/// Takes a problem in a precision with `PrecisionInfo::emulated` if a backend takes the problem in fp32.
std::string emulated_op_refusal(const Problem&);
std::unique_ptr<Op> make_emulated_op(const Problem&, const OpOptions&, runtime::Device&);

std::string onednn_conv_refusal(const Problem&);
std::unique_ptr<Op> make_onednn_conv(const Problem&, const OpOptions&, runtime::Device&);

std::string onednn_rnn_refusal(const Problem&);
std::unique_ptr<Op> make_onednn_rnn(const Problem&, const OpOptions&, runtime::Device&);

}  // namespace gradmeter::kernels

namespace gradmeter::kernels::cuda {

// The functions behind add_cuda_ops() for operations that our own kernels compute, one group for each file of
// operations.

std::string own_gemm_refusal(const Problem&);
std::unique_ptr<Op> make_own_gemm(const Problem&, const OpOptions&, runtime::Device&);

std::string own_lns_refusal(const Problem&);
std::unique_ptr<Op> make_own_lns(const Problem&, const OpOptions&, runtime::Device&);

std::string own_conv_refusal(const Problem&);
std::unique_ptr<Op> make_own_conv(const Problem&, const OpOptions&, runtime::Device&);

std::string own_rnn_refusal(const Problem&);
std::unique_ptr<Op> make_own_rnn(const Problem&, const OpOptions&, runtime::Device&);

// The functions behind add_cuda_ops() for NVIDIA's libraries; their source files state at the top which problems they
// take.

/// Takes fp32, bf16, fp16, fp8_e4m3, fp8_e5m2, int8, and the modes tf32, fp8_e4m3_fast and fp8_e5m2_fast.
std::string cublaslt_refusal(const Problem&);
/// The operation's scratch_bytes include the workspace of one algorithm for each alignment of operands that has
/// occurred so far; each workspace is at most 32 MiB on devices of compute capability 9.0 and later, else 4 MiB.
std::unique_ptr<Op> make_cublaslt_op(const Problem&, const OpOptions&, runtime::Device&);

/// Takes fp32, bf16 and fp16.
std::string cudnn_conv_refusal(const Problem&);
std::unique_ptr<Op> make_cudnn_conv_op(const Problem&, const OpOptions&, runtime::Device&);

std::string cudnn_rnn_refusal(const Problem&);
std::unique_ptr<Op> make_cudnn_rnn_op(const Problem&, const OpOptions&, runtime::Device&);

}  // namespace gradmeter::kernels::cuda
