#include "dataparallel/ranks/operations.hpp"

#include <cstring>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr int channel = 0;  // the only one that message transports have

// A message that is not ready must keep its place before later ones to or from its peer, and only those.
constexpr int order_of_sends(int peer) { return -1 - 2 * peer; }
constexpr int order_of_receives(int peer) { return -2 - 2 * peer; }

}  // namespace

void CollectiveOperation::start() {
  sent_before_ = collective_.sent();
  due_before_ = collective_.bytes_due();
  coding_before_ = collective_.coding();
  collective_.start(call_);
}

bool CollectiveOperation::advance() {
  if (!collective_.advance()) return false;
  if (const auto sent = collective_.sent()) {
    completion_.bytes_sent = sent->bytes - sent_before_->bytes;
    completion_.bytes_between_nodes = sent->bytes_between_nodes - sent_before_->bytes_between_nodes;
    completion_.bytes_due = *collective_.bytes_due() - *due_before_;
  }
  if (const auto coding = collective_.coding()) {
    completion_.encode_s = coding->encode_s - coding_before_->encode_s;
    completion_.decode_s = coding->decode_s - coding_before_->decode_s;
  }
  return true;
}

SendOperation::SendOperation(runtime::EventPtr ready, runtime::Transport& t, int peer, std::span<const std::byte> data,
                             const std::vector<int>& world_ranks)
    : EngineOperation("send", order_of_sends(peer), std::move(ready)),
      transport_(t),
      peer_(peer),
      data_(data),
      world_ranks_(world_ranks) {
  completion_.bytes_due = data.size();
}

void SendOperation::start() {
  if (data_.empty()) return;
  if (!transport_.can_send_from(data_)) {
    throw core::BackendError("dataparallel", "send",
                             fmt::format("the peer cannot read this buffer over {}; take it from the fabric's memory "
                                         "or use transport mpi",
                                         transport_.name()));
  }
  const runtime::Traffic before = transport_.traffic();
  ticket_ = transport_.send(peer_, channel, data_);
  const runtime::Traffic sent = transport_.traffic() - before;
  completion_.bytes_sent = sent.bytes;
  completion_.bytes_between_nodes = sent.bytes_between_nodes;
}

bool SendOperation::advance() {
  transport_.progress();
  return transport_.send_done(ticket_);
}

ReceiveOperation::ReceiveOperation(runtime::EventPtr ready, runtime::Transport& t, int peer, std::span<std::byte> data,
                                   const std::vector<int>& world_ranks)
    : EngineOperation("receive", order_of_receives(peer), std::move(ready)),
      transport_(t),
      peer_(peer),
      data_(data),
      world_ranks_(world_ranks) {
  completion_.bytes_due = 0;
}

void ReceiveOperation::start() {
  if (!data_.empty()) ticket_ = transport_.receive(peer_, channel, data_);
}

bool ReceiveOperation::advance() {
  if (data_.empty()) return true;
  transport_.progress();
  const std::byte* from = transport_.try_receive(ticket_);
  if (!from) return false;
  if (from != data_.data()) std::memcpy(data_.data(), from, data_.size());
  transport_.release(ticket_);
  return true;
}

}  // namespace gradmeter::dataparallel
