// Says which codec pays on a link of a given rate, by the measured speeds of a codec sweep.
#pragma once
#include <optional>
#include <span>

#include "analysis/findings.hpp"
#include "core/units.hpp"

namespace gradmeter::analysis {

/// Says, for the largest gradient of a `codecs` sweep, how many times as fast each codec makes the exchange as the
/// dense one: w0/(w + (w0 - w)·L/X) with X the link below which it pays (compression/crossover.hpp). The interval is
/// that of the codec's times. None where no point has such a link.
std::optional<Finding> codecs_on_link(std::span<const core::Point>, core::BytesPerSecond link);

}  // namespace gradmeter::analysis
