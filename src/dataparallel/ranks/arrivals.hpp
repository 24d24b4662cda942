// What comes to the ports of a rank: headers of every other rank, and payloads where they land.
#pragma once
#include "dataparallel/ranks/departures.hpp"

namespace gradmeter::dataparallel {

/// A message whose header has come.
struct Arrival {
  int from = 0;
  Role to = Role::worker;
  MessageHeader header = {};
  const std::byte* payload = nullptr;  ///< null: it has not come
  runtime::MessageHandle handle = {};
  bool landing = false;                ///< the transport knows where its payload goes
  std::vector<std::byte> buffer = {};  ///< there, unless the transport reads the peer's memory
  Departure own = {};                  ///< of a message to the own rank
};

/// To both ports. All of it is of the poll.
/// Memory: a header for every rank, and at most `held_payloads` landing buffers a port, made when they are needed.
class Arrivals {
 public:
  Arrivals(runtime::Transport&, const PortOptions&);
  /// Calls `deliver` with each message that has come, those of one sender in order. Were there any?
  bool move(const std::function<void(Arrival&)>& deliver);
  /// It was read: its sender learns so, and its memory is used again.
  void release(Arrival&);

 private:
  /// From one rank to one port.
  struct Line {
    int from = 0;
    Role to = Role::worker;
    MessageHeader header = {};  ///< where the next one lands
    runtime::MessageHandle handle = {};
    std::deque<Arrival> coming = {};  ///< whose payloads have not come, and those behind them
  };
  void listen(Line&);
  void take_header(Line&);
  bool land(Arrival&);
  bool has_come(Arrival&);

  runtime::Transport& transport_;
  const std::size_t payload_bytes_;
  std::vector<Line> lines_;
  ByRole<std::vector<std::vector<std::byte>>> free_buffers_;  ///< of the reader
  ByRole<std::size_t> buffers_made_;
};

}  // namespace gradmeter::dataparallel
