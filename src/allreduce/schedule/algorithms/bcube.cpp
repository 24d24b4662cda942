#include "allreduce/schedule/algorithms/bcube.hpp"

#include "allreduce/schedule/algorithms/butterfly.hpp"

namespace gradmeter::allreduce {
namespace {

struct Cube {
  std::uint32_t base, levels;
};

Cube cube_of(const Request& r) {
  const std::uint32_t base = number(r, "base", 2);
  std::uint32_t levels = 0, rest = r.shape.ranks;
  for (; rest % base == 0; rest /= base) ++levels;
  return rest == 1 ? Cube{base, levels} : Cube{r.shape.ranks, 1};
}

}  // namespace

std::string bcube_refusal(const Request& r) {
  number(r, "base", 2);
  return only_collectives(r, {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather});
}

std::vector<SchedulePtr> make_bcube(const Request& r) {
  const Cube cube = cube_of(r);
  return {butterfly(r.collective_kind, cube.base, cube.levels)};
}

StatedCost bcube_cost(const Request& r) {
  const Cube cube = cube_of(r);
  return butterfly_cost(r.collective_kind, cube.base, cube.levels);
}

}  // namespace gradmeter::allreduce
