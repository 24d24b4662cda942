// Sends and receives in virtual time.
#pragma once
#include <deque>
#include <map>
#include <tuple>

#include "dataparallel/simulation/context.hpp"
#include "dataparallel/simulation/operation.hpp"

namespace gradmeter::dataparallel {

class PointToPoint {
 public:
  explicit PointToPoint(SimContext& g) : g_(g) {}
  /// peer: rank in the group.
  Ticket send(Group, int worker, int peer, ConstBuffer);
  Ticket receive(Group, int worker, int peer, Buffer);

 private:
  class Receiving;
  /// Messages of one (group, source, destination), in order.
  struct Channel {
    explicit Channel(int to) : box(to) {}
    MessageQueue box;
    std::deque<std::pair<std::shared_ptr<Receiving>, Buffer>> receiving;
  };
  Channel& post(Group, int from, int to);
  void match(Channel&);

  SimContext& g_;
  std::map<std::tuple<int, int, int>, Channel> posts_;  ///< group, workers
};

}  // namespace gradmeter::dataparallel
