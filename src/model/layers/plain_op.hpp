// An operation on operands in plain memory: packs what its backend has in a layout or format of its own, and pays for
// it.
#pragma once
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/op.hpp"

namespace gradmeter::model {

/// Outputs are overwritten, also those that the operation itself adds to.
/// Memory: the stored form of each packed operand, and the operation's scratch.
class PlainOp {
 public:
  PlainOp(const kernels::Problem&, runtime::Device&, const kernels::OpOptions& = {});

  const kernels::Op& op() const { return *op_; }
  /// Packs an input once: from now on `run` takes what it holds, whatever it is given. It must stay unchanged.
  void keep(runtime::Queue&, std::string_view packing, std::size_t input, const runtime::ConstBuffer&);
  /// Buffers in the order of the operation's operands, in fp32 whatever its precision; those without a plain form as
  /// they are stored. Packing and unpacking are submitted as `packing`.
  void run(runtime::Queue&, std::string_view label, std::string_view packing,
           kernels::BufferList<runtime::ConstBuffer> inputs, kernels::BufferList<runtime::Buffer> outputs);

 private:
  struct Packed {
    std::unique_ptr<kernels::Op> op;  ///< null: it is stored as plain fp32, or has no plain form
    runtime::OwnedBuffer stored;
    std::optional<runtime::ConstBuffer> kept = {};
  };
  /// Where an operand is not taken as `run` gets it.
  struct Packing {
    std::vector<Packed> inputs, outputs;
    std::vector<runtime::ConstBuffer> read;  ///< operands of the call that is submitted, kept for their memory
    std::vector<runtime::Buffer> written;
  };
  Packing& packing();
  void run_packed(runtime::Queue&, std::string_view label, std::string_view packing,
                  kernels::BufferList<runtime::ConstBuffer> inputs, kernels::BufferList<runtime::Buffer> outputs);

  std::unique_ptr<kernels::Op> op_;
  runtime::Cost cost_;
  std::unique_ptr<Packing> packing_;  ///< null: all operands are taken as they are
};

}  // namespace gradmeter::model
