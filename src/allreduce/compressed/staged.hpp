// A collective composed of other collectives' calls, one after another, with local work between them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "allreduce/collective.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::allreduce {

/// The derived class binds the parts and hands them over with `add_part`.
class Staged : public Collective {
 public:
  explicit Staged(std::string name) : name_(std::move(name)) {}
  const std::string& name() const final { return name_; }
  void start(const Call&) final;
  bool advance() final;
  Waiting waiting() const final { return current_ ? current_->waiting() : Waiting{}; }
  /// Sums over the parts; null as soon as one part is not counted.
  std::optional<runtime::Traffic> sent() const final;
  std::optional<std::uint64_t> bytes_due() const final;
  std::optional<CodingTime> coding() const final;

 protected:
  /// One part's call; no part: the whole is done.
  struct Stage {
    Collective* part = nullptr;
    Call call{};
  };
  /// Before the first stage.
  virtual void begin(const Call&) = 0;
  /// The next stage; called once the one before is complete.
  virtual Stage next() = 0;

  Collective& add_part(std::unique_ptr<Collective>);
  template <class Work>
  void encoding(const Work& work) {
    const runtime::Timed timed(own_.encode_s);
    work();
  }
  template <class Work>
  void decoding(const Work& work) {
    const runtime::Timed timed(own_.decode_s);
    work();
  }

 private:
  std::string name_;
  std::vector<std::unique_ptr<Collective>> parts_;
  Collective* current_ = nullptr;
  CodingTime own_;
};

}  // namespace gradmeter::allreduce
