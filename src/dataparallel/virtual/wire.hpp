// The ports of the ranks onto the link. A rank sends one message at a time, in the order of posting, and takes in one
// at a time, in the order in which their first bytes come. Collectives have transports of their own and share neither.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "allreduce/hockney.hpp"
#include "dataparallel/baton.hpp"
#include "dataparallel/mail.hpp"

namespace gradmeter::dataparallel {

/// What travels.
struct Parcel {
  int from = 0;               ///< rank of everybody
  std::uint64_t number = 0;   ///< of all that were ever posted: breaks ties, so that runs repeat
  double head = 0, tail = 0;  ///< when its first and its last byte are there, if the port is free
  double wire_s = 0;          ///< what it takes the port
  bool obituary = false;
  MailHeader header = {};
  std::shared_ptr<const std::vector<std::byte>> payload = {};
};

/// Where parcels for one reader end.
struct Letterbox {
  explicit Letterbox(int rank) : owner(rank) {}
  const int owner;  ///< rank of everybody
  /// By the time at which they are there: known for good, though it may lie ahead.
  std::map<std::tuple<double, int, std::uint64_t>, Parcel> arrivals;
  int reader = -1;  ///< thread that sleeps until something comes; -1: none
};

/// Only the holder of the baton may call. Source of the cost: Hockney, with both ports of a rank serialised.
class Wire {
 public:
  Wire(int ranks, allreduce::Link link, Baton& baton)
      : link_(link), baton_(baton), outgoing_free_(static_cast<std::size_t>(ranks)), incoming_(outgoing_free_.size()) {}

  struct Sending {
    double begin = 0, left = 0;  ///< when the sender's port took it, and when it is free again [s]
  };
  /// The sender's part.
  Sending send(int from, std::size_t bytes);
  /// A message that was sent so comes to this box, `delay` later than it could.
  void deliver(Letterbox&, Parcel, Sending, double delay = 0);
  /// Something that comes by itself at a time, behind what came before it.
  void deliver_at(Letterbox&, Parcel, double time);
  /// Without the link: is there now.
  void put(Letterbox&, Parcel);

  /// The arrival times of all whose first byte is there are known for good: nothing can come before them any more.
  void settle(Letterbox&);
  /// When the box's first parcel will be there, as far as it is known today [s]; `forever`: none is on its way.
  double expected(const Letterbox&) const;

 private:
  struct Coming {
    Parcel parcel;
    Letterbox* box = nullptr;
  };
  struct Port {
    std::map<std::tuple<double, int, std::uint64_t>, Coming> coming;  ///< by head
    double free = 0;
  };
  void enqueue(Letterbox&, Parcel);
  static double end_of(const Parcel&, double port_free);
  Port& port(const Letterbox& b) { return incoming_[static_cast<std::size_t>(b.owner)]; }

  allreduce::Link link_;
  Baton& baton_;
  std::uint64_t posted_ = 0;
  std::vector<double> outgoing_free_;  ///< by rank
  std::vector<Port> incoming_;
};

}  // namespace gradmeter::dataparallel
