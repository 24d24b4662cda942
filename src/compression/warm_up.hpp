// Density warm-up: a sparse codec begins dense and comes down to its density, since gradients change fast at first.
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

/// Parameter `warmup`: the steps that it takes; 0: none, and so long as nobody has said how many `auto` is.
/// Errors: UsageError for another value.
std::uint64_t warm_up_steps(const core::ParsedName&);
/// `auto` as so many steps; all others, and null, as they are.
CodecChoicePtr with_warm_up(const CodecChoicePtr&, std::uint64_t steps);
/// What it is one after another, each without a warm-up; the last is what it comes down to.
std::vector<CodecChoicePtr> warm_up_stages(const CodecChoice&);
/// Which of `stages` step number `step` is in, from 0.
std::size_t warm_up_stage(std::uint64_t warm_up_steps, std::size_t stages, std::uint64_t step);

/// Steps in a row with one density.
struct Phase {
  CodecChoicePtr codec;
  std::uint64_t steps = 0;
};
/// Of `steps` steps, the first of which has the number `first`, from 0. Null: one phase without a codec.
std::vector<Phase> warm_up_phases(const CodecChoicePtr&, std::uint64_t first, std::uint64_t steps);

/// They, for sweeps that time them: those have no first steps, and the density is what a warm-up ends at. Errors:
/// UsageError for a warm-up of so many steps.
std::vector<CodecChoicePtr> as_timed(std::vector<CodecChoicePtr>);

}  // namespace gradmeter::compression
