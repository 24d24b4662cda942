#include "allreduce/schedules/bcube.hpp"

#include "allreduce/schedules/butterfly.hpp"

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
  return only_goals(r, {Goal::all_reduce, Goal::reduce_scatter, Goal::all_gather});
}

std::vector<SchedulePtr> make_bcube(const Request& r) {
  const Cube cube = cube_of(r);
  return {butterfly(r.goal, cube.base, cube.levels)};
}

StatedCost bcube_cost(const Request& r) {
  const Cube cube = cube_of(r);
  return butterfly_cost(r.goal, cube.base, cube.levels);
}

}  // namespace gradmeter::allreduce
