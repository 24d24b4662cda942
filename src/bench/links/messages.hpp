// SPDX-License-Identifier: Apache-2.0
// Times messages of known content between two ranks: round trips, and windows of many messages at once.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "bench/engine/session.hpp"
#include "core/injection.hpp"
#include "runtime/threads/backoff.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::bench {

/// A window: `outstanding` messages that this rank sends at once to the peer `to`, and as many that it receives from
/// the peer `from`. A peer of -1 means no messages that way.
struct Window {
  int to = -1, from = -1;
  std::size_t size_bytes = 0, outstanding = 1;
};

/// The first 8 bytes of a message are a stamp, which differs by sender, receiver, window and message in the window. The
/// other bytes differ by sender, message in the window and position in the message. Received data are checked after
/// each window: the stamp of each message, or with `check_all` every byte.
class LinkMessages {
 public:
  /// Collective over `c`, which must outlive this object; the destructor is collective too. window_bytes: bytes of the
  /// largest window. Memory: twice `window_bytes`. Errors: BackendError when memory is short; UsageError as
  /// runtime::Network.
  LinkMessages(Session&, const runtime::Communicator& c, runtime::TransportKind, std::size_t window_bytes,
               const core::Injection&);

  /// The times of `count` round trips of 8 bytes, each divided by two [s]; the peer must `answer` as many meanwhile.
  std::vector<double> half_round_trips(int peer, std::size_t count);
  /// Answers `count` round trips of the peer.
  void answer(int peer, std::size_t count);

  /// Exchanges a window, and returns the time [s]; both peers call this with matching windows. The time begins when the
  /// receiver is ready (its receives are posted). It ends when all messages have left and arrived and the receiver has
  /// confirmed them; on a rank that only receives, when all have arrived.
  double exchange(const Window&, bool check_all);

  /// The number of wrong messages from rank `from` since the last call of this function.
  std::size_t take_wrong(int from);
  /// Sets the time since the begin of a soak (`gradmeter links --soak`) [s], since an injected fault may slow a rank's
  /// messages in a part of the soak only.
  void set_soak_time(double seconds);
  const runtime::Transport& transport() const { return *transport_; }

 private:
  /// Writes the messages of a window, without their stamps, unless `leaving_` already holds them.
  void fill(std::size_t size_bytes, std::size_t outstanding);
  void send_short(int peer, std::uint64_t word);
  std::uint64_t receive_short(int peer);
  template <class Done>
  void wait_until(const char* what, int peer, Done done);
  void collect(std::vector<runtime::MessageHandle>& arriving, std::size_t size_bytes, std::size_t& landed);
  void check(const Window&, std::uint64_t number, bool check_all);
  /// Counts the received messages, and flips a bit in each whose number an injected fault covers.
  void damage(const Window&);
  /// Waits until the time since `begin` is as long as an injected slowdown makes it.
  void stretch(double begin) const;
  std::span<std::byte> landing(std::size_t message, std::size_t size_bytes) const {
    return landing_.subspan(message * size_bytes, size_bytes);
  }

  Session& session_;
  const runtime::Communicator& communicator_;
  core::Injection injection_;
  double slow_factor_ = 1;  ///< the factor by which this rank is slowed now
  runtime::Network network_;
  std::unique_ptr<runtime::Transport> transport_;
  runtime::Backoff backoff_;
  /// For each word of `words_out_`, the last send from it. Declared before `words_out_`, whose length depends on the
  /// number of these sends.
  std::array<runtime::MessageHandle, 8> short_sends_{};
  /// Windows that leave and arrive; short messages of 8 bytes (words) that leave and arrive.
  std::span<std::byte> leaving_, landing_, words_out_, word_in_;
  std::size_t short_sent_ = 0;                      ///< number of short messages sent
  std::size_t filled_size_ = 0, filled_count_ = 0;  ///< size [bytes] and number of the messages in `leaving_`
  std::map<int, std::uint64_t> sent_, received_;    ///< number of windows and round trips, by peer
  std::map<int, std::size_t> wrong_;                ///< number of wrong messages, by sender
  std::uint64_t messages_received_ = 0;             ///< number of messages received, for the injected error
};

}  // namespace gradmeter::bench
