// Work that was submitted once, kept to be submitted again: for a sequence that recurs on the same memory, as a stream
// capture is on a device.
#pragma once
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/queue.hpp"

namespace gradmeter::runtime {

struct RecordedWork {
  std::string_view label;
  Cost cost;
  StoredWork work;
  int layer = Queue::no_layer;
};

/// Hands work on and keeps a copy of it. The order of work is all that it keeps: events belong outside.
/// Errors: std::logic_error when an event of it is asked for, or waited for.
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
