// SPDX-License-Identifier: Apache-2.0
// The worker's side of the servers: it pushes changes chunk by chunk while they are being computed, and pulls weights.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "dataparallel/fabric/fabric.hpp"
#include "dataparallel/server/protocol.hpp"

namespace gradmeter::dataparallel {

/// Only the worker's thread uses it. Memory: one copy of the weights that the servers know this worker to have, and the
/// state of the codec for each chunk (with error feedback, one more copy).
class ServerClient {
 public:
  /// rank: this worker's. first: the initial weights, equal on all workers.
  ServerClient(Fabric&, std::unique_ptr<Port>, const Sharding&, const ServicePlan&, int rank, const ConstBuffer& first);

  /// Begins to push the next update. Elements may be sent once a call of `ready` has included them. They are sent from
  /// the buffer itself, and must not change before `await_acknowledgements`. fetch: the servers send weights as soon as
  /// they have applied the update.
  void begin_push(ConstBuffer change, float size, bool fetch);
  /// Says that this many elements are computed, counted from the first, and posts what can be posted without waiting.
  void ready(std::size_t elements);
  /// Waits until everything has been posted. `answers`: the buffer for the weights of the next fetch, to which servers
  /// may write directly. Nobody may read it before `fetch` returns, nor write to it before the next push or the end,
  /// because servers compute the next weights from it. Empty: weights come by message.
  void finish_push(Buffer answers = runtime::no_floats);
  /// Waits until the servers have received the changes that were pushed.
  void await_acknowledgements();
  /// Asks for the weights of a read at this clock, which must include this worker's own first `own` updates.
  void request(std::uint64_t clock, std::uint64_t own);
  /// Waits for the weights that were asked for last, from which the next pushes will be computed.
  void fetch(Buffer to);
  /// Fetches the servers' current weights. It waits until all workers have called it, all of them settled; it changes
  /// nothing.
  void fetch_for_evaluation(Buffer to);
  /// Waits until the servers have acknowledged all changes. It is called between steps, so that servers then do not
  /// wait for changes of this worker.
  void settle();
  /// Tells the servers that this worker has finished. It must be settled. Waits until no server has weights in this
  /// worker's memory.
  void disconnect();

  std::uint64_t pushed() const { return clock_; }  ///< number of updates begun so far
  /// The number of updates of every worker that are included in each chunk of the weights fetched last.
  std::uint64_t reached() const;

 private:
  /// A chunk's version, and the number of updates of every worker in it: for the weights from which pushes are
  /// computed, and for weights that have arrived since (incoming).
  struct ChunkVersions {
    std::uint64_t base = 0, reached = 0;
    std::uint64_t incoming = 0, incoming_reached = 0;
    bool waits = false;       ///< the incoming weights have arrived, and are in `weights_`
    bool is_written = false;  ///< the incoming weights have arrived in the memory by which transports reach the target
  };
  /// This worker's state for one server.
  struct ServerConnection {
    std::uint32_t server = 0;
    int rank = 0;
    std::size_t chunks = 0;
    std::size_t next = 0;            ///< the next chunk of the push under way
    std::size_t unacknowledged = 0;  ///< number of chunks
    MessageHeader request = {};      ///< the last request, or the disconnect
    bool asks = false;               ///< the request must be sent
    std::size_t missing = 0;         ///< number of chunks of the weights that have not arrived yet
    std::vector<ChunkVersions> versions = {};
    std::vector<ChunkEncoder> encoders = {};  ///< by chunk
  };

  void set_exchanging(bool yes);
  template <class Done>
  void wait_for(const char* why, const Done&);
  void take(const Message&);
  void take_weights(ServerConnection&, const MessageHeader&, std::span<const std::byte>);
  void decode(const MessageHeader&, std::span<const std::byte> payload, bool dense, const Buffer& to);
  void send();
  bool send_chunk(ServerConnection&);
  bool post_chunk(ServerConnection&, MessageHeader);
  static bool is_posted(const ServerConnection& l) { return l.next == l.chunks; }
  std::span<const std::byte> bytes_of(const ConstBuffer& change);
  std::uint64_t answer_place(std::size_t first, std::size_t count);
  void take_over(ServerConnection&, const Buffer& to);
  void put(ServerConnection&, std::size_t chunk, const Buffer& to);
  void send_request(ServerConnection&);
  void tell(Opcode, const char* why, bool acknowledged = false);
  void ask(Opcode, std::uint64_t clock, std::uint64_t own);
  void expect(ServerConnection&, Opcode, std::uint64_t clock, std::uint64_t own);
  void receive();

  Fabric& fabric_;
  std::unique_ptr<Port> port_;
  const Sharding sharding_;
  const ServicePlan plan_;
  const int rank_;
  std::vector<ServerConnection> connections_;  ///< by server; servers after the last have no chunks
  std::uint64_t clock_ = 0, sequence_ = 0;
  ConstBuffer change_ = runtime::no_floats;
  float size_ = 0;
  bool fetch_ = false;
  bool is_exchanging_ = false;  ///< from the end of a push until the weights have arrived
  std::size_t ready_ = 0;
  /// With a codec: the weights as the servers know them; otherwise those that must wait for `fetch`.
  std::vector<float> weights_;
  std::vector<float> decoded_;           ///< scratch for the numbers of a chunk
  Buffer target_ = runtime::no_floats;   ///< buffer for weights that arrive now; empty: there is none yet
  Buffer answers_ = runtime::no_floats;  ///< buffer to which servers may write
  bool offers_ = false;                  ///< true: servers may have weights in `answers_`
};

}  // namespace gradmeter::dataparallel
