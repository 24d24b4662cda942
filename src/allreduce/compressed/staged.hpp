// A collective composed of other collectives' calls, one after another, with local work between them.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allreduce/collective.hpp"
#include "allreduce/mover/submitter.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::allreduce {

/// The derived class binds the parts and hands them over with `add_part`. With a queue, local work is submitted to it,
/// and what comes next waits until it is done.
class Staged : public Collective {
 public:
  /// queue: as ExecutorOptions'.
  Staged(std::string name, runtime::Queue* queue);
  const std::string& name() const final { return name_; }
  bool takes_device_memory() const final { return work_.has_value(); }
  void start(const Call&) final;
  bool advance() final;
  Waiting waiting() const final { return part_runs_ ? stage_.part->waiting() : Waiting{}; }
  /// Sums over the parts; null as soon as one part is not counted.
  std::optional<runtime::Traffic> sent() const final;
  std::optional<std::uint64_t> bytes_due() const final;
  std::optional<CodingTime> coding() const override;

 protected:
  /// One part's call; no part: the whole is done, or `next` only wanted to wait for the local work.
  struct Stage {
    Collective* part = nullptr;
    Call call{};
    bool comes_back = false;
  };
  static Stage wait_for_local_work() { return {.comes_back = true}; }
  static Call in_place(core::Element element, std::span<std::byte> memory, Op op = Op::sum) {
    const runtime::Buffer buffer(element, memory);
    return {.in = buffer, .out = buffer, .op = op};
  }
  /// Before the first stage.
  virtual void begin(const Call&) = 0;
  /// The next stage; called once the one before is complete. It reads and writes memory only in local work.
  virtual Stage next() = 0;

  Collective& add_part(std::unique_ptr<Collective>);
  // Local work. It captures members only, and those that it uses stay as they are until it is done.
  template <class Work>
  void local(std::string_view label, const Work& work) {
    if (!work_) return work();
    work_->run(label, 0, work);
  }
  template <class Work>
  void encoding(const Work& work) {
    timed("encode", own_.encode_s, work);
  }
  template <class Work>
  void decoding(const Work& work) {
    timed("decode", own_.decode_s, work);
  }

 private:
  template <class Work>
  void timed(std::string_view label, double& seconds, const Work& work) {
    local(label, [&seconds, work] {
      const runtime::Timed timed(seconds);
      work();
    });
  }
  void proceed();

  std::string name_;
  std::optional<Submitter> work_;  ///< with a queue
  std::vector<std::unique_ptr<Collective>> parts_;
  Stage stage_;
  bool running_ = false, part_runs_ = false;
  CodingTime own_;
};

}  // namespace gradmeter::allreduce
