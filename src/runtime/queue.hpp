// An ordered sequence of work on one device. All work on the memory of models, optimizers and strategies goes through
// the queue of the task that asks for it, so that it can be timed, simulated, or run later by a device.
#pragma once
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include "runtime/buffer.hpp"
#include "runtime/device.hpp"

namespace gradmeter::runtime {

/// What a piece of work costs: floating-point operations, and bytes moved to and from memory.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

/// A place in a queue: reached when all work before it is done, as by cudaEventRecord. Any thread.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool reached() const = 0;
};
using EventPtr = std::shared_ptr<const Event>;  ///< null: reached

using StoredWork = std::function<void()>;

/// A piece of work as its submitter has it: a reference to something that can be called, so that a queue that runs it
/// at once allocates nothing. What that refers to must live until the work is done: buffers and what it computes with,
/// never the caller's locals.
class Work {
 public:
  template <class Callable>
  requires std::is_invocable_v<const Callable&> Work(const Callable& c)  // NOLINT(google-explicit-constructor)
      : callable_(&c),
        run_([](const void* p) { (*static_cast<const Callable*>(p))(); }),
        stored_([](const void* p) { return to_store(*static_cast<const Callable*>(p)); }) {}
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  void operator()() const { run_(callable_); }
  /// A copy, for a queue that runs it later. What refers to the submitter's own memory has a `stored` that copies it.
  StoredWork stored() const { return stored_(callable_); }

 private:
  template <class Callable>
  static StoredWork to_store(const Callable& c) {
    if constexpr (requires { c.stored(); }) {
      return c.stored();
    } else {
      return c;
    }
  }

  const void* callable_;
  void (*run_)(const void*);
  StoredWork (*stored_)(const void*);
};

/// Of one task, for its thread alone. Work runs in the order of its submission, at the latest when `synchronise`
/// returns; a host's at once.
class Queue {
 public:
  virtual ~Queue() = default;
  /// Whose memory its work may use.
  virtual Device& device() { return host_device(); }
  /// Labels are literals ("forward.gemm"). The work itself is a kernel call, nothing else, so that the sum of these
  /// intervals is the time inside kernels. Only here may it ask buffers for their memory.
  virtual void submit(std::string_view label, Cost, const Work&) = 0;
  /// Work that is submitted from now on is of this layer of the model, from 0; `no_layer`: of none.
  virtual void enter_layer(int) {}
  static constexpr int no_layer = -1;
  /// After all work submitted so far.
  virtual EventPtr record() { return nullptr; }
  /// Work that is submitted from now on begins after the event. The caller does not wait.
  virtual void begin_after(const EventPtr&) {}
  /// Waits until all work submitted so far is done.
  virtual void synchronise() {}

  /// After all work submitted so far, and waited for: for a few words that the caller reads or writes, so it may refer
  /// to locals. Belongs to no kernel: a queue of the host only runs it.
  void at_once(const Work& work) {
    if (&device() == &host_device()) return work();
    submit("host", {}, work);
    synchronise();
  }
  /// Brings what work has computed to where transports reach it, and what they have brought to where work computes.
  /// Nothing where the two are one.
  void to_transport(const ConstBuffer& b) {
    if (!has_twin(b)) return;
    submit("to transport", {.flops = 0, .bytes = 2.0 * static_cast<double>(b.bytes())},
           [b] { device_access->to_transport(b.address(), b.bytes()); });
  }
  void from_transport(const Buffer& b) {
    if (!has_twin(b)) return;
    submit("from transport", {.flops = 0, .bytes = 2.0 * static_cast<double>(b.bytes())},
           [b] { device_access->from_transport(b.address(), b.bytes()); });
  }
  /// Errors: std::logic_error when lengths differ. Memory must not overlap.
  void copy(std::string_view label, ConstBuffer from, Buffer to) {
    if (from.bytes() != to.bytes()) throw std::logic_error("a copy between buffers of different lengths");
    submit(label, {.flops = 0, .bytes = 2.0 * static_cast<double>(to.bytes())}, [from, to] {
      if (device_access && device_access->copy(to.address(), from.address(), to.bytes())) return;
      std::memcpy(to.host(), from.host(), to.bytes());
    });
  }

 private:
  /// Has it a copy where transports reach it?
  bool has_twin(const ConstBuffer& b) { return b.on_device() && b.bytes() > 0 && device().is_staged(); }
};

/// Runs work at once and nothing else.
class HostQueue final : public Queue {
 public:
  void submit(std::string_view, Cost, const Work& work) override { work(); }
};

}  // namespace gradmeter::runtime
