// Faults of a network that loses, delays or holds back messages between ranks: a part of --inject.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>

namespace gradmeter::core {

/// The n-th message (from 0) of a rank to another in one channel. Ranks are those of the world.
struct MessagePlace {
  std::uint32_t from = 0, to = 0, channel = 0;
  std::uint64_t number = 0;
};

/// Messages arrive later than they would, whole and in order, as TCP hands them on. What is drawn depends on the seed
/// and the message's place alone, so two runs with equal messages have equal faults.
struct MessageFaults {
  /// Each message is lost with this probability, and each time it is sent again: first after `timeout_s`, then after
  /// twice the time before (RFC 6298, section 5.5). Bytes that are sent again are not counted.
  struct Drop {
    double probability;  ///< 0 to below 1
    double timeout_s;
    std::uint64_t seed;
    /// How often this message is lost.
    int losses(const MessagePlace&) const;
  };
  /// Each message takes so much longer: uniform from time - jitter to time + jitter.
  struct Delay {
    double time_s, jitter_s;
    std::uint64_t seed;
  };
  /// Nothing comes from this rank and nothing reaches it, from `at_s` after the ranks were connected; what is sent
  /// meanwhile arrives when the link is back.
  struct Cut {
    int rank;
    double at_s;
    double for_s = std::numeric_limits<double>::infinity();
  };
  std::optional<Drop> drop = {};
  std::optional<Delay> delay = {};
  std::optional<Cut> cut = {};

  bool any() const { return drop || delay || cut; }
  /// By how much drop and delay hold this message back [s].
  double extra_s(const MessagePlace&) const;
  /// When it is handed on, given when it arrives without faults [s since the ranks were connected]; infinity: never.
  double handed_on_s(const MessagePlace&, double arrival_s) const;
};

}  // namespace gradmeter::core
