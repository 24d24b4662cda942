// Sends and receives in virtual time.
#pragma once
#include <deque>
#include <map>
#include <tuple>

#include "dataparallel/virtual/ground.hpp"
#include "dataparallel/virtual/operation.hpp"

namespace gradmeter::dataparallel {

class Messages {
 public:
  explicit Messages(Ground& g) : g_(g) {}
  /// peer: rank in the group.
  Ticket send(Group, int worker, int peer, ConstBuffer);
  Ticket receive(Group, int worker, int peer, Buffer);

 private:
  class Receiving;
  /// Messages of one (group, source, destination), in order.
  struct Post {
    explicit Post(int to) : box(to) {}
    Letterbox box;
    std::deque<std::pair<std::shared_ptr<Receiving>, Buffer>> receiving;
  };
  Post& post(Group, int from, int to);
  void match(Post&);

  Ground& g_;
  std::map<std::tuple<int, int, int>, Post> posts_;  ///< group, workers
};

}  // namespace gradmeter::dataparallel
