// gloo's all-reduce, which PyTorch uses between processors.
#pragma once
#include <string>

#include "allreduce/collective.hpp"
#include "allreduce/registry.hpp"
#include "runtime/gloo_adapter.hpp"

namespace gradmeter::allreduce {

/// `advance` blocks, as gloo does. Average: the sum, then one pass that divides.
/// Errors: BackendError for the types that gloo lacks (bf16, fp8).
class GlooCollective final : public Collective {
 public:
  GlooCollective(std::string name, const runtime::Communicator&, runtime::GlooAlgorithm);
  const std::string& name() const override { return name_; }
  void start(const Call&) override;
  bool advance() override;

 private:
  std::string name_;
  int ranks_;
  runtime::GlooGroup group_;
  runtime::GlooAlgorithm algorithm_;
  Call call_{};
  bool running_ = false;
};

/// The library behind a vendor's row, where it is not MPI: "gloo 0.5.0"; empty: the MPI library.
std::string library_of(const AlgorithmInfo&);

/// The row `gloo:algorithm=ring` or bcube: all-reduce, any ranks. Refused where the program was built without gloo.
std::string gloo_row_refusal(const Request&);
std::unique_ptr<Collective> bind_gloo(const Request&, const Site&, const ExecutorOptions&);

}  // namespace gradmeter::allreduce
