// Ports in virtual time.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "dataparallel/virtual/ground.hpp"

namespace gradmeter::dataparallel {

/// The letterboxes of one `open`.
struct Exchange {
  MailOptions options = {};
  std::vector<int> members = {};                     ///< workers in rank order
  std::deque<Letterbox> workers = {}, servers = {};  ///< by rank in the group
  std::deque<Letterbox>& boxes(Role r) { return r == Role::worker ? workers : servers; }
};

class VirtualMail {
 public:
  explicit VirtualMail(Ground& g) : g_(g) {}
  /// One worker's part of an `open`. It does not wait for the others: mail may come before they look.
  Ports open(Group, int worker, const MailOptions&);
  /// When the last message that this thread has posted leaves [s]; forgets it, since threads' numbers come again.
  double take_last_left(int thread);

 private:
  class VirtualPort;
  std::shared_ptr<Exchange> make(Group, const MailOptions&);

  Ground& g_;
  std::map<std::pair<int, int>, std::size_t> calls_;  ///< by group and worker
  std::map<std::pair<int, std::size_t>, std::shared_ptr<Exchange>> exchanges_;
  std::map<int, double> last_left_;
};

}  // namespace gradmeter::dataparallel
