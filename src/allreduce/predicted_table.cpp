#include "allreduce/predicted_table.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "allreduce/registry.hpp"
#include "allreduce/schedule/hockney.hpp"
#include "allreduce/table_file.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {
namespace {

constexpr std::size_t smallest = std::size_t{1} << 10, largest = std::size_t{64} << 20;
/// Buffers are cut as transports inside a node cut them, but into few slices: their number is what a walk costs.
constexpr std::size_t usual_slice = std::size_t{256} << 10, most_slices = 16;

double predicted_s(const core::Machine& machine, const std::vector<SchedulePtr>& schedules, const Request& r,
                   std::size_t bytes) {
  const std::size_t element_bytes = core::size_of(r.arithmetic.element);
  const Cut cut = cut_for(r.collective_kind);
  const std::size_t longest = message_bytes_for(schedules, bytes, std::max(usual_slice, bytes / most_slices));
  const Slices slices(cut, bytes / element_bytes, element_bytes, schedules.front()->blocks(), longest,
                      cut == Cut::of_each_block);
  return std::ranges::max(hockney_finish_times(schedules, slices, element_bytes,
                                               std::vector<double>(schedules.front()->ranks(), 0.0), machine));
}

}  // namespace

std::string predicted_table(const core::Machine& machine, const Request& r) {
  std::vector<MeasuredSize> times;
  for (const AlgorithmInfo& row : algorithms()) {
    if (row.backend != Backend::schedule) continue;
    const AlgorithmPtr a = find_algorithm(row.name);
    if (!a->refusal(r.shape, r.collective_kind, r.arithmetic).empty()) continue;
    const auto schedules = a->make(r.shape, r.collective_kind, r.root);
    for (std::size_t bytes = smallest; bytes <= largest; bytes *= 2)
      times.push_back({bytes, a->name, predicted_s(machine, schedules, r, bytes)});
  }
  return fit_table(times);
}

core::Machine read_machine_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in)
    throw core::UsageError(fmt::format("{}: the machine's description cannot be read; check its path", path.string()));
  try {
    return core::machine_from_json(text.str());
  } catch (const core::UsageError& e) {
    throw core::UsageError(fmt::format("{}: {}", path.string(), e.what()));
  }
}

}  // namespace gradmeter::allreduce
