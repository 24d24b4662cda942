#include "allreduce/compressed/warm_up.hpp"

#include <map>

#include "allreduce/compressed/gathered.hpp"
#include "allreduce/compressed/staged.hpp"
#include "allreduce/compressed/state_values.hpp"
#include "compression/warm_up.hpp"

namespace gradmeter::allreduce {
namespace {

CodedRequest with_codec(const CodedRequest& r, const compression::CodecChoice& codec) {
  return {.codec = codec, .algorithm = r.algorithm, .shape = r.shape, .options = r.options};
}

class WarmingUp final : public Staged {
 public:
  WarmingUp(const CodedRequest& r, const Site& site)
      : Staged(r.algorithm.name, r.options.queue), steps_(compression::warm_up_steps(r.codec.parsed)) {
    for (const auto& codec : compression::warm_up_stages(r.codec)) {
      stages_.push_back(&add_part(bind_gathered(with_codec(r, *codec), site)));
    }
  }
  std::unique_ptr<CodecState> take_state() override {
    progress_.inner = stages_[progress_.stage]->take_state();
    return take_values(progress_);
  }
  void restore_state(std::unique_ptr<CodecState> state) override {
    restore_values(std::move(state), progress_);
    if (progress_.inner) stages_[progress_.stage]->restore_state(std::move(progress_.inner));
  }

 private:
  struct Progress {
    std::map<std::size_t, std::uint64_t> calls = {};  ///< by the place of a pack's first tensor
    std::size_t stage = 0;                            ///< which stage holds the codec's state
    std::unique_ptr<CodecState> inner = {};           ///< that state; null while it is in use
  };

  void begin(const Call& call) override {
    call_ = call;
    started_ = false;
    auto& calls = progress_.calls[call.tensor_layout.first + call.tensor_layout.tensors.front().offset];
    const std::size_t stage = compression::warm_up_stage(steps_, stages_.size(), calls++);
    if (stage == progress_.stage) return;
    stages_[stage]->restore_state(stages_[progress_.stage]->take_state());
    progress_.stage = stage;
  }
  Stage next() override {
    if (started_) return {};
    started_ = true;
    return {stages_[progress_.stage], call_};
  }

  std::uint64_t steps_;
  std::vector<Collective*> stages_;
  Progress progress_;
  Call call_{};
  bool started_ = false;
};

}  // namespace

std::string warm_up_refusal(const CodedRequest& r) {
  for (const auto& codec : compression::warm_up_stages(r.codec)) {
    if (auto why = gathered_refusal(with_codec(r, *codec)); !why.empty()) return why;
  }
  return {};
}

std::size_t warm_up_arena_bytes(const CodedRequest& r, std::uint32_t rank) {
  std::size_t bytes = 0;
  for (const auto& codec : compression::warm_up_stages(r.codec)) {
    bytes += gathered_arena_bytes(with_codec(r, *codec), rank);
  }
  return bytes;
}

std::unique_ptr<Collective> bind_warm_up(const CodedRequest& r, const Site& site) {
  return std::make_unique<WarmingUp>(r, site);
}

CallParts warm_up_parts(const CodedRequest& r, std::span<const TensorPart> pack) {
  return gathered_parts(with_codec(r, *compression::warm_up_stages(r.codec).back()), pack);
}

}  // namespace gradmeter::allreduce
