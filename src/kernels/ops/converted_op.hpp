// An operation on operands that lie in memory in another format: it converts them to fp32, runs an operation in fp32
// and converts the results.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/element.hpp"
#include "kernels/ops/host_op.hpp"

namespace gradmeter::kernels {

/// Between what lies in memory and fp32, element by element; as many of both.
struct Conversion {
  core::Element element;  ///< in memory
  void (*to_floats)(std::span<const std::byte>, std::span<float>);
  void (*from_floats)(std::span<const float>, std::span<std::byte>);
};

struct ConvertedOperand {
  Operand operand;
  const Conversion* conversion = nullptr;  ///< null: the operation in fp32 takes it as it is
};
ConvertedOperand converted(Operand in_fp32, const Conversion&);

Problem in_fp32(Problem);

/// The copies in fp32 lie in memory that all these operations of a thread share, so that it is theirs alone during a
/// call. It is as large as the largest of them needs, and grows in a first call or in `bind`.
class ConvertedOp : public HostOp {
 public:
  ConvertedOp(std::unique_ptr<Op> in_fp32, std::vector<ConvertedOperand> inputs, std::vector<ConvertedOperand> outputs,
              runtime::Cost, std::string implementation);

  std::size_t scratch_bytes() const override { return inner_->scratch_bytes() + floats_ * sizeof(float); }
  std::string implementation() const override { return implementation_; }
  std::unique_ptr<Op> packing(std::size_t input) const override { return inner_->packing(input); }
  std::unique_ptr<Op> unpacking(std::size_t output) const override { return inner_->unpacking(output); }
  std::unique_ptr<Op> packing_floats(std::size_t input) const override { return inner_->packing_floats(input); }
  std::unique_ptr<Op> unpacking_floats(std::size_t output) const override { return inner_->unpacking_floats(output); }
  std::optional<std::size_t> stored_at(const Operand&, std::size_t element) const override;

 protected:
  /// Of an input or output; null: it is not converted.
  const Conversion* conversion_of_input(std::size_t i) const { return read_[i].conversion; }
  const Conversion* conversion_of_output(std::size_t i) const { return written_[i].conversion; }
  const Op& in_fp32() const { return *inner_; }

 private:
  struct Copy {
    const Conversion* conversion;
    std::size_t first, count;  // floats of the workspace
  };
  std::vector<Copy> copies_of(std::span<const ConvertedOperand>, std::span<const Operand> in_fp32);
  void compute(Reads, Writes) final;
  void bind_addresses(Reads, Writes) final;
  void list_operands(std::span<float> workspace, Reads, Writes);

  std::unique_ptr<Op> inner_;
  std::string implementation_;
  std::size_t floats_ = 0;
  std::vector<Copy> read_, written_;
  std::vector<runtime::ConstBuffer> inner_inputs_;  // of the call that runs
  std::vector<runtime::Buffer> inner_outputs_;
};

}  // namespace gradmeter::kernels
