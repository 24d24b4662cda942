// The base of all strategies with servers; how they train is their own.
#pragma once
#include <utility>

#include "dataparallel/server/service.hpp"
#include "dataparallel/strategy.hpp"

namespace gradmeter::dataparallel {

class ServerStrategy : public Strategy {
 public:
  explicit ServerStrategy(ServiceOptions o) : service_(std::move(o)) {}
  int workers(int ranks) const final { return service_.workers(ranks); }
  std::size_t memory_bytes(const model::Model& m, int ranks) const override {
    return service_.memory_bytes(m.element_count(), ranks);
  }
  std::size_t own_bytes(const model::Model& m, int ranks) const override {
    return service_.own_bytes(m.element_count(), ranks);
  }
  std::string refusal(const Optimizer&, int ranks) const final { return service_.refusal(ranks); }
  void begin(Worker& w) override {
    Strategy::begin(w);
    service_.begin(w);
  }
  void settle(Worker&) final { service_.server_client().settle(); }
  /// What the servers hold.
  void evaluation_weights(Worker&, Buffer to) final { service_.server_client().fetch_for_evaluation(to); }
  std::vector<WeightsInPlace> held_weights(const Worker&) const final { return service_.held_weights(); }
  void end(Worker& w) final { service_.end(w); }
  Observations observed() const final { return service_.observed(); }

 protected:
  Service service_;
};

}  // namespace gradmeter::dataparallel
