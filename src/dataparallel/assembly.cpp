// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/assembly.hpp"

#include "dataparallel/optimizers/layerwise.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "dataparallel/optimizers/weight_format.hpp"

namespace gradmeter::dataparallel {
namespace {

std::unique_ptr<SumsOverRanks> part_sums_of(const AssemblyOptions& options, const model::Model& m, const Mesh& mesh,
                                            Fabric& fabric) {
  if (!options.sums_norms_over_ranks || !needs_norm_sums(mesh.shape(), options.optimizer)) return nullptr;
  return std::make_unique<GroupSums>(fabric, mesh.tensor(), sums_per_tensor * m.tensors().size());
}

std::unique_ptr<LossScaler> scaler_of(const StrategyOptions& options, runtime::Device& device) {
  return options.loss_scale.used() ? std::make_unique<LossScaler>(options.loss_scale, device) : nullptr;
}

std::unique_ptr<Optimizer> optimizer_of(const AssemblyOptions& options, const model::Model& m, SumsOverRanks* part_sums,
                                        runtime::Device& device) {
  const std::string name =
      options.strategy->info().keeps_optimizer_state ? "sgd" : options.optimizer;  // sgd has no state
  return make_optimizer(
      name, {.elements = m.element_count(), .tensors = m.tensors(), .part_sums = part_sums, .device = device});
}

}  // namespace

bool needs_norm_sums(const MeshShape& mesh, const std::string& optimizer) {
  return mesh.tensor > 1 && make_optimizer(optimizer, {})->needs_whole_tensors();
}

Assembly::Assembly(Fabric& fabric, const AssemblyOptions& options)
    : probe_(fabric),
      mesh_(probe_, options.mesh),
      peers_(probe_, mesh_),
      model_(options.model(mesh_, peers_)),
      part_sums_(part_sums_of(options, *model_, mesh_, probe_)),
      scaler_(scaler_of(options.strategy_options, probe_.device())),
      gradient_format_(make_update_format(options.strategy_options.gradient_format)),
      optimizer_(optimizer_of(options, *model_, part_sums_.get(), probe_.device())),
      buffers_{.parameters = probe_.memory(model_->element_count()),
               .gradients = probe_.memory(model_->element_count())},
      worker_(probe_, mesh_.data(), *model_, buffers_, *optimizer_, &mesh_, part_sums_.get(), scaler_.get(),
              gradient_format_.get()),
      strategy_(options.strategy->make(options.strategy_options)) {
  if (!options.seed) return;
  model_->initialise(probe_, buffers_, *options.seed);
  if (const auto format = make_update_format(update_format_of(options.optimizer)))
    probe_.run_and_wait([&] { format->round(buffers_.parameters); });
}

}  // namespace gradmeter::dataparallel
