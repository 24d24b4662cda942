// The options of `gradmeter links`.
#pragma once
#include <optional>

#include "bench/links/links.hpp"
#include "cli/flags/flags.hpp"
#include "runtime/communicator.hpp"

namespace gradmeter::cli {

options::options_description describe_links();

struct LinkRequest {
  bench::LinkOptions options;
  std::optional<double> fail_below;   ///< share of the usual bandwidth
  std::optional<core::Seconds> soak;  ///< options.factors then have one pattern and one size
};
/// Errors: UsageError of one line.
LinkRequest read_link_request(const Flags&, int ranks, runtime::RanksAs);

}  // namespace gradmeter::cli
