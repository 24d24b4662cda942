// SPDX-License-Identifier: Apache-2.0
// The common part of strategies with servers: which ranks serve, how service begins and ends, and what it costs.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dataparallel/server/client.hpp"
#include "dataparallel/server/server.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

/// The numbers of pushes and pulls of one worker, each of which goes to all servers.
struct RequestCounts {
  std::uint64_t pushes = 0, pulls = 0;
  /// the pulls that are messages of their own; other pulls are part of a push
  std::uint64_t separate_pulls = 0;
};

/// The base of all strategies with servers. Each derived class says how it trains.
class ServerStrategy : public Strategy {
 public:
  explicit ServerStrategy(ServiceOptions o) : options_(std::move(o)) {}
  int workers(int ranks) const final { return ranks - options_.servers; }
  std::size_t fabric_bytes(const model::Model&, int ranks) const override;
  /// An upper bound for all ranks: that of a rank which both trains and serves.
  std::size_t bytes_besides_fabric(const model::Model&, int ranks) const override;
  /// The workers' own optimizer is ignored, since servers update the weights.
  std::string refusal(const Optimizer&, int ranks) const final { return refusal(ranks); }
  void begin(Worker&) override;
  void settle(Worker&) final { server_client().settle(); }
  /// The weights that the servers hold.
  void evaluation_weights(Worker&, Buffer to) final { server_client().fetch_for_evaluation(to); }
  std::vector<WeightsInPlace> held_weights(const Worker&) const final;
  void end(Worker&) final;
  Observations observed() const final;

 protected:
  const ServiceOptions& options() const { return options_; }
  /// The client of this rank, which must train.
  ServerClient& server_client() { return *server_client_; }
  /// True if the weights that this worker fetched last are older than the staleness bound allows at that clock.
  bool too_old(std::uint64_t clock) const {
    return clock > options_.staleness && server_client_->updates_included() < clock - options_.staleness;
  }
  /// The forecast for these pushes and pulls of every worker. Its `bytes` are those that all ranks send, except to
  /// themselves; with a codec of variable length, an upper bound. Its `seconds` are the time for which the busiest rank
  /// sends or receives at the link's bandwidth B. For a push and a pull of M bytes that is max(M/B, P·M/(S·B)) with S
  /// dedicated servers for P workers, and 2(P-1)/P·M/B with servers on all ranks.
  Forecast forecast(const ForecastInput&, const RequestCounts&) const;

 private:
  std::string refusal(int ranks) const;
  ServicePlan plan(int ranks) const;
  Sharding sharding(std::size_t elements, const ServicePlan&, int ranks) const;
  void serve(Worker&, const Sharding&, const ServicePlan&, std::uint32_t server, std::unique_ptr<Port>);

  ServiceOptions options_;
  std::shared_ptr<Server> server_;
  std::unique_ptr<ServerClient> server_client_;
  std::uint64_t pushed_ = 0;  ///< number of updates that the client had pushed when it was destroyed
  /// Declared last, so that the server's task ends while the members that it uses still live.
  std::unique_ptr<BackgroundTask> background_task_;
};

}  // namespace gradmeter::dataparallel
