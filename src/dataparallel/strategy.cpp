#include "dataparallel/strategy.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::dataparallel {

double Observations::mean_staleness() const {
  double sum = static_cast<double>(staleness_under_way), count = 0;
  for (std::size_t k = 0; k < staleness.size(); ++k) {
    sum += static_cast<double>(k) * static_cast<double>(staleness[k]);
    count += static_cast<double>(staleness[k]);
  }
  return count > 0 ? sum / count : 0;
}

void Worker::update(std::size_t offset, std::size_t count, UpdateStep step) {
  optimizer_.update(queue(), buffers_.parameters.part(offset, count), gradients(offset, count), offset, step);
}

void Strategy::begin(Worker& w) {
  if (w.ranks() > 1) w.fabric().wait(w.fabric().broadcast(w.axis(), w.parameters(), 0));
}

void Strategy::evaluation_weights(Worker& w, Buffer to) {
  w.queue().at_once([&] { std::ranges::copy(w.parameters().values<float>(), to.values<float>().begin()); });
}

std::unique_ptr<Strategy> StrategyChoice::make(StrategyOptions o) const {
  constexpr core::CountRange servers{0, 65536};
  if (parsed_.parameters.contains("servers")) {
    o.servers = static_cast<int>(core::count_parameter(parsed_, "servers", servers));
  }
  return info_.make(parsed_, o);
}

StrategyPtr StrategyChoice::with_servers(int servers) const {
  core::ParsedName other = parsed_;
  const auto it = other.parameters.find("servers");
  if (it == other.parameters.end()) {
    throw core::UsageError(fmt::format("strategy {} has no servers; ps-sync, ps-async, ps-ssp and easgd have", name));
  }
  it->second = fmt::format("{}", servers);
  return std::make_shared<StrategyChoice>(info_, std::move(other));
}

StrategyPtr StrategyChoice::alone() const {
  if (parsed_.parameters.contains("servers")) return with_servers(0);
  return std::make_shared<StrategyChoice>(info_, parsed_);
}

}  // namespace gradmeter::dataparallel
