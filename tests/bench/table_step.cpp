// SPDX-License-Identifier: Apache-2.0
// What running a layer table costs beside the library: a pass of the model against the bare library calls of the same
// pass, on the same memory, in the same order, in turn.
//   build/release/tests/bench/bench_table_step MODEL BATCH [PRECISION [ROUNDS]]
// Prints medians over the rounds of the pass, of the library's calls and of all work, and the ratio of the first two
// with its interval.
#include <cstdlib>
#include <string>
#include <vector>

#include "core/format.hpp"
#include "core/statistics.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/host/threads.hpp"
#include "model/registry.hpp"
#include "runtime/clock.hpp"

namespace {

using namespace gradmeter;

/// Keeps the work instead of running it.
class Recorder final : public runtime::Queue {
 public:
  void submit(std::string_view label, runtime::Cost, const runtime::Work& work) override {
    work_.push_back({is_library(label), work.stored()});
  }
  /// Times of what the library does [s], and of all of it.
  struct Times {
    double library = 0, all = 0;
  };
  Times replay() const {
    Times t;
    for (const Piece& p : work_) {
      const double begin = runtime::host_clock();
      p.work();
      const double took = runtime::host_clock() - begin;
      t.all += took;
      if (p.is_library) t.library += took;
    }
    return t;
  }

 private:
  struct Piece {
    bool is_library;
    runtime::StoredWork work;
  };
  /// Packing is the library's too; what is left are copies, zeros and embeddings.
  static bool is_library(std::string_view label) {
    for (const auto* const kind : {".gemm", ".conv", ".rnn", ".pack"})
      if (label.ends_with(kind)) return true;
    return false;
  }
  std::vector<Piece> work_;
};

kernels::Precision precision_named(std::string_view name) {
  for (const auto p : kernels::precisions())
    if (kernels::name(p) == name) return p;
  fmt::print("no precision is named {}\n", name);
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return fmt::print("bench_table_step MODEL BATCH [PRECISION [ROUNDS]]\n"), 2;
  const std::size_t batch = std::strtoul(argv[2], nullptr, 10),
                    rounds = argc > 4 ? std::strtoul(argv[4], nullptr, 10) : 12;
  kernels::set_compute_threads(1);
  const auto model = model::make_model(
      argv[1], {.features = 1, .classes = 1, .precision = precision_named(argc > 3 ? argv[3] : "fp32")});
  kernels::AlignedVector<float> parameters(model->element_count()), gradients(model->element_count());
  const model::Buffers buffers{parameters, gradients};
  std::vector<float> inputs(batch);
  std::vector<std::int32_t> labels(batch);
  runtime::HostQueue queue;
  model->initialise(queue, buffers, 1);
  std::vector<double> passes, library, all, ratios;
  for (std::size_t i = 0; i < rounds + 2; ++i) {
    Recorder recorder;
    auto recorded = model->pass(recorder, buffers, {inputs, labels}, [](std::size_t) {});
    const Recorder::Times bare = recorder.replay();
    const double begin = runtime::host_clock();
    (void)model->pass(queue, buffers, {inputs, labels}, [](std::size_t) {}).get();
    const double pass = runtime::host_clock() - begin;
    if (i < 2) continue;
    passes.push_back(pass), library.push_back(bare.library), all.push_back(bare.all);
    ratios.push_back(pass / bare.library);
  }
  const auto ratio = core::summarise(ratios);
  fmt::print(
      "{} batch {} {}: pass {:.3f} ms, library {:.3f} ms, all work {:.3f} ms, pass/library {:.4f} ({:.4f}-{:.4f})\n",
      model->name(), batch, argc > 3 ? argv[3] : "fp32", core::median(passes) * 1e3, core::median(library) * 1e3,
      core::median(all) * 1e3, ratio.median, ratio.ci95_low, ratio.ci95_high);
  return 0;
}
