// SPDX-License-Identifier: Apache-2.0
#include "kernels/op.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <vector>

#include "core/error.hpp"
#include "kernels/conv/reference.hpp"
#include "kernels/gemm/gemm.hpp"
#include "kernels/host/library.hpp"
#include "kernels/host/threads.hpp"
#include "kernels/lns/lns.hpp"
#include "support/op_runner.hpp"
#include "support/ragged_shapes.hpp"

namespace gradmeter::kernels {
namespace {

/// Keeps work until it is asked for, as a device does.
class LaterQueue final : public runtime::Queue {
 public:
  void submit(std::string_view label, runtime::Cost cost, const runtime::Work& work) override {
    labels.emplace_back(label), costs.push_back(cost), waiting_.push_back(work.stored());
  }
  void synchronise() override {
    for (; !waiting_.empty(); waiting_.pop_front()) waiting_.front()();
  }
  std::vector<std::string> labels;
  std::vector<runtime::Cost> costs;

 private:
  std::deque<runtime::StoredWork> waiting_;
};

constexpr ConvShape small = test::ragged_convolutions[1];

std::vector<float> drawn(std::size_t n, std::uint64_t seed) {
  std::vector<float> x(n);
  fill_random(std::as_writable_bytes(std::span(x)), number_format(core::Element::f32), seed);
  return x;
}

class Operation : public testing::Test {
 protected:
  void SetUp() override {
    set_compute_threads(1);
    if (!onednn_refusal().empty()) GTEST_SKIP() << onednn_refusal();
  }

  /// An input in its stored form.
  runtime::OwnedBuffer stored(const Op& op, std::size_t input, const std::vector<float>& plain) {
    const Operand& o = op.inputs()[input];
    auto memory = runtime::host_device().allocate(core::Element::i8, o.stored_bytes);
    if (o.packed) {
      op.packing(input)->run(host_, "pack", {plain}, {memory.buffer});
    } else {
      host_.copy("copy", runtime::ConstBuffer(core::Element::i8, std::as_bytes(std::span(plain))), memory.buffer);
    }
    return memory;
  }
  std::vector<float> plain(const Op& op, const runtime::OwnedBuffer& output) {
    std::vector<float> x(op.outputs()[0].elements);
    if (op.outputs()[0].packed) {
      op.unpacking(0)->run(host_, "unpack", {output.buffer}, {x});
    } else {
      host_.copy("copy", output.buffer, runtime::Buffer(core::Element::i8, std::as_writable_bytes(std::span(x))));
    }
    return x;
  }

  runtime::HostQueue host_;
};

TEST_F(Operation, SaysWhereTheElementsOfItsPackedOperandsLie) {
  const GemmShape product{.m = 5, .n = 37, .k = 21};
  GemmShape packed = product, transposed = product;
  packed.packed = transposed.packed = true, transposed.transpose_b = Transpose::yes;
  const std::vector<Problem> problems{
      {.shape = packed}, {.shape = transposed}, {.shape = small}, {.shape = small, .pass = Pass::backward_weights}};
  std::size_t looked_at = 0;
  for (const Problem& p : problems) {
    const auto op = prepare(p);
    for (std::size_t i = 0; i < op->inputs().size(); ++i) {
      const Operand& o = op->inputs()[i];
      const std::vector<float> values = drawn(o.elements, 3 + i);
      const auto memory = stored(*op, i, values);
      for (std::size_t e = 0; e < o.elements; ++e) {
        const auto at = op->stored_offset(o, e);
        if (!at) continue;
        ASSERT_EQ(o.format->load(memory.buffer.host() + *at), values[e]) << text(p.shape) << " " << o.name << " " << e;
        looked_at += o.packed;
      }
    }
  }
  EXPECT_GT(looked_at, 0u);
}

TEST_F(Operation, RunsWhenItsQueueDoesOnEachSetOfOperandsThatItWasGiven) {
  LaterQueue queue;
  const Problem p{.shape = small};
  const auto op = prepare(p);
  // A filter apart for each call, all in one order and then in another: each result must be of its own operands.
  const auto input = drawn(input_elements(small), 1);
  const auto in = stored(*op, 0, input);
  std::vector<std::vector<float>> filters;
  std::vector<runtime::OwnedBuffer> weights, outputs;
  for (std::uint64_t i = 0; i < 4; ++i) {
    filters.push_back(drawn(filter_elements(small), 10 + i));
    weights.push_back(stored(*op, 1, filters.back()));
    outputs.push_back(runtime::host_device().allocate(core::Element::i8, op->outputs()[0].stored_bytes));
  }
  for (const std::size_t i : {0, 1, 2, 3, 3, 1, 0, 2})
    op->run(queue, "forward.conv", {in.buffer, weights[i].buffer}, {outputs[i].buffer});
  for (const auto& o : outputs) EXPECT_TRUE(std::ranges::all_of(plain(*op, o), [](float x) { return x == 0; }));
  queue.synchronise();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto result = plain(*op, outputs[i]);
    for (std::size_t at = 0; at < result.size(); at += 7)
      EXPECT_NEAR(result[at], conv_at(small, Pass::forward, input, filters[i], at).value, 1e-4) << i << " " << at;
  }
  op->run(queue, "forward.conv", {in.buffer, weights[2].buffer}, {outputs[0].buffer});
  queue.synchronise();
  EXPECT_EQ(plain(*op, outputs[0]), plain(*op, outputs[2]));
  EXPECT_EQ(queue.labels, std::vector<std::string>(9, "forward.conv"));
  EXPECT_EQ(queue.costs[0].flops, flops(p));
  EXPECT_EQ(queue.costs[0].bytes, bytes(p));
}

TEST_F(Operation, PackingAndUnpackingGiveTheNumbersBack) {
  const auto forward = prepare({.shape = small}), backward = prepare({.shape = small, .pass = Pass::backward_weights});
  const auto in = stored(*backward, 0, drawn(input_elements(small), 3)),
             gradient = stored(*backward, 1, drawn(output_elements(small), 4));
  const auto out = runtime::host_device().allocate(core::Element::i8, backward->outputs()[0].stored_bytes);
  backward->run(host_, "backward", {in.buffer, gradient.buffer}, {out.buffer});
  const auto filters = plain(*backward, out);
  EXPECT_GT(std::ranges::count_if(filters, [](float x) { return x != 0; }), 0);
  // What one operation unpacks another packs: the plain form is the same for all.
  const auto packed = stored(*forward, 1, filters);
  EXPECT_EQ(packed.buffer.bytes(), forward->inputs()[1].stored_bytes);
  EXPECT_TRUE(forward->inputs()[1].packed);
  const auto product = prepare({.shape = GemmShape{.m = 3, .n = 4, .k = 5}});
  EXPECT_FALSE(product->inputs()[1].packed);
  EXPECT_THROW(product->packing(1), std::logic_error);
  EXPECT_THROW(product->unpacking(0), std::logic_error);
}

// With oneDNN's reference loops a step of AlexNet at an eighth of its widths took 450 ms where it takes 2.9 ms now.
TEST_F(Operation, ConvolutionsOfFewChannelsHaveKernelsInBothDirectionsOfTraining) {
  test::OpRunner runner(runtime::host_device());
  const auto drawn_all = [](const Op& op) {
    std::vector<test::Floats> all;
    for (const Operand& o : op.inputs()) all.push_back(drawn(o.elements, all.size() + 1));
    return all;
  };
  for (const auto& [channels, filters] : {std::pair{8, 24}, {6, 16}, {7, 13}, {2, 4}, {64, 32}}) {
    const ConvShape s{.width = 13,
                      .height = 13,
                      .channels = static_cast<std::size_t>(channels),
                      .batch = 2,
                      .filters = static_cast<std::size_t>(filters),
                      .filter_width = 5,
                      .filter_height = 5,
                      .pad_width = 2,
                      .pad_height = 2};
    std::vector<std::size_t> input_bytes, output_bytes;
    for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights}) {
      SCOPED_TRACE(text(s) + " " + std::string(name(pass)));
      const auto training = prepare({.shape = s, .pass = pass}, {.training = true}),
                 alone = prepare({.shape = s, .pass = pass});
      EXPECT_EQ(training->implementation().find("ref"), std::string::npos) << training->implementation();
      const auto found = runner.run(*training, drawn_all(*training)), expected = runner.run(*alone, drawn_all(*alone));
      EXPECT_LE(test::distance(found, expected), 2e-5);
      const bool data = pass == Pass::backward_data;
      input_bytes.push_back(data ? training->outputs()[0].stored_bytes : training->inputs()[0].stored_bytes);
      output_bytes.push_back(pass == Pass::forward ? training->outputs()[0].stored_bytes
                                                   : training->inputs()[data ? 0 : 1].stored_bytes);
    }
    EXPECT_EQ(std::ranges::count(input_bytes, input_bytes[0]), 3) << "passes hand images on as they are";
    EXPECT_EQ(std::ranges::count(output_bytes, output_bytes[0]), 3);
  }
}

TEST_F(Operation, StatesItsOperandsByName) {
  const Problem p{.shape = RnnShape{Cell::lstm, 8, 2, 3}};
  const auto alone = prepare(p), training = prepare(p, {.training = true});
  EXPECT_EQ(alone->outputs().size(), 1U);
  EXPECT_EQ(index_of(training->outputs(), "kept"), 1U);
  EXPECT_EQ(training->outputs()[1].format, nullptr);
  EXPECT_GT(training->outputs()[1].stored_bytes, 3 * 2 * 8 * 4 * sizeof(float));
  EXPECT_EQ(alone->inputs()[index_of(alone->inputs(), "weights")].elements, 8U * 4 * 8);
  EXPECT_THROW(index_of(alone->inputs(), "filters"), std::logic_error);
  EXPECT_GT(alone->scratch_bytes(), 0U);
  const auto backward = prepare({.shape = p.shape, .pass = Pass::backward_data});
  for (const Operand& o : backward->outputs())
    EXPECT_EQ(o.is_added_to,
              o.name == "weights gradient" || o.name == "recurrent gradient" || o.name == "bias gradient");
}

TEST_F(Operation, RefusesBuffersOfOtherLengthsAndOtherThreads) {
  const auto op = prepare({.shape = GemmShape{.m = 2, .n = 3, .k = 4}});
  std::vector<float> a(8), b(12), c(6), longer(7);
  EXPECT_THROW(op->run(host_, "gemm", {a, b}, {longer}), std::invalid_argument);
  EXPECT_THROW(op->run(host_, "gemm", {a, c}, {c}), std::invalid_argument);
  EXPECT_THROW(op->run(host_, "gemm", {a}, {c}), std::invalid_argument);
  set_compute_threads(2);
  EXPECT_THROW(op->run(host_, "gemm", {a, b}, {c}), std::logic_error);
  set_compute_threads(1);
  op->run(host_, "gemm", {a, b}, {c});
}

class OtherDevice final : public runtime::Device {
 public:
  std::string_view name() const override { return "abacus"; }
  runtime::OwnedBuffer allocate(core::Element, std::size_t) override { throw std::bad_alloc(); }
  runtime::OwnedBuffer allocate_beside(core::Element e, std::span<std::byte> m) override {
    return runtime::host_device().allocate_beside(e, m);
  }
  std::unique_ptr<runtime::Queue> make_queue() override { return runtime::host_device().make_queue(); }
  std::byte* transport_address(const runtime::Buffer& b) const override { return b.host(); }
  const std::byte* transport_address(const runtime::ConstBuffer& b) const override { return b.host(); }
};

TEST(OperationTable, RefusesWithTheReason) {
  const Problem product{.shape = GemmShape{.m = 1, .n = 1, .k = 1}};
  OtherDevice abacus;
  EXPECT_EQ(op_refusal(product, abacus), "no backend has gemm in fp32 on abacus");
  EXPECT_THROW(prepare(product, {}, abacus), core::UsageError);
  const Problem sparse{.shape = SparseShape{.m = 1, .n = 1, .k = 1}};
  EXPECT_EQ(op_refusal(sparse), "no backend has sparse in fp32");
  EXPECT_NE(op_refusal({.shape = GemmShape{.m = 0, .n = 1, .k = 1}}), "");
}

/// Products of logarithms, from and to fp32, with bias and ReLU: each number against the scalar type.
TEST_F(Operation, LogarithmsAreConvertedFromFloatsAndTheBiasIsTheLastSummand) {
  constexpr GemmShape s{
      .m = 5, .n = 7, .k = 9, .transpose_b = Transpose::yes, .bias = true, .activation = Activation::relu};
  for (const Precision precision : {Precision::lns16, Precision::lns16_f7, Precision::lns16_f6}) {
    const Lns lns(info(precision).logarithm_bits);
    const auto op = prepare({.shape = s, .precision = precision});
    const std::vector<std::vector<float>> plain{drawn(s.m * s.k, 1), drawn(s.k * s.n, 2), drawn(s.n, 3)};
    runtime::HostQueue queue;
    std::vector<runtime::OwnedBuffer> inputs;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      inputs.push_back(runtime::host_device().allocate(core::Element::i8, op->inputs()[i].stored_bytes));
      op->packing_from_fp32(i)->run(queue, "pack", {runtime::ConstBuffer(plain[i])}, {inputs[i].buffer});
    }
    auto output = runtime::host_device().allocate(core::Element::i8, op->outputs()[0].stored_bytes);
    op->run(queue, "gemm", {inputs[0].buffer, inputs[1].buffer, inputs[2].buffer}, {output.buffer});
    std::vector<float> found(s.m * s.n);
    op->unpacking_to_fp32(0)->run(queue, "unpack", {output.buffer}, {runtime::Buffer(found)});
    std::size_t zeros = 0;
    for (std::size_t i = 0; i < s.m; ++i)
      for (std::size_t j = 0; j < s.n; ++j) {
        const auto word = [&](std::size_t of, std::size_t at) { return lns.encode(double{plain[of][at]}); };
        Lns16 sum;
        for (std::size_t k = 0; k < s.k; ++k)
          sum = lns.add(sum, lns.multiply(word(0, i * s.k + k), word(1, j * s.k + k)));
        sum = lns.add(sum, word(2, j));
        zeros += sum.negative() ? 1 : 0;
        EXPECT_EQ(found[i * s.n + j], static_cast<float>(sum.negative() ? 0 : lns.decode(sum))) << i << " " << j;
      }
    EXPECT_GT(zeros, 0U) << "ReLU had nothing to do";
  }
}

TEST_F(Operation, LogarithmsHaveNoAccumulation) {
  EXPECT_NE(op_refusal({.shape = GemmShape{.m = 2, .n = 2, .k = 2, .accumulate = true}, .precision = Precision::lns16}),
            "");
}

}  // namespace
}  // namespace gradmeter::kernels
