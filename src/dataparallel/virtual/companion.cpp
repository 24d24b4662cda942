#include "dataparallel/virtual/companion.hpp"

#include <algorithm>
#include <stdexcept>

#include "core/format.hpp"
#include "dataparallel/virtual/clocked.hpp"

namespace gradmeter::dataparallel {
namespace {

class CompanionFabric final : public Clocked {
 public:
  using Clocked::Clocked;
  Group split(int, int) override { refuse("split"); }
  Ticket all_reduce(Group, Buffer, allreduce::Op, Ready, const allreduce::Contents&) override { refuse("all-reduce"); }
  Ticket reduce_scatter(Group, Buffer, allreduce::Op, Ready) override { refuse("reduce-scatter"); }
  Ticket all_gather(Group, Buffer, Ready) override { refuse("all-gather"); }
  Ticket broadcast(Group, Buffer, int, Ready) override { refuse("broadcast"); }
  Ticket send(Group, int, ConstBuffer, Ready) override { refuse("send"); }
  Ticket receive(Group, int, Buffer) override { refuse("receive"); }
  void wait(const Ticket&) override { refuse("wait"); }
  Ports open(Group, const MailOptions&) override { refuse("open"); }
  std::unique_ptr<Companion> launch(std::function<void(Fabric&)>) override { refuse("launch"); }
  std::span<float> memory(std::size_t) override { refuse("memory"); }

 private:
  [[noreturn]] void refuse(const char* what) const {
    throw std::logic_error(fmt::format(
        "the program beside rank {} tried {}; it has computation, a clock and its ports, let the worker do this",
        worker_, what));
  }
};

class VirtualCompanion final : public Companion {
 public:
  VirtualCompanion(Ground& g, PostOffice& office, Counts& counts, int worker, std::function<void(Fabric&)> program)
      : g_(g), launcher_(g.baton.holder()) {
    thread_ = g.baton.spawn(fmt::format("the program beside rank {}", worker),
                            [this, &office, &counts, worker, program = std::move(program)] {
                              run(office, counts[static_cast<std::size_t>(worker)], worker, program);
                            });
  }
  VirtualCompanion(const VirtualCompanion&) = delete;
  VirtualCompanion& operator=(const VirtualCompanion&) = delete;
  ~VirtualCompanion() override { g_.baton.stop(thread_); }

  void join() override {
    while (!has_returned_) {
      is_awaited_ = true;
      g_.baton.block(launcher_, "the end of the program beside it");
      is_awaited_ = false;
    }
    if (const double end = g_.baton.now(thread_); end > g_.baton.now(launcher_)) {
      g_.baton.block(launcher_, "the end of the program beside it", end);
    }
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  void run(PostOffice& office, std::uint64_t& count, int worker, const std::function<void(Fabric&)>& program) {
    try {
      CompanionFabric fabric(g_, worker, thread_, g_.machine.slowdown_beside, count);
      program(fabric);
      // What it wrote is read until it has left: then its memory is free, and all its calls are done.
      const double left = office.take_last_left(thread_);
      if (left > g_.baton.now(thread_)) g_.baton.block(thread_, "its last message to leave", left);
    } catch (const Baton::Stopped&) {
      throw;
    } catch (...) {
      error_ = std::current_exception();
      g_.baton.suspect(error_);
    }
    has_returned_ = true;
    if (is_awaited_) g_.baton.wake(launcher_, g_.baton.now(thread_));
  }

  Ground& g_;
  const int launcher_;
  int thread_ = -1;
  bool has_returned_ = false, is_awaited_ = false;
  std::exception_ptr error_;
};

}  // namespace

std::unique_ptr<Companion> launch(Ground& g, PostOffice& office, Counts& counts, int worker,
                                  std::function<void(Fabric&)> program) {
  return std::make_unique<VirtualCompanion>(g, office, counts, worker, std::move(program));
}

}  // namespace gradmeter::dataparallel
