#include "allreduce/registry.hpp"

#include <array>

#include "allreduce/mpi_all_reduce.hpp"
#include "allreduce/recursive_doubling.hpp"
#include "allreduce/ring.hpp"
#include "core/name.hpp"

namespace gradmeter::allreduce {
namespace {

bool any_shape(Shape) { return true; }

template <SchedulePtr (*Make)(std::uint32_t)>
std::vector<SchedulePtr> single(Shape s) {
  return {Make(s.ranks)};
}

constexpr std::array table{
    AlgorithmInfo{"mpi", "the library's own choice", "MPI_Allreduce as shipped", nullptr, nullptr, any_shape},
    AlgorithmInfo{"recursive-doubling", "log2 p rounds, n·log2 p sent", "Thakur, Rabenseifner, Gropp, IJHPCA 2005",
                  single<recursive_doubling>, recursive_doubling_cost, any_shape},
    AlgorithmInfo{"ring", "2(p-1) rounds, 2n(p-1)/p sent", "Patarasuk & Yuan, JPDC 2009", single<ring>, ring_cost,
                  any_shape},
};

}  // namespace

std::span<const AlgorithmInfo> algorithms() { return table; }

const AlgorithmInfo& find_algorithm(std::string_view name) {
  std::vector<std::string> known;
  for (const auto& a : table) {
    if (a.name == name) return a;
    known.emplace_back(a.name);
  }
  core::refuse_unknown("algorithm", name, known);
}

std::unique_ptr<AllReduce> make_all_reduce(const AlgorithmInfo& a, const Site& site, ExecutorOptions options) {
  if (a.is_vendor()) return std::make_unique<MpiAllReduce>(site.communicator);
  return std::make_unique<Executor>(Algorithm{std::string(a.name), a.make(site.shape)}, site.transport, site.arena,
                                    options);
}

}  // namespace gradmeter::allreduce
