// Flags of the collective sweep: nccl-tests' names where it has them.
#pragma once
#include <vector>

#include "bench/collectives/collectives.hpp"
#include "cli/flags/flags.hpp"

namespace gradmeter::cli {

options::options_description describe_allreduce();
/// Everything that the flags alone decide; the same on every rank. `threads`: of the matrix product that overlaps the
/// exchange. Errors: UsageError of one line.
bench::CollectiveOptions read_collective_options(const Flags&, int ranks, int threads);
/// By rank; empty: real nodes. `ranks` 0: as many as are named. Errors: UsageError.
std::vector<int> read_fake_nodes(const Flags&, int ranks);

}  // namespace gradmeter::cli
