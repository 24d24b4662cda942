// What a server gives out: acknowledgements, and weights of one version, as fast as each worker's link takes them.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dataparallel/fabric.hpp"
#include "dataparallel/server/protocol.hpp"

namespace gradmeter::dataparallel {

/// A read, as a worker asked for it.
struct Request {
  std::uint64_t sequence = 0, clock = 0, own = 0;
  bool looks = false;  ///< waits until all look
  std::uint16_t beside = 0;
  double since = 0;  ///< when it came [s]
};

/// Never waits: what has no room stays here, so that a slow worker holds up nobody.
/// Memory: a copy of the shard for every version that somebody still reads.
class Outbox {
 public:
  Outbox(const Sharding&, std::uint32_t shard, const Coding&, std::uint64_t seed, int workers);

  void acknowledge(int worker, const MailHeader& h) { line(worker).acknowledgements.push_back(h); }
  /// slowest: so many updates of every worker are in the weights. held: how long the request had to wait [s].
  void answer(Fabric&, int worker, const Request&, std::span<const float> weights, std::uint64_t version,
              std::uint64_t slowest, double held);
  bool answers(int worker) const { return lines_[static_cast<std::size_t>(worker)].reply.has_value(); }
  /// No more weights to that worker, or nothing at all.
  void drop_reply(int worker) { line(worker).reply.reset(); }
  void drop_all(int worker) { line(worker) = {}; }
  bool all_acknowledged() const;
  /// Posts what there is room for.
  void send(Fabric&, Port&);

 private:
  struct Version {
    std::uint64_t number = 0;
    std::vector<float> values = {};
  };
  struct Reply {
    Request request = {};
    std::shared_ptr<const Version> weights = {};
    std::uint64_t slowest = 0;
    double held = 0;
    std::size_t next = 0;  ///< chunk
  };
  struct Line {
    std::deque<MailHeader> acknowledgements = {};
    std::optional<Reply> reply = {};
  };
  Line& line(int worker) { return lines_[static_cast<std::size_t>(worker)]; }
  std::shared_ptr<const Version> snapshot(Fabric&, std::span<const float> weights, std::uint64_t version);
  bool send_acknowledgement(Port&, int worker);
  bool send_weights(Fabric&, Port&, int worker);
  /// Chunk i. Returns the bytes written.
  std::size_t encode(Fabric&, const Version&, std::size_t i, std::byte* wire);

  const Sharding sharding_;
  const std::uint32_t shard_;
  const Coding coding_;
  const std::uint64_t seed_;
  std::vector<std::unique_ptr<ChunkEncoder>> encoders_;  ///< by chunk; weights leave nothing for the next version
  std::vector<Line> lines_;
  std::vector<std::shared_ptr<Version>> versions_;
};

}  // namespace gradmeter::dataparallel
