// SPDX-License-Identifier: Apache-2.0
// The worker's side of the servers: it pushes changes chunk by chunk while they are being computed, and pulls weights.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "dataparallel/fabric/fabric.hpp"
#include "dataparallel/server/protocol.hpp"

namespace gradmeter::dataparallel {

/// Only the worker's thread uses it. Memory: one copy of the weights (`weights_`), and the codec's state for each
/// chunk, which with error feedback is as large as the weights.
class ServerClient {
 public:
  /// rank: the rank of this worker. initial: the initial weights, equal on all workers.
  ServerClient(Fabric&, std::unique_ptr<Port>, const Sharding&, const ServicePlan&, int rank,
               const ConstBuffer& initial);

  /// Begins to push the next update. The elements of `change` are sent once `announce_ready` has said that they are
  /// computed. They are sent from this buffer itself, so they must not change until `await_acknowledgements` returns.
  /// size: the step size. fetch: servers send weights as soon as they have applied the update.
  void begin_push(ConstBuffer change, float size, bool fetch);
  /// Says that the first `elements` elements of the change are computed, and posts what can be posted without waiting.
  void announce_ready(std::size_t elements);
  /// Waits until the whole change has been posted. answers: the buffer for the weights of the next fetch, to which
  /// servers may write directly; empty: weights come by message. Nobody may read the buffer until `fetch` returns, nor
  /// write to it before the next push or the disconnect, because servers compute the next weights from it.
  void finish_push(Buffer answers = runtime::empty_buffer);
  /// Waits until the servers have received all changes that were pushed.
  void await_acknowledgements();
  /// Asks the servers for weights: a read at this clock (consistency.hpp) that must include this worker's first
  /// `own_updates` updates.
  void request(std::uint64_t clock, std::uint64_t own_updates);
  /// Waits for the weights that were requested last, and writes them to `to`. If `finish_push` was given a buffer, `to`
  /// must be that buffer. The next pushes are computed from these weights.
  void fetch(Buffer to);
  /// Fetches the servers' current weights. All workers must call this, after `settle`; it waits for all of them, and
  /// has no effect on training.
  void fetch_for_evaluation(Buffer to);
  /// Waits until the servers have acknowledged all changes; to be called between steps. With StepRule::fresh_only it
  /// also tells servers not to wait for this worker until it sends a change again.
  void settle();
  /// Tells the servers that this worker has finished, after `settle`. Waits until no server needs weights in this
  /// worker's memory any more.
  void disconnect();

  std::uint64_t pushed() const { return clock_; }  ///< number of updates begun so far
  /// Each chunk of the weights fetched last includes at least this many updates of every worker (unless a StepRule
  /// collects or drops changes: then the server had received as many).
  std::uint64_t updates_included() const;

 private:
  /// The versions of the weights of one chunk.
  struct ChunkVersions {
    /// The version of the weights from which this worker computes, and the number of updates of every worker that they
    /// include.
    std::uint64_t base = 0, updates_included = 0;
    /// The same two numbers for the weights that have arrived since then, but were not fetched yet.
    std::uint64_t incoming = 0, incoming_updates = 0;
    bool must_be_copied = false;  ///< the incoming weights lie in `weights_`, and `fetch` must copy them
    bool is_written = false;      ///< a server has written the incoming weights to the buffer of `finish_push`
  };
  /// This worker's state for one server.
  struct ServerConnection {
    std::uint32_t server = 0;
    int rank = 0;
    std::size_t chunks = 0;
    std::size_t next = 0;            ///< index of the next chunk to post; `chunks`: all are posted
    std::size_t unacknowledged = 0;  ///< number of messages that the server has not acknowledged yet
    MessageHeader request = {};      ///< the last request, rest or disconnect
    bool asks = false;               ///< `request` must still be sent
    std::size_t missing = 0;         ///< number of chunks of the requested weights that have not arrived yet
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
  static bool is_posted(const ServerConnection& connection) { return connection.next == connection.chunks; }
  std::span<const std::byte> bytes_of(const ConstBuffer& change);
  std::uint64_t answer_place(std::size_t first, std::size_t count);
  void adopt_versions(ServerConnection&, const Buffer& to);
  void copy_received(ServerConnection&, std::size_t chunk, const Buffer& to);
  void send_request(ServerConnection&);
  void tell(Opcode, const char* why, bool acknowledged = false);
  void ask(Opcode, std::uint64_t clock, std::uint64_t own_updates);
  void expect(ServerConnection&, Opcode, std::uint64_t clock, std::uint64_t own_updates);
  void receive();

  Fabric& fabric_;
  std::unique_ptr<Port> port_;
  const Sharding sharding_;
  const ServicePlan plan_;
  const int rank_;
  std::vector<ServerConnection> connections_;  ///< by server; only for servers that have chunks
  std::uint64_t clock_ = 0, sequence_ = 0;
  ConstBuffer change_ = runtime::empty_buffer;
  float step_size_ = 0;
  bool fetch_ = false;          ///< the push under way also requests weights
  bool is_exchanging_ = false;  ///< true from the end of a push until the weights have arrived
  std::size_t ready_ = 0;       ///< number of elements of `change_` that are computed
  /// If servers encode weights: this worker's weights as the servers know them, to which decoded changes are added.
  /// Otherwise: weights that have arrived before `fetch` was called.
  std::vector<float> weights_;
  std::vector<float> decoded_;              ///< scratch for the numbers of a chunk
  Buffer target_ = runtime::empty_buffer;   ///< buffer for weights that arrive now; empty outside a fetch
  Buffer answers_ = runtime::empty_buffer;  ///< buffer to which servers may write
  bool offers_ = false;                     ///< true: some server has been told where in `answers_` it may write
};

}  // namespace gradmeter::dataparallel
