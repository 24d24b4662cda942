#include "dataparallel/virtual/companion.hpp"

#include <exception>
#include <utility>

#include "core/format.hpp"
#include "dataparallel/aside.hpp"
#include "dataparallel/virtual/clocked.hpp"

namespace gradmeter::dataparallel {
namespace {

using CompanionFabric = Clocked<Aside>;

class VirtualCompanion final : public Companion {
 public:
  VirtualCompanion(Ground& g, VirtualMail& office, Counts& counts, int worker, std::function<void(Fabric&)> program)
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
  void run(VirtualMail& office, std::uint64_t& count, int worker, const std::function<void(Fabric&)>& program) {
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

std::unique_ptr<Companion> launch(Ground& g, VirtualMail& office, Counts& counts, int worker,
                                  std::function<void(Fabric&)> program) {
  return std::make_unique<VirtualCompanion>(g, office, counts, worker, std::move(program));
}

}  // namespace gradmeter::dataparallel
