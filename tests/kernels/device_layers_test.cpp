// SPDX-License-Identifier: Apache-2.0
// Convolutions and recurrent layers on a device against the host's operations: by cuDNN where it is, else by our own
// kernels, which is what an emulated device has.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/element.hpp"
#include "core/random.hpp"
#include "kernels/conv/reference.hpp"
#include "kernels/cuda/backends.hpp"
#include "kernels/host/threads.hpp"
#include "kernels/op.hpp"
#include "kernels/rnn/gpu_kernels.hpp"
#include "kernels/rnn/reference.hpp"
#include "runtime/cuda/device.hpp"
#include "support/device_seeds.hpp"
#include "support/on_device.hpp"
#include "support/op_runner.hpp"
#include "support/ragged_shapes.hpp"

namespace gradmeter::kernels {
namespace {

using core::Element;
using test::distance;
using test::Floats;
using test::OpRunner;

Floats numbers(std::size_t n, std::uint64_t stream, float scale = 1) {
  const core::Random random(21, stream);
  Floats x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = scale * static_cast<float>(random.gaussian(i));
  return x;
}

class DeviceLayers : public testing::Test {
 protected:
  static void SetUpTestSuite() { add_cuda_ops(); }
  void SetUp() override { set_compute_threads(1); }
#ifdef GRADMETER_CUDA_EMULATED
  void TearDown() override {
    for (const std::string& report : cuda_emulator::take_reports()) ADD_FAILURE() << report;
  }
#endif
  runtime::CudaDevice device_{0};
};

/// Of a result against the host's in fp32: of operands and results that are rounded.
double apart(Precision p) { return p == Precision::fp32 ? 1e-5 : p == Precision::bf16 ? 0x1p-7 : 0x1p-10; }

TEST_F(DeviceLayers, ConvolutionsHaveTheHostsNumbers) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16})
    for (const ConvShape& s : test::ragged_convolutions)
      for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights}) {
        const Problem p{.shape = s, .pass = pass, .precision = precision};
        const Problem exact{.shape = s, .pass = pass};
        if (!op_refusal(exact).empty() || !op_refusal(p, device_).empty()) continue;
        SCOPED_TRACE(std::string(name(precision)) + " " + std::string(name(pass)) + " " + text(s));
        const auto input = numbers(input_elements(s), 1), filters = numbers(filter_elements(s), 2),
                   output = numbers(output_elements(s), 3);
        const std::vector<Floats> inputs = pass == Pass::forward         ? std::vector{input, filters}
                                           : pass == Pass::backward_data ? std::vector{output, filters}
                                                                         : std::vector{input, output};
        const Floats expected = OpRunner(runtime::host_device()).run(exact, inputs);
        for (const AlgorithmSearch choice : {AlgorithmSearch::estimated, AlgorithmSearch::exhaustive})
          EXPECT_LE(distance(OpRunner(device_).run(p, inputs, 1, {.algorithm = choice}), expected), apart(precision));
      }
}

/// Output, and all gradients after two backward passes from one forward pass.
std::vector<Floats> trained(runtime::Device& device, const RnnShape& s, Precision precision) {
  OpRunner runner(device);
  const auto forward = prepare({.shape = s, .precision = precision}, {.training = true}, device);
  const auto backward = prepare({.shape = s, .pass = Pass::backward_data, .precision = precision}, {}, device);
  std::vector<Floats> inputs;
  for (const Operand& o : forward->inputs()) inputs.push_back(numbers(o.elements, inputs.size(), 0.3F));
  auto kept = runner.call(*forward, runner.stored(*forward, inputs));
  std::vector<Floats> results{runner.plain(*forward, kept[0])};
  auto in = runner.stored(*backward, inputs);
  in.insert(in.end(), {kept[0], kept[1]});
  const std::size_t last = in.size();
  in.push_back(runner.stored(*backward, last, numbers(backward->inputs()[last].elements, 99)));
  const auto out = runner.call(*backward, in, 2);
  for (std::size_t i = 0; i < out.size(); ++i) results.push_back(runner.plain(*backward, out[i], i));
  return results;
}

TEST_F(DeviceLayers, RecurrentLayersHaveTheHostsNumbers) {
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16})
    for (const Cell cell : {Cell::vanilla, Cell::lstm, Cell::gru})
      for (const RnnShape& s : {RnnShape{cell, 8, 3, 5}, RnnShape{cell, 6, 2, 3, 10}, RnnShape{cell, 1, 1, 1}}) {
        const Problem p{.shape = s, .precision = precision};
        if (!op_refusal({.shape = s}).empty() || !op_refusal(p, device_).empty()) continue;
        SCOPED_TRACE(std::string(name(precision)) + " " + text(s));
        const auto expected = trained(runtime::host_device(), s, Precision::fp32);
        const auto found = trained(device_, s, precision);
        ASSERT_EQ(found.size(), expected.size());
        // Gradients of narrow numbers have gone through all steps: some roundings more.
        const double most = precision == Precision::fp32 ? 2e-5 : 8 * apart(precision);
        for (std::size_t i = 0; i < found.size(); ++i) EXPECT_LE(distance(found[i], expected[i]), most) << i;
      }
}

/// Each gate's matrix is the transposed one, and gradients come back to where their weights were taken from.
TEST_F(DeviceLayers, WeightsOfAGateGoWhereTheLibraryWantsThem) {
  test::each_device_seed([] {
    const std::size_t inputs = 7, gates = 3, hidden = 21, all = inputs * gates * hidden;
    const runtime::Stream stream;
    const auto ours = test::on_device<float>(numbers(all, 1), stream);
    const auto theirs = runtime::DeviceBuffer<float>(all);
    auto sums = test::on_device<float>(Floats(all, 1), stream);
    const auto bytes = [](auto& b) { return reinterpret_cast<const std::byte*>(b.span().device_address()); };
    for (std::size_t gate = 0; gate < gates; ++gate) {
      const cuda::GateMatrix m{inputs, gates, hidden, gate};
      auto* const place = const_cast<std::byte*>(bytes(theirs)) + gate * inputs * hidden * sizeof(float);
      cuda::copy_gate_to_library(bytes(ours), place, Element::f32, m, stream.get());
      cuda::add_gate_gradient(place, sums.span().device_address(), Element::f32, m, stream.get());
    }
    const Floats x = numbers(all, 1), taken = test::read_back<float>(theirs.span(), stream),
                 back = test::read_back<float>(sums.span(), stream);
    for (std::size_t g = 0; g < gates; ++g)
      for (std::size_t i = 0; i < inputs; ++i)
        for (std::size_t h = 0; h < hidden; ++h) {
          const std::size_t at = (i * gates + g) * hidden + h;
          ASSERT_EQ(taken[(g * hidden + h) * inputs + i], x[at]);
          ASSERT_EQ(back[at], 1 + x[at]);
        }
  });
}

TEST_F(DeviceLayers, GradientsOfHalvesAreAddedInFloats) {
  test::each_device_seed([] {
    const cuda::GateMatrix m{5, 1, 6, 0};
    const runtime::Stream stream;
    for (const Element e : {Element::f16, Element::bf16}) {
      std::vector<std::uint16_t> codes(30);
      for (std::size_t i = 0; i < codes.size(); ++i)
        codes[i] = core::from_float(core::small_format(e), 0.25F * static_cast<float>(i) - 3);
      runtime::DeviceBuffer<std::uint16_t> halves(codes.size());
      runtime::copy<std::uint16_t>(halves.span(), codes, stream);
      auto sums = test::on_device<float>(Floats(30, 100), stream);
      cuda::add_gate_gradient(reinterpret_cast<const std::byte*>(halves.span().device_address()),
                              sums.span().device_address(), e, m, stream.get());
      const Floats found = test::read_back<float>(sums.span(), stream);
      for (std::size_t i = 0; i < 5; ++i)
        for (std::size_t h = 0; h < 6; ++h)
          EXPECT_EQ(found[i * 6 + h], 100 + 0.25F * static_cast<float>(h * 5 + i) - 3) << core::info(e).name;
    }
    EXPECT_THROW(cuda::add_gate_gradient(nullptr, nullptr, Element::i8, m, stream.get()), std::logic_error);
  });
}

}  // namespace
}  // namespace gradmeter::kernels
