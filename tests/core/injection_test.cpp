// SPDX-License-Identifier: Apache-2.0
#include "core/injection.hpp"

#include <gmock/gmock.h>

#include <limits>

#include "support.hpp"

namespace gradmeter::core {
namespace {

using testing::HasSubstr;

TEST(Injection, EachKindIsReadWithItsParameters) {
  const Injection i =
      parse_injection("slow:rank=1,factor=2.5,flip:call=40,rank=3,omit:call=7,rank=1,drift:ppm=-20,rank=2");
  ASSERT_TRUE(i.slow && i.flip && i.omit && i.drift);
  EXPECT_EQ(i.slow->rank, 1);
  EXPECT_EQ(i.slow->factor, 2.5);
  EXPECT_EQ(i.slow->of(1), 2.5);
  EXPECT_EQ(i.slow->of(0), 1.0);
  EXPECT_EQ(i.flip->rank, 3);
  EXPECT_EQ(i.flip->call, 40U);
  EXPECT_EQ(i.omit->rank, 1);
  EXPECT_EQ(i.omit->call, 7U);
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
  const std::string text = "slow:factor=2,rank=1,flip:call=40,rank=0,omit:call=3,rank=1,drift:ppm=20,rank=last";
  EXPECT_EQ(parse_injection("drift:ppm=20.0, flip:call=40,omit:rank=1,call=3,slow:rank=1,factor=2.0").text(), text);
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

TEST(Injection, FaultsOfMessagesAreReadWithTheirParameters) {
  const Injection i =
      parse_injection("drop:p=0.25,timeout=10ms,delay:time=2ms,jitter=500us,seed=7,cut:rank=3,at=1.5s,for=2s");
  const MessageFaults& m = i.messages;
  ASSERT_TRUE(m.drop && m.delay && m.cut);
  EXPECT_EQ(m.drop->probability, 0.25);
  EXPECT_DOUBLE_EQ(m.drop->timeout_s, 0.01);
  EXPECT_EQ(m.drop->seed, 1u);
  EXPECT_DOUBLE_EQ(m.delay->time_s, 2e-3);
  EXPECT_DOUBLE_EQ(m.delay->jitter_s, 5e-4);
  EXPECT_EQ(m.delay->seed, 7u);
  EXPECT_EQ(m.cut->rank, 3);
  EXPECT_DOUBLE_EQ(m.cut->at_s, 1.5);
  EXPECT_DOUBLE_EQ(m.cut->for_s, 2);
  EXPECT_EQ(parse_injection("cut").messages.cut->for_s, std::numeric_limits<double>::infinity());
  EXPECT_EQ(parse_injection(i.text()).text(), i.text());
  EXPECT_EQ(i.text(), "drop:p=0.25,seed=1,timeout=10ms,delay:jitter=500us,seed=7,time=2ms,cut:at=1.5s,for=2s,rank=3");
  EXPECT_EQ(parse_injection("delay:time=0.00001s").text(), "delay:jitter=0s,seed=1,time=10us");
  EXPECT_EQ(parse_injection("delay:time=0.00001").text(), "delay:jitter=0s,seed=1,time=10us") << "seconds need no unit";
  EXPECT_EQ(parse_injection("cut").text(), "cut:at=0s,for=forever,rank=0");
}

TEST(Injection, ASeedHasAllOfItsDigits) {
  for (const std::uint64_t seed : {std::uint64_t{9007199254740993}, std::uint64_t{12345678901234567}, UINT64_MAX}) {
    const std::string text = "drop:p=0.5,seed=" + std::to_string(seed) + ",timeout=10ms";
    EXPECT_EQ(parse_injection(text).messages.drop->seed, seed);
    EXPECT_EQ(parse_injection(text).text(), text);
  }
}

TEST(Injection, MistakesAreNamedInALine) {
  const auto why = [](const char* text) { return refusal([=] { parse_injection(text); }); };
  EXPECT_THAT(why("slo:rank=1"), HasSubstr("did you mean 'slow'"));
  EXPECT_THAT(why("slow:ranks=1"), HasSubstr("did you mean 'rank'"));
  EXPECT_THAT(why("slow:factor=0.5"), HasSubstr("from 1 to below 1000"));
  EXPECT_THAT(why("flip:call=-1"), HasSubstr("whole number"));
  EXPECT_THAT(why("flip,flip:call=2"), HasSubstr("twice"));
  EXPECT_THAT(why("drift:rank=first"), HasSubstr("whole number"));
  EXPECT_THAT(why("drop:p=1"), HasSubstr("from 0 to below 1"));
  EXPECT_THAT(why("delay:time=fast"), HasSubstr("duration 'fast'"));
  EXPECT_THAT(why("delay:time=1ms,jitter=2ms"), HasSubstr("jitter is more than time"));
  EXPECT_THAT(why(""), HasSubstr("empty"));
}

TEST(Injection, ARankThatIsNotThereIsRefused) {
  EXPECT_THAT(refusal([] { parse_injection("flip:rank=4").check_ranks(4); }), HasSubstr("the last of 4 ranks is 3"));
  EXPECT_THAT(refusal([] { parse_injection("slow:rank=2").check_ranks(2); }), HasSubstr("rank 2 does not exist"));
  EXPECT_THAT(refusal([] { parse_injection("omit:rank=4").check_ranks(4); }), HasSubstr("--inject omit"));
  EXPECT_THAT(refusal([] { parse_injection("cut:rank=4").check_ranks(4); }), HasSubstr("--inject cut"));
  EXPECT_NO_THROW(parse_injection("flip:rank=3,slow:rank=0,drift").check_ranks(4));
}

}  // namespace
}  // namespace gradmeter::core
