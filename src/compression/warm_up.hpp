// Density warm-up: a sparse codec begins dense and decreases to its density, since gradients change fast at first.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compression/registry.hpp"

namespace gradmeter::compression {

/// The density is 1/4, 1/16, 1/64 and 1/256 of a tensor in the four quarters of the warm-up, and never below the
/// codec's own, which it has from then on. In four epochs that is a quarter of the epoch before in each.
/// Source: Lin et al., ICLR 2018, section 3.3.
inline constexpr std::uint64_t warm_up_epochs = 4;

/// Parameter `warmup`: its number of steps; 0: none, which `auto` also means until it is replaced by a number.
/// Errors: UsageError for another value.
std::uint64_t warm_up_steps(const core::ParsedName&);
/// `auto` replaced by so many steps; all others, and null, unchanged.
CodecChoicePtr with_warm_up(const CodecChoicePtr&, std::uint64_t steps);
/// The codecs of the warm-up in order, each without one; the last has the final density.
std::vector<CodecChoicePtr> warm_up_stages(const CodecChoice&);
/// Which of `stages` step number `step` is in, from 0.
std::size_t warm_up_stage(std::uint64_t warm_up_steps, std::size_t stages, std::uint64_t step);

/// Consecutive steps with one density.
struct Phase {
  CodecChoicePtr codec;
  std::uint64_t steps = 0;
};
/// The phases of `steps` steps, the first of which has the number `first`, from 0. Null: one phase without a codec.
std::vector<Phase> warm_up_phases(const CodecChoicePtr&, std::uint64_t first, std::uint64_t steps);

/// The codecs for sweeps that time them: sweeps have no first steps, so the density is the final one. Errors:
/// UsageError for a warm-up of so many steps.
std::vector<CodecChoicePtr> as_timed(std::vector<CodecChoicePtr>);

}  // namespace gradmeter::compression
