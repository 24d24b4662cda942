// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "compression/cuda/device_codec.hpp"
#include "core/error.hpp"

namespace gradmeter::compression::cuda {
namespace {

TEST(DeviceForms, MakeACodecOrSayWhyNot) {
  for (const CodecInfo& codec : codecs()) {
    const auto choice = find_codec(codec.name);
    const DeviceCodecInfo form = device_form(codec.name);
    EXPECT_EQ(form.name, codec.name);
    EXPECT_FALSE(form.description.empty()) << codec.name;
    if (form.make) {
      ASSERT_TRUE(choice->codec) << codec.name << " consists of collectives";
      EXPECT_EQ(make_device_codec(*choice)->wire_bytes(1000), choice->codec->wire_bytes(1000)) << codec.name;
      continue;
    }
    try {
      make_device_codec(*choice);
      ADD_FAILURE() << codec.name << " was made";
    } catch (const core::UsageError& error) {
      const std::string reason(choice->codec ? form.description : "it consists of collectives");
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  }
}

/// A form whose name no codec has would never be found.
TEST(DeviceForms, AreThereForEachCodecWithKernels) {
  for (const auto* name : {"bf16", "fp16", "fp8-e4m3", "fp8-e5m2", "lns4", "natural8", "onebit", "qsgd1", "qsgd2",
                           "qsgd4", "qsgd8", "terngrad", "topk"}) {
    EXPECT_NE(device_form(name).make, nullptr) << name;
  }
  EXPECT_EQ(device_form("none of these").make, nullptr);
}

}  // namespace
}  // namespace gradmeter::compression::cuda
