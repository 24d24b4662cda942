#include "allreduce/compressed/random_k.hpp"

#include <algorithm>

#include "allreduce/compressed/difference.hpp"
#include "allreduce/compressed/staged.hpp"
#include "allreduce/compressed/tensor_calls.hpp"
#include "compression/codecs/randomk.hpp"

namespace gradmeter::allreduce {
namespace {

std::size_t value_bytes(const CodedRequest& r) {
  // Each tensor's own count is rounded up.
  return (compression::RandomK(r.codec.parsed).kept(r.max_elements()) + most_packed(r)) * sizeof(float);
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
    tensors_.assign(call);
    gathered_ = false;
  }

  Stage next() override {
    if (gathered_) {
      decoding([this] { each(&RandomKSum::put); });
      return {};
    }
    gathered_ = true;
    std::size_t kept = 0;
    for (const Call& c : tensors_.calls()) kept += chosen_.kept(c.count());
    places_.resize(kept);
    encoding([this] { each(&RandomKSum::pick); });
    if (tensors_.differences_asked()) {
      local("difference", [this] {
        each(&RandomKSum::note_own);
        tensors_.add_squares();
      });
    }
    return {&sum_, in_place(core::Element::f32, values_.first(kept * sizeof(float)))};
  }

  using Places = std::span<std::uint32_t>;
  using Values = std::span<float>;

  /// `work` on each tensor, with its places and their values.
  void each(void (RandomKSum::*work)(const Call&, Places, Values)) {
    std::size_t at = 0;
    for (const Call& c : tensors_.calls()) {
      const std::size_t kept = chosen_.kept(c.count());
      (this->*work)(c, Places(places_).subspan(at, kept), {reinterpret_cast<float*>(values_.data()) + at, kept});
      at += kept;
    }
  }

  void pick(const Call& c, Places places, Values values) {
    const Encoding& e = c.encoding;
    chosen_.draw_places({.seed = e.seed, .step = e.step, .tensor = e.tensor}, c.count(), places);
    const std::span<const float> x = c.in.values<float>();
    if (!e.worker_residual) return chosen_.gather(x, places, values);
    const std::span<float> residual{e.worker_residual, x.size()};
    for (std::size_t i = 0; i < x.size(); ++i) residual[i] += x[i];
    chosen_.gather(residual, places, values);
    compression::RandomK::clear_sent(places, residual);
  }

  void note_own(const Call& c, Places places, Values values) {
    std::vector<float> sent(c.count());
    compression::RandomK::scatter(values, places, sent);
    note_sent(c, ranks_, sent);
  }

  void put(const Call& c, Places places, Values values) {
    if (c.op == Op::average) {
      for (float& v : values) v /= ranks_;
    }
    compression::RandomK::scatter(values, places, c.out.values<float>());
  }

  compression::RandomK chosen_;
  float ranks_;
  std::span<std::byte> values_;
  Collective& sum_;
  TensorCalls tensors_;
  bool gathered_ = false;
  std::vector<std::uint32_t> places_;
};

}  // namespace

std::size_t random_k_arena_bytes(const CodedRequest& r, std::uint32_t rank) {
  return value_bytes(r) + 2 * arena_slack + r.algorithm.arena_bytes(r.shape, rank, r.inner(value_bytes(r)));
}

CallParts random_k_parts(const CodedRequest& r, std::span<const TensorPart> pack) {
  const compression::RandomK chosen(r.codec.parsed);
  std::size_t kept = 0;
  for (const TensorPart& t : pack) kept += chosen.kept(t.count);
  return {{.algorithm = r.algorithm_ptr(), .count = kept}};
}

std::unique_ptr<Collective> bind_random_k(const CodedRequest& r, const Site& site) {
  return std::make_unique<RandomKSum>(r, site);
}

}  // namespace gradmeter::allreduce
