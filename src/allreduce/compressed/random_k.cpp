#include "allreduce/compressed/random_k.hpp"

#include <algorithm>

#include "allreduce/compressed/difference.hpp"
#include "allreduce/compressed/staged.hpp"
#include "compression/codecs/randomk.hpp"

namespace gradmeter::allreduce {
namespace {

std::size_t value_bytes(const CodedRequest& r) {
  return compression::RandomK(r.codec.parsed).kept(r.max_elements()) * sizeof(float);
}

class RandomKSum final : public Staged {
 public:
  RandomKSum(const CodedRequest& r, const Site& site)
      : Staged(r.algorithm.name, r.options.queue),
        chosen_(r.codec.parsed),
        ranks_(static_cast<float>(r.shape.ranks)),
        values_(site.network.arena().take(value_bytes(r))),
        sum_(add_part(r.algorithm.bind(site, r.inner(value_bytes(r))))) {}

 private:
  void begin(const Call& call) override {
    call_ = call;
    gathered_ = false;
  }

  Stage next() override {
    if (gathered_) {
      decoding([this] { put(); });
      return {};
    }
    gathered_ = true;
    places_.resize(chosen_.kept(call_.count()));
    encoding([this] { pick(); });
    if (call_.tensor_layout.difference) local("difference", [this] { note_own(); });
    return {&sum_, in_place(core::Element::f32, values_.first(places_.size() * sizeof(float)))};
  }

  void pick() {
    const Encoding& e = call_.encoding;
    chosen_.draw_places({.seed = e.seed, .step = e.step, .tensor = e.tensor}, call_.count(), places_);
    const std::span<const float> x = call_.in.values<float>();
    if (!e.worker_residual) return chosen_.gather(x, places_, values());
    const std::span<float> residual{e.worker_residual, x.size()};
    for (std::size_t i = 0; i < x.size(); ++i) residual[i] += x[i];
    chosen_.gather(residual, places_, values());
    compression::RandomK::clear_sent(places_, residual);
  }

  void note_own() {
    std::vector<float> sent(call_.count());
    compression::RandomK::scatter(values(), places_, sent);
    note_sent(call_, ranks_, sent);
  }

  void put() {
    if (call_.op == Op::average) {
      for (float& v : values()) v /= ranks_;
    }
    compression::RandomK::scatter(values(), places_, call_.out.values<float>());
  }

  std::span<float> values() { return {reinterpret_cast<float*>(values_.data()), places_.size()}; }

  compression::RandomK chosen_;
  float ranks_;
  std::span<std::byte> values_;
  Collective& sum_;
  Call call_{};
  bool gathered_ = false;
  std::vector<std::uint32_t> places_;
};

}  // namespace

std::size_t random_k_arena_bytes(const CodedRequest& r, std::uint32_t rank) {
  return value_bytes(r) + 2 * arena_slack + r.algorithm.arena_bytes(r.shape, rank, r.inner(value_bytes(r)));
}

CallParts random_k_parts(const CodedRequest& r, const TensorPart& t) {
  return {{.algorithm = r.algorithm_ptr(), .count = compression::RandomK(r.codec.parsed).kept(t.count)}};
}

std::unique_ptr<Collective> bind_random_k(const CodedRequest& r, const Site& site) {
  return std::make_unique<RandomKSum>(r, site);
}

}  // namespace gradmeter::allreduce
