#include "allreduce/native/ompi.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <stdexcept>

#include "allreduce/native/mpi.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/units.hpp"
#include "runtime/mpi/session.hpp"
#include "runtime/mpi/tuning.hpp"

namespace gradmeter::allreduce {
namespace {

using runtime::ForcedAllReduce;

struct Forced {
  std::string_view name;
  ForcedAllReduce algorithm;
};
constexpr std::array forced{
    Forced{"ompi-basic-linear", ForcedAllReduce::basic_linear},
    Forced{"ompi-nonoverlapping", ForcedAllReduce::nonoverlapping},
    Forced{"ompi-recursive-doubling", ForcedAllReduce::recursive_doubling},
    Forced{"ompi-ring", ForcedAllReduce::ring},
    Forced{"ompi-segmented-ring", ForcedAllReduce::segmented_ring},
    Forced{"ompi-rabenseifner", ForcedAllReduce::rabenseifner},
};

ForcedAllReduce forced_algorithm(const Request& r) {
  for (const Forced& f : forced) {
    if (f.name == r.name.base) return f.algorithm;
  }
  throw std::logic_error(r.name.base + " is no forced algorithm of Open MPI");
}

/// Open MPI 4.1 divides by ranks · segment, counted in elements and kept in an int: 0 for no segment, and for a product
/// that wraps. A segment shorter than an element counts as none.
constexpr std::size_t longest_element = 8;

/// 0 where the algorithm has no segments. Errors: UsageError for a segment that Open MPI would stumble over.
int segment_of(const Request& r) {
  const auto given = r.name.parameters.find("segment");
  if (given == r.name.parameters.end()) return 0;
  const std::size_t bytes = core::parse_bytes(given->second).value;
  if (bytes < longest_element || bytes > INT_MAX / std::max<std::size_t>(1, r.shape.ranks)) {
    throw core::UsageError(
        fmt::format("{}: segment={} must be from {} bytes to 2G over the ranks, as in segment=1M: "
                    "Open MPI divides by their product",
                    r.name.base, given->second, longest_element));
  }
  return static_cast<int>(bytes);
}

}  // namespace

std::string ompi_refusal(const Request& r) {
  (void)segment_of(r);
  if (auto why = only_collectives(r, {CollectiveKind::all_reduce}); !why.empty()) return why;
  if (auto why = runtime::mpi_refusal(); !why.empty()) return why;
  return runtime::forced_all_reduce_refusal(forced_algorithm(r));
}

std::unique_ptr<Collective> bind_ompi(const Request& r, const Site& site, const ExecutorOptions&) {
  return std::make_unique<MpiCollective>(
      r.name.canonical(), runtime::duplicate_forced(site.communicator, forced_algorithm(r), segment_of(r)),
      MpiMode::blocking);
}

}  // namespace gradmeter::allreduce
