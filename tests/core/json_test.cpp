// SPDX-License-Identifier: Apache-2.0
#include "core/json.hpp"

#include <gtest/gtest.h>

namespace gradmeter::core {
namespace {

TEST(Json, BytesThatAreNotUtf8BecomeTheReplacementCharacter) {
  EXPECT_EQ(json_text({{"host", "n\xff"}}), "{\"host\":\"n\xef\xbf\xbd\"}");
}

TEST(Json, ATextComesBack) {
  const Json json{{"name", "café"}, {"values", {1, 2.5, nullptr}}};
  EXPECT_EQ(parse_json(json_text(json)), json);
  EXPECT_EQ(parse_json(json_text(json, 2)), json);
}

TEST(Json, WhatIsNoJsonIsNothingOrAnError) {
  for (const char* text : {"", "{", "{\"a\":}", "1 2"}) {
    EXPECT_FALSE(try_parse_json(text)) << text;
    EXPECT_THROW(parse_json(text), Json::parse_error) << text;
  }
  EXPECT_TRUE(try_parse_json("null")) << "null is a value";
}

}  // namespace
}  // namespace gradmeter::core
