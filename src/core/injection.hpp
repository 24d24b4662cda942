// Faults that a user injects to test whether the measurement finds them: --inject.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "core/message_faults.hpp"

namespace gradmeter::core {

/// At most one fault of each kind. Ranks are those of the world.
struct Injection {
  /// Every computation of this rank (links: every message that it sends or receives) takes `factor` times as long.
  struct Slow {
    int rank;
    double factor;  ///< 1 to below 1000
    /// The part of a soak in which it is slow [s from its begin]; nothing but a soak has one.
    double after_s = 0, for_s = std::numeric_limits<double>::infinity();
    bool is_always() const { return after_s == 0 && std::isinf(for_s); }
    bool covers(double soak_s) const { return soak_s >= after_s && soak_s < after_s + for_s; }
    /// The factor of this rank's computations; 1: not this rank.
    double of(int world_rank) const { return world_rank == rank ? factor : 1.0; }
  };
  /// From this rank's call number `call` on (the first is 0), one element of the result of every collective, and of
  /// every message sent or received, is wrong.
  struct Flip {
    int rank;
    std::uint64_t call;
  };
  /// From this rank's sum number `call` on (the first is 0; all-reduces and reduce-scatters), it gives zeros: its
  /// contribution is missing, and all ranks agree on a wrong sum.
  struct Omit {
    int rank;
    std::uint64_t call;
  };
  /// This rank's clock runs fast by so many parts in a million (slow if negative), as if its host were another's.
  struct Drift {
    std::optional<int> rank;  ///< empty: the last
    double ppm;
    int rank_of(int ranks) const { return rank.value_or(ranks - 1); }
  };
  std::optional<Slow> slow;
  std::optional<Flip> flip;
  std::optional<Omit> omit;
  std::optional<Drift> drift;
  MessageFaults messages;

  bool any() const { return slow || flip || omit || drift || messages.any(); }
  /// Canonical text, for the factor `inject`; empty: nothing is injected.
  std::string text() const;
  /// Errors: UsageError for a rank that a world of so many does not have.
  void check_ranks(int ranks) const;
  /// Errors: UsageError where a fault is to begin or end within the run, which only a soak knows.
  void check_lasting() const;
};

/// "slow:rank=1,factor=2,flip:call=40": a list as all flags take it. Defaults: slow:factor=2,rank=0 (in a soak also
/// after=0,for=0: seconds, 0 for as long as it lasts), flip:call=0,rank=0, omit:call=0,rank=0, drift:ppm=20 on the last
/// rank, drop:p=0.01,seed=1,timeout=200ms, delay:jitter=0s,seed=1,time=1ms, cut:at=0s,for=forever,rank=0.
/// Errors: UsageError, one line.
Injection parse_injection(std::string_view list);

}  // namespace gradmeter::core
