// The options of `gradmeter kernels`.
#pragma once
#include <string>
#include <vector>

#include "bench/kernels/kernels.hpp"
#include "cli/flags/flags.hpp"

namespace gradmeter::cli {

options::options_description describe_kernels();

/// The text of --problems FILE; empty without the flag. On rank 0: its node has the file.
/// Errors: UsageError when it cannot be read.
std::string read_problems_file(const Flags&);

struct KernelRequest {
  bench::KernelOptions options;
  std::vector<std::string> faults;  ///< rows of the file that are left out: "problems.csv:3:7: what is wrong"
};
/// `problems`: what read_problems_file gave. `ranks`: that will measure. Errors: UsageError of one line.
KernelRequest read_kernel_request(const Flags&, const std::string& problems, int ranks, int default_threads);

}  // namespace gradmeter::cli
