// SPDX-License-Identifier: Apache-2.0
#include "core/element.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "core/error.hpp"

namespace gradmeter::core {
namespace {

TEST(Element, EachRowStandsAtItsOwnPlace) {
  for (std::size_t i = 0; i < elements.size(); ++i) EXPECT_EQ(static_cast<std::size_t>(elements[i].element), i);
}

template <class T>
void expect_described(double unit_roundoff) {
  EXPECT_EQ(size_of(element_of<T>), sizeof(T));
  EXPECT_EQ(info(element_of<T>).unit_roundoff, unit_roundoff);
}

TEST(Element, SizesAndRoundoffAreThoseOfTheTypes) {
  expect_described<double>(std::numeric_limits<double>::epsilon() / 2);
  expect_described<float>(std::numeric_limits<float>::epsilon() / 2);
  expect_described<std::int64_t>(0);
  expect_described<std::int32_t>(0);
  expect_described<std::int8_t>(0);
}

TEST(Element, EveryNameIsUnderstoodAndSoAreThoseOfNcclTests) {
  for (const auto& row : elements) EXPECT_EQ(parse_element(row.name), row.element) << row.name;
  EXPECT_EQ(parse_element("float"), Element::f32);
  EXPECT_EQ(parse_element("double"), Element::f64);
  EXPECT_EQ(parse_element("half"), Element::f16);
  EXPECT_EQ(parse_element("bfloat16"), Element::bf16);
  EXPECT_EQ(parse_element("fp8"), Element::e4m3);
  EXPECT_EQ(parse_element("fp8_e4m3"), Element::e4m3);
  EXPECT_EQ(parse_element("fp8_e5m2"), Element::e5m2);
  EXPECT_EQ(parse_element("f8e4m3"), Element::e4m3);
  EXPECT_EQ(parse_element("f8e5m2"), Element::e5m2);
  EXPECT_EQ(parse_element("int"), Element::i32);
  EXPECT_EQ(parse_element("char"), Element::i8);
}

TEST(Element, AnUnknownNameIsRefusedWithThoseThatThereAre) {
  try {
    (void)parse_element("fp17");
    ADD_FAILURE() << "fp17 was taken";
  } catch (const UsageError& e) {
    for (const auto& row : elements) EXPECT_NE(std::string(e.what()).find(row.name), std::string::npos) << row.name;
  }
  try {
    (void)parse_element("uint8");
    ADD_FAILURE() << "uint8 was taken";
  } catch (const UsageError& e) {
    EXPECT_EQ(
        std::string(e.what()),
        "type 'uint8' is nccl-tests', but nothing is measured in it here; there are: fp64, fp32, int64, int32, fp16, "
        "bf16, fp8-e4m3, fp8-e5m2, int8");
  }
}

TEST(Element, SmallFloatsAreThoseThatNoTypeHolds) {
  for (const auto& row : elements) {
    EXPECT_EQ(is_small_float(row.element), row.name == "fp16" || row.name == "bf16" || row.name.starts_with("fp8"));
    EXPECT_EQ(is_integer(row.element), row.name.starts_with("int"));
  }
}

}  // namespace
}  // namespace gradmeter::core
