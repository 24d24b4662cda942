// The fabric of a background task: computation and a clock. It refuses all other calls, which are the worker's.
#pragma once
#include <stdexcept>
#include <string>

#include "dataparallel/fabric.hpp"

namespace gradmeter::dataparallel {

/// Derived classes define rank, size, compute, log_to, now.
class BackgroundFabric : public Fabric {
 public:
  Group split(int, int) override { refuse("split"); }
  Ticket all_reduce(Group, Buffer, allreduce::Op, Ready, const allreduce::TensorLayout&) override {
    refuse("all_reduce");
  }
  Ticket reduce_scatter(Group, Buffer, allreduce::Op, Ready) override { refuse("reduce_scatter"); }
  Ticket all_gather(Group, Buffer, Ready) override { refuse("all_gather"); }
  Ticket broadcast(Group, Buffer, int, Ready) override { refuse("broadcast"); }
  Ticket send(Group, int, ConstBuffer, Ready) override { refuse("send"); }
  Ticket receive(Group, int, Buffer) override { refuse("receive"); }
  void wait(const Ticket&) override { refuse("wait"); }
  Ports open(Group, const PortOptions&) override { refuse("open"); }
  std::unique_ptr<BackgroundTask> launch(std::function<void(Fabric&)>) override { refuse("launch"); }
  std::span<float> memory(std::size_t) override { refuse("memory"); }
  Ready record() override { return nullptr; }

 private:
  [[noreturn]] static void refuse(const char* call) {
    throw std::logic_error(std::string("a background task called ") + call);
  }
};

}  // namespace gradmeter::dataparallel
