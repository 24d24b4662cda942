// Predicts where a codec pays here: the literature's formula, with codec and link speeds measured in this run.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "bench/collectives/plan.hpp"
#include "bench/engine/session.hpp"
#include "compression/crossover.hpp"

namespace gradmeter::bench {

struct CodecEstimate {
  core::BytesPerSecond link;       ///< what a rank sends in a second while all send
  core::BytesPerSecond crossover;  ///< on a slower link than this the codec beats fp32
  double predicted_s = 0;          ///< of the call: bytes at the link's rate, then all arithmetic, nothing overlapped
};

/// Collective over the session's world; each link and each codec is measured once.
class CodecEstimator {
 public:
  explicit CodecEstimator(Session& s) : session_(s) {}
  /// Empty where there is no formula: no codec, one rank, or an exchange that is not made of two encodings.
  std::optional<CodecEstimate> of(const CollectivePoint&);

 private:
  core::BytesPerSecond link(runtime::TransportKind);
  compression::CodecSpeeds speeds(const compression::CodecChoice&);

  Session& session_;
  std::map<runtime::TransportKind, core::BytesPerSecond> links_;
  std::map<std::string, compression::CodecSpeeds> speeds_;  ///< by codec
};

}  // namespace gradmeter::bench
