// SPDX-License-Identifier: Apache-2.0
#include "kernels/call_check.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/backends.hpp"
#include "kernels/host/library.hpp"
#include "kernels/host/threads.hpp"
#include "support/ragged_shapes.hpp"

namespace gradmeter::kernels {
namespace {

/// A product that is computed by another operation, in part.
class PartOf final : public HostOp {
 public:
  explicit PartOf(std::unique_ptr<Op> whole, double share)
      : HostOp({whole->inputs().begin(), whole->inputs().end()}, {whole->outputs().begin(), whole->outputs().end()},
               whole->cost()),
        whole_(std::move(whole)),
        share_(share) {}
  std::string implementation() const override { return "part"; }

 protected:
  void compute(Reads in, Writes out) override {
    const auto bytes = [](auto* at, const Operand& o) { return std::span(at, o.stored_bytes); };
    std::vector<std::byte> result(outputs()[0].stored_bytes);
    std::vector<runtime::ConstBuffer> from;
    for (std::size_t i = 0; i < in.size(); ++i) from.emplace_back(core::Element::i8, bytes(in[i], inputs()[i]));
    const std::vector<runtime::Buffer> to{runtime::Buffer(core::Element::i8, std::span(result))};
    whole_->execute(from, to);
    const auto written = static_cast<std::ptrdiff_t>(share_ * static_cast<double>(result.size() / sizeof(float)));
    std::copy_n(result.begin(), written * static_cast<std::ptrdiff_t>(sizeof(float)), out[0]);
  }

 private:
  std::unique_ptr<Op> whole_;
  double share_;
};

template <int percent>
std::unique_ptr<Op> make_part(const Problem& p, const OpOptions&, runtime::Device& device) {
  return std::make_unique<PartOf>(prepare(p, {}, device), percent / 100.0);
}

/// Runs an operation as a caller does: with its packed operands packed, on the same memory each time.
class Calls {
 public:
  Calls(const Problem& p, std::string_view backend = {}) : op_(prepare(p, {.backend = backend})) {
    for (const Operand& o : op_->inputs()) {
      plain_.emplace_back(o.plain_bytes());
      fill_random(plain_.back(), *o.format, plain_.size(), scale_for_random(*o.format));
      stored_.emplace_back(o.stored_bytes);
    }
    for (const Operand& o : op_->outputs()) results_.emplace_back(o.stored_bytes);
  }
  void run() {
    runtime::HostQueue queue;
    std::vector<runtime::ConstBuffer> in;
    std::vector<runtime::Buffer> out;
    for (std::size_t i = 0; i < plain_.size(); ++i) {
      const runtime::ConstBuffer plain(core::Element::i8, std::span(std::as_const(plain_[i])));
      const runtime::Buffer stored(core::Element::i8, std::span(stored_[i]));
      if (op_->inputs()[i].packed) op_->packing(i)->run(queue, "pack", {plain}, {stored});
      in.emplace_back(op_->inputs()[i].packed ? stored : plain);
    }
    for (auto& r : results_) out.emplace_back(core::Element::i8, std::span(r));
    op_->run(queue, "call", in, out);
  }

 private:
  std::unique_ptr<Op> op_;
  std::vector<std::vector<std::byte>> plain_, stored_, results_;
};

std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (const Precision p : {Precision::fp32, Precision::bf16, Precision::int8})
    for (const bool packed : {false, true})
      all.push_back({.shape = GemmShape{.m = 17, .n = 33, .k = 70, .packed = packed}, .precision = p});
  all.push_back({.shape = GemmShape{.m = 9,
                                    .n = 40,
                                    .k = 30,
                                    .transpose_a = Transpose::yes,
                                    .transpose_b = Transpose::yes,
                                    .bias = true,
                                    .activation = Activation::relu}});
  all.push_back({.shape = GemmShape{.m = 9, .n = 40, .k = 30, .accumulate = true}});
  all.push_back({.shape = GemmShape{.m = 5, .n = 7, .k = 11, .count = 3}});
  for (const ConvShape& s : test::ragged_convolutions)
    for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights})
      for (const Precision p : {Precision::fp32, Precision::bf16})
        all.push_back({.shape = s, .pass = pass, .precision = p});
  return all;
}

TEST(CallCheck, AccusesNoLibraryThatComputes) {
  set_compute_threads(1);
  if (!onednn_refusal().empty()) GTEST_SKIP() << onednn_refusal();
  std::size_t checked = 0;
  for (const Problem& p : problems()) {
    if (!op_refusal(p).empty()) continue;
    // Conversion is what a processor without instructions for bf16 does.
    for (const std::string_view backend : {"", "converted"}) {
      if (!backend.empty() && p.precision != Precision::bf16) continue;
      Calls calls(p, backend);
      for (const std::uint64_t seed : {1u, 2u, 3u}) {
        CallCheck check(seed);
        calls.run();
        EXPECT_EQ(check.fault(), "") << text(p.shape) << name(p.pass) << name(p.precision) << backend;
        checked += check.calls();
      }
    }
  }
  EXPECT_GT(checked, 3 * 20u);
}

// Processors without instructions for bf16 pack weights so.
TEST(CallCheck, AccusesNoPackingThatRoundsToBf16) {
  set_compute_threads(1);
  if (!onednn_refusal().empty()) GTEST_SKIP() << onednn_refusal();
  CallCheck check(1);
  for (const ConvShape& s : test::ragged_convolutions) {
    const auto op = prepare({.shape = s, .precision = Precision::bf16}, {.backend = "converted"});
    for (std::size_t i = 0; i < op->inputs().size(); ++i) {
      const Operand& o = op->inputs()[i];
      if (!o.packed) continue;
      std::vector<float> plain(o.elements);
      for (std::size_t e = 0; e < plain.size(); ++e) plain[e] = 0.1F * static_cast<float>(e + 1);
      std::vector<std::byte> stored(o.stored_bytes);
      runtime::HostQueue queue;
      op->packing_from_fp32(i)->run(queue, "pack", {runtime::ConstBuffer(std::span<const float>(plain))},
                                    {runtime::Buffer(core::Element::i8, std::span(stored))});
      EXPECT_EQ(check.fault(), "") << text(s) << o.name;
    }
  }
  EXPECT_GT(check.calls(), 0U);
}

TEST(CallCheck, FindsACallThatWritesNothingOrHalf) {
  set_compute_threads(1);
  const auto always = [](const Problem&) { return std::string(); };
  for (const auto& [label, make] : {std::pair("idle", &make_part<0>), std::pair("half", &make_part<50>)})
    add_op_backend({label, "a test's", KernelKind::gemm, Precision::fp32, "host", always, make});
  const Problem p{.shape = GemmShape{.m = 17, .n = 33, .k = 70}};
  for (const auto* const label : {"idle", "half"}) {
    Calls calls(p, label);
    calls.run();  // unseen
    CallCheck check(5);
    calls.run();
    EXPECT_NE(check.fault().find("was not written"), std::string::npos) << label << ": " << check.fault();
  }
}

TEST(CallCheck, IsOfItsThreadWhileItLives) {
  EXPECT_EQ(CallCheck::current(), nullptr);
  {
    const CallCheck check(1);
    EXPECT_EQ(CallCheck::current(), &check);
  }
  EXPECT_EQ(CallCheck::current(), nullptr);
}

}  // namespace
}  // namespace gradmeter::kernels
