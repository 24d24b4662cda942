// SPDX-License-Identifier: Apache-2.0
// Faults that a user injects to test whether the measurement finds them (--inject): slow ranks, wrong results, a
// drifting clock, and a network that loses, delays or holds back messages.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace gradmeter::core {

/// The n-th message (from 0) of a rank to another in one channel. Ranks are those of the world.
struct MessagePlace {
  std::uint32_t from = 0, to = 0, channel = 0;
  std::uint64_t number = 0;
};

/// Faults by which messages arrive later than they would, but whole and in order, as TCP delivers them. Draws depend on
/// the seed and the message's place alone, so two runs with equal messages have equal faults.
struct MessageFaults {
  /// Each message is lost with this probability, and so is each repetition. It is sent again first after `timeout_s`,
  /// then after twice the last wait (RFC 6298, section 5.5). Repetitions are not counted as bytes sent.
  struct Drop {
    double probability;  ///< 0 to below 1
    double timeout_s;
    std::uint64_t seed;
    /// The number of times that this message is lost.
    int losses(const MessagePlace&) const;
  };
  /// Each message takes longer by a uniform draw from time - jitter to time + jitter.
  struct Delay {
    double time_s, jitter_s;
    std::uint64_t seed;
  };
  /// For `for_s` seconds, from `at_s` seconds after the ranks were connected, nothing leaves or reaches this rank.
  /// Messages sent meanwhile arrive when the link is back.
  struct Cut {
    int rank;
    double at_s;
    double for_s = std::numeric_limits<double>::infinity();
  };
  std::optional<Drop> drop = {};
  std::optional<Delay> delay = {};
  std::optional<Cut> cut = {};

  bool any() const { return drop || delay || cut; }
  /// The extra time that drop and delay add to this message [s].
  double extra_s(const MessagePlace&) const;
  /// The time at which this message is delivered, if it would arrive at `arrival_s` without faults [s since the ranks
  /// were connected]; infinity: never.
  double handed_on_s(const MessagePlace&, double arrival_s) const;
};

/// At most one fault of each kind. Ranks are those of the world.
struct Injection {
  /// Every computation of this rank takes `factor` times as long; in `links`, every message that it sends or receives.
  struct Slow {
    int rank;
    double factor;  ///< 1 to below 1000
    /// The time in which the rank is slow in a soak [s from its begin]; other experiments have no such limits.
    double after_s = 0, for_s = std::numeric_limits<double>::infinity();
    bool is_always() const { return after_s == 0 && std::isinf(for_s); }
    bool covers(double soak_s) const { return soak_s >= after_s && soak_s < after_s + for_s; }
    /// The factor of `world_rank`'s computations; 1 if another rank is slow.
    double of(int world_rank) const { return world_rank == rank ? factor : 1.0; }
  };
  /// The fault begins with call number `call` of this rank; the first is 0.
  struct FromCall {
    int rank;
    std::uint64_t call;
  };
  /// This rank's clock runs fast by `ppm` parts in a million (slow if negative), as if it were on another host.
  struct Drift {
    std::optional<int> rank;  ///< empty: the last rank
    double ppm;
    int rank_of(int ranks) const { return rank.value_or(ranks - 1); }
  };
  std::optional<Slow> slow;
  /// One element of the result of every collective, and of every message sent or received, is wrong.
  std::optional<FromCall> flip;
  /// The rank contributes zeros to all-reduces and reduce-scatters, which are the only calls that `call` counts. Its
  /// contribution is then missing, and all ranks agree on a wrong sum.
  std::optional<FromCall> omit;
  std::optional<Drift> drift;
  MessageFaults messages;

  bool any() const { return slow || flip || omit || drift || messages.any(); }
  /// Canonical text, for the factor `inject`; empty: nothing is injected.
  std::string text() const;
  /// Errors: UsageError for a rank that a world of this size does not have.
  void check_ranks(int ranks) const;
  /// Errors: UsageError where a fault begins or ends during the run, which is possible in a soak only.
  void check_lasting() const;
};

/// Reads a list such as "slow:rank=1,factor=2,flip:call=40". Defaults: slow:factor=2,rank=0 (in a soak also
/// after=0,for=0 [s], where for=0 means until the end), flip:call=0,rank=0, omit:call=0,rank=0, drift:ppm=20 on the
/// last rank, drop:p=0.01,seed=1,timeout=200ms, delay:jitter=0s,seed=1,time=1ms, cut:at=0s,for=forever,rank=0.
/// Errors: UsageError, one line.
Injection parse_injection(std::string_view list);

}  // namespace gradmeter::core
