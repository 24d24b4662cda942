#include "dataparallel/server/client.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::dataparallel {
namespace {

constexpr std::size_t credits = 4;  ///< most chunks that a server has not acknowledged

std::uint16_t number(Opcode w) { return static_cast<std::uint16_t>(w); }

}  // namespace

ServerClient::ServerClient(Fabric& fabric, std::unique_ptr<Port> port, const Sharding& sharding,
                           const ServerClientPlan& plan, const ConstBuffer& first)
    : fabric_(fabric),
      port_(std::move(port)),
      sharding_(sharding),
      plan_(plan),
      connection_of_(sharding.servers(), 0),
      encoders_(sharding.servers()),
      weights_(first.count()) {
  fabric.at_once([&] { std::ranges::copy(first.values<float>(), weights_.begin()); });
  for (std::uint32_t s = 0; s < sharding.servers(); ++s) {
    if (sharding.shard(s).count == 0) continue;
    connection_of_[s] = connections_.size();
    const std::size_t chunks = sharding.chunks(s);
    connections_.push_back(
        {.shard = s, .rank = plan.first_server + static_cast<int>(s), .chunks = chunks, .next = chunks});
    for (std::size_t i = 0; i < chunks; ++i) {
      encoders_[s].push_back(plan_.changes.encoder(sharding.chunk(s, i).count));
    }
  }
}

template <class Done>
void ServerClient::wait_for(const char* why, const Done& done) {
  fabric_.exchange(why, [&] {
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
  size_ = size;
  ready_ = 0;
  fetch_ = fetch;
  ++clock_;
  if (fetch) ++sequence_;
  for (ServerConnection& connection : connections_) {
    connection.next = 0;
    if (fetch) expect(connection, Opcode::pull, clock_, clock_);
  }
}

void ServerClient::ready(std::size_t elements) {
  ready_ = elements;
  fabric_.exchange("push", [this] {
    while (const auto message = port_->poll()) take(*message);
    send();
  });
}

void ServerClient::finish_push() {
  ready_ = sharding_.elements();
  wait_for("servers to take changes", [](const ServerConnection& l) { return l.next == l.chunks; });
}

void ServerClient::request(std::uint64_t clock, std::uint64_t own) { ask(Opcode::pull, clock, own); }

void ServerClient::ask(Opcode opcode, std::uint64_t clock, std::uint64_t own) {
  ++sequence_;
  fabric_.exchange("pull", [&] {
    for (ServerConnection& connection : connections_) {
      expect(connection, opcode, clock, own);
      connection.asks = true;
    }
    send();
  });
}

void ServerClient::expect(ServerConnection& connection, Opcode opcode, std::uint64_t clock, std::uint64_t own) {
  connection.missing = connection.chunks;
  connection.incoming = 0;
  connection.request = {
      .operation = number(opcode), .shard = connection.shard, .clock = clock, .version = own, .sequence = sequence_};
}

void ServerClient::receive() {
  wait_for("weights from servers", [](const ServerConnection& l) { return l.missing == 0; });
}

void ServerClient::fetch(Buffer to) {
  receive();
  fabric_.submit("weights", {0, 8.0 * double(to.count())},
                 [&] { std::ranges::copy(weights_, to.values<float>().begin()); });
  fabric_.synchronise();  // the next answers change these weights
  for (ServerConnection& connection : connections_) {
    connection.base = connection.incoming;
    connection.reached = connection.incoming_reached;
  }
}

std::uint64_t ServerClient::reached() const {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (const ServerConnection& connection : connections_) least = std::min(least, connection.reached);
  return least;
}

void ServerClient::fetch_for_evaluation(Buffer to) {
  evaluation_target_ = to;
  ask(Opcode::evaluate, 0, clock_);
  receive();
}

void ServerClient::settle() {
  wait_for("servers to acknowledge changes",
           [](const ServerConnection& l) { return l.next == l.chunks && l.unacknowledged == 0; });
}

void ServerClient::disconnect() {
  for (ServerConnection& connection : connections_) {
    connection.request = {.operation = number(Opcode::disconnect), .shard = connection.shard};
    connection.asks = true;
  }
  wait_for("servers to hear of the end", [](const ServerConnection& l) { return !l.asks; });
  port_->close();
}

void ServerClient::take(const Message& message) {
  const int server = message.from - plan_.first_server;
  if (message.is_failure_notice) {
    if (server < 0 || server >= static_cast<int>(sharding_.servers())) return;
    throw core::BackendError("the fabric", "next",
                             fmt::format("rank {} has died, and with it its part of the weights", message.from));
  }
  const MessageHeader& h = message.header;
  ServerConnection& connection = connections_[connection_of_.at(h.shard)];
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
  connection.incoming = h.version;
  connection.incoming_reached = h.clock;
  const bool for_evaluation = connection.request.operation == number(Opcode::evaluate);
  const Buffer to = (for_evaluation ? evaluation_target_ : Buffer(weights_)).part(h.first, h.count);
  const Coding coding = for_evaluation ? Coding() : plan_.weights;
  const compression::Draw draw = draw_of_weights(plan_.seed, h.shard, h.version, h.first);
  coding.work(fabric_, "weights.decode", h.count, h.bytes, [&] {
    const auto out = to.values<float>();
    if (!coding.encodes(h.count)) return coding.decode(payload, out, draw);
    decoded_.resize(h.count);
    coding.decode(payload, decoded_, draw);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += decoded_[i];
  });
  --connection.missing;
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
  const bool leaves = connection.request.operation == number(Opcode::disconnect);
  port_->post(connection.rank, connection.request, leaves ? "disconnect" : "pull");
  connection.asks = false;
}

/// The next chunk. Returns the bytes written.
std::size_t ServerClient::encode(ServerConnection& connection, Range chunk, std::byte* wire) {
  const ConstBuffer change = change_.part(chunk.first, chunk.count);
  const compression::Draw draw = draw_of_change(plan_.seed, plan_.rank, clock_ - 1, chunk.first);
  std::size_t bytes = plan_.changes.wire_bytes(chunk.count);  // the most, where time alone is simulated
  plan_.changes.work(fabric_, "push.encode", chunk.count, plan_.changes.wire_bytes(chunk.count), [&] {
    ChunkEncoder& encoder = *encoders_[connection.shard][connection.next];
    bytes = encoder.encode(change.values<float>(), wire, draw);
  });
  return bytes;
}

/// One chunk, if it is ready and there is room for it.
bool ServerClient::send_chunk(ServerConnection& connection) {
  if (connection.next == connection.chunks || connection.unacknowledged >= credits) return false;
  if (connection.next == 0 && connection.unacknowledged > 0) return false;  // one update at a time
  const Range chunk = sharding_.chunk(connection.shard, connection.next);
  if (chunk.end() > ready_) return false;
  const std::size_t most = plan_.changes.wire_bytes(chunk.count);
  const auto draft = port_->draft(connection.rank, most);
  if (!draft) return false;
  const std::size_t bytes = encode(connection, chunk, draft->data());
  const MessageHeader h{.operation = number(Opcode::push),
                        .shard = connection.shard,
                        .clock = clock_ - 1,
                        .version = connection.base,
                        .sequence = fetch_ ? sequence_ : 0,
                        .first = chunk.first,
                        .count = chunk.count,
                        .bytes = bytes,
                        .value = size_};
  port_->post(connection.rank, h, "push");
  ++connection.unacknowledged;
  ++connection.next;
  return true;
}

}  // namespace gradmeter::dataparallel
