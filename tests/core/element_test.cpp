#include "core/element.hpp"

#include <gtest/gtest.h>

#include <limits>

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
}

}  // namespace
}  // namespace gradmeter::core
