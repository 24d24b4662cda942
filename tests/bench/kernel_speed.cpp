// SPDX-License-Identifier: Apache-2.0
// Kernels compared with baselines, in the same program and in turn.
//   build/release/tests/bench/bench_kernels [THREADS [roofs|overheads|sparse]]
// 1. The roofline's limits, and the share of one core's multipliers used by a product of 1024 (wanted: 80 %, packed 88
// %).
// 2. What a kernel case's run() costs beyond the same oneDNN primitive called bare (wanted: 3 %, or 2 us below 1 ms).
// 3. Sparse products against the dense product of the same shape.
// Times are medians of rounds, with the interval that holds the median with 95 % confidence, and the best round: on a
// machine with other load, only the best is reliable.
#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bench/in_turn.hpp"
#include "core/format.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/host/memory.hpp"
#include "kernels/host/onednn.hpp"
#include "kernels/host/roofline.hpp"
#include "kernels/host/threads.hpp"

namespace {

using namespace gradmeter;
using namespace gradmeter::kernels;
using measurement::Timing;
using measurement::timing;
using onednn::Tag;
using onednn::Type;

constexpr std::size_t rounds = 31;
constexpr double least_seconds = 0.0005;  // of one measurement
using Call = std::function<void()>;

double seconds(const Call& call) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (std::size_t calls = 1;; ++calls) {
    call();
    const double passed = std::chrono::duration<double>(Clock::now() - begin).count();
    if (passed >= least_seconds) return passed / static_cast<double>(calls);
  }
}

std::vector<std::vector<double>> in_turn(const std::vector<Call>& calls) {
  return measurement::in_turn(calls.size(), rounds, [&](std::size_t i) { return seconds(calls[i]); });
}

std::string microseconds(const Timing& t) {
  return fmt::format("{:.2f} [{:.2f}, {:.2f}] best {:.2f}", t.median * 1e6, t.low * 1e6, t.high * 1e6, t.best * 1e6);
}

/// A kernel case that lives as long as the call.
Call run_of(const Problem& p) {
  const std::shared_ptr<KernelCase> kernel_case = make_kernel_case(p, {});
  return [kernel_case] { kernel_case->run(0); };
}

std::string memory_rates() {
  const MemoryRates r = measure_memory(core::Seconds{1.5});
  return fmt::format("triad {}, update {}, read {}", core::to_text(r.triad), core::to_text(r.update),
                     core::to_text(r.read));
}

void print_roofs(int threads) {
  set_compute_threads(1);
  const double one = measure_fma_peak(core::Seconds{0.3}).value;
  fmt::print("one core: multiply-adds {}, best oneDNN product {}, {}\n", core::to_text(core::FlopsPerSecond{one}),
             core::to_text(measure_gemm_peak(core::Seconds{0.5})), memory_rates());
  Problem plain{.shape = GemmShape{.m = 1024, .n = 1024, .k = 1024}}, packed = plain;
  std::get<GemmShape>(packed.shape).packed = true;
  const auto samples = in_turn({run_of(plain), run_of(packed)});
  for (std::size_t i = 0; i < 2; ++i) {
    const Timing t = timing(samples[i]);
    const double share = flops(plain) / one * 100;
    fmt::print("fp32 1024 x 1024 x 1024, {}: {:.1f} % [{:.1f}, {:.1f}] of the multiply-adds; best {:.1f} %\n",
               i == 0 ? "plain" : "packed", share / t.median, share / t.high, share / t.low, share / t.best);
  }
  set_compute_threads(threads);
  fmt::print("{} threads: multiply-adds {}, best oneDNN product {}, {}\n", threads,
             core::to_text(measure_fma_peak(core::Seconds{0.3})), core::to_text(measure_gemm_peak(core::Seconds{0.5})),
             memory_rates());
}

/// A primitive and its operands in whatever layout it wants, as a program without kernel cases would have them.
class BarePrimitive {
 public:
  template <class Description>
  BarePrimitive(const Description& d, const dnnl::primitive& p, dnnl::engine engine,
                const std::vector<std::pair<int, dnnl::memory::desc>>& operands)
      : stream_(engine), primitive_(p) {
    for (const auto& [name, description] : operands) add(name, description, engine);
    add(DNNL_ARG_SCRATCHPAD, d.scratchpad_desc(), engine);
  }
  /// Lets the library write an operand. A packed layout begins with a header, and with another header the primitive
  /// ends early and writes no result.
  void pack(int name, const dnnl::memory::desc& plain) {
    dnnl::memory from = filled(plain, stream_.get_engine()), to = arguments_.at(name);
    dnnl::reorder(from, to).execute(stream_, from, to);
  }
  void run() {
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  void add(int name, const dnnl::memory::desc& description, const dnnl::engine& engine) {
    arguments_.emplace(name, filled(description, engine));
  }
  /// Small numbers in every byte: blocked layouts have padding, which must stay finite.
  dnnl::memory filled(const dnnl::memory::desc& description, const dnnl::engine& engine) {
    auto& memory = memory_.emplace_back(description.get_size() + 1, std::byte{0x3c});
    return {description, engine, memory.data()};
  }
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  std::deque<AlignedVector<std::byte>> memory_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr a;
  a.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return a;
}

Call bare_gemm(const Problem& p) {
  const auto& s = std::get<GemmShape>(p.shape);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const onednn::OperandTypes t = onednn::operand_types(p.precision);
  const auto tag = [](Transpose x) { return x == Transpose::yes ? Tag::ba : Tag::ab; };
  const dnnl::matmul::primitive_desc d(
      {dnnl::memory::desc({onednn::dim(s.m), onednn::dim(s.k)}, t.left, tag(s.transpose_a)),
       dnnl::memory::desc({onednn::dim(s.k), onednn::dim(s.n)}, t.right, s.packed ? Tag::any : tag(s.transpose_b)),
       dnnl::memory::desc({onednn::dim(s.m), onednn::dim(s.n)}, t.result, Tag::ab)},
      user_scratchpad(), engine);
  const auto made = std::make_shared<BarePrimitive>(
      d, dnnl::matmul(d), engine,
      std::vector<std::pair<int, dnnl::memory::desc>>{
          {DNNL_ARG_SRC, d.src_desc()}, {DNNL_ARG_WEIGHTS, d.weights_desc()}, {DNNL_ARG_DST, d.dst_desc()}});
  return [made] { made->run(); };
}

Call bare_conv(const Problem& p) {
  const auto& s = std::get<ConvShape>(p.shape);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const bool bytes = p.precision == Precision::int8;
  const Type wide = p.precision == Precision::bf16 ? Type::bf16 : Type::f32;
  const auto d4 = [](std::size_t a, std::size_t b, std::size_t c, std::size_t d, Type t) {
    return dnnl::memory::desc({onednn::dim(a), onednn::dim(b), onednn::dim(c), onednn::dim(d)}, t, Tag::any);
  };
  const dnnl::memory::dims pads{onednn::dim(s.pad_height), onednn::dim(s.pad_width)};
  const dnnl::convolution_forward::primitive_desc d(
      {dnnl::prop_kind::forward_inference,
       dnnl::algorithm::convolution_direct,
       d4(s.batch, s.channels, s.height, s.width, bytes ? Type::u8 : wide),
       d4(s.filters, s.channels, s.filter_height, s.filter_width, bytes ? Type::s8 : wide),
       d4(s.batch, s.filters, s.out_height(), s.out_width(), bytes ? Type::s32 : wide),
       {onednn::dim(s.stride_height), onednn::dim(s.stride_width)},
       pads,
       pads},
      user_scratchpad(), engine);
  const auto made = std::make_shared<BarePrimitive>(
      d, dnnl::convolution_forward(d), engine,
      std::vector<std::pair<int, dnnl::memory::desc>>{
          {DNNL_ARG_SRC, d.src_desc()}, {DNNL_ARG_WEIGHTS, d.weights_desc()}, {DNNL_ARG_DST, d.dst_desc()}});
  return [made] { made->run(); };
}

/// LSTM forward in fp32 and bf16; int8 has scales that belong to its data.
Call bare_lstm(const Problem& p) {
  const auto& s = std::get<RnnShape>(p.shape);
  if (s.cell != Cell::lstm || p.precision == Precision::int8) return {};
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const Type type = p.precision == Precision::bf16 ? Type::bf16 : Type::f32;
  const auto h = onednn::dim(s.hidden), n = onednn::dim(s.batch), t = onednn::dim(s.steps);
  const dnnl::memory::desc layer({t, n, h}, type, Tag::tnc), state({1, 1, n, h}, type, Tag::ldnc);
  const dnnl::memory::desc cell({1, 1, n, h}, Type::f32, Tag::ldnc), bias({1, 1, 4, h}, Type::f32, Tag::ldgo);
  const dnnl::memory::desc weights({1, 1, h, 4, h}, type, Tag::any);
  const dnnl::lstm_forward::primitive_desc d(
      {dnnl::prop_kind::forward_inference, dnnl::rnn_direction::unidirectional_left2right, layer, state, cell, weights,
       weights, bias, layer, state, cell},
      user_scratchpad(), engine);
  const auto made = std::make_shared<BarePrimitive>(
      d, dnnl::lstm_forward(d), engine,
      std::vector<std::pair<int, dnnl::memory::desc>>{{DNNL_ARG_SRC_LAYER, d.src_layer_desc()},
                                                      {DNNL_ARG_SRC_ITER, d.src_iter_desc()},
                                                      {DNNL_ARG_SRC_ITER_C, d.src_iter_c_desc()},
                                                      {DNNL_ARG_WEIGHTS_LAYER, d.weights_layer_desc()},
                                                      {DNNL_ARG_WEIGHTS_ITER, d.weights_iter_desc()},
                                                      {DNNL_ARG_BIAS, d.bias_desc()},
                                                      {DNNL_ARG_DST_LAYER, d.dst_layer_desc()},
                                                      {DNNL_ARG_DST_ITER, d.dst_iter_desc()},
                                                      {DNNL_ARG_DST_ITER_C, d.dst_iter_c_desc()}});
  for (const int name : {DNNL_ARG_WEIGHTS_LAYER, DNNL_ARG_WEIGHTS_ITER})
    made->pack(name, {{1, 1, h, 4, h}, type, Tag::ldigo});
  return [made] { made->run(); };
}

/// Empty: there is no bare version of this operation.
Call bare(const Problem& p) {
  if (p.operation() == KernelKind::conv) return bare_conv(p);
  if (p.operation() == KernelKind::rnn) return bare_lstm(p);
  return p.operation() == KernelKind::gemm ? bare_gemm(p) : Call{};
}

/// A handful of shapes, small to large, for each operation and precision that oneDNN computes here.
std::vector<Problem> problems_through_onednn() {
  const std::vector<ProblemShape> shapes{GemmShape{.m = 16, .n = 16, .k = 16},
                                         GemmShape{.m = 128, .n = 16, .k = 512, .transpose_b = Transpose::yes},
                                         GemmShape{.m = 256, .n = 256, .k = 256, .transpose_a = Transpose::yes},
                                         GemmShape{.m = 1760, .n = 32, .k = 1760, .packed = true},
                                         GemmShape{.m = 1024, .n = 1024, .k = 1024},
                                         ConvShape{.width = 14,
                                                   .height = 14,
                                                   .channels = 64,
                                                   .batch = 1,
                                                   .filters = 64,
                                                   .filter_width = 3,
                                                   .filter_height = 3,
                                                   .pad_width = 1,
                                                   .pad_height = 1},
                                         ConvShape{.width = 56,
                                                   .height = 56,
                                                   .channels = 64,
                                                   .batch = 8,
                                                   .filters = 64,
                                                   .filter_width = 3,
                                                   .filter_height = 3,
                                                   .pad_width = 1,
                                                   .pad_height = 1},
                                         RnnShape{.cell = Cell::lstm, .hidden = 64, .batch = 4, .steps = 4},
                                         RnnShape{.cell = Cell::lstm, .hidden = 512, .batch = 16, .steps = 25}};
  std::vector<Problem> problems;
  for (const auto& row : kernel_cases())
    for (const ProblemShape& shape : shapes) {
      const Problem p{.shape = shape, .precision = row.precision};
      if (row.backend == "onednn" && row.operation == p.operation()) problems.push_back(p);
    }
  return problems;
}

void print_overheads() {
  fmt::print("\nrun() and the bare primitive [us]\n");
  for (const Problem& p : problems_through_onednn()) {
    const std::string label = fmt::format("{} {} {}", name(p.operation()), name(p.precision), text(p.shape));
    const std::string why = kernel_case_refusal(p);
    if (!why.empty()) {
      fmt::print("{}: {}\n", label, why);
      continue;
    }
    std::vector<Call> calls{run_of(p)};
    const bool is_converted = p.precision == Precision::bf16 && !onednn::bf16_refusal().empty();
    if (auto other = is_converted ? Call{} : bare(p)) calls.push_back(std::move(other));
    const auto samples = in_turn(calls);
    fmt::print("{}: {}", label, microseconds(timing(samples[0])));
    if (calls.size() > 1) {
      const Timing ours = timing(samples[0]), theirs = timing(samples[1]);
      std::vector<double> ratios;
      for (std::size_t i = 0; i < rounds; ++i) ratios.push_back(samples[0][i] / samples[1][i]);
      const Timing ratio = timing(ratios);
      fmt::print("; bare {}; ratio {:.3f} [{:.3f}, {:.3f}], of the best {:.3f}; more by {:.2f}, of the best {:.2f}",
                 microseconds(theirs), ratio.median, ratio.low, ratio.high, ours.best / theirs.best,
                 (ours.median - theirs.median) * 1e6, (ours.best - theirs.best) * 1e6);
    }
    fmt::print("\n");
  }
}

void print_sparse() {
  fmt::print("\nsparse and dense, fp32 [us]\n");
  const std::size_t sides[][2] = {{7680, 2560}, {10752, 3584}};
  for (const auto& [m, k] : sides)
    for (const std::size_t n : {1, 2, 4, 64, 1500})
      for (const double sparsity : {0.9, 0.95}) {
        SparseShape csr{.m = m, .n = n, .k = k, .sparsity = sparsity}, blocked = csr;
        blocked.format = SparseFormat::blocked;
        const auto samples = in_turn(
            {run_of({.shape = csr}), run_of({.shape = blocked}), run_of({.shape = GemmShape{.m = m, .n = n, .k = k}})});
        const Timing a = timing(samples[0]), b = timing(samples[1]), dense = timing(samples[2]);
        const Problem p{.shape = csr};
        fmt::print(
            "{}x{}x{} {:.0f} %: csr {} blocked {} dense {}; dense takes {:.1f} and {:.1f} times as long, of the best "
            "{:.1f} and {:.1f}; csr {:.1f} "
            "GFLOP/s {:.1f} GB/s\n",
            m, n, k, sparsity * 100, microseconds(a), microseconds(b), microseconds(dense), dense.median / a.median,
            dense.median / b.median, dense.best / a.best, dense.best / b.best, flops(p) / a.median * 1e-9,
            bytes(p) / a.median * 1e-9);
      }
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::stoi(argv[1]) : compute_threads();
  const std::string_view only = argc > 2 ? argv[2] : "";
  if (only.empty() || only == "roofs") print_roofs(threads);
  set_compute_threads(threads);
  if (only.empty() || only == "overheads") print_overheads();
  if (only.empty() || only == "sparse") print_sparse();
  return 0;
}
