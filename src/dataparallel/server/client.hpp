// The worker's side of the servers: pushes changes chunk by chunk while they are being computed, and pulls weights.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "dataparallel/fabric.hpp"
#include "dataparallel/server/protocol.hpp"

namespace gradmeter::dataparallel {

/// What a ServerClient is made for.
struct ServerClientPlan {
  int rank = 0;          ///< the worker's
  int first_server = 0;  ///< rank of the first server; the others follow it
  Coding changes = Coding(), weights = Coding();
  std::uint64_t seed = 1;
  bool says_when_it_rests = false;  ///< servers wait for a number of changes, whoever sends them
};

/// One thread: the worker's. Memory: the weights as the servers know this worker to have them, once, and what the codec
/// keeps of each chunk (error feedback: once more).
class ServerClient {
 public:
  /// first: the weights, equal on all workers.
  ServerClient(Fabric&, std::unique_ptr<Port>, const Sharding&, const ServerClientPlan&, const ConstBuffer& first);

  /// Begins to push the next update. Elements up to the last `ready` may be sent. They leave from where they lie, and
  /// must not change before `await_acknowledgements`. fetch: the servers send weights as soon as they have applied it.
  void begin_push(ConstBuffer change, float size, bool fetch);
  /// Posts what may be posted, without waiting.
  void ready(std::size_t elements);
  /// Waits until everything has been posted. `answers`: where the weights that are sent will be fetched to; servers
  /// may write them there. Nobody reads it before `fetch` returns, and nobody writes to it before the next push, or the
  /// end: servers go on from these weights. Empty: they come by message.
  void finish_push(Buffer answers = runtime::no_floats);
  /// Waits until the servers have taken the changes that were pushed.
  void await_acknowledgements();
  /// Asks for the weights that a read at this clock gets, with this worker's own first `own` updates in them.
  void request(std::uint64_t clock, std::uint64_t own);
  /// Waits for the weights that were asked for last, from which the next pushes will be computed.
  void fetch(Buffer to);
  /// The servers' current weights. Waits until all workers, settled, have called it; changes nothing.
  void fetch_for_evaluation(Buffer to);
  /// Waits until the servers have acknowledged all changes. Between steps: they wait for no more of this worker's.
  void settle();
  /// Tells the servers that this worker has finished. Everything must be settled. Waits until none has weights in this
  /// worker's memory.
  void disconnect();

  std::uint64_t pushed() const { return clock_; }  ///< updates begun so far
  /// The weights that were fetched last have so many updates of every worker, in every chunk.
  std::uint64_t reached() const;

 private:
  /// A chunk's version, and the updates of every worker in it: of the weights that pushes are computed from, and of
  /// those that have come since.
  struct ChunkVersions {
    std::uint64_t base = 0, reached = 0;
    std::uint64_t incoming = 0, incoming_reached = 0;
    bool waits = false;       ///< those have come, and lie in `weights_`
    bool is_written = false;  ///< those have come, where transports reach the target
  };
  /// To one server.
  struct ServerConnection {
    std::uint32_t server = 0;
    int rank = 0;
    std::size_t chunks = 0;
    std::size_t next = 0;            ///< chunk of the push under way
    std::size_t unacknowledged = 0;  ///< chunks
    MessageHeader request = {};      ///< the last, or the disconnect
    bool asks = false;               ///< it must be sent
    std::size_t missing = 0;         ///< chunks of the weights that have not come yet
    std::vector<ChunkVersions> versions = {};
    std::vector<std::unique_ptr<ChunkEncoder>> encoders = {};  ///< by chunk
  };

  void attend(bool yes);
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
  const ServerClientPlan plan_;
  std::vector<ServerConnection> connections_;  ///< by server; those after the last have no chunks
  std::uint64_t clock_ = 0, sequence_ = 0;
  ConstBuffer change_ = runtime::no_floats;
  float size_ = 0;
  bool fetch_ = false;
  bool attends_ = false;  ///< from the end of a push until the weights are here
  std::size_t ready_ = 0;
  std::vector<float> weights_;           ///< with a codec as the servers know them; else what must wait for `fetch`
  std::vector<float> decoded_;           ///< of a chunk
  Buffer target_ = runtime::no_floats;   ///< where weights may go that come now; empty: nowhere yet
  Buffer answers_ = runtime::no_floats;  ///< where servers may write
  bool offers_ = false;                  ///< servers may have weights there
};

}  // namespace gradmeter::dataparallel
