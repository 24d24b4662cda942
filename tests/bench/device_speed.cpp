// SPDX-License-Identifier: Apache-2.0
// Kernels on a GPU beside what they are measured by, in the same program and in turn:
//   build/cuda/tests/bench/bench_device [EDGE [MIB]]
// 1. Products of bf16 and fp16 of EDGE³ (8192) by a kernel case, and by cuBLASLt called bare on the same numbers,
//    with what its heuristic names first: wanted within 3 %. Only where the program is built with cuBLASLt.
// 2. Codecs of 8, 4 and 2 bits on MIB (256) of fp32: bytes that encode and decode-add must move a second, by those of
//    the device's own copy: wanted 85 %.
// 3. Sums of 2, 4 and 8 buffers of MIB together, likewise: wanted 90 %.
// Medians of rounds with their 95 % intervals: met above the bar, undecided where the interval holds it. Exit code 1
// when an interval lies wholly below its bar; 3 when it could not be measured, without a GPU or after an error; 5 when
// the GPU's context died. An emulated device shows that all of it runs: its times are no measurements, and are not
// judged.
#ifdef GRADMETER_HAS_CUBLASLT
#include <cublasLt.h>
#endif

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "allreduce/gpu/reduce.hpp"
#include "bench/codecs/measure.hpp"
#include "bench/in_turn.hpp"
#include "bench/kernels/limits.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/random.hpp"
#include "kernels/cases/op_case.hpp"
#include "kernels/cuda/backends.hpp"
#ifdef GRADMETER_HAS_CUBLASLT
#include "kernels/gemm/cublaslt_product.hpp"
#endif
#include "runtime/cuda/device.hpp"
#include "runtime/cuda/stream.hpp"
#include "runtime/host/gpus.hpp"

namespace {

using namespace gradmeter;
using kernels::Precision;
using measurement::in_turn;
using measurement::timing;

constexpr std::size_t rounds = 31, emulated_rounds = 7;

/// Ratios of speeds against a bar each.
class Bars {
 public:
  explicit Bars(bool judged) : judged_(judged) {}
  void check(const std::string& what, const std::vector<double>& ratios, double wanted) {
    const auto t = timing(ratios);
    missed_ |= judged_ && t.high < wanted;
    // An interval that holds the bar has not met it: a noisy GPU would meet every bar.
    const char* outcome = t.low >= wanted ? "met" : t.high < wanted ? "MISSED" : "undecided";
    fmt::print("{:<34} {:>6.3f}  {:>5.3f}-{:<5.3f}  {:>5.2f}  {}\n", what, t.median, t.low, t.high, wanted,
               judged_ ? outcome : "not judged");
  }
  bool missed() const { return missed_; }

 private:
  bool judged_, missed_ = false;
};

struct Bench {
  runtime::CudaDevice& device;
  Bars& bars;
  std::size_t rounds;
};

std::byte* address_of(const runtime::OwnedBuffer& b) { return b.buffer.device().device_address(); }

#ifdef GRADMETER_HAS_CUBLASLT
/// C = A·B of square matrices, column by column, as a program has it that uses nothing but the library.
class BareProduct {
 public:
  BareProduct(runtime::CudaDevice& device, cudaDataType type, std::size_t edge)
      : workspace_(device.allocate(core::Element::i8, workspace_bytes)) {
    using kernels::cuda::check_cublaslt;
    const auto n = static_cast<std::uint64_t>(edge);
    check_cublaslt(cublasLtCreate(library_.out_address()), "cublasLtCreate");
    check_cublaslt(cublasLtMatmulDescCreate(description_.out_address(), CUBLAS_COMPUTE_32F, CUDA_R_32F),
                   "cublasLtMatmulDescCreate");
    check_cublaslt(cublasLtMatrixLayoutCreate(layout_.out_address(), type, n, n, static_cast<std::int64_t>(n)),
                   "cublasLtMatrixLayoutCreate");
    kernels::cuda::LtPreference preference;
    check_cublaslt(cublasLtMatmulPreferenceCreate(preference.out_address()), "cublasLtMatmulPreferenceCreate");
    const std::uint64_t most = workspace_bytes;
    check_cublaslt(cublasLtMatmulPreferenceSetAttribute(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                        &most, sizeof most),
                   "cublasLtMatmulPreferenceSetAttribute");
    int found = 0;
    check_cublaslt(cublasLtMatmulAlgoGetHeuristic(library_.get(), description_.get(), layout_.get(), layout_.get(),
                                                  layout_.get(), layout_.get(), preference.get(), 1, &chosen_, &found),
                   "cublasLtMatmulAlgoGetHeuristic");
    if (found == 0) throw core::BackendError("cuBLASLt", "cublasLtMatmulAlgoGetHeuristic", "it names no algorithm");
    for (auto& m : matrices_) m = device.allocate(core::Element::i8, 2 * edge * edge);
  }
  /// The numbers decide how much power a product draws, and so its clock.
  void take(std::size_t factor, std::span<const std::byte> bits) {
    const runtime::OwnedBuffer& m = matrices_.at(factor);
    runtime::check_cuda(cudaMemcpy(address_of(m), bits.data(), m.buffer.bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
    runtime::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // queues do not wait for its last part
  }
  void run(cudaStream_t stream) {
    const float one = 1, zero = 0;
    const auto [a, b, c] = std::array{address_of(matrices_[0]), address_of(matrices_[1]), address_of(matrices_[2])};
    kernels::cuda::check_cublaslt(
        cublasLtMatmul(library_.get(), description_.get(), &one, a, layout_.get(), b, layout_.get(), &zero, c,
                       layout_.get(), c, layout_.get(), &chosen_.algo, address_of(workspace_), workspace_bytes, stream),
        "cublasLtMatmul");
  }

 private:
  static constexpr std::size_t workspace_bytes = std::size_t{32} << 20;
  kernels::cuda::LtHandle library_;
  kernels::cuda::LtDescription description_;
  kernels::cuda::LtLayout layout_;
  cublasLtMatmulHeuristicResult_t chosen_{};
  std::array<runtime::OwnedBuffer, 3> matrices_;
  runtime::OwnedBuffer workspace_;
};

void compare_products(const Bench& b, std::size_t edge) {
  struct Type {
    Precision precision;
    cudaDataType type;
  };
  for (const Type t : {Type{Precision::bf16, CUDA_R_16BF}, Type{Precision::fp16, CUDA_R_16F}}) {
    const kernels::Problem p{.shape = kernels::GemmShape{.m = edge, .n = edge, .k = edge}, .precision = t.precision};
    kernels::OpCase ours(p, 1, {}, b.device);
    BareProduct bare(b.device, t.type, edge);
    for (std::size_t factor = 0; factor < 2; ++factor) {
      const auto name = ours.op().inputs()[factor].name;
      ours.set_input(0, name, ours.draw(name, factor + 1));
      bare.take(factor, ours.stored_input(0, name));
    }
    ours.bind();
    bench::DeviceClock clock(b.device);
    runtime::Queue& queue = *ours.queue();
    constexpr std::size_t calls = 3;
    const auto times = in_turn(2, b.rounds, [&](std::size_t which) {
      return clock.time(queue, 1, calls, false, [&] {
        if (which == 0) return ours.run(0);
        queue.submit("bare", {}, [&] { bare.run(gpu::stream()); });
      })[0];
    });
    b.bars.check(fmt::format("{} {}³ / bare cuBLASLt", name(t.precision), edge),
                 measurement::ratios(times[1], times[0]), 0.97);
  }
}

#else
void compare_products(const Bench&, std::size_t) { fmt::print("products: not compared, built without cuBLASLt\n"); }
#endif

void compare_codecs(const Bench& b, std::size_t elements) {
  using bench::CodecCall;
  std::vector<float> gradient(elements);
  const core::Random random(1, 2);
  for (std::size_t i = 0; i < elements; ++i) gradient[i] = 0.01F * static_cast<float>(random.gaussian(i % (1 << 20)));
  for (const char* name : {"qsgd8", "qsgd4", "qsgd2"}) {
    const auto choice = compression::find_codec(name);
    const auto calls =
        bench::make_device_calls({.choice = *choice, .codec = *choice->codec, .gradient = gradient}, b.device);
    const double wire = static_cast<double>(choice->codec->wire_bytes(elements)) / static_cast<double>(elements);
    const std::vector<std::pair<CodecCall, double>> moved{
        {CodecCall::copy, 8}, {CodecCall::encode, 4 + wire}, {CodecCall::decode_add, 8 + wire}};
    const auto times = in_turn(moved.size(), b.rounds, [&](std::size_t i) {
      return core::median(calls->time(moved[i].first, 5)) / moved[i].second;
    });
    b.bars.check(fmt::format("{} encode / copy", name), measurement::ratios(times[0], times[1]), 0.85);
    b.bars.check(fmt::format("{} decode-add / copy", name), measurement::ratios(times[0], times[2]), 0.85);
  }
}

void compare_sums(const Bench& b, std::size_t bytes) {
  bench::DeviceClock clock(b.device);
  const auto queue = b.device.make_queue();
  for (const core::Element e : {core::Element::f32, core::Element::bf16}) {
    for (const std::size_t sources : {2, 4, 8}) {
      const std::size_t each = bytes / sources / 16 * 16;
      std::vector<runtime::OwnedBuffer> buffers;
      std::vector<const std::byte*> from;
      for (std::size_t i = 0; i <= sources; ++i) {
        buffers.push_back(b.device.allocate(core::Element::i8, each));
        runtime::fill(buffers.back().buffer.device(), 0x3c);
        if (i > 0) from.push_back(address_of(buffers.back()));
      }
      const auto copied = b.device.allocate(core::Element::i8, bytes),
                 copy = b.device.allocate(core::Element::i8, bytes);
      const auto times = in_turn(2, b.rounds, [&](std::size_t which) {
        const double moved = which == 0 ? 2.0 * static_cast<double>(bytes) : static_cast<double>((sources + 1) * each);
        return clock.time(*queue, 1, 5, false, [&] {
          if (which == 0) return queue->copy("copy", copied.buffer, copy.buffer);
          queue->submit("sum", {}, [&] {
            allreduce::cuda::reduce(e, core::Element::f32, allreduce::Op::sum, address_of(buffers[0]), from,
                                    each / size_of(e), gpu::stream());
          });
        })[0] / moved;
      });
      b.bars.check(fmt::format("sum of {} in {} / copy", sources, info(e).name),
                   measurement::ratios(times[0], times[1]), 0.9);
    }
  }
}

int run(std::size_t edge, std::size_t mib) {
  if (const auto cuda = runtime::read_cuda(); cuda.gpus.empty()) throw core::Unavailable(cuda.problem);
  kernels::add_cuda_ops();
  runtime::CudaDevice device(0);
  Bars bars(!device.is_emulated());
  const Bench b{device, bars, device.is_emulated() ? emulated_rounds : rounds};
  fmt::print("{:<34} {:>6}  {:>11}  {:>5}\n", "speed of, by that of", "ratio", "95 %", "bar");
  compare_products(b, edge);
  compare_codecs(b, (mib << 20) / sizeof(float));
  compare_sums(b, mib << 20);
  return static_cast<int>(bars.missed() ? core::ExitCode::missed_target : core::ExitCode::done);
}

}  // namespace

int main(int argc, char** argv) try {
  const auto number = [&](int at, std::size_t otherwise) { return argc > at ? std::stoul(argv[at]) : otherwise; };
  return run(number(1, 8192), number(2, 256));
} catch (const std::exception& e) {
  const std::string lost = runtime::lost_gpu();
  fmt::print(stderr, "bench_device: {}{}\n", e.what(), lost.empty() ? "" : "; " + lost);
  return static_cast<int>(lost.empty() ? core::ExitCode::backend : core::ExitCode::lost_gpu);
}
