// Messages over real ranks: both ports of a rank, and the polling that moves what they send and receive.
#pragma once
#include <condition_variable>
#include <mutex>
#include <unordered_map>

#include "dataparallel/ranks/arrivals.hpp"
#include "dataparallel/ranks/engine.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::dataparallel {

/// Tasks write and read through ports under a mutex. Bytes are moved by `poll`: of whoever posts or waits, and of the
/// engine's thread while all compute. So a sender never waits for a receiver that is busy computing. A payload leaves
/// from where it lies, and memory for it is found when its header has come.
class Messenger final : public Pollable {
 public:
  static constexpr int channels = 4;  ///< of the transport
  /// `activity`: where workers note what they wait for, with the member's rank in the world.
  Messenger(runtime::OwnedTransport, runtime::Arena&, const PortOptions&, runtime::Activity&,
            const std::vector<int>& world_ranks, runtime::SpinPolicy);

  /// Any thread; returns at once where another one polls.
  bool poll() override;
  bool idle() const override { return departures_.idle(); }
  void doze(const std::function<bool()>& needed) override;
  void wake() override;
  void pause(bool) override;
  /// Every task that waits for a message gets this error.
  void fail(std::exception_ptr) override;
  std::unique_ptr<Port> port(Role);

 private:
  class MessengerPort;
  struct ReceiveQueue {
    std::deque<Arrival> arrived;
    std::optional<Arrival> reading;
    bool room_wanted = false, room = false;
    bool helped = false;                ///< a worker that waits takes what comes
    std::unordered_map<int, int> kept;  ///< messages, by sender
    std::exception_ptr error;
    std::condition_variable changed;
    bool has_news() const { return error || !arrived.empty() || room; }
  };
  Ticket post(Role from, int to, const MessageHeader&, std::span<const std::byte> payload, const char* label);
  void worker_polls(bool yes, bool helps);
  void deliver(Arrival);
  void give_back(std::optional<Arrival>);
  void finish(const Departure&);
  bool take_over();

  const int in_flight_;              ///< of one sender
  runtime::SpinPolicy spin_policy_;  ///< of workers that wait
  runtime::Activity& activity_;
  const std::vector<int>& world_ranks_;

  std::mutex moving_;    ///< held by the thread that polls: what is "of the poll" is its own
  Arrivals arrivals_;    ///< of the poll
  bool paused_ = false;  ///< of the poll

  std::mutex mutex_;  ///< of the rest
  Departures departures_;
  ByRole<ReceiveQueue> receive_queues_;        ///< of the reader
  std::vector<Arrival> read_;                  ///< for the next poll to release
  bool dozes_ = false, worker_polls_ = false;  ///< the engine's thread; a worker: no need to wake the former

  runtime::OwnedTransport link_;           ///< of the poll; after the memory that it receives into
  runtime::Doorbell* doorbell_ = nullptr;  ///< null: there is none
};

}  // namespace gradmeter::dataparallel
