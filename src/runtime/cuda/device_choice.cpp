#include "runtime/cuda/device_choice.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <string_view>

#include "core/format.hpp"

namespace gradmeter::runtime {
namespace {

std::map<std::string, int> ranks_by_device(std::span<const std::string> devices) {
  std::map<std::string, int> count;
  for (const std::string& id : devices) ++count[id];
  return count;
}

}  // namespace

std::vector<std::optional<int>> choose_devices(std::span<const VisibleDevices> ranks_of_a_node) {
  std::vector<std::optional<int>> chosen(ranks_of_a_node.size());
  std::vector<std::size_t> order(ranks_of_a_node.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t rank) { return ranks_of_a_node[rank].size(); });
  std::map<std::string, int> users;
  for (const std::size_t rank : order) {
    const VisibleDevices& visible = ranks_of_a_node[rank];
    const auto fewest = std::ranges::min_element(visible, {}, [&](const std::string& id) { return users[id]; });
    if (fewest == visible.end()) continue;
    ++users[*fewest];
    chosen[rank] = static_cast<int>(fewest - visible.begin());
  }
  return chosen;
}

int most_ranks_on_a_device(std::span<const std::string> devices) {
  int most = 0;
  for (const auto& [device, count] : ranks_by_device(devices)) most = std::max(most, count);
  return most;
}

std::string shared_devices_note(std::span<const std::string> devices) {
  const int most = most_ranks_on_a_device(devices);
  if (most <= 1) return {};
  const std::size_t count = ranks_by_device(devices).size();
  return fmt::format(
      "{} ranks share {} GPU{}, up to {} a GPU: they take turns, so times and efficiencies say nothing of scaling",
      devices.size(), count, count == 1 ? "" : "s", most);
}

std::string no_device_reason(const ReadVariable& variable) {
  const char* slurm = in_slurm_step(variable) ? "ask Slurm for GPUs (--gpus-per-task=1), or " : "";
  const char* visible = variable("CUDA_VISIBLE_DEVICES");
  if (!visible) return fmt::format("no GPU is visible to this rank: {}use --device cpu", slurm);
  return fmt::format(
      "CUDA_VISIBLE_DEVICES='{}' leaves this rank no GPU: unset it, name GPUs that nvidia-smi -L lists, or {}use "
      "--device cpu",
      visible, slurm);
}

}  // namespace gradmeter::runtime
