// SPDX-License-Identifier: Apache-2.0
// The arithmetic of codecs that consist of collectives, on the device against the host's.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "compression/codecs/dgc.hpp"
#include "compression/codecs/low_rank.hpp"
#include "compression/codecs/quantized.hpp"
#include "compression/codecs/sparse.hpp"
#include "compression/cuda/bucketed.hpp"
#include "compression/cuda/device_codec.hpp"
#include "core/error.hpp"
#include "device_support.hpp"
#include "support/device_seeds.hpp"

namespace gradmeter::compression::cuda {
namespace {

using Floats = std::vector<float>;
using Places = std::vector<std::uint32_t>;

TEST(DeviceRandomK, DrawsGathersAndScattersAsTheHost) {
  test::each_device_seed([] {
    for (const std::string name : {"randomk:density=0.1", "randomk:density=1", "randomk:density=0.3,ef=off"}) {
      const RandomK host(find_codec(name)->parsed);
      for (const std::size_t n : {1u, 2u, 33u, 1000u, 4097u}) {
        SCOPED_TRACE(name + " of " + std::to_string(n));
        const RandomDraw draw{.seed = 3, .step = n, .tensor = 2, .rank = 1};
        const Floats x = gaussians(n);
        Places places(host.kept(n));
        Floats values(places.size()), out(n), cleared = x;
        host.draw_places(draw, n, places);
        host.gather(x, places, values);
        RandomK::scatter(values, places, out);
        RandomK::clear_sent(places, cleared);

        const runtime::Stream stream;
        auto on = on_device<float>(x, stream);
        runtime::DeviceBuffer<std::uint32_t> on_places(places.size());
        runtime::DeviceBuffer<float> on_values(places.size()), on_out(n);
        draw_places(draw, n, on_places.span(), stream.get());
        gather(on.span(), on_places.span(), host.factor_of(n, places.size()), on_values.span(), stream.get());
        scatter(on_values.span(), on_places.span(), on_out.span(), stream.get());
        clear_sent(on_places.span(), on.span(), stream.get());
        EXPECT_EQ(read_back<std::uint32_t>(on_places.span(), stream), places);
        expect_equal_floats(read_back<float>(on_values.span(), stream), values);
        expect_equal_floats(read_back<float>(on_out.span(), stream), out);
        expect_equal_floats(read_back<float>(on.span(), stream), cleared);
      }
    }
  });
}

/// Three steps of DGC: gather momentum, send the top, clear what was sent.
void expect_equal_steps(std::size_t n, const std::string& name, bool finite) {
  const CodecChoicePtr choice = find_codec(name);
  const MomentumCorrection host(choice->parsed);
  const TopKLayout shape = host.encoding().wire(n);
  Floats u(n), v(n);
  const runtime::Stream stream;
  auto on_u = on_device<float>(u, stream), on_v = on_device<float>(v, stream);
  runtime::DeviceBuffer<std::byte> on_wire(shape.bytes()), workspace(topk_workspace(n));
  auto* const space = workspace.span().device_address();
  for (std::size_t step = 0; step < 3; ++step) {
    Floats g = gaussians(n, 1, step);
    if (!finite && step == 1) g[n / 2] = std::numeric_limits<float>::infinity();
    Bytes wire(shape.bytes());
    host.encode(g, 4, u, v, wire.data());

    const auto on_g = on_device<float>(g, stream);
    const auto momentum = static_cast<float>(momentum_of(*choice));
    accumulate(on_g.span(), host.clip_factor(l2_of_gradient(g), 4), momentum, on_u.span(), on_v.span(), stream.get());
    topk_encode(on_v.span().device_address(), shape, on_wire.span().device_address(), space, stream.get());
    for (auto* state : {&on_u, &on_v}) {
      topk_decode(on_wire.span().device_address(), shape, Scatter::clear, nullptr, state->span().device_address(),
                  space, stream.get());
    }
    ASSERT_EQ(read_back<std::byte>(on_wire.span(), stream), wire) << step;
    expect_equal_floats(read_back<float>(on_u.span(), stream), u);
    expect_equal_floats(read_back<float>(on_v.span(), stream), v);
  }
}

/// A kernel cannot throw: all elements become NaN, and nothing outside is touched.
void expect_damage(const std::string& name, std::size_t n, const std::function<void(Bytes&)>& damage) {
  const auto choice = find_codec(name);
  Bytes wire = encoded(*choice->codec, gaussians(n, 1));
  OnDevice on(*choice, n);
  for (const float x : on.decode(wire, {})) ASSERT_FALSE(std::isnan(x));
  damage(wire);
  EXPECT_THROW(decoded(*choice->codec, wire, n), core::BackendError) << "the host sees no damage";
  for (const Floats& addend : {Floats(), Floats(n, 1.0F)}) {
    for (const float x : on.decode(wire, addend)) ASSERT_TRUE(std::isnan(x));
  }
}

TEST(DeviceTopK, MakesNaNOfDamagedWires) {
  const auto word = [](std::size_t at, std::uint32_t value) {
    return [=](Bytes& wire) { std::memcpy(wire.data() + 4 * at, &value, 4); };
  };
  test::each_device_seed([&] {
    expect_damage("topk:density=0.01", 5000, word(49, 5000));       // behind the tensor
    expect_damage("topk:density=0.01", 5000, word(7, 0xffffffff));  // far behind
    expect_damage("topk:density=0.01", 5000, word(1, 0));           // not ascending
    expect_damage("topk:density=0.1", 5000, word(3, 0xffffffff));   // too many bits
    expect_damage("topk:density=0.5", 5000, word(3, 0));            // too few
    const auto behind = [](Bytes& wire) { wire[5000 / 8] |= std::byte{0x80}; };
    expect_damage("topk:density=0.1", 5000, behind);
  });
}

/// Each chunk has so many equal numbers that only those of the first chunks are taken: several warps must agree on
/// which.
TEST(DeviceTopK, OrdersTheChunksOfSeveralWarps) {
  constexpr std::size_t n = 40 * 4096;
  Floats x(n, 0.25F);
  for (std::size_t i = 0; i < n; ++i) {
    if (i % 5 == 0) x[i] = 1;
    if (i % 41 == 0) x[i] = 2;
  }
  const auto choice = find_codec("topk:density=0.2");
  const Bytes wire = encoded(*choice->codec, x);
  test::each_device_seed([&] { EXPECT_TRUE(OnDevice(*choice, n).encode(x, {}) == wire); });
}

TEST(DeviceMomentumCorrection, StepsAsTheHost) {
  test::each_device_seed([] {
    for (const std::string name : {"dgc:density=0.01", "dgc:density=0.3,momentum=0.5", "dgc:clip=0.1"}) {
      for (const std::size_t n : {1u, 33u, 1000u, 9000u}) {
        SCOPED_TRACE(name + " of " + std::to_string(n));
        expect_equal_steps(n, name, true);
        expect_equal_steps(n, name, false);
      }
    }
  });
}

constexpr std::size_t in_three_groups = 2 * group_pieces * piece_elements + 5 * piece_elements + 7;

TEST(DeviceMomentumCorrection, AddsSquaresAsTheHost) {
  test::each_device_seed([] {
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{511}, std::size_t{513}, in_three_groups}) {
      const Floats g = gaussians(n, 1);
      const runtime::Stream stream;
      const auto on = on_device<float>(g, stream);
      runtime::DeviceBuffer<std::byte> workspace(squares_workspace(n));
      sum_of_squares(on.span(), workspace.span(), stream.get());
      const DeviceSpan<const double> sum(reinterpret_cast<double*>(workspace.span().device_address()), 1);
      EXPECT_EQ(std::sqrt(read_back<double>(sum, stream)[0]), l2_of_gradient(g)) << n;
    }
  });
}

void expect_equal_factors(const MatrixShape& m, std::size_t rank, const Floats& x, const Floats& first_q) {
  const runtime::Stream stream;
  Floats padded_x = x;  // what lies behind the last row must not be read
  padded_x.resize(m.rows * m.columns + 64, std::numeric_limits<float>::quiet_NaN());
  const auto all = on_device<float>(padded_x, stream), on_q = on_device<float>(first_q, stream);
  const DeviceSpan<const float> on = all.span().first(m.count);
  Floats p(m.p_size(rank)), q(m.q_size(rank)), out(m.count);
  runtime::DeviceBuffer<float> on_p(p.size()), on_next(q.size()), on_out(m.count);
  multiply(m, rank, x, first_q, p);
  multiply(m, rank, on, on_q.span(), on_p.span(), stream.get());
  expect_equal_floats(read_back<float>(on_p.span(), stream), p);
  orthonormalise(m, rank, p);
  orthonormalise(m, rank, on_p.span(), stream.get());
  expect_equal_floats(read_back<float>(on_p.span(), stream), p);
  multiply_transposed(m, rank, x, p, q);
  multiply_transposed(m, rank, on, on_p.span(), on_next.span(), stream.get());
  expect_equal_floats(read_back<float>(on_next.span(), stream), q);
  reconstruct(m, rank, p, q, out);
  reconstruct(m, rank, on_p.span(), on_next.span(), on_out.span(), stream.get());
  expect_equal_floats(read_back<float>(on_out.span(), stream), out);
}

TEST(DeviceLowRank, FactorsAsTheHost) {
  test::each_device_seed([] {
    for (const MatrixShape& m :
         {square_matrix(1), square_matrix(35), square_matrix(1000), MatrixShape{1200, 33, 1200 * 33 - 20}}) {
      for (const std::size_t rank : {1u, 2u, 3u, 4u, 5u}) {
        if (!low_rank_refusal(m, rank).empty()) continue;
        SCOPED_TRACE(std::to_string(m.rows) + " by " + std::to_string(m.columns) + ", " + std::to_string(rank));
        Floats q(m.q_size(rank)), x = gaussians(m.count, 1, 4);
        draw_first_q(m, rank, 1, 2, q);
        expect_equal_factors(m, rank, x, q);
        std::fill(x.begin(), x.end(), 0.0F);  // columns that become zero
        expect_equal_factors(m, rank, x, q);
        x[m.count / 2] = std::numeric_limits<float>::infinity();
        expect_equal_factors(m, rank, x, q);
      }
    }
  });
}

void expect_equal_ternary(const Floats& x, double clip) {
  const std::size_t n = x.size();
  const RandomDraw draw{.seed = 4, .step = n, .first = 99};
  std::vector<std::int8_t> codes(n);
  std::vector<std::int32_t> sums(n);
  Floats out(n), wide(n);
  const float scale = compression::ternary_scale(x, clip);
  compression::ternary_quantise(x, scale, codes, draw);
  for (std::size_t i = 0; i < n; ++i) sums[i] = 1000 * codes[i];
  compression::ternary_decode(codes, scale, out);
  compression::ternary_decode(sums, scale, wide);

  const runtime::Stream stream;
  const auto on = on_device<float>(x, stream);
  const auto on_sums = on_device<std::int32_t>(sums, stream);
  runtime::DeviceBuffer<float> on_scale(1), on_out(n), on_wide(n);
  runtime::DeviceBuffer<std::int8_t> on_codes(n);
  runtime::DeviceBuffer<std::byte> workspace(terngrad_workspace(n));
  ternary_scale(on.span(), clip, on_scale.span(), workspace.span().device_address(), stream.get());
  ternary_quantise(on.span(), on_scale.span(), on_codes.span(), detail::Draws(draw), stream.get());
  ternary_decode(on_codes.span(), on_scale.span(), on_out.span(), stream.get());
  ternary_decode(on_sums.span(), on_scale.span(), on_wide.span(), stream.get());
  expect_equal_floats(read_back<float>(on_scale.span(), stream), Floats{scale});
  EXPECT_EQ(read_back<std::int8_t>(on_codes.span(), stream), codes);
  expect_equal_floats(read_back<float>(on_out.span(), stream), out);
  expect_equal_floats(read_back<float>(on_wide.span(), stream), wide);
}

TEST(DeviceTernary, ScaleOfManyPiecesIsTheHosts) {
  for (const std::size_t largest : {std::size_t{3}, in_three_groups / 2, in_three_groups - 1}) {
    Floats x = gaussians(in_three_groups, 1);
    x[largest] = 20;
    const runtime::Stream stream;
    const auto on = on_device<float>(x, stream);
    runtime::DeviceBuffer<float> scale(1);
    runtime::DeviceBuffer<std::byte> workspace(terngrad_workspace(x.size()));
    for (const double clip : {0.0, 2.5}) {
      ternary_scale(on.span(), clip, scale.span(), workspace.span().device_address(), stream.get());
      expect_equal_floats(read_back<float>(scale.span(), stream), Floats{compression::ternary_scale(x, clip)});
    }
  }
}

TEST(DeviceTernary, PartsForASumAreTheHosts) {
  test::each_device_seed([] {
    for (const double clip : {0.0, 2.5}) {
      for (const std::size_t n : {0u, 1u, 33u, 513u, 9000u}) {
        SCOPED_TRACE(std::to_string(n) + ", clip " + std::to_string(clip));
        Floats x = gaussians(n, 1);
        expect_equal_ternary(x, clip);
        if (n == 0) continue;
        x[n / 2] = std::numeric_limits<float>::infinity();
        expect_equal_ternary(x, clip);
      }
    }
  });
}

TEST(DeviceFeedback, KeepsTheHostsResidual) {
  test::each_device_seed([] {
    for (const std::string name : {"qsgd4", "onebit", "topk:density=0.1", "terngrad"}) {
      const auto choice = find_codec(name);
      const auto device = make_device_codec(*choice);
      for (const std::size_t n : {1u, 33u, 1000u}) {
        SCOPED_TRACE(name + " of " + std::to_string(n));
        const runtime::Stream stream;
        Floats residual(n), scratch(n);
        Bytes wire(device->wire_bytes(n));
        auto on_residual = on_device<float>(residual, stream);
        runtime::DeviceBuffer<float> on_scratch(n);
        runtime::DeviceBuffer<std::byte> on_wire(wire.size()), workspace(device->workspace_bytes(n));
        for (std::size_t step = 0; step < 3; ++step) {
          Floats x = gaussians(n, 1, step);
          if (step == 1) x[n / 2] = std::numeric_limits<float>::quiet_NaN();
          const RandomDraw draw{.step = step};
          compression::encode_with_feedback(*choice->codec, x, residual, scratch, wire.data(), draw);
          const auto on = on_device<float>(x, stream);
          encode_with_feedback(*device, on.span(), on_residual.span(), on_scratch.span(), on_wire.span(), draw,
                               workspace.span(), stream.get());
          EXPECT_EQ(read_back<std::byte>(on_wire.span(), stream), wire);
          expect_equal_floats(read_back<float>(on_residual.span(), stream), residual);
        }
      }
    }
  });
}

}  // namespace
}  // namespace gradmeter::compression::cuda
