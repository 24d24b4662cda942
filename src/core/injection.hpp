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

/// Identifies a message: its sender and receiver (ranks in the world), its channel, and its number among the messages
/// of these three, counted from 0.
struct MessageId {
  std::uint32_t from = 0, to = 0, channel = 0;
  std::uint64_t number = 0;
};

/// Faults that delay messages (for ever if a link stays cut), but keep them whole and in order, as TCP does. Random
/// draws depend only on the seed and the MessageId, so two runs that send the same messages have the same faults.
struct MessageFaults {
  /// Each message, and each repetition of it, is lost with the probability `probability`. A lost message is sent again
  /// after `timeout_s`; each further wait is twice as long as the one before (RFC 6298, section 5.5). Repetitions are
  /// not counted as bytes sent.
  struct Drop {
    double probability;  ///< 0 to below 1
    double timeout_s;
    std::uint64_t seed;
    /// The number of times that this message is lost, at most 30.
    int losses(const MessageId&) const;
  };
  /// Each message takes longer by a random time, uniform from time - jitter to time + jitter.
  struct Delay {
    double time_s, jitter_s;
    std::uint64_t seed;
  };
  /// The link of rank `rank` is cut for `for_s` seconds, beginning `at_s` seconds after the ranks were connected.
  /// Messages from or to this rank that would arrive in this time arrive when the link is back.
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
  double extra_s(const MessageId&) const;
  /// The time at which this message is delivered, if it would arrive at `arrival_s` without faults; infinity: never.
  /// Both in seconds since the ranks were connected.
  double delivery_s(const MessageId&, double arrival_s) const;
};

/// At most one fault of each kind. Ranks are those of the world.
struct Injection {
  /// Every computation of rank `rank` takes `factor` times as long. In the experiment `links`, which computes nothing,
  /// every message that the rank sends or receives takes `factor` times as long.
  struct Slow {
    int rank;
    double factor;  ///< 1 to below 1000
    /// In a soak (`gradmeter links --soak`), the rank is slow for `for_s` seconds, beginning `after_s` seconds after
    /// the soak's begin. In other experiments the rank is always slow.
    double after_s = 0, for_s = std::numeric_limits<double>::infinity();
    bool is_always() const { return after_s == 0 && std::isinf(for_s); }
    bool covers(double soak_s) const { return soak_s >= after_s && soak_s < after_s + for_s; }
    /// The factor for rank `world_rank`: 1 if another rank is the slow one.
    double of(int world_rank) const { return world_rank == rank ? factor : 1.0; }
  };
  /// The fault affects the calls of rank `rank` from number `call` on, counted from 0.
  struct FromCall {
    int rank;
    std::uint64_t call;
  };
  /// The clock of rank `rank` runs fast by `ppm` parts in a million (slow if negative), like that of another host.
  struct Drift {
    std::optional<int> rank;  ///< empty: the last rank
    double ppm;
    int rank_of(int ranks) const { return rank.value_or(ranks - 1); }
  };
  std::optional<Slow> slow;
  /// From that call on, each call gives the rank data with one wrong element: a collective's result, or a received
  /// message. (Messages through a port are wrong if the rank posts them, not if it receives them.)
  std::optional<FromCall> flip;
  /// From that call on, the rank contributes zeros to all-reduces and reduce-scatters, so all ranks agree on a wrong
  /// sum. Here `call` counts only all-reduces and reduce-scatters.
  std::optional<FromCall> omit;
  std::optional<Drift> drift;
  MessageFaults messages;

  bool any() const { return slow || flip || omit || drift || messages.any(); }
  /// The faults as canonical text, for the factor `inject` of result rows; empty: nothing is injected.
  std::string text() const;
  /// Errors: UsageError if a fault names a rank that a world of this size does not have.
  void check_ranks(int ranks) const;
  /// Errors: UsageError if a rank is slow for a part of the run only; only a soak allows that.
  void check_lasting() const;
};

/// Reads a list of faults such as "slow:rank=1,factor=2,flip:call=40". Parameters that are left out have these values:
/// slow:factor=2,rank=0 (in a soak also after=0,for=0 [s]; by convention, for=0 means until the end);
/// flip:call=0,rank=0; omit:call=0,rank=0; drift:ppm=20,rank=last; drop:p=0.01,seed=1,timeout=200ms;
/// delay:jitter=0s,seed=1,time=1ms; cut:at=0s,for=forever,rank=0. Errors: UsageError, one line.
Injection parse_injection(std::string_view list);

}  // namespace gradmeter::core
