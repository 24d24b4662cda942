#include "allreduce/native/gloo.hpp"

#include "allreduce/cuda/nccl.hpp"
#include "allreduce/native/combine.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {
namespace {

runtime::GlooAlgorithm gloo_algorithm(const Request& r) {
  const auto given = r.name.parameters.find("algorithm");
  const std::string name = given == r.name.parameters.end() ? "ring" : given->second;
  if (name == "ring") return runtime::GlooAlgorithm::ring;
  if (name == "bcube") return runtime::GlooAlgorithm::bcube;
  throw core::UsageError(fmt::format("gloo has no algorithm '{}'; it has ring and bcube", name));
}

}  // namespace

GlooCollective::GlooCollective(std::string name, const runtime::Communicator& c, runtime::GlooAlgorithm a)
    : name_(std::move(name)), ranks_(c.size()), group_(c), algorithm_(a) {}

void GlooCollective::start(const Call& call) {
  if (running_) throw core::BackendError("allreduce", name_, "started before the last call was complete");
  check_supported(call.element(), call.op, call.accumulates_in());
  if (!runtime::gloo_has(call.element())) {
    throw core::BackendError("gloo", "allreduce",
                             fmt::format("it has no operators for {}; use mpi", core::info(call.element()).name));
  }
  call_ = call;
  running_ = true;
}

bool GlooCollective::advance() {
  if (!running_) return true;
  group_.all_reduce(call_.in.host(), call_.out.host(), call_.count(), call_.element(), combine_of(call_.op),
                    algorithm_);
  finish(call_.element(), call_.op, call_.out.host(), call_.out.host(), call_.count(), ranks_);
  running_ = false;
  return true;
}

std::string library_of(const AlgorithmInfo& a) {
  if (a.bind == bind_nccl) return runtime::nccl_library();
  return a.bind == bind_gloo ? runtime::gloo_version() : "";
}

std::string gloo_row_refusal(const Request& r) {
  (void)gloo_algorithm(r);
  if (auto why = only_collectives(r, {CollectiveKind::all_reduce}); !why.empty()) return why;
  if (!runtime::gloo_has(r.arithmetic.element)) {
    return fmt::format("gloo has no operators for {}", core::info(r.arithmetic.element).name);
  }
  return runtime::gloo_refusal();
}

std::unique_ptr<Collective> bind_gloo(const Request& r, const Site& site, const ExecutorOptions&) {
  return std::make_unique<GlooCollective>(r.name.canonical(), site.communicator, gloo_algorithm(r));
}

}  // namespace gradmeter::allreduce
