// Messages whose bits are checked on arrival.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "dataparallel/message.hpp"

namespace gradmeter::dataparallel {

/// Ports that write a hash of header and payload into the header, and check it on arrival. A worker's port does so
/// while it is armed. A server's does so for workers whose last message had a hash, so that answers to verified
/// messages are verified too. Any thread. It must outlive its ports.
class MessageVerifier {
 public:
  Ports wrap(Ports, std::function<bool()> worker_is_armed);
  /// Verified messages with a payload that the worker has posted and got so far.
  std::uint64_t posted() const { return posted_; }
  std::uint64_t received() const { return received_; }
  /// The first message since the last call that is not what was sent, in a few words; empty: none.
  std::string take_fault();

 private:
  class Checked;
  void report_fault(const Message&);
  std::atomic<std::uint64_t> posted_{0}, received_{0};
  std::mutex mutex_;
  std::string fault_;
};

}  // namespace gradmeter::dataparallel
