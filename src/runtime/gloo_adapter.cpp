// SPDX-License-Identifier: Apache-2.0
#include "runtime/gloo_adapter.hpp"

#include <cstring>
#include <map>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"

#ifdef GRADMETER_HAS_GLOO
#include <gloo/allreduce.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>
#endif

namespace gradmeter::runtime {

bool gloo_has(core::Element e) {
  return e != core::Element::bf16 && e != core::Element::e4m3 && e != core::Element::e5m2;
}

#ifdef GRADMETER_HAS_GLOO
namespace {

/// gloo's rendezvous store. All ranks call `set` in the same order, so each `set` gathers one key and value from every
/// rank.
class GatheredStore final : public gloo::rendezvous::Store {
 public:
  explicit GatheredStore(const Communicator& c) : communicator_(c) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    const auto keys = communicator_.all_gather_text(key);
    const auto values = communicator_.all_gather_text(std::string(data.begin(), data.end()));
    for (std::size_t r = 0; r < keys.size(); ++r) values_[keys[r]] = {values[r].begin(), values[r].end()};
  }
  std::vector<char> get(const std::string& key) override {
    wait({key});
    return values_.at(key);
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const auto& k : keys) {
      if (!values_.contains(k)) throw core::BackendError("gloo", "rendezvous", fmt::format("nobody has set {}", k));
    }
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }

 private:
  const Communicator& communicator_;
  std::map<std::string, std::vector<char>> values_;
};

using ReduceFunction = void (*)(void*, const void*, const void*, std::size_t);

template <class T>
ReduceFunction function_for(Combine c) {
  switch (c) {
    case Combine::min:
      return &gloo::min<T>;
    case Combine::max:
      return &gloo::max<T>;
    case Combine::product:
      return &gloo::product<T>;
    case Combine::sum:
      break;
  }
  return &gloo::sum<T>;
}

template <class T>
void run(gloo::AllreduceOptions& options, const std::byte* in, std::byte* out, std::size_t count, Combine c) {
  // gloo takes its input as T* too, but only reads it.
  if (in != out) options.setInput(const_cast<T*>(reinterpret_cast<const T*>(in)), count);
  options.setOutput(reinterpret_cast<T*>(out), count);
  options.setReduceFunction(function_for<T>(c));
  gloo::allreduce(options);
}

void run(gloo::AllreduceOptions& o, const std::byte* in, std::byte* out, std::size_t n, core::Element e, Combine c) {
  switch (e) {
    case core::Element::f64:
      return run<double>(o, in, out, n, c);
    case core::Element::f32:
      return run<float>(o, in, out, n, c);
    case core::Element::f16:
      return run<gloo::float16>(o, in, out, n, c);
    case core::Element::i64:
      return run<std::int64_t>(o, in, out, n, c);
    case core::Element::i32:
      return run<std::int32_t>(o, in, out, n, c);
    case core::Element::i8:
      return run<std::int8_t>(o, in, out, n, c);
    default:
      throw core::BackendError("gloo", "allreduce", fmt::format("it has no operators for {}", core::info(e).name));
  }
}

/// Runs `body` and turns gloo's exceptions into BackendErrors that name gloo and the call.
template <class Body>
void with_gloo_errors(const char* call, Body body) {
  try {
    body();
  } catch (const core::BackendError&) {
    throw;
  } catch (const std::exception& e) {
    throw core::BackendError("gloo", call, e.what());
  }
}

}  // namespace

struct GlooGroup::State {
  std::shared_ptr<gloo::transport::Device> device;
  std::shared_ptr<gloo::rendezvous::Context> context;
};

std::string gloo_refusal() { return {}; }

std::string gloo_version() {
  return fmt::format("gloo {}.{}.{}", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
}

GlooGroup::GlooGroup(const Communicator& c) : state_(std::make_unique<State>()) {
  const bool one_host = c.split_by_node().size() == c.size();
  with_gloo_errors("connect", [&] {
    gloo::transport::tcp::attr attributes;
    if (c.all(one_host)) attributes.iface = "lo";
    state_->device = gloo::transport::tcp::CreateDevice(attributes);
    state_->context = std::make_shared<gloo::rendezvous::Context>(c.rank(), c.size());
    GatheredStore store(c);
    if (c.size() > 1) state_->context->connectFullMesh(store, state_->device);
  });
}

void GlooGroup::all_reduce(const std::byte* in, std::byte* out, std::size_t count, core::Element e, Combine c,
                           GlooAlgorithm a) {
  if (!gloo_has(e)) {
    throw core::BackendError("gloo", "allreduce", fmt::format("it has no operators for {}", core::info(e).name));
  }
  if (count == 0) return;
  if (state_->context->size == 1) {
    if (in != out) std::memcpy(out, in, count * core::size_of(e));
    return;
  }
  with_gloo_errors("allreduce", [&] {
    gloo::AllreduceOptions options(state_->context);
    options.setAlgorithm(a == GlooAlgorithm::ring ? gloo::AllreduceOptions::Algorithm::RING
                                                  : gloo::AllreduceOptions::Algorithm::BCUBE);
    run(options, in, out, count, e, c);
  });
}
#else
struct GlooGroup::State {};

std::string gloo_refusal() { return "built without gloo: install libgloo-dev and configure again, or use mpi"; }

std::string gloo_version() { return {}; }

GlooGroup::GlooGroup(const Communicator&) { throw core::UsageError(gloo_refusal()); }

void GlooGroup::all_reduce(const std::byte*, std::byte*, std::size_t, core::Element, Combine, GlooAlgorithm) {
  throw core::UsageError(gloo_refusal());
}
#endif

GlooGroup::~GlooGroup() = default;

}  // namespace gradmeter::runtime
