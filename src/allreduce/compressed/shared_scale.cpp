#include "allreduce/compressed/shared_scale.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "allreduce/compressed/difference.hpp"
#include "allreduce/compressed/staged.hpp"
#include "compression/codecs/terngrad.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {
namespace {

std::size_t code_bytes(const CodedRequest& r) { return std::max<std::size_t>(r.max_elements(), 64); }

class SharedScale final : public Staged {
 public:
  SharedScale(const CodedRequest& r, const Site& site)
      : Staged(r.algorithm.name, r.options.queue),
        clip_(compression::ternary_clip(r.codec.parsed)),
        rank_(static_cast<std::uint32_t>(site.transport.rank())),
        ranks_(static_cast<float>(r.shape.ranks)),
        codes_(site.network.arena().take(code_bytes(r))),
        sum_(add_part(r.algorithm.bind(site, r.inner(code_bytes(r))))) {}

 private:
  enum class Step : std::uint8_t { scale, codes, done };

  void begin(const Call& call) override {
    call_ = call;
    step_ = Step::scale;
  }

  Stage next() override {
    switch (step_) {
      case Step::scale:
        step_ = Step::codes;
        encoding([this] {
          // Not every MPI's maximum keeps a NaN, so infinity is sent instead.
          const float scale = compression::ternary_scale(gradient(), clip_);
          const float mine = std::isfinite(scale) ? scale : std::numeric_limits<float>::infinity();
          std::memcpy(codes_.data(), &mine, sizeof mine);
        });
        return {&sum_, in_place(core::Element::f32, codes_.first(sizeof(float)), Op::max)};
      case Step::codes:
        step_ = Step::done;
        local("scale", [this] {
          std::memcpy(&scale_, codes_.data(), sizeof scale_);
          if (!std::isfinite(scale_)) scale_ = std::numeric_limits<float>::quiet_NaN();
        });
        encoding([this] { quantise(); });
        if (call_.tensor_layout.difference) local("difference", [this] { note_own(); });
        return {&sum_, in_place(core::Element::i8, codes_.first(call_.count()))};
      case Step::done:
        decoding([this] { decode(); });
    }
    return {};
  }

  std::span<const float> gradient() const { return call_.in.values<float>(); }
  std::span<std::int8_t> codes() { return {reinterpret_cast<std::int8_t*>(codes_.data()), call_.count()}; }

  void quantise() {
    const Encoding& e = call_.encoding;
    compression::ternary_quantise(gradient(), scale_, codes(),
                                  {.seed = e.seed, .step = e.step, .tensor = e.tensor, .rank = rank_});
  }

  void note_own() {
    std::vector<float> sent(call_.count());
    compression::ternary_decode(codes(), scale_, sent);
    note_sent(call_, ranks_, sent);
  }

  void decode() {
    const float unit = call_.op == Op::average ? scale_ / ranks_ : scale_;
    compression::ternary_decode(codes(), unit, call_.out.values<float>());
  }

  double clip_;
  std::uint32_t rank_;
  float ranks_;
  std::span<std::byte> codes_;
  Collective& sum_;
  Call call_{};
  Step step_ = Step::scale;
  float scale_ = 0;
};

}  // namespace

std::string shared_scale_refusal(const CodedRequest& r) {
  constexpr std::uint32_t most = 127;
  if (r.shape.ranks <= most) return {};
  return fmt::format("codec {} sums codes of -1, 0 and 1 in int8, which holds {} ranks, not {}; take {}:exchange=sra",
                     r.codec.info->name, most, r.shape.ranks, r.codec.info->name);
}

std::size_t shared_scale_arena_bytes(const CodedRequest& r, std::uint32_t rank) {
  return code_bytes(r) + 2 * arena_slack + r.algorithm.arena_bytes(r.shape, rank, r.inner(code_bytes(r)));
}

CallParts shared_scale_parts(const CodedRequest& r, const TensorPart& t) {
  return {{.algorithm = r.algorithm_ptr(), .count = 1},
          {.algorithm = r.algorithm_ptr(), .count = t.count, .element_bytes = 1}};
}

std::unique_ptr<Collective> bind_shared_scale(const CodedRequest& r, const Site& site) {
  return std::make_unique<SharedScale>(r, site);
}

}  // namespace gradmeter::allreduce
