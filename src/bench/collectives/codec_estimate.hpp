// Predicts where a codec pays here: the literature's formula, with codec and link speeds measured in this run.
#pragma once
#include <map>
#include <optional>

#include "bench/collectives/plan.hpp"
#include "bench/engine/session.hpp"
#include "compression/crossover.hpp"

namespace gradmeter::bench {

/// Collective over the session's world; each link and each codec is measured once.
class CodecEstimator {
 public:
  explicit CodecEstimator(Session& s) : session_(s) {}
  /// Empty where there is no formula: no codec, one rank, or an exchange that is not made of two encodings.
  std::optional<compression::CodecEstimate> of(const CollectivePoint&);

 private:
  void measure(const compression::CodecChoice&);

  Session& session_;
  std::map<runtime::TransportKind, core::Link> links_;  ///< what a rank sends while all send
  core::Machine machine_;  ///< with the rates of the codecs so far, and the link of the last call between all ranks
};

}  // namespace gradmeter::bench
