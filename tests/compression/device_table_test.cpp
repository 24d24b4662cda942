// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "compression/cuda/device_codec.hpp"
#include "core/error.hpp"

namespace gradmeter::compression::cuda {
namespace {

TEST(DeviceForms, HaveARowForEachCodecInItsOrder) {
  const auto forms = device_forms();
  ASSERT_EQ(forms.size(), codecs().size());
  for (std::size_t i = 0; i < forms.size(); ++i) {
    EXPECT_EQ(forms[i].name, codecs()[i].name);
    EXPECT_FALSE(forms[i].how.empty()) << forms[i].name;
    if (!codecs()[i].make) {
      EXPECT_EQ(forms[i].make, nullptr) << forms[i].name << " consists of collectives";
    }
  }
}

TEST(DeviceForms, MakeACodecOrSayWhyNot) {
  for (const DeviceForm& form : device_forms()) {
    const auto choice = find_codec(form.name);
    if (form.make) {
      EXPECT_EQ(make_device_codec(*choice)->wire_bytes(1000), choice->codec->wire_bytes(1000)) << form.name;
      continue;
    }
    try {
      make_device_codec(*choice);
      ADD_FAILURE() << form.name << " was made";
    } catch (const core::UsageError& error) {
      const std::string reason(choice->codec ? form.how : "it consists of collectives");
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace gradmeter::compression::cuda
