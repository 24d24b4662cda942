#include "dataparallel/decorators/message_verifier.hpp"

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/format.hpp"
#include "dataparallel/decorators/forwarding.hpp"
#include "dataparallel/projection.hpp"

namespace gradmeter::dataparallel {
namespace {

/// Never 0, which means that there is none.
std::uint64_t hash_of(MessageHeader h, std::span<const std::byte> payload) {
  constexpr std::uint64_t header_seed = 1, payload_seed = 2;
  h.check = 0;
  const std::uint64_t hash =
      linear_hash(std::as_bytes(std::span(&h, 1)), header_seed) + linear_hash(payload, payload_seed);
  return hash == 0 ? 1 : hash;
}

}  // namespace

class MessageVerifier::Checked final : public ForwardingPort {
 public:
  /// armed: null for a server's port.
  Checked(MessageVerifier& owner, std::unique_ptr<Port> inner, std::function<bool()> armed)
      : ForwardingPort(std::move(inner)), owner_(owner), armed_(std::move(armed)) {}

  std::optional<std::span<std::byte>> draft(int to, std::size_t bytes) override {
    const auto room = inner_->draft(to, bytes);
    if (room) drafts_[to] = *room;
    return room;
  }

  Ticket post(int to, const MessageHeader& given, const char* label) override {
    const MessageHeader h = checked(to, given, drafts_[to].first(given.bytes));
    count(h);
    return inner_->post(to, h, label);
  }
  Ticket post_from(int to, const MessageHeader& given, std::span<const std::byte> payload, const char* label) override {
    const MessageHeader h = checked(to, given, payload);
    Ticket t = inner_->post_from(to, h, payload, label);
    if (t) count(h);
    return t;
  }
  Ticket post_written(int to, const MessageHeader& given, std::span<std::byte> payload, const char* label) override {
    const MessageHeader h = checked(to, given, payload);
    Ticket t = inner_->post_written(to, h, payload, label);
    if (t) count(h);
    return t;
  }

  std::optional<Message> next(const char* why, double deadline, int of) override {
    auto message = inner_->next(why, deadline, of);
    if (!message || message->is_failure_notice) return message;
    const bool verified = message->header.check != 0;
    if (verified && hash_of(message->header, message->payload) != message->header.check) owner_.report_fault(*message);
    if (armed_) {
      if (verified && !message->payload.empty()) ++owner_.received_;
    } else if (verified) {
      verified_.insert(message->from);
    } else {
      verified_.erase(message->from);
    }
    return message;
  }

 private:
  MessageHeader checked(int to, MessageHeader h, std::span<const std::byte> payload) const {
    const bool verified = armed_ ? armed_() : verified_.contains(to);
    // An answer may be made from the header that it answers, whose check is not this message's.
    h.check = verified ? hash_of(h, payload) : 0;
    return h;
  }
  void count(const MessageHeader& h) {
    if (h.check != 0 && armed_ && h.bytes > 0) ++owner_.posted_;
  }

  MessageVerifier& owner_;
  std::function<bool()> armed_;
  std::unordered_set<int> verified_;                      ///< a server's: workers whose last message had a check
  std::unordered_map<int, std::span<std::byte>> drafts_;  ///< the last draft to each rank
};

Ports MessageVerifier::wrap(Ports p, std::function<bool()> worker_is_armed) {
  return {.worker = std::make_unique<Checked>(*this, std::move(p.worker), std::move(worker_is_armed)),
          .server = std::make_unique<Checked>(*this, std::move(p.server), nullptr)};
}

void MessageVerifier::report_fault(const Message& m) {
  const std::lock_guard lock(mutex_);
  if (!fault_.empty()) return;
  fault_ = fmt::format("a message of {} bytes from rank {} (elements from {} on, clock {}) is not what was sent",
                       m.payload.size(), m.from, m.header.first, m.header.clock);
}

std::string MessageVerifier::take_fault() {
  const std::lock_guard lock(mutex_);
  return std::exchange(fault_, {});
}

}  // namespace gradmeter::dataparallel
