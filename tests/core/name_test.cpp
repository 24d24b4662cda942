// SPDX-License-Identifier: Apache-2.0
#include "core/name.hpp"

#include <gmock/gmock.h>

#include "support.hpp"

namespace gradmeter::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(Name, APlainNameIsItsBase) {
  const ParsedName name = parse_name("ring");
  EXPECT_EQ(name.base, "ring");
  EXPECT_EQ(name.bare, "");
  EXPECT_TRUE(name.parameters.empty());
  EXPECT_EQ(name.canonical(), "ring");
}

TEST(Name, ParametersAndBareTextFollowTheColon) {
  const ParsedName codec = parse_name("qsgd4:norm=l2,bucket=512");
  EXPECT_EQ(codec.base, "qsgd4");
  EXPECT_THAT(codec.parameters, ElementsAre(Pair("bucket", "512"), Pair("norm", "l2")));
  EXPECT_EQ(codec.canonical(), "qsgd4:bucket=512,norm=l2");
  const ParsedName model = parse_name("mlp:784-1024-1024-10");
  EXPECT_EQ(model.base, "mlp");
  EXPECT_EQ(model.bare, "784-1024-1024-10");
  EXPECT_EQ(model.canonical(), "mlp:784-1024-1024-10");
  EXPECT_EQ(parse_name(" mlp:784-10, seed = 2 ,act=relu").canonical(), "mlp:784-10,act=relu,seed=2");
}

TEST(Name, WrongNamesAreRefusedWithTheReason) {
  EXPECT_THAT(refusal([] { parse_name(""); }), HasSubstr("is empty"));
  EXPECT_THAT(refusal([] { parse_name("  "); }), HasSubstr("is empty"));
  EXPECT_THAT(refusal([] { parse_name(":x=1"); }), HasSubstr("is empty"));
  EXPECT_THAT(refusal([] { parse_name("a:"); }), HasSubstr("empty parameter"));
  EXPECT_THAT(refusal([] { parse_name("a:x=1,,y=2"); }), HasSubstr("empty parameter"));
  EXPECT_THAT(refusal([] { parse_name("a:x=1,"); }), HasSubstr("empty parameter"));
  EXPECT_THAT(refusal([] { parse_name("a:x="); }), HasSubstr("empty key or value"));
  EXPECT_THAT(refusal([] { parse_name("a:=1"); }), HasSubstr("empty key or value"));
  EXPECT_THAT(refusal([] { parse_name("a:x=1,x=2"); }), HasSubstr("'x' twice"));
  EXPECT_THAT(refusal([] { parse_name("a:x=1,b"); }), HasSubstr("'b' without a value"));
  EXPECT_THAT(refusal([] { parse_name("a\nb"); }), HasSubstr("control character"));
}

TEST(Name, ACommaContinuesAParameterListOrBeginsAName) {
  EXPECT_THAT(split_names("a,b:x=1,y=2,c"), ElementsAre("a", "b:x=1,y=2", "c"));
  EXPECT_THAT(split_names("mlp:784-10,act=relu,ring"), ElementsAre("mlp:784-10,act=relu", "ring"));
  EXPECT_THAT(split_names("b:x=1,c:y=2,z=3"), ElementsAre("b:x=1", "c:y=2,z=3"));
  EXPECT_THAT(split_names("a:p=x:y,q=1"), ElementsAre("a:p=x:y,q=1"));
  EXPECT_THAT(split_names(" a , b "), ElementsAre("a", "b"));
}

TEST(Name, ABrokenListIsRefused) {
  EXPECT_THAT(refusal([] { split_names(""); }), HasSubstr("empty name"));
  EXPECT_THAT(refusal([] { split_names("a,,b"); }), HasSubstr("empty name"));
  EXPECT_THAT(refusal([] { split_names("a,"); }), HasSubstr("empty name"));
  EXPECT_THAT(refusal([] { split_names("a,x=1"); }), HasSubstr("'x=1' in 'a,x=1' follows no name"));
  EXPECT_THAT(refusal([] { split_names("x=1"); }), HasSubstr("follows no name"));
}

TEST(Name, TheNearestNameIsFoundWithinASlip) {
  const std::vector<std::string> known{"ring", "recursive-doubling", "direct", "fp32"};
  EXPECT_EQ(nearest("rign", known), "ring");
  EXPECT_EQ(nearest("RING", known), "ring");
  EXPECT_EQ(nearest("recursive_doubling", known), "recursive-doubling");
  EXPECT_EQ(nearest("recursivedoublin", known), "recursive-doubling");
  EXPECT_EQ(nearest("fp3", known), "fp32");
  EXPECT_EQ(nearest("tree", known), "");
  EXPECT_EQ(nearest("", known), "");
  EXPECT_EQ(nearest("x", {}), "");
  EXPECT_EQ(nearest("x", std::vector<std::string>{"y"}), "") << "all letters differ";
}

TEST(Name, AnUnknownNameIsRefusedWithAllThereAre) {
  const std::vector<std::string> known{"mpi", "recursive-doubling", "ring"};
  EXPECT_EQ(refusal([&] { refuse_unknown("algorithm", "foo", known); }),
            "algorithm 'foo' is not known; there are: mpi, recursive-doubling, ring");
  EXPECT_EQ(refusal([&] { refuse_unknown("algorithm", "rnig", known); }),
            "algorithm 'rnig' is not known (did you mean 'ring'?); there are: mpi, recursive-doubling, ring");
}

}  // namespace
}  // namespace gradmeter::core
