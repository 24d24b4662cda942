#include <gtest/gtest.h>

#include "compression/cuda/device_codecs.hpp"
#include "core/error.hpp"

namespace gradmeter::compression::cuda {
namespace {

TEST(DeviceForms, HaveARowForEachCodecInItsOrder) {
  const auto forms = device_forms();
  ASSERT_EQ(forms.size(), codecs().size());
  for (std::size_t i = 0; i < forms.size(); ++i) {
    EXPECT_EQ(forms[i].name, codecs()[i].name);
    EXPECT_FALSE(forms[i].how.empty()) << forms[i].name;
    EXPECT_EQ(forms[i].kind == DeviceKind::codec, forms[i].make != nullptr) << forms[i].name;
    EXPECT_EQ(forms[i].kind == DeviceKind::parts, codecs()[i].make == nullptr) << forms[i].name;
  }
}

TEST(DeviceForms, MakeACodecOrSayWhyNot) {
  for (const DeviceForm& form : device_forms()) {
    const auto choice = find_codec(form.name);
    if (form.kind == DeviceKind::codec) {
      EXPECT_EQ(make_device_codec(*choice)->wire_bytes(1000), choice->codec->wire_bytes(1000)) << form.name;
      continue;
    }
    try {
      make_device_codec(*choice);
      ADD_FAILURE() << form.name << " was made";
    } catch (const core::UsageError& error) {
      const std::string reason(form.kind == DeviceKind::none ? form.how : "it consists of collectives");
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace gradmeter::compression::cuda
