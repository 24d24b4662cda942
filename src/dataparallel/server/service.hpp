// What strategies with servers share: who serves, from the first message to the last, and what it costs.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dataparallel/server/client.hpp"
#include "dataparallel/server/server.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

struct ServiceOptions {
  int servers = 0;  ///< the last so many ranks of an axis only serve; 0: every worker's rank serves too
  std::uint64_t staleness = Admission::unbounded;
  std::string optimizer = "sgd";
  StepRule rule = {};
  compression::CodecChoicePtr codec = {};
  std::uint64_t seed = 1;
};

/// How often one worker sends requests to all servers.
struct RequestCounts {
  std::uint64_t pushes = 0, pulls = 0;
  std::uint64_t requests = 0;  ///< pulls that are not sent with a push
};

class Service {
 public:
  explicit Service(ServiceOptions o) : options_(std::move(o)) {}
  int workers(int ranks) const { return ranks - options_.servers; }
  /// As Strategy's; the workers' own optimizer does not matter.
  std::string refusal(int ranks) const;
  /// As Strategy's.
  std::size_t memory_bytes(std::size_t elements, int ranks) const;
  /// As Strategy's, of a rank that trains and serves.
  std::size_t own_bytes(std::size_t elements, int ranks) const;
  /// Collective over the axis; the weights must be equal already.
  void begin(Worker&);
  /// On all ranks of the axis, in any order.
  void end(Worker&);
  /// On ranks that train.
  ServerClient& server_client() { return *server_client_; }
  /// Are the weights that this worker fetched last too old for a read at that clock?
  bool too_old(std::uint64_t clock) const {
    return clock > options_.staleness && server_client_->reached() < clock - options_.staleness;
  }
  std::uint64_t staleness() const { return options_.staleness; }
  Observations observed() const;
  /// As Strategy's.
  std::vector<WeightsInPlace> held_weights() const {
    return server_ ? server_->held_weights() : std::vector<WeightsInPlace>();
  }
  /// Bytes of all ranks, without messages to the own rank; with a codec of variable length the most. seconds: what the
  /// busiest rank sends or receives, at the link's speed: for a push and a pull of M bytes, max(M/B, P·M/(S·B)) with S
  /// dedicated servers of P workers, and 2(P-1)/P·M/B with servers on all ranks.
  Forecast forecast(const ForecastInput&, const RequestCounts&) const;

 private:
  Coding changes(int ranks) const;
  Sharding sharding(std::size_t elements, int ranks) const;
  static PortOptions port_options(const Sharding&);

  ServiceOptions options_;
  std::shared_ptr<Server> server_;
  std::unique_ptr<ServerClient> server_client_;
  std::uint64_t pushed_ = 0;                         ///< by the client, which is gone
  std::unique_ptr<BackgroundTask> background_task_;  ///< destroyed first, which ends its task
};

}  // namespace gradmeter::dataparallel
