// SPDX-License-Identifier: Apache-2.0
// Messages over real ranks: both ports of a rank (a worker's and a server's), and the polling that moves their
// messages.
#pragma once
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dataparallel/fabric/fabric.hpp"
#include "runtime/clock.hpp"
#include "runtime/process/watchdog.hpp"
#include "runtime/threads/backoff.hpp"
#include "runtime/transport/arena.hpp"
#include "runtime/transport/network.hpp"
#include "runtime/transport/transport.hpp"

namespace gradmeter::dataparallel {

/// A pair of objects, one for each role.
template <class T>
struct ByRole {
  std::array<T, 2> all = {};
  T& operator[](Role r) { return all[static_cast<std::size_t>(r)]; }
};

// Header and payload are sent as two messages of the transport, on different channels.
constexpr int header_channel(Role to) { return static_cast<int>(to); }
constexpr int payload_channel(Role to) { return 2 + static_cast<int>(to); }

/// The ticket of a message. The polling thread writes `call_facts` until the message is done.
class SendTicket final : public PendingCall {
 public:
  SendTicket(const char* label, double now, std::uint64_t bytes)
      : call_facts{.posted = now, .started = now, .bytes_sent = bytes, .bytes_required = bytes}, label_(label) {}
  bool done() const override { return done_.load(std::memory_order_acquire); }
  const Completion& completion() const override {
    if (!done()) throw std::logic_error("a message's completion was asked for before it had left");
    return call_facts;
  }
  std::string_view label() const override { return label_; }
  void finish() {
    call_facts.finished = runtime::host_clock();
    done_.store(true, std::memory_order_release);
  }
  Completion call_facts;

 private:
  const char* label_;
  std::atomic<bool> done_{false};
};

/// A message from its posting until it has left.
struct OutgoingMessage {
  std::shared_ptr<SendTicket> ticket = {};
  Role from_role = Role::worker;  ///< role of the port that sends
  int to = 0;                     ///< rank in the group that receives, through its port of the opposite role
  std::span<std::byte> header = {}, draft = {};  ///< memory of the port; `draft` is empty if the payload is elsewhere
  std::span<const std::byte> payload = {};
  runtime::MessageHandle header_sent = {}, payload_sent = {};
  bool started = false;
};

/// The messages that both ports of a rank have posted and that have not left yet. The memory for their headers and
/// drafts comes from the arena (`port_memory_bytes`).
class SendQueue {
 public:
  SendQueue(runtime::Transport&, runtime::Arena&, const PortOptions&);
  bool idle() const { return needing_polls_.load(std::memory_order_acquire) == 0; }  ///< any thread may call it

  // The functions up to `finish` are called under the messenger's mutex.
  /// Returns memory as Port::draft does. A draft that was never posted is returned again.
  std::optional<std::span<std::byte>> draft(Role from, int to, std::size_t bytes);
  /// Prepares a message. If `payload` is empty, the message takes its payload from the draft that was made last for
  /// that rank, unless header.bytes is 0 or the payload is at header.payload_place already. If there is no room, the
  /// result has no ticket.
  OutgoingMessage prepare(Role from, int to, const MessageHeader&, std::span<const std::byte> payload,
                          const char* label);
  void post(OutgoingMessage);
  /// Frees the memory of a message that has left.
  void finish(const OutgoingMessage&);

  // The polling thread calls `take_posted` under the mutex, and `move` without the mutex.
  /// Takes over the messages that were posted since the last poll.
  void take_posted();
  /// Starts the messages that were posted, and calls `left` with each message that has left. Returns whether anything
  /// moved.
  bool move(const std::function<void(const OutgoingMessage&)>& left);

 private:
  /// The memory that one port has for one receiver.
  struct Destination {
    std::vector<std::span<std::byte>> headers;  ///< memory for headers, free at present
    std::span<std::byte> draft;                 ///< a draft that has not been posted yet; empty: there is none
  };
  Destination& destination(Role from, int to) { return destinations_[from][static_cast<std::size_t>(to)]; }
  void check_length(std::size_t bytes) const;
  void start(OutgoingMessage&);

  runtime::Transport& transport_;
  const std::size_t max_payload_bytes_;
  ByRole<std::vector<Destination>> destinations_;     ///< by the sending port's role, then by receiver
  ByRole<std::vector<std::span<std::byte>>> drafts_;  ///< free drafts, by the sending port's role
  std::vector<OutgoingMessage> posted_;               ///< messages that no poll has taken over yet
  std::deque<OutgoingMessage> leaving_;               ///< messages that the poll is sending
  std::atomic<int> needing_polls_{0};                 ///< number of messages that do not leave unless this rank polls
};

/// A message whose header has arrived.
struct IncomingMessage {
  int from = 0;                 ///< rank in the group that has sent the message
  Role to_role = Role::worker;  ///< role of the port that receives
  MessageHeader header = {};
  const std::byte* payload = nullptr;  ///< null: the payload has not arrived
  runtime::MessageHandle handle = {};
  bool is_landing = false;             ///< true: a receive for the payload has been posted
  std::vector<std::byte> buffer = {};  ///< holds the payload, unless that is read in the peer's memory
  OutgoingMessage outgoing = {};       ///< set if this rank has sent the message to itself
};

/// Receives the messages to both ports of a rank. A receive for the next header from every other rank is always posted;
/// the payload is received after its header. Only the polling thread uses this object.
/// Memory: a header for every rank, and at most `held_payloads` buffers for each port, made when they are needed.
class ReceiveQueue {
 public:
  ReceiveQueue(runtime::Transport&, const PortOptions&);
  /// Calls `deliver` with each message that has arrived; the messages of one sender come in order. Returns whether any
  /// had arrived.
  bool move(const std::function<void(IncomingMessage&)>& deliver);
  /// Tells the sender that the message was read, and frees the memory that held it.
  void release(IncomingMessage&);

 private:
  /// The messages from one rank to one port.
  struct Source {
    int from = 0;
    Role to = Role::worker;
    MessageHeader header = {};  ///< memory for the next message's header
    runtime::MessageHandle handle = {};
    /// Messages whose headers have arrived, and that are not delivered yet: the first waits for its payload, the others
    /// for the messages before them.
    std::deque<IncomingMessage> coming = {};
  };
  void listen(Source&);
  void take_header(Source&);
  bool land(IncomingMessage&);
  bool has_come(IncomingMessage&);

  runtime::Transport& transport_;
  const std::size_t max_payload_bytes_;
  std::vector<Source> sources_;
  ByRole<std::vector<std::vector<std::byte>>> free_buffers_;  ///< by the receiving port's role
  ByRole<std::size_t> buffers_made_;
};

/// Moves the messages of both ports of a rank. Tasks write and read messages through ports, under a mutex; `poll` moves
/// the bytes. A thread polls when it posts, and a worker also while it waits for a message; while all threads compute,
/// the engine's thread polls. So a sender never waits for a receiver that is busy computing. A payload is sent from
/// where it lies in the sender's memory; the receiver makes room for it when the header has arrived.
class Messenger {
 public:
  static constexpr int channels = 4;  ///< channels of the transport
  /// activity: workers note there what they wait for. world_ranks: for each member of the group, its rank in the world,
  /// which the notes state.
  Messenger(std::unique_ptr<runtime::Transport>, runtime::Arena&, const PortOptions&, runtime::Activity&,
            const std::vector<int>& world_ranks, runtime::SpinPolicy);

  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  /// Moves what can be moved now; true if anything moved. Any thread may call it; it returns at once if another thread
  /// is polling.
  bool poll();
  /// True if no message needs a poll of this rank to leave. Messages that their receivers read without such a poll may
  /// still be on their way.
  bool idle() const { return send_queue_.idle(); }
  /// Sleeps until something may have arrived, but at most for a short time. has_other_work: called right before the
  /// sleep if there is a doorbell; if it returns true, there is no sleep. Another thread may poll meanwhile.
  void sleep_until_rung(const std::function<bool()>& has_other_work);
  /// Ends a `sleep_until_rung`. Any thread may call it.
  void wake();
  /// True: nothing moves from now on, whichever thread polls. False: messages move again.
  void pause(bool);
  /// Says that the engine has failed, so that nothing will make progress any more. Every task that waits for a message
  /// gets this error.
  void fail(const std::exception_ptr&);
  std::unique_ptr<Port> port(Role);

 private:
  class MessengerPort;
  /// The state of one port.
  struct Inbox {
    std::deque<IncomingMessage> arrived;
    std::optional<IncomingMessage> reading;  ///< the message that `next` has returned last
    bool room_wanted = false, room = false;  ///< a draft was refused; a message of the port has left since
    bool worker_takes_messages = false;      ///< true: a waiting worker takes the messages of this inbox as they arrive
    std::unordered_map<int, int> kept;       ///< number of kept messages, by sender
    std::exception_ptr error;
    std::condition_variable changed;
    bool has_news() const { return error || !arrived.empty() || room; }
  };
  Ticket post(Role from, int to, const MessageHeader&, std::span<const std::byte> payload, const char* label);
  void set_worker_polls(bool yes, bool helps);  ///< helps: the worker also handles the server's messages
  void deliver(IncomingMessage);
  void give_back(std::optional<IncomingMessage>);
  void finish(const OutgoingMessage&);
  bool take_posted_and_release_read();

  const int max_in_flight_;          ///< most messages of one sender that are on their way
  runtime::SpinPolicy spin_policy_;  ///< for workers that wait
  runtime::Activity& activity_;
  const std::vector<int>& world_ranks_;

  std::mutex poll_mutex_;       ///< held by the thread that polls
  ReceiveQueue receive_queue_;  ///< used by the poll alone
  bool paused_ = false;         ///< used by the poll alone

  std::mutex mutex_;  ///< guards the members below, except those that only the poll uses
  SendQueue send_queue_;
  ByRole<Inbox> inboxes_;              ///< by the receiving port's role
  std::vector<IncomingMessage> read_;  ///< messages that were read, which the next poll releases
  bool engine_sleeps_ = false;         ///< the engine's thread sleeps until the doorbell rings
  bool worker_polls_ = false;          ///< a worker polls, so that the engine's thread need not be woken

  /// The transport of the messages; only the poll moves bytes on it. Declared after the memory that it receives into,
  /// so that it is destroyed first.
  std::unique_ptr<runtime::Transport> transport_;
  runtime::Doorbell* doorbell_ = nullptr;  ///< null: there is none
};

}  // namespace gradmeter::dataparallel
