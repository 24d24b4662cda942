// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/assembly.hpp"

#include "dataparallel/optimizers/layerwise.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "dataparallel/optimizers/weight_format.hpp"

namespace gradmeter::dataparallel {
namespace {

std::unique_ptr<SumsOverRanks> norms_of(const AssemblyOptions& o, const model::Model& m, const Mesh& mesh,
                                        Fabric& fabric) {
  if (!o.combines_norms || !shares_norms(mesh.shape(), o.optimizer)) return nullptr;
  return std::make_unique<GroupSums>(fabric, mesh.tensor(), sums_per_tensor * m.tensors().size());
}

std::unique_ptr<LossScaler> scaler_of(const StrategyOptions& o, runtime::Device& device) {
  return o.loss_scale.used() ? std::make_unique<LossScaler>(o.loss_scale, device) : nullptr;
}

std::unique_ptr<Optimizer> optimizer_of(const AssemblyOptions& o, const model::Model& m, SumsOverRanks* norms,
                                        runtime::Device& device) {
  const std::string name = o.strategy->info().keeps_optimizer_state ? "sgd" : o.optimizer;  // sgd has no state
  return make_optimizer(name,
                        {.elements = m.element_count(), .tensors = m.tensors(), .parts = norms, .device = device});
}

}  // namespace

bool shares_norms(const MeshShape& mesh, const std::string& optimizer) {
  return mesh.tensor > 1 && make_optimizer(optimizer, {})->needs_whole_tensors();
}

Assembly::Assembly(Fabric& fabric, const AssemblyOptions& o)
    : probe_(fabric),
      mesh_(probe_, o.mesh),
      peers_(probe_, mesh_),
      model_(o.model(mesh_, peers_)),
      norms_(norms_of(o, *model_, mesh_, probe_)),
      scaler_(scaler_of(o.strategy_options, probe_.device())),
      gradient_format_(make_update_format(o.strategy_options.gradients)),
      optimizer_(optimizer_of(o, *model_, norms_.get(), probe_.device())),
      buffers_{.parameters = probe_.memory(model_->element_count()),
               .gradients = probe_.memory(model_->element_count())},
      worker_(probe_, mesh_.data(), *model_, buffers_, *optimizer_, &mesh_, norms_.get(), scaler_.get(),
              gradient_format_.get()),
      strategy_(o.strategy->make(o.strategy_options)) {
  if (!o.seed) return;
  model_->initialise(probe_, buffers_, *o.seed);
  if (const auto format = make_update_format(update_format_of(o.optimizer)))
    probe_.at_once([&] { format->round(buffers_.parameters); });
}

}  // namespace gradmeter::dataparallel
