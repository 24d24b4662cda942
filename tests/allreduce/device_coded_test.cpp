// SPDX-License-Identifier: Apache-2.0
// Compressed all-reduces whose codec is kernels in a GPU's stream, against the host's of the same calls: equal bits,
// also of what error feedback carries from call to call.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "allreduce/coded/coded.hpp"
#include "allreduce/executor/coding.hpp"
#include "core/error.hpp"
#include "support/collectives.hpp"
#include "support/copying_transport.hpp"
#include "support/gpu_ranks.hpp"
#include "support/run_to_end.hpp"

namespace gradmeter::allreduce {
namespace {

using test::GpuRank;

constexpr std::size_t elements = 5003, room = elements * sizeof(float);

/// Ragged tensors at odd places; some go dense.
const std::vector<TensorPart> parts{{.offset = 1, .count = 2049, .rows = 1, .columns = 2049},
                                    {.offset = 2050, .count = 7, .rows = 1, .columns = 7},
                                    {.offset = 2060, .count = 1200, .rows = 30, .columns = 40},
                                    {.offset = 3300, .count = 90, .rows = 9, .columns = 10},
                                    {.offset = 3403, .count = 1600, .rows = 40, .columns = 40}};

void give_gradient(std::span<float> x, int rank, int call) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto place = static_cast<float>(i);
    x[i] = std::sin(0.37f * place + 1.7f * static_cast<float>(rank) + 0.9f * static_cast<float>(call)) *
           std::exp2(std::fmod(place, 9.0f) - 4);
  }
}

struct Way {
  std::string codec, algorithm;
  Placement placement = Placement::in_place;
  bool copies = false;  ///< messages land, or peers' memory is read
};

/// The same calls on the host and on the GPU.
class Pair {
 public:
  Pair(const GpuRank& r, const Way& w)
      : rank_(r),
        in_place_(w.placement == Placement::in_place),
        network_(r.world, {.transport = runtime::TransportKind::shm, .memory_bytes = std::size_t{16} << 20}),
        link_(network_.connect(r.world, most_lanes(r.world.size()))),
        copying_(w.copies ? std::make_unique<test::CopyingTransport>(*link_) : nullptr),
        pinned_(r.device.pin(network_.arena().memory())),
        in_(r.device.allocate_beside(core::Element::f32, network_.arena().take(room))),
        out_(r.device.allocate_beside(core::Element::f32, network_.arena().take(room))),
        codec_(compression::find_codec(w.codec)),
        algorithm_(find_algorithm(w.algorithm)) {
    const auto p = static_cast<std::uint32_t>(r.world.size());
    ExchangeSpec spec{.placement = w.placement,
                      .max_bytes = room,
                      .message_bytes = 2048,
                      .algorithm = algorithm_,
                      .codec = codec_,
                      .shape = {p, p}};
    const GroupConnection connection{r.world, network_, copying_ ? *copying_ : *link_};
    on_host_ = bind_coded(spec, connection, 5);
    spec.queue = &r.queue;
    on_gpu_ = bind_coded(spec, connection, 5);
    r.world.barrier();
  }

  /// Empty: the same on both.
  std::string fault(int call, Op op, bool differences) {
    std::vector<float> x(elements), y(elements), noted(elements), noted_on_gpu(elements), got(elements);
    give_gradient(x, rank_.world.rank(), call);
    CodingDifference difference{.values = noted}, on_gpu{.values = noted_on_gpu};
    // What is kept of the places that two calls share must survive that it grows.
    TensorLayout layout{
        .offset_in_step = call < 2 ? 11U : 1500U, .tensors = parts, .difference = differences ? &difference : nullptr};
    const std::vector<float> given = x;
    std::vector<float>& result = in_place_ ? x : y;
    on_host_->start({.in = x, .out = result, .op = op, .tensor_layout = layout});
    test::run_to_end(*on_host_);
    rank_.world.barrier();
    rank_.queue.submit("give", {}, [&] { std::ranges::copy(given, in_.buffer.values<float>().begin()); });
    layout.difference = differences ? &on_gpu : nullptr;
    const runtime::Buffer out = in_place_ ? in_.buffer : out_.buffer;
    on_gpu_->start({.in = in_.buffer, .out = out, .op = op, .tensor_layout = layout});
    test::run_to_end(*on_gpu_);
    rank_.device.make_queue()->run_and_wait([&] { std::ranges::copy(out.values<float>(), got.begin()); });
    for (const TensorPart& t : parts) {
      for (std::size_t i = t.offset; i < t.offset + t.count; ++i) {
        if (got[i] != result[i]) return fmt::format("element {} is {}, the host's {}", i, got[i], result[i]);
        if (noted[i] != noted_on_gpu[i]) return fmt::format("the difference of element {} is another", i);
      }
    }
    if (difference.term_squares != on_gpu.term_squares) return "other squares of differences";
    if (on_gpu_->sent()->bytes != *on_gpu_->bytes_required()) return "other bytes than due";
    return on_gpu_->sent()->bytes == on_host_->sent()->bytes ? "" : "other bytes than the host's";
  }
  const Collective& on_gpu() const { return *on_gpu_; }

 private:
  const GpuRank& rank_;
  bool in_place_;
  runtime::Network network_;
  std::unique_ptr<runtime::Transport> link_;
  std::unique_ptr<runtime::Transport> copying_;
  std::shared_ptr<void> pinned_;
  runtime::OwnedBuffer in_, out_;
  compression::CodecChoicePtr codec_;
  AlgorithmPtr algorithm_;
  std::unique_ptr<Collective> on_host_, on_gpu_;
};

void expect_same(const Way& way, int ranks, bool differences = false) {
  if (const auto why = test::lack_of_gpus(ranks); !why.empty()) GTEST_SKIP() << why;
  test::each_device_seed([&] {
    test::run_gpu_ranks(ranks, [&](const GpuRank& r) {
      Pair pair(r, way);
      EXPECT_TRUE(pair.on_gpu().works_on_device_memory());
      for (int call = 0; call < 3; ++call)
        EXPECT_EQ(pair.fault(call, call == 1 ? Op::average : Op::sum, differences), "")
            << way.codec << " " << way.algorithm << ", call " << call << ", rank " << r.world.rank();
      if (ranks > 1) {
        EXPECT_GT(pair.on_gpu().coding()->encode_s, 0);
        EXPECT_GT(pair.on_gpu().coding()->decode_s, 0);
      }
      r.world.barrier();
    });
  });
}

/// Feedback is refused where it would grow without end.
bool takes(const std::string& codec) {
  try {
    return compression::find_codec(codec) != nullptr;
  } catch (const core::UsageError&) {
    return false;
  }
}

class DeviceCoded : public ::testing::TestWithParam<std::string> {};

TEST_P(DeviceCoded, HasTheBitsOfTheHostOnOneToFourRanks) {
  // One-shot gathers nothing.
  const bool gathers = compression::find_codec(GetParam())->exchange == compression::Exchange::gather;
  for (const int ranks : {1, 2, 3, 4}) {
    expect_same({.codec = GetParam(), .algorithm = "direct", .copies = ranks % 2 == 0}, ranks);
    expect_same({GetParam(), ranks < 4 || gathers ? "ring" : "one-shot", Placement::out_of_place}, ranks);
  }
}

TEST_P(DeviceCoded, HasTheHostsErrorFeedbackAndDifferences) {
  for (const char* feedback : {",ef=on", ",ef=off"}) {
    if (takes(GetParam() + feedback)) expect_same({.codec = GetParam() + feedback, .algorithm = "direct"}, 3, true);
  }
}

/// Those that GPUs encode, and schedules of ours exchange or gather.
std::vector<std::string> coded_on_gpus() {
  std::vector<std::string> out;
  for (const auto& row : compression::codecs()) {
    const std::string name = fmt::format("{}:min=100", row.name);
    if (row.default_exchange == compression::Exchange::shared_sum) continue;
    if (gpu_block_codec_refusal(*compression::find_codec(name)).empty()) out.push_back(name);
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(Codecs, DeviceCoded, ::testing::ValuesIn(coded_on_gpus()),
                         [](const auto& p) { return test::test_name(p.param); });

/// It works on copies in the host's memory, which whoever calls it makes.
TEST(DeviceCodedOthers, AreNotGivenTheGpusMemory) {
  test::run_gpu_ranks(2, [](const GpuRank& r) {
    for (const char* codec : {"dgc", "powersgd", "qsgd-elias"}) {
      Pair pair(r, {.codec = codec, .algorithm = "ring"});
      EXPECT_FALSE(pair.on_gpu().works_on_device_memory()) << codec;
      EXPECT_FALSE(pair.on_gpu().takes_device_memory()) << codec;
    }
  });
}

}  // namespace
}  // namespace gradmeter::allreduce
