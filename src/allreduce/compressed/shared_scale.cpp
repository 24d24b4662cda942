#include "allreduce/compressed/shared_scale.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "allreduce/compressed/difference.hpp"
#include "allreduce/compressed/staged.hpp"
#include "allreduce/compressed/tensor_calls.hpp"
#include "compression/codecs/terngrad.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {
namespace {

std::size_t code_bytes(const CodedRequest& r) {
  return std::max<std::size_t>({r.max_elements(), most_packed(r) * sizeof(float), 64});
}

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
    tensors_.assign(call);
    scales_.resize(tensors_.calls().size());
    step_ = Step::scale;
  }

  Stage next() override {
    switch (step_) {
      case Step::scale:
        step_ = Step::codes;
        encoding([this] { find_scales(); });
        return {&sum_, in_place(core::Element::f32, codes_.first(scales_.size() * sizeof(float)), Op::max)};
      case Step::codes: {
        step_ = Step::done;
        local("scale", [this] {
          std::memcpy(scales_.data(), codes_.data(), scales_.size() * sizeof(float));
          for (float& s : scales_) {
            if (!std::isfinite(s)) s = std::numeric_limits<float>::quiet_NaN();
          }
        });
        encoding([this] { each(&SharedScale::quantise); });
        if (tensors_.differences_asked()) {
          local("difference", [this] {
            each(&SharedScale::note_own);
            tensors_.add_squares();
          });
        }
        std::size_t codes = 0;
        for (const Call& c : tensors_.calls()) codes += c.count();
        return {&sum_, in_place(core::Element::i8, codes_.first(codes))};
      }
      case Step::done:
        decoding([this] { each(&SharedScale::decode); });
    }
    return {};
  }

  void find_scales() {
    std::byte* to = codes_.data();
    for (const Call& c : tensors_.calls()) {
      // Not every MPI's maximum keeps a NaN, so infinity is sent instead.
      const float scale = compression::ternary_scale(c.in.values<float>(), clip_);
      const float mine = std::isfinite(scale) ? scale : std::numeric_limits<float>::infinity();
      std::memcpy(to, &mine, sizeof mine);
      to += sizeof mine;
    }
  }

  using Codes = std::span<std::int8_t>;

  /// `work` on each tensor, with its codes and its scale.
  void each(void (SharedScale::*work)(const Call&, Codes, float)) {
    auto* codes = reinterpret_cast<std::int8_t*>(codes_.data());
    for (std::size_t i = 0; i < scales_.size(); ++i) {
      const Call& c = tensors_.calls()[i];
      (this->*work)(c, {codes, c.count()}, scales_[i]);
      codes += c.count();
    }
  }

  void quantise(const Call& c, Codes codes, float scale) {
    const Encoding& e = c.encoding;
    compression::ternary_quantise(c.in.values<float>(), scale, codes,
                                  {.seed = e.seed, .step = e.step, .tensor = e.tensor, .rank = rank_});
  }

  void note_own(const Call& c, Codes codes, float scale) {
    std::vector<float> sent(c.count());
    compression::ternary_decode(codes, scale, sent);
    note_sent(c, ranks_, sent);
  }

  void decode(const Call& c, Codes codes, float scale) {
    compression::ternary_decode(codes, c.op == Op::average ? scale / ranks_ : scale, c.out.values<float>());
  }

  double clip_;
  std::uint32_t rank_;
  float ranks_;
  std::span<std::byte> codes_;
  Collective& sum_;
  TensorCalls tensors_;
  Step step_ = Step::scale;
  std::vector<float> scales_;
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

CallParts shared_scale_parts(const CodedRequest& r, std::span<const TensorPart> pack) {
  std::size_t codes = 0;
  for (const TensorPart& t : pack) codes += t.count;
  return {{.algorithm = r.algorithm_ptr(), .count = pack.size()},
          {.algorithm = r.algorithm_ptr(), .count = codes, .element_bytes = 1}};
}

std::unique_ptr<Collective> bind_shared_scale(const CodedRequest& r, const Site& site) {
  return std::make_unique<SharedScale>(r, site);
}

}  // namespace gradmeter::allreduce
