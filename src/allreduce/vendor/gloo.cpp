// SPDX-License-Identifier: Apache-2.0
// The row `gloo`, and the library behind a vendor's row.
#include "allreduce/vendor/vendor.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/gloo_adapter.hpp"

namespace gradmeter::allreduce {
namespace {

runtime::GlooAlgorithm gloo_algorithm(const Request& r) {
  const auto given = r.name.parameters.find("algorithm");
  const std::string name = given == r.name.parameters.end() ? "ring" : given->second;
  if (name == "ring") return runtime::GlooAlgorithm::ring;
  if (name == "bcube") return runtime::GlooAlgorithm::bcube;
  throw core::UsageError(fmt::format("gloo has no algorithm '{}'; it has ring and bcube", name));
}

/// gloo's all-reduce. `advance` blocks, as gloo does. An average is a sum, then one pass that divides.
/// Errors: BackendError for the types that gloo lacks (bf16, fp8).
class GlooCollective final : public Collective {
 public:
  GlooCollective(std::string name, const runtime::Communicator& c, runtime::GlooAlgorithm a)
      : name_(std::move(name)), ranks_(c.size()), group_(c), algorithm_(a) {}
  const std::string& name() const override { return name_; }
  bool holds_up_other_calls() const override { return true; }
  void start(const Call& call) override {
    if (running_) throw core::BackendError("allreduce", name_, "started before the last call was complete");
    check_supported(call.element(), call.op, call.accumulates_in());
    if (!runtime::gloo_has(call.element())) {
      throw core::BackendError("gloo", "allreduce",
                               fmt::format("it has no operators for {}; use mpi", core::info(call.element()).name));
    }
    call_ = call;
    running_ = true;
  }
  bool advance() override {
    if (!running_) return true;
    group_.all_reduce(call_.in.host(), call_.out.host(), call_.count(), call_.element(), combine_of(call_.op),
                      algorithm_);
    finish(call_.element(), call_.op, call_.out.host(), call_.out.host(), call_.count(), ranks_);
    running_ = false;
    return true;
  }

 private:
  std::string name_;
  int ranks_;
  runtime::GlooGroup group_;
  runtime::GlooAlgorithm algorithm_;
  Call call_{};
  bool running_ = false;
};

std::string gloo_row_refusal(const Request& r) {
  (void)gloo_algorithm(r);
  if (auto why = refusal_unless(r, {CollectiveKind::all_reduce}); !why.empty()) return why;
  if (!runtime::gloo_has(r.arithmetic.element)) {
    return fmt::format("gloo has no operators for {}", core::info(r.arithmetic.element).name);
  }
  return runtime::gloo_refusal();
}

std::unique_ptr<Collective> bind_gloo(const Request& r, const GroupConnection& connection, const ExchangeSpec&) {
  return std::make_unique<GlooCollective>(r.name.canonical(), connection.communicator, gloo_algorithm(r));
}

}  // namespace

constinit const AlgorithmInfo gloo_row{.name = "gloo",
                                       .parameters = "algorithm=ring",
                                       .cost_text = "ring, or bcube: as gloo's, over TCP",
                                       .source = "gloo, gloo/allreduce.cc",
                                       .backend = Backend::vendor,
                                       .refusal = gloo_row_refusal,
                                       .bind = bind_gloo};

std::string library_of(const AlgorithmInfo& a) {
  if (a.bind == nccl_row.bind) return runtime::nccl_library();
  return a.bind == bind_gloo ? runtime::gloo_version() : "";
}

}  // namespace gradmeter::allreduce
