// SPDX-License-Identifier: Apache-2.0
#include "core/units.hpp"

#include <gmock/gmock.h>

#include <limits>

#include "core/error.hpp"
#include "core/format.hpp"
#include "support.hpp"

namespace gradmeter::core {
namespace {

using namespace literals;
using testing::HasSubstr;

TEST(Units, OnlyMeaningfulQuotientsAreFormed) {
  EXPECT_DOUBLE_EQ((4_MiB / Seconds{2}).value, 2097152.0);
  EXPECT_DOUBLE_EQ((Bytes{1000} / BytesPerSecond{500}).value, 2);
  EXPECT_DOUBLE_EQ((Flops{1e9} / Seconds{0.5}).value, 2e9);
  EXPECT_DOUBLE_EQ(Seconds{6} / Seconds{3}, 2);
}

TEST(Units, SizesAreReadWithBinarySuffixes) {
  EXPECT_EQ(parse_bytes("0").value, 0u);
  EXPECT_EQ(parse_bytes("4096").value, 4096u);
  EXPECT_EQ(parse_bytes("12B").value, 12u);
  EXPECT_EQ(parse_bytes("4K"), 4_KiB);
  EXPECT_EQ(parse_bytes("4k"), 4_KiB);
  EXPECT_EQ(parse_bytes("4KiB"), 4_KiB);
  EXPECT_EQ(parse_bytes(" 64 MiB "), 64_MiB);
  EXPECT_EQ(parse_bytes("1G"), 1_GiB);
  EXPECT_EQ(parse_bytes("25MiB"), 25_MiB);
  EXPECT_EQ(parse_bytes("25MB").value, 25'000'000u) << "MB is decimal, MiB and M are binary";
  EXPECT_EQ(parse_bytes("1.5 kb").value, 1500u);
  EXPECT_EQ(parse_bytes("0.001GB").value, 1'000'000u);
  EXPECT_EQ(parse_bytes("2T").value, std::size_t{1} << 41);
}

TEST(Units, AnExactFractionIsTakenAndAnInexactOneRefused) {
  EXPECT_EQ(parse_bytes("1.5M").value, 3u << 19);
  EXPECT_EQ(parse_bytes("2.0").value, 2u);
  EXPECT_EQ(parse_bytes("0.0009765625K").value, 1u);
  EXPECT_EQ(parse_bytes("0.25K").value, 256u);
  for (const char* text : {"1.5", "1.1K", "0.00048828125K", "1.0000000000000000000001G", "0.3G"}) {
    EXPECT_THAT(refusal([&] { parse_bytes(text); }), HasSubstr("not a whole number of bytes")) << text;
  }
}

TEST(Units, SizesBeyondSixtyThreeBitsAreRefused) {
  EXPECT_EQ(parse_bytes("9223372036854775807").value, (std::size_t{1} << 63) - 1);
  EXPECT_EQ(parse_bytes("8388607.5T").value, (std::size_t{1} << 63) - (std::size_t{1} << 39));
  for (const char* text : {"9223372036854775808", "18446744073709551617", "8388608T", "99999999999999999999999G"}) {
    EXPECT_THAT(refusal([&] { parse_bytes(text); }), HasSubstr("too large")) << text;
  }
}

TEST(Units, AWrongSizeIsNamedTogetherWithARightOne) {
  EXPECT_THAT(refusal([] { parse_bytes("-4K"); }), HasSubstr("'-4K' is negative"));
  for (const char* text :
       {"", " ", "K", "4X", "4KBs", "4KiBs", "4 4", "1e3", "0x10", ".5K", "4.K", "1.2.3", "+4", "4µ"}) {
    const std::string message = refusal([&] { parse_bytes(text); });
    EXPECT_THAT(message, HasSubstr(fmt::format("'{}'", text))) << text;
    EXPECT_THAT(message, HasSubstr("such as 4096, 4K")) << text;
  }
}

TEST(Units, AMessageStaysOneLineWhateverWasGiven) {
  const std::string message = refusal([] { parse_bytes("4\n\x1b[2J" + std::string(5000, 'x')); });
  EXPECT_THAT(message, testing::Not(HasSubstr("\n")));
  EXPECT_THAT(message, testing::Not(HasSubstr("\x1b")));
  EXPECT_LT(message.size(), 250u);
}

TEST(Units, DurationsAreSecondsUnlessTheySayOtherwise) {
  EXPECT_DOUBLE_EQ(parse_duration("30").value, 30);
  EXPECT_DOUBLE_EQ(parse_duration("0.5s").value, 0.5);
  EXPECT_DOUBLE_EQ(parse_duration("250ms").value, 0.25);
  EXPECT_DOUBLE_EQ(parse_duration("5m").value, 300);
  EXPECT_DOUBLE_EQ(parse_duration("2h").value, 7200);
  EXPECT_DOUBLE_EQ(parse_duration("1h30m").value, 5400);
  EXPECT_DOUBLE_EQ(parse_duration("2m1.5s").value, 121.5);
  for (const char* text :
       {"", "s", "-1", "5 minutes", "nan", "inf", "30m1h", "5m5m", "1h30", "1h-30m", "1h30x", "h30m"}) {
    EXPECT_THAT(refusal([&] { parse_duration(text); }), HasSubstr("such as 30, 30s, 5m or 1h30m")) << text;
  }
}

TEST(Units, BytesAreShownInTheLargestUnitThatFits) {
  EXPECT_EQ(to_text(Bytes{0}), "0 B");
  EXPECT_EQ(to_text(Bytes{12}), "12 B");
  EXPECT_EQ(to_text(Bytes{1023}), "1023 B");
  EXPECT_EQ(to_text(4_KiB), "4 KiB");
  EXPECT_EQ(to_text(Bytes{3u << 19}), "1.5 MiB");
  EXPECT_EQ(to_text(Bytes{(1u << 20) - 1}), "1 MiB");
  EXPECT_EQ(to_text(Bytes{std::numeric_limits<std::size_t>::max()}), "16 EiB");
}

TEST(Units, SecondsAreShownWithThreeDigitsAndAFittingUnit) {
  EXPECT_EQ(to_text(Seconds{12.34e-3}), "12.3 ms");
  EXPECT_EQ(to_text(Seconds{870e-9}), "870 ns");
  EXPECT_EQ(to_text(Seconds{1}), "1.00 s");
  EXPECT_EQ(to_text(Seconds{999.6e-9}), "1.00 µs");
  EXPECT_EQ(to_text(Seconds{-2.5e-6}), "-2.50 µs");
  EXPECT_EQ(to_text(Seconds{0}), "0 s");
  EXPECT_EQ(to_text(Seconds{0.25e-9}), "0.25 ns");
  EXPECT_EQ(to_text(Seconds{1800}), "30.0 min");
  EXPECT_EQ(to_text(Seconds{36000}), "10.0 h");
}

TEST(Units, RatesAreShownDecimally) {
  EXPECT_EQ(to_text(BytesPerSecond{12.34e9}), "12.3 GB/s");
  EXPECT_EQ(to_text(BytesPerSecond{999.9e6}), "1.00 GB/s");
  EXPECT_EQ(to_text(FlopsPerSecond{151e9}), "151 GFLOP/s");
  EXPECT_EQ(to_text(FlopsPerSecond{0}), "0 FLOP/s");
}

TEST(Units, WhatIsNoNumberIsShownAsADash) {
  EXPECT_EQ(to_text(Seconds{std::numeric_limits<double>::quiet_NaN()}), "-");
  EXPECT_EQ(to_text(BytesPerSecond{std::numeric_limits<double>::infinity()}), "inf");
}

TEST(Units, ATimeThatPeopleWaitIsShownAsAClockShowsIt) {
  EXPECT_EQ(clock_text({0}), "00:00");
  EXPECT_EQ(clock_text({59.6}), "01:00");
  EXPECT_EQ(clock_text({3599.4}), "59:59");
  EXPECT_EQ(clock_text({3723}), "1:02:03");
  EXPECT_EQ(clock_text({-3}), "00:00");
}

}  // namespace
}  // namespace gradmeter::core
