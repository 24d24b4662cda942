// SPDX-License-Identifier: Apache-2.0
// Devices, which own the memory of models, optimizers and codecs, and their queues. Each task submits its work on that
// memory to a queue of its own, so that the work can be timed, simulated, or run later by a device.
#pragma once
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/element.hpp"
#include "runtime/buffer.hpp"

namespace gradmeter::runtime {

/// A buffer and the memory behind it, which is freed with the last copy of this object. `memory` is null where somebody
/// else owns what the buffer views.
struct OwnedBuffer {
  Buffer buffer = empty_buffer;
  std::shared_ptr<void> memory = {};
};

class Queue;

/// A place where work can run, with its memory: the host, or a GPU.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;  ///< "host" or "cuda"
  /// The memory is zeroed and aligned to a cache line at least. Errors: BackendError or std::bad_alloc if none is left.
  virtual OwnedBuffer allocate(core::Element, std::size_t count) = 0;
  /// Makes a buffer on which this device's queues can work, and which transports reach in `memory`: its
  /// `transport_address` lies there. `memory` is memory of this process that transports reach. A staged device
  /// allocates as much zeroed memory of its own, and `to_transport` and `from_transport` of its queues copy between the
  /// two. The host and other devices that work on `memory` itself allocate nothing. `memory` stays the caller's, and
  /// must outlive the result.
  virtual OwnedBuffer allocate_beside(core::Element, std::span<std::byte> memory) = 0;
  /// Page-locks `memory` of this process while the result lives, so that copies between it and this device are as fast
  /// as possible. Null: this device has no use for that.
  virtual std::shared_ptr<void> pin(std::span<std::byte> memory) { return (void)memory, nullptr; }
  /// True if this device is a stand-in for tests: its results are right, but its times mean nothing.
  virtual bool is_emulated() const { return false; }
  /// True if transports reach only a copy of the device's memory, which `DeviceAccess::to_transport` and
  /// `from_transport` update.
  virtual bool is_staged() const { return false; }
  /// The address at which transports reach a buffer of this device or of the host.
  virtual std::byte* transport_address(const Buffer&) const = 0;
  virtual const std::byte* transport_address(const ConstBuffer&) const = 0;
  /// Makes a queue for one task, to be used by the calling thread. Work of different queues runs in parallel.
  virtual std::unique_ptr<Queue> make_queue() = 0;
  /// The size of the device's largest cache [bytes]; 0: unknown.
  virtual std::size_t last_cache_bytes() const { return 0; }
  /// The bytes that `allocate` may still give, unless other programs take them; 0: unknown.
  virtual std::size_t free_bytes() const { return 0; }
};

/// The host as a device. Its memory is that of this process.
Device& host_device();

/// The cost of a piece of work: floating-point operations, and bytes moved to and from memory.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

/// A piece of work that owns all that it needs, so that it can run later.
using StoredWork = std::function<void()>;

/// A piece of work as it is passed to `Queue::submit`: only a reference to a callable, so that a queue that runs it at
/// once allocates nothing. What the callable refers to must live until the work is done: buffers, and objects that
/// compute. Locals of the caller are allowed only if the caller waits for the work, as `run_and_wait` does, or if the
/// callable has a member `stored`.
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
  /// A copy for a queue that runs the work later. A callable that refers to memory of the submitter must have a member
  /// function `stored`, which returns a callable with copies of that memory.
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

/// Captured work of a queue, which is submitted to the device as one piece, however many pieces it was made of. The
/// queue must outlive it.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  virtual void submit() const = 0;
};

/// An ordered sequence of work on one device, for one task; only the task's thread uses it. Work runs in the order of
/// submission, and is done at the latest when `synchronise` returns. The host's queue runs work at once.
class Queue {
 public:
  virtual ~Queue() = default;
  /// The device whose memory its work may use.
  virtual Device& device() { return host_device(); }
  /// Submits work under a label, which is a literal ("forward.gemm"). The work should only call a kernel, so that the
  /// times of all work add up to the time inside kernels. Device buffers give access to their memory only within work.
  virtual void submit(std::string_view label, Cost, const Work&) = 0;
  /// Work that is submitted from now on belongs to this layer of the model, counted from 0; with `no_layer`, to none.
  virtual void enter_layer(int) {}
  static constexpr int no_layer = -1;
  /// An event that is reached after all work submitted so far.
  virtual EventPtr record() { return nullptr; }
  /// Work that is submitted from now on begins after the event. The caller does not wait.
  virtual void begin_after(const EventPtr&) {}
  /// Waits until all work submitted so far is done.
  virtual void synchronise() {}

  /// Captures the work that `body` submits to this queue, without running it, so that it can be submitted again and
  /// again. Null: it cannot be captured, because the device cannot do that, or the host must do some of the work.
  virtual std::unique_ptr<CapturedWork> capture(const std::function<void()>& body) { return (void)body, nullptr; }

  /// Runs work after all work submitted so far, and waits until it is done, so the work may refer to the caller's
  /// locals. Meant for short reads and writes by the host. A queue of the host just runs the work, and does not time it
  /// as a kernel.
  void run_and_wait(const Work& work) {
    if (&device() == &host_device()) return work();
    submit("host", {}, work);
    synchronise();
  }
  /// to_transport copies results of work to the memory that transports reach; from_transport copies received data to
  /// the memory where work computes. Both do nothing if that is the same memory.
  void to_transport(const ConstBuffer& b) {
    if (!is_staged_memory(b)) return;
    submit("to transport", {.flops = 0, .bytes = 2.0 * static_cast<double>(b.bytes())},
           [b] { device_access->to_transport(b.address(), b.bytes()); });
  }
  void from_transport(const Buffer& b) {
    if (!is_staged_memory(b)) return;
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
  /// True for memory of a staged device, which transports reach only through a copy on the host. The buffer may still
  /// lack such a copy: a buffer from `Device::allocate` has none, and the device's access refuses it.
  bool is_staged_memory(const ConstBuffer& b) { return b.on_device() && b.bytes() > 0 && device().is_staged(); }
};

/// Runs work at once, and does nothing else.
class HostQueue final : public Queue {
 public:
  void submit(std::string_view, Cost, const Work& work) override { work(); }
};

/// A value that work on a queue computes, such as a loss or a norm. The caller can read it only after that work.
template <class T>
class Pending {
 public:
  /// The value is T{} until work sets it. The queue must outlive the calls of `get`.
  explicit Pending(Queue& queue) : queue_(&queue), value_(std::make_shared<T>()) {}

  /// The memory in which the work writes the value. The work captures this pointer by value, so that the memory
  /// outlives the work.
  std::shared_ptr<T> place() const { return value_; }
  /// Waits until all work submitted to the queue so far is done, then gives the value.
  const T& get() const {
    queue_->synchronise();
    return *value_;
  }

 private:
  Queue* queue_;
  std::shared_ptr<T> value_;
};

/// A piece of work that was submitted once and is kept, so that a sequence of work that recurs on the same memory can
/// be submitted again. (`Queue::capture` serves the same purpose by the device's own means.)
struct RecordedWork {
  std::string_view label;
  Cost cost;
  StoredWork work;
  int layer = Queue::no_layer;
};

/// Passes work on to another queue and keeps a copy of it. It records only the order of work, not events. Errors:
/// std::logic_error when an event is recorded or waited for, and from `synchronise`.
class RecordingQueue final : public Queue {
 public:
  RecordingQueue(Queue& inner, std::vector<RecordedWork>& to) : inner_(inner), to_(to) {}
  Device& device() override { return inner_.device(); }
  void submit(std::string_view label, Cost cost, const Work& work) override {
    to_.push_back({label, cost, work.stored(), layer_});
    inner_.submit(label, cost, work);
  }
  void enter_layer(int layer) override {
    layer_ = layer;
    inner_.enter_layer(layer);
  }
  EventPtr record() override { refuse(); }
  void begin_after(const EventPtr&) override { refuse(); }
  void synchronise() override { refuse(); }

 private:
  [[noreturn]] static void refuse() { throw std::logic_error("a recording has no events"); }

  Queue& inner_;
  std::vector<RecordedWork>& to_;
  int layer_ = no_layer;
};

}  // namespace gradmeter::runtime
