// The bases of decorators: an execution context, and a fabric, that forward every call to another.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "dataparallel/fabric.hpp"
#include "dataparallel/message.hpp"

namespace gradmeter::dataparallel {

/// Interface: ExecutionContext, or Fabric, of which it leaves the other calls to ForwardingFabric.
template <class Interface>
class ForwardingContext : public Interface {
 public:
  explicit ForwardingContext(Interface& inner) : inner_(inner) {}
  int rank(Group g) const override { return inner_.rank(g); }
  int size(Group g) const override { return inner_.size(g); }
  void submit(std::string_view label, runtime::Cost cost, const runtime::Work& work) override {
    inner_.submit(label, cost, work);
  }
  void enter_layer(int layer) override { inner_.enter_layer(layer); }
  runtime::Device& device() override { return inner_.device(); }
  runtime::EventPtr record() override { return inner_.record(); }
  void exchange(std::string_view label, const runtime::Work& work) override { inner_.exchange(label, work); }
  void log_to(ComputeLog* log) override { inner_.log_to(log); }
  void begin_after(const runtime::EventPtr& e) override { inner_.begin_after(e); }
  void synchronise() override { inner_.synchronise(); }
  double now() const override { return inner_.now(); }

 protected:
  Interface& inner_;
};

class ForwardingFabric : public ForwardingContext<Fabric> {
 public:
  using ForwardingContext<Fabric>::ForwardingContext;
  Group split(int color, int key) override { return inner_.split(color, key); }
  Ticket start(const FabricCall& call) override { return inner_.start(call); }
  void wait(const Ticket& t) override { inner_.wait(t); }
  Ports open(Group g, const PortOptions& o) override { return inner_.open(g, o); }
  std::unique_ptr<BackgroundTask> launch(BackgroundProgram program) override {
    return inner_.launch(std::move(program));
  }
  Buffer memory(std::size_t floats) override { return inner_.memory(floats); }
};

class ForwardingPort : public Port {
 public:
  explicit ForwardingPort(std::unique_ptr<Port> inner) : inner_(std::move(inner)) {}
  std::optional<std::span<std::byte>> draft(int to, std::size_t bytes) override { return inner_->draft(to, bytes); }
  Ticket post(int to, const MessageHeader& h, const char* label) override { return inner_->post(to, h, label); }
  Ticket post_from(int to, const MessageHeader& h, std::span<const std::byte> payload, const char* label) override {
    return inner_->post_from(to, h, payload, label);
  }
  std::uint64_t place_of(std::span<const std::byte> memory) const override { return inner_->place_of(memory); }
  std::byte* peer_memory(int rank, std::uint64_t place) const override { return inner_->peer_memory(rank, place); }
  Ticket post_written(int to, const MessageHeader& h, std::span<std::byte> payload, const char* label) override {
    return inner_->post_written(to, h, payload, label);
  }
  std::optional<Message> next(const char* why, double deadline, int of) override {
    return inner_->next(why, deadline, of);
  }
  std::shared_ptr<const void> keep() override { return inner_->keep(); }
  bool await(const char* why) override { return inner_->await(why); }
  void while_waiting(const std::function<bool()>& f) override { inner_->while_waiting(f); }
  void attend(bool yes) override { inner_->attend(yes); }
  void close() override { inner_->close(); }

 protected:
  std::unique_ptr<Port> inner_;
};

}  // namespace gradmeter::dataparallel
