// Messages over real ranks: both ports of a rank, what they send and receive, and the polling that moves messages.
#pragma once
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <vector>

#include "dataparallel/message.hpp"
#include "dataparallel/ranks/engine.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::dataparallel {

/// Tasks write and read through ports under a mutex. Bytes are moved by `poll`: of whoever posts or waits, and of the
/// engine's thread while all compute. So a sender never waits for a receiver that is busy computing.
/// Header and payload are two messages of the transport, in channels of their own. So a payload leaves from where it
/// lies, and memory for it is found when its header has come: a rank has memory for headers of all others, and for a
/// few payloads.
class Messenger final : public Pollable {
 public:
  /// Of the transport: headers and payloads of each role.
  static constexpr int channels = 4;
  /// Drafts and headers that leave are taken from the arena (`port_memory_bytes`), landing buffers are private.
  /// `activity`: where workers note what they wait for, with the member's rank in the world.
  Messenger(runtime::OwnedTransport, runtime::Arena&, const PortOptions&, runtime::Activity&,
            const std::vector<int>& world_ranks, runtime::SpinPolicy);

  /// Any thread; returns at once where another one polls.
  bool poll() override;
  bool idle() const override { return unsent_.load(std::memory_order_acquire) == 0; }
  void doze(const std::function<bool()>& needed) override;
  void wake() override;
  void pause(bool) override;
  /// Every task that waits for a message gets this error.
  void fail(std::exception_ptr) override;
  std::unique_ptr<Port> port(Role);

 private:
  class MessengerPort;
  class OutgoingMessage;
  /// A payload that is written, waits to leave, or travels.
  struct Draft {
    std::span<std::byte> memory;
    bool taken = false;
  };
  /// A header that waits to leave, or travels.
  struct HeaderSlot {
    MessageHeader* header = nullptr;
    bool taken = false;
  };
  /// To one receiver, from one port.
  struct Lane {
    std::vector<HeaderSlot> headers;
    Draft* draft = nullptr;  ///< asked for, and not yet posted
  };
  struct Departure {
    std::shared_ptr<OutgoingMessage> ticket;
    HeaderSlot* slot = nullptr;
    Draft* draft = nullptr;  ///< null: the payload lies in the sender's memory
    int to = 0;
    Role from = Role::worker;
    std::span<const std::byte> payload = {};
    runtime::MessageHandle header_sent = {}, payload_sent = {};
    bool started = false;
  };
  /// A message whose header has come.
  struct Arrival {
    int from = 0;
    Role to = Role::worker;
    MessageHeader header = {};
    const std::byte* payload = nullptr;  ///< null: it has not come
    runtime::MessageHandle handle = {};
    bool landing = false;                      ///< the transport knows where its payload goes
    std::vector<std::byte>* buffer = nullptr;  ///< where, unless the transport reads the peer's memory
    Departure own = {};                        ///< of a message to the own rank
  };
  /// From one rank to one role. Of the poll.
  struct Line {
    MessageHeader header = {};  ///< where the next one lands
    runtime::MessageHandle handle = {};
    std::deque<Arrival*> coming = {};  ///< whose payloads have not come, and those behind them
  };
  struct ReceiveQueue {
    std::deque<Arrival*> arrived;
    Arrival* reading = nullptr;
    std::vector<Arrival*> read;  ///< for the next poll to release
    bool room_wanted = false, room = false;
    bool helped = false;  ///< a worker that waits takes what comes
    std::condition_variable changed;
  };

  Lane& lane(Role from, int to) { return lanes_[index(from)][static_cast<std::size_t>(to)]; }
  ReceiveQueue& receive_queue(Role of) { return receive_queues_[index(of)]; }
  static std::size_t index(Role r) { return static_cast<std::size_t>(r); }
  static Role other(Role r) { return r == Role::worker ? Role::server : Role::worker; }
  static int header_channel(Role to) { return static_cast<int>(to); }
  static int payload_channel(Role to) { return 2 + static_cast<int>(to); }
  HeaderSlot* free_header(Role from, int to);
  Draft* reserve(Role from, int to);
  Ticket post(Role from, int to, const MessageHeader&, Draft*, std::span<const std::byte> payload, const char* label);
  void listen(Role to, int from);
  void depart(Departure&);
  bool has_left(Departure&);
  void finish(Departure&);
  bool move_departures();
  bool move_arrivals();
  void take_header(Role to, int from);
  bool land(Arrival&);
  bool has_come(Arrival&);
  void deliver(Arrival&);
  bool has_news(const ReceiveQueue& in) const { return error_ || !in.arrived.empty() || in.room; }
  void worker_polls(bool yes, bool helps);
  void deliver_to_self(const Departure&);
  void give_back(Arrival*);
  void release(Arrival&);
  bool release_all_read();
  void release_read();

  PortOptions options_;
  runtime::SpinPolicy spin_policy_;  ///< of workers that wait
  runtime::Activity& activity_;
  const std::vector<int>& world_ranks_;
  std::array<std::vector<Lane>, 2> lanes_;    ///< by role of the sender, by receiver
  std::array<std::vector<Draft>, 2> drafts_;  ///< by role of the sender
  std::array<std::vector<Line>, 2> lines_;    ///< by role of the reader, by sender
  std::deque<std::vector<std::byte>> buffers_;
  std::array<std::vector<std::vector<std::byte>*>, 2> free_buffers_;  ///< by role of the reader. Of the poll
  std::array<std::size_t, 2> held_buffers_{};                         ///< by role of the reader: made so far
  runtime::OwnedTransport link_;                                      ///< after the memory that it receives into

  std::mutex moving_;    ///< held by the thread that polls: what is "of the poll" is its own
  bool paused_ = false;  ///< of the poll
  std::mutex mutex_;
  std::deque<Arrival> arrivals_;  ///< of all messages; reused
  std::vector<Arrival*> free_arrivals_;
  std::array<ReceiveQueue, 2> receive_queues_;  ///< by role of the reader
  std::atomic<int> unsent_{0};                  ///< posted, and still needing this process to leave
  std::vector<Departure> departing_;            ///< posted, not yet seen by a poll
  std::exception_ptr error_;
  runtime::Doorbell* doorbell_ = nullptr;  ///< null: there is none
  bool dozes_ = false;                     ///< the engine's thread
  bool worker_polls_ = false;              ///< then messages need not wake it
  std::deque<Departure> travelling_;       ///< of the poll
};

}  // namespace gradmeter::dataparallel
