// Which update of a run an optimizer makes, where a loss' scale may skip steps.
#pragma once
#include <cstdint>

#include "core/host_device.hpp"
#include "runtime/buffer.hpp"

namespace gradmeter::kernels {

/// How a loss' scale that adapts stands: words in the memory of the device that computes, so that nobody waits for
/// them.
struct LossScaleCounts {
  std::int64_t skips = 0;    ///< 1: this step's gradients are useless
  std::int64_t skipped = 0;  ///< steps so far
  std::int64_t good = 0;     ///< steps since the scale changed
};
inline constexpr std::size_t loss_scale_words = sizeof(LossScaleCounts) / sizeof(std::int64_t);

/// After a step's updates. Skipped: the scale is halved. Else, after `grow` such steps in a row, it doubles, while it
/// remains finite. Source: PyTorch's GradScaler.
GRADMETER_HOST_DEVICE constexpr void end_step(float& scale, LossScaleCounts& counts, std::int64_t grow) {
  constexpr float least = 0x1p-126F, most = 0x1.fffffep127F;  // normal numbers
  if (counts.skips != 0) {
    scale = core::greater(scale / 2, least);
    counts = {.skips = 0, .skipped = counts.skipped + 1, .good = 0};
  } else if (++counts.good == grow) {
    if (scale * 2 <= most) scale *= 2;
    counts.good = 0;
  }
}

/// Counted from 1. With the words of a loss' scale, updates of skipped steps are not made, and not counted.
struct UpdateNumber {
  std::uint64_t value = 1;
  runtime::ConstBuffer counts = runtime::no_floats;  ///< LossScaleCounts as int64 [3]; empty: every step is made

  /// Within work, as host code sees them.
  bool is_skipped() const { return counts.count() > 0 && counts.values<std::int64_t>()[0] != 0; }
  std::uint64_t counted() const {
    return counts.count() == 0 ? value : value - static_cast<std::uint64_t>(counts.values<std::int64_t>()[1]);
  }
};

}  // namespace gradmeter::kernels
