// SPDX-License-Identifier: Apache-2.0
#include "dataparallel/server/client.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::size_t most_unacknowledged = 4;  ///< chunks of this worker, at each server

std::uint16_t number(Opcode opcode) { return static_cast<std::uint16_t>(opcode); }

}  // namespace

ServerClient::ServerClient(Fabric& fabric, std::unique_ptr<Port> port, const Sharding& sharding,
                           const ServicePlan& plan, int rank, const ConstBuffer& initial)
    : fabric_(fabric),
      port_(std::move(port)),
      sharding_(sharding),
      plan_(plan),
      rank_(rank),
      weights_(initial.count()) {
  fabric.run_and_wait([&] { std::ranges::copy(initial.values<float>(), weights_.begin()); });
  for (std::uint32_t s = 0; s < sharding.servers() && sharding.chunks(s) > 0; ++s) {
    const std::size_t chunks = sharding.chunks(s);
    ServerConnection& connection = connections_.emplace_back();
    connection.server = s;
    connection.rank = plan.first_server + static_cast<int>(s);
    connection.chunks = connection.next = chunks;
    connection.versions.resize(chunks);
    for (std::size_t i = 0; i < chunks; ++i) {
      connection.encoders.push_back(plan_.changes.encoder(sharding.chunk(s, i).count));
    }
  }
}

template <class Done>
void ServerClient::wait_for(const char* why, const Done& done) {
  fabric_.handle_messages(why, [&] {
    send();
    for (;;) {
      const auto behind = std::find_if_not(connections_.begin(), connections_.end(), done);
      if (behind == connections_.end()) return;
      if (const auto message = port_->next(why, std::numeric_limits<double>::infinity(), behind->rank)) take(*message);
      send();
    }
  });
}

void ServerClient::begin_push(ConstBuffer change, float size, bool fetch) {
  change_ = change;
  step_size_ = size;
  ready_ = 0;
  fetch_ = fetch;
  ++clock_;
  if (fetch) ++sequence_;
  for (ServerConnection& connection : connections_) {
    connection.next = 0;
    if (fetch) expect(connection, Opcode::pull, clock_, clock_);
  }
}

void ServerClient::announce_ready(std::size_t elements) {
  ready_ = elements;
  fabric_.handle_messages("push", [this] {
    while (const auto message = port_->poll()) take(*message);
    send();
  });
}

void ServerClient::finish_push(Buffer answers) {
  if (fetch_) answers_ = answers;
  ready_ = sharding_.elements();
  set_exchanging(true);
  wait_for("servers to take changes", is_posted);
  answers_ = runtime::empty_buffer;
  if (!fetch_) set_exchanging(false);
}

/// The place where a server may write the answer to a chunk's change; 0 if the answer will be encoded.
std::uint64_t ServerClient::answer_place(std::size_t first, std::size_t count) {
  if (answers_.count() == 0 || plan_.weights.encodes(count)) return 0;
  const ConstBuffer to = answers_.part(first, count);
  const std::uint64_t place = port_->place_of({fabric_.device().transport_address(to), to.bytes()});
  if (place > 0) offers_ = true;
  return place;
}

void ServerClient::set_exchanging(bool yes) {
  if (is_exchanging_ != yes) port_->set_exchanging(yes);
  is_exchanging_ = yes;
}

void ServerClient::request(std::uint64_t clock, std::uint64_t own_updates) { ask(Opcode::pull, clock, own_updates); }

void ServerClient::ask(Opcode opcode, std::uint64_t clock, std::uint64_t own_updates) {
  ++sequence_;
  fabric_.handle_messages("pull", [&] {
    for (ServerConnection& connection : connections_) {
      expect(connection, opcode, clock, own_updates);
      connection.asks = true;
    }
    send();
  });
}

void ServerClient::expect(ServerConnection& connection, Opcode opcode, std::uint64_t clock, std::uint64_t own_updates) {
  connection.missing = connection.chunks;
  connection.request = {.operation = number(opcode),
                        .server_number = connection.server,
                        .clock = clock,
                        .version = own_updates,
                        .sequence = sequence_};
}

void ServerClient::receive() {
  wait_for("weights from servers", [](const ServerConnection& connection) { return connection.missing == 0; });
}

/// Weights that came before this call lie in `weights_`, since `to` might still have been read. All others are written
/// to `to` itself.
void ServerClient::fetch(Buffer to) {
  for (ServerConnection& connection : connections_) {
    for (std::size_t i = 0; i < connection.chunks; ++i) {
      if (connection.versions[i].must_be_copied) copy_received(connection, i, to);
    }
  }
  target_ = to;
  receive();
  target_ = runtime::empty_buffer;
  for (ServerConnection& connection : connections_) adopt_versions(connection, to);
  set_exchanging(false);
}

/// Makes the weights that have come those from which the next pushes are computed.
void ServerClient::adopt_versions(ServerConnection& connection, const Buffer& to) {
  for (std::size_t i = 0; i < connection.chunks; ++i) {
    ChunkVersions& v = connection.versions[i];
    v.base = v.incoming, v.updates_included = v.incoming_updates;
    const Range chunk = sharding_.chunk(connection.server, i);
    if (std::exchange(v.is_written, false)) fabric_.from_transport(to.part(chunk.first, chunk.count));
  }
}

/// Copies a chunk from `weights_` to `to`. Later answers cannot change it before that, since they are decoded on the
/// same queue.
void ServerClient::copy_received(ServerConnection& connection, std::size_t i, const Buffer& to) {
  const Range chunk = sharding_.chunk(connection.server, i);
  const std::span<const float> from = std::span(weights_).subspan(chunk.first, chunk.count);
  fabric_.submit("weights", {0, 8.0 * double(chunk.count)}, [from, to = to.part(chunk.first, chunk.count)] {
    std::ranges::copy(from, to.values<float>().begin());
  });
  connection.versions[i].must_be_copied = false;
}

std::uint64_t ServerClient::updates_included() const {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (const ServerConnection& connection : connections_) {
    for (const ChunkVersions& v : connection.versions) least = std::min(least, v.updates_included);
  }
  return least;
}

void ServerClient::fetch_for_evaluation(Buffer to) {
  target_ = to;
  ask(Opcode::evaluate, 0, clock_);
  receive();
  target_ = runtime::empty_buffer;
}

void ServerClient::await_acknowledgements() {
  const auto is_acknowledged = [](const ServerConnection& connection) {
    return is_posted(connection) && connection.unacknowledged == 0;
  };
  if (!std::ranges::all_of(connections_, is_acknowledged)) {
    wait_for("servers to acknowledge changes", is_acknowledged);
  }
}

void ServerClient::settle() {
  await_acknowledgements();
  // Servers that wait for a number of changes, from whichever workers, must not count on this worker now.
  if (plan_.options.rule.fresh_only) tell(Opcode::rest, "servers to hear of a rest");
}

/// Sends a message that gets no answer but, if `acknowledged`, an acknowledgement.
void ServerClient::tell(Opcode opcode, const char* why, bool acknowledged) {
  for (ServerConnection& connection : connections_) {
    connection.request = {
        .operation = number(opcode), .server_number = connection.server, .sequence = std::uint64_t{acknowledged}};
    if (acknowledged) ++connection.unacknowledged;
    connection.asks = true;
  }
  wait_for(why, [](const ServerConnection& connection) { return !connection.asks; });
}

void ServerClient::disconnect() {
  port_->while_waiting({});
  tell(Opcode::disconnect, "servers to hear of the end", offers_);
  await_acknowledgements();
  port_->close();
  fabric_.synchronise();  // copies from `weights_` may be under way
}

void ServerClient::take(const Message& message) {
  const int server = message.from - plan_.first_server;
  if (message.is_failure_notice) {
    if (server < 0 || server >= static_cast<int>(sharding_.servers())) return;
    throw core::BackendError("the fabric", "next",
                             fmt::format("rank {} has died, and with it its part of the weights", message.from));
  }
  const MessageHeader& h = message.header;
  ServerConnection& connection = connections_.at(h.server_number);
  switch (static_cast<Opcode>(h.operation)) {
    case Opcode::ack:
      return void(--connection.unacknowledged);
    case Opcode::weights:
      return take_weights(connection, h, message.payload);
    default:
      break;
  }
  throw std::logic_error(fmt::format("a server sent a worker operation {}", h.operation));
}

void ServerClient::take_weights(ServerConnection& connection, const MessageHeader& h,
                                std::span<const std::byte> payload) {
  if (h.sequence != sequence_) return;
  --connection.missing;
  const bool for_evaluation = connection.request.operation == number(Opcode::evaluate);
  const std::size_t i = sharding_.index_of(h.first);
  const bool written = h.payload_place > 0;
  const bool dense = for_evaluation || !plan_.weights.encodes(h.count), direct = dense && target_.count() > 0;
  if (!written) decode(h, payload, dense, (direct ? target_ : Buffer(weights_)).part(h.first, h.count));
  if (for_evaluation) return;
  ChunkVersions& v = connection.versions.at(i);
  v.incoming = h.version, v.incoming_updates = h.clock;
  v.must_be_copied = !written && !direct;
  v.is_written = written;
  if (v.must_be_copied && target_.count() > 0) copy_received(connection, i, target_);
}

/// Decodes weights to `to`. dense: the payload has the weights as fp32; otherwise it has a change, which is added to
/// `to`.
void ServerClient::decode(const MessageHeader& h, std::span<const std::byte> payload, bool dense, const Buffer& to) {
  const Coding coding = dense ? Coding() : plan_.weights;
  const compression::RandomDraw draw = draw_of_weights(plan_.options.seed, h.server_number, h.version, h.first);
  coding.work(fabric_, "weights.decode", h.count, h.bytes, [&] {
    const auto out = to.values<float>();
    if (dense) return coding.decode(payload, out, draw);
    decoded_.resize(h.count);
    coding.decode(payload, decoded_, draw);
    for (std::size_t k = 0; k < out.size(); ++k) out[k] += decoded_[k];
  });
}

void ServerClient::send() {
  for (ServerConnection& connection : connections_) {
    send_request(connection);
    while (send_chunk(connection)) {
    }
  }
}

void ServerClient::send_request(ServerConnection& connection) {
  if (!connection.asks || !port_->draft(connection.rank, 0)) return;
  const auto label = [&] {
    switch (static_cast<Opcode>(connection.request.operation)) {
      case Opcode::disconnect:
        return "disconnect";
      case Opcode::rest:
        return "rest";
      default:
        return "pull";
    }
  };
  port_->post(connection.rank, connection.request, label());
  connection.asks = false;
}

/// Waits until the numbers of a change are computed; returns them in the memory from which the fabric sends.
std::span<const std::byte> ServerClient::bytes_of(const ConstBuffer& change) {
  fabric_.to_transport(change);
  fabric_.synchronise();
  return {fabric_.device().transport_address(change), change.bytes()};
}

/// Posts the connection's next chunk; false if there is no room.
bool ServerClient::post_chunk(ServerConnection& connection, MessageHeader h) {
  const ConstBuffer change = change_.part(h.first, h.count);
  h.bytes = plan_.changes.wire_bytes(h.count);  // an upper bound, which stays if time alone is simulated
  if (!plan_.changes.encodes(h.count)) {
    return port_->post_from(connection.rank, h, bytes_of(change), "push") != nullptr;
  }
  const auto draft = port_->draft(connection.rank, h.bytes);
  if (!draft) return false;
  plan_.changes.work(fabric_, "push.encode", h.count, h.bytes, [&] {
    const compression::RandomDraw draw = draw_of_change(plan_.options.seed, rank_, h.clock, h.first);
    h.bytes = connection.encoders[connection.next](change.values<float>(), draft->data(), draw);
  });
  port_->post(connection.rank, h, "push");
  return true;
}

/// Sends the connection's next chunk; false if there is none, or if it is not computed yet, or if there is no room.
bool ServerClient::send_chunk(ServerConnection& connection) {
  if (is_posted(connection) || connection.unacknowledged >= most_unacknowledged) return false;
  if (connection.next == 0 && connection.unacknowledged > 0) return false;  // one update at a time
  const Range chunk = sharding_.chunk(connection.server, connection.next);
  if (chunk.end() > ready_) return false;
  const MessageHeader h{.operation = number(Opcode::push),
                        .server_number = connection.server,
                        .clock = clock_ - 1,
                        .version = connection.versions[connection.next].base,
                        .sequence = fetch_ ? sequence_ : 0,
                        .first = chunk.first,
                        .count = chunk.count,
                        .value = step_size_,
                        .answer_place = answer_place(chunk.first, chunk.count)};
  if (!post_chunk(connection, h)) return false;
  ++connection.unacknowledged;
  ++connection.next;
  return true;
}

}  // namespace gradmeter::dataparallel
