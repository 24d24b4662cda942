#include "allreduce/hockney.hpp"

#include <algorithm>

#include "allreduce/slices.hpp"

namespace gradmeter::allreduce {

std::vector<double> hockney_finish_times(const Schedule& s, std::size_t elements, std::size_t element_bytes,
                                         const std::vector<double>& begin, Link link) {
  std::vector<double> now = begin, next(begin.size());
  Steps steps;
  for (std::uint32_t k = 0; k < s.rounds(); ++k) {
    for (std::uint32_t r = 0; r < s.ranks(); ++r) {
      steps.clear();
      s.steps(k, r, steps);
      double t = now[r];
      for (const Step& x : steps) {
        if (x.kind != StepKind::recv && x.kind != StepKind::recv_reduce) continue;
        const std::size_t n = block_begin(elements, s.blocks(), x.blocks.first + x.blocks.count) -
                              block_begin(elements, s.blocks(), x.blocks.first);
        const double bytes = static_cast<double>(n * element_bytes);
        // Messages to one rank share its port: each begins when the one before it is in.
        t = std::max(t, now[x.peer] + link.latency_s) + bytes / link.bytes_per_s;
        if (x.kind == StepKind::recv_reduce) t += bytes / link.reduce_bytes_per_s;
      }
      next[r] = t;
    }
    std::swap(now, next);
  }
  return now;
}

}  // namespace gradmeter::allreduce
