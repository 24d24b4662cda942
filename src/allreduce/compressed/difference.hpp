// For parts of compressed collectives: how a call's CodingDifference is filled in.
#pragma once
#include <span>

#include "allreduce/collective.hpp"

namespace gradmeter::allreduce {

/// The factor of one rank's numbers in the result: 1/ranks for an average, 1 for a sum.
inline float share_of(const Call& c, float ranks) { return c.op == Op::average ? 1.0f / ranks : 1.0f; }

/// Fills in the difference of a call that asks for one. `sent`: what this rank puts into the sum, before an average
/// divides it. The call's input must still be there.
inline void note_sent(const Call& c, float ranks, std::span<const float> sent) {
  CodingDifference* d = c.tensor_layout.difference;
  const std::span<const float> in = c.in.values<float>();
  const float share = share_of(c, ranks);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    d->values[i] = share * (sent[i] - in[i]);
    const auto given = static_cast<double>(share * in[i]), of_sent = static_cast<double>(share * sent[i]);
    d->squares += given * given + of_sent * of_sent;
  }
}

}  // namespace gradmeter::allreduce
