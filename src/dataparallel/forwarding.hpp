// A fabric that forwards every call to another: the base of fabric decorators.
#pragma once
#include <utility>

#include "dataparallel/fabric.hpp"

namespace gradmeter::dataparallel {

class Forwarding : public Fabric {
 public:
  explicit Forwarding(Fabric& inner) : inner_(inner) {}
  int rank(Group g) const override { return inner_.rank(g); }
  int size(Group g) const override { return inner_.size(g); }
  Group split(int color, int key) override { return inner_.split(color, key); }
  Ticket all_reduce(Group g, Buffer b, allreduce::Op op, Ready r,
                    const allreduce::TensorLayout& tensor_layout) override {
    return inner_.all_reduce(g, b, op, std::move(r), tensor_layout);
  }
  Ticket reduce_scatter(Group g, Buffer b, allreduce::Op op, Ready r) override {
    return inner_.reduce_scatter(g, b, op, std::move(r));
  }
  Ticket all_gather(Group g, Buffer b, Ready r) override { return inner_.all_gather(g, b, std::move(r)); }
  Ticket broadcast(Group g, Buffer b, int root, Ready r) override { return inner_.broadcast(g, b, root, std::move(r)); }
  Ticket send(Group g, int peer, ConstBuffer b, Ready r) override { return inner_.send(g, peer, b, std::move(r)); }
  Ticket receive(Group g, int peer, Buffer b) override { return inner_.receive(g, peer, b); }
  void wait(const Ticket& t) override { inner_.wait(t); }
  Ports open(Group g, const PortOptions& o) override { return inner_.open(g, o); }
  std::unique_ptr<BackgroundTask> launch(std::function<void(Fabric&)> program) override {
    return inner_.launch(std::move(program));
  }
  std::span<float> memory(std::size_t floats) override { return inner_.memory(floats); }
  Ready record() override { return inner_.record(); }
  void compute(std::string_view label, model::Cost cost, const std::function<void()>& work) override {
    inner_.compute(label, cost, work);
  }
  void exchange(std::string_view label, const std::function<void()>& work) override { inner_.exchange(label, work); }
  void log_to(ComputeLog* log) override { inner_.log_to(log); }
  void settle() override { inner_.settle(); }
  double now() const override { return inner_.now(); }

 protected:
  Fabric& inner_;
};

}  // namespace gradmeter::dataparallel
