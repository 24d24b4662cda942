#include "dataparallel/strategies/easgd.hpp"

#include <vector>

#include "dataparallel/server/strategy.hpp"

namespace gradmeter::dataparallel {
namespace {

class Easgd final : public ServerStrategy {
 public:
  Easgd(const ServiceOptions& service, std::uint64_t every, float beta)
      : ServerStrategy(service), every_(every), beta_(beta) {}

  std::size_t period() const override { return every_; }

  /// And the centre as it was fetched.
  std::size_t own_bytes(const model::Model& m, int ranks) const override {
    return ServerStrategy::own_bytes(m, ranks) + m.element_count() * sizeof(float);
  }

  void begin(Worker& w) override {
    ServerStrategy::begin(w);
    pull_.resize(w.parameters().count());
  }

  model::PendingOutcome step(Worker& w, const model::Batch& batch, UpdateStep step) override {
    const bool visits = step.number % every_ == 0;
    ServerClient& server_client = service_.server_client();
    if (visits)
      server_client.request(server_client.pushed(), server_client.pushed());  // the centre travels during the pass
    auto outcome = w.pass(batch);
    if (visits) draw(w);
    w.update(step);
    if (visits) push(server_client);
    return outcome;
  }

  Forecast predict(const ForecastInput& s) const override {
    const std::uint64_t visits = s.multiples_of(every_);
    return service_.forecast(s, {.pushes = visits, .pulls = visits, .requests = visits});
  }

 private:
  /// x -= d. The gradient, already computed at the same x, is applied after it.
  void draw(Worker& w) {
    service_.server_client().await_acknowledgements();  // of the last d, which lies there
    service_.server_client().fetch(pull_);
    const float alpha = beta_ / static_cast<float>(service_.workers(w.ranks()));
    const auto n = static_cast<double>(pull_.size());
    w.queue().submit("easgd", {3 * n, 16 * n}, [this, alpha, parameters = w.parameters()] {
      const auto x = parameters.values<float>();
      for (std::size_t i = 0; i < pull_.size(); ++i) {
        pull_[i] = alpha * (x[i] - pull_[i]);
        x[i] -= pull_[i];
      }
    });
  }

  void push(ServerClient& server_client) {
    server_client.begin_push(pull_, 1, false);
    server_client.finish_push();
  }

  std::uint64_t every_;
  float beta_;
  std::vector<float> pull_;  ///< the centre, then d
};

}  // namespace

std::unique_ptr<Strategy> make_easgd(const core::ParsedName& name, const StrategyOptions& o) {
  const ServiceOptions service{
      .servers = o.servers, .optimizer = "add", .rule = {.scale = ChangeScale::sum}, .codec = o.codec, .seed = o.seed};
  return std::make_unique<Easgd>(service, count_parameter(name, "every", {1, 1'000'000}),
                                 static_cast<float>(number_parameter(name, "beta", {0, 1e6})));
}

}  // namespace gradmeter::dataparallel
