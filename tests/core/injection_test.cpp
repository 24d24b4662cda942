#include "core/injection.hpp"

#include <gmock/gmock.h>

#include "support.hpp"

namespace gradmeter::core {
namespace {

using testing::HasSubstr;

TEST(Injection, EachKindIsReadWithItsParameters) {
  const Injection i =
      parse_injection("slow:rank=1,factor=2.5,flip:call=40,rank=3,drop:call=7,rank=1,drift:ppm=-20,rank=2");
  ASSERT_TRUE(i.slow && i.flip && i.drop && i.drift);
  EXPECT_EQ(i.slow->rank, 1);
  EXPECT_EQ(i.slow->factor, 2.5);
  EXPECT_EQ(i.slow->of(1), 2.5);
  EXPECT_EQ(i.slow->of(0), 1.0);
  EXPECT_EQ(i.flip->rank, 3);
  EXPECT_EQ(i.flip->call, 40U);
  EXPECT_EQ(i.drop->rank, 1);
  EXPECT_EQ(i.drop->call, 7U);
  EXPECT_EQ(i.drift->ppm, -20);
  EXPECT_EQ(i.drift->rank_of(8), 2);
}

TEST(Injection, WhatIsNotGivenHasADefault) {
  const Injection i = parse_injection("drift,flip");
  EXPECT_FALSE(i.slow);
  EXPECT_EQ(i.flip->call, 0U);
  EXPECT_EQ(i.drift->ppm, 20);
  EXPECT_EQ(i.drift->rank_of(4), 3);
}

TEST(Injection, EqualInjectionsHaveOneText) {
  EXPECT_EQ(Injection{}.text(), "");
  EXPECT_FALSE(Injection{}.any());
  const std::string text = "slow:factor=2,rank=1,flip:call=40,rank=0,drop:call=3,rank=1,drift:ppm=20,rank=last";
  EXPECT_EQ(parse_injection("drift:ppm=20.0, flip:call=40,drop:rank=1,call=3,slow:rank=1,factor=2.0").text(), text);
  EXPECT_EQ(parse_injection(text).text(), text);
}

TEST(Injection, OnlyASoakKnowsAPartOfItsTime) {
  const Injection part = parse_injection("slow:after=2,for=3,rank=1");
  EXPECT_EQ(part.text(), "slow:after=2,factor=2,for=3,rank=1");
  EXPECT_EQ(parse_injection(part.text()).text(), part.text());
  EXPECT_FALSE(part.slow->covers(1.9));
  EXPECT_TRUE(part.slow->covers(2) && part.slow->covers(4.9));
  EXPECT_FALSE(part.slow->covers(5));
  EXPECT_THAT(refusal([&] { part.check_lasting(); }), HasSubstr("--soak"));
  const Injection open = parse_injection("slow:after=2");
  EXPECT_TRUE(open.slow->covers(1e6)) << "to the end";
  EXPECT_THAT(refusal([&] { open.check_lasting(); }), HasSubstr("--soak"));
  EXPECT_NO_THROW(parse_injection("slow:rank=1").check_lasting());
}

TEST(Injection, MistakesAreNamedInALine) {
  const auto why = [](const char* text) { return refusal([=] { parse_injection(text); }); };
  EXPECT_THAT(why("slo:rank=1"), HasSubstr("did you mean 'slow'"));
  EXPECT_THAT(why("slow:ranks=1"), HasSubstr("did you mean 'rank'"));
  EXPECT_THAT(why("slow:factor=0.5"), HasSubstr("from 1 to below 1000"));
  EXPECT_THAT(why("flip:call=-1"), HasSubstr("whole number"));
  EXPECT_THAT(why("flip,flip:call=2"), HasSubstr("twice"));
  EXPECT_THAT(why("drift:rank=first"), HasSubstr("whole number"));
  EXPECT_THAT(why(""), HasSubstr("empty"));
}

TEST(Injection, ARankThatIsNotThereIsRefused) {
  EXPECT_THAT(refusal([] { parse_injection("flip:rank=4").check_ranks(4); }), HasSubstr("the last of 4 ranks is 3"));
  EXPECT_THAT(refusal([] { parse_injection("slow:rank=2").check_ranks(2); }), HasSubstr("rank 2 does not exist"));
  EXPECT_THAT(refusal([] { parse_injection("drop:rank=4").check_ranks(4); }), HasSubstr("--inject drop"));
  EXPECT_NO_THROW(parse_injection("flip:rank=3,slow:rank=0,drift").check_ranks(4));
}

}  // namespace
}  // namespace gradmeter::core
