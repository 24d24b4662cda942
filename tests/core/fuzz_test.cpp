// SPDX-License-Identifier: Apache-2.0
// Mutated inputs from a fixed seed: only UsageError may come out, whatever goes in.
#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "core/name.hpp"
#include "core/random.hpp"
#include "core/units.hpp"
#include "support.hpp"

namespace gradmeter::core {
namespace {

/// A stream of choices; the n-th is the same on every machine.
class Dice {
 public:
  explicit Dice(std::uint64_t stream) : random_(20240501, stream) {}
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_.below(next_++, n)); }

 private:
  Random random_;
  std::uint64_t next_ = 0;
};

constexpr std::array<std::string_view, 24> kTokens{"{",
                                                   "}",
                                                   "[",
                                                   "]",
                                                   "\"",
                                                   ":",
                                                   ",",
                                                   "\n",
                                                   "null",
                                                   "true",
                                                   "-1",
                                                   "1e999",
                                                   "18446744073709551616",
                                                   "0.1",
                                                   "\\u0000",
                                                   "\\",
                                                   "\xff",
                                                   "\"n\":",
                                                   "\"kind\":",
                                                   "\"run\"",
                                                   "=",
                                                   "K",
                                                   "T",
                                                   "\xEF\xBB\xBF"};

std::string mutated(std::string text, Dice& dice) {
  const std::size_t changes = 1 + dice.below(4);
  for (std::size_t i = 0; i < changes; ++i) {
    const std::size_t place = dice.below(text.size() + 1);
    const std::size_t length = std::min(dice.below(20), text.size() - place);
    switch (dice.below(6)) {
      case 0:
        text.erase(place, length);
        break;
      case 1:
        text.insert(place, text.substr(dice.below(text.size() + 1), dice.below(30)));
        break;
      case 2:
        text.insert(place, kTokens[dice.below(kTokens.size())]);
        break;
      case 3:
        text.replace(place, length, kTokens[dice.below(kTokens.size())]);
        break;
      case 4:
        text.resize(place);
        break;
      default:
        if (place < text.size()) text[place] = static_cast<char>(dice.below(256));
    }
  }
  return text;
}

/// Counts what was taken and what was refused; anything else than UsageError ends the test by itself.
struct Tally {
  std::size_t taken = 0, refused = 0;
};
Tally fuzz(const std::vector<std::string>& seeds, std::size_t rounds,
           const std::function<void(const std::string&)>& act) {
  Tally tally;
  Dice dice(seeds.front().size());
  for (std::size_t i = 0; i < rounds; ++i) {
    const std::string text = mutated(seeds[dice.below(seeds.size())], dice);
    try {
      act(text);
      ++tally.taken;
    } catch (const UsageError& e) {
      ++tally.refused;
      EXPECT_EQ(std::string_view(e.what()).find('\n'), std::string_view::npos) << "a message is one line";
      EXPECT_LT(std::string_view(e.what()).size(), 500u);
    } catch (const std::exception& e) {
      ADD_FAILURE() << "not a UsageError: " << e.what() << "\nfor: " << text;
    }
  }
  return tally;
}

/// A run that refuses or accepts everything has not tested enough.
void expect_both(const Tally& tally) {
  EXPECT_GT(tally.taken, (tally.taken + tally.refused) / 50);
  EXPECT_GT(tally.refused, (tally.taken + tally.refused) / 50);
}

TEST(Fuzz, ResultFilesAreTakenOrRefused) {
  const std::string run = to_json_line(sample_run()) + "\n", point = to_json_line(sample_point(), "r1") + "\n";
  const std::string small = R"({"kind":"run","schema":2,"run_id":"a","ranks":2,"hosts":["h"],"libraries":{"x":"1"}})"
                            "\n"
                            R"({"kind":"point","run_id":"a","experiment":"e","status":"ok","factors":{"ranks":2},)"
                            R"("metrics":{"time_s":{"median":1,"n":3},"loss":null},"nonfinite":["metrics.loss"]})"
                            "\n"
                            R"({"kind":"plan","run_id":"a","points":2,"kept":1})"
                            "\n"
                            R"({"kind":"end","run_id":"a","time":"t","exit":0,"reason":""})"
                            "\n";
  expect_both(fuzz({run + point + point, run, small, small, small}, 8000, [](const std::string& text) {
    for (const core::Run& r : parse_results(text, "f").runs) {
      for (const Point& p : r.points) (void)to_json_line(p, r.info.run_id);
    }
  }));
}

TEST(Fuzz, WhatWasTakenIsWrittenAndTakenAgain) {
  const std::string seed = to_json_line(sample_run()) + "\n" + to_json_line(sample_point(), "r1") + "\n";
  fuzz({seed}, 2000, [](const std::string& text) {
    for (const core::Run& r : parse_results(text, "f").runs) {
      for (const Point& p : r.points) {
        const std::string line = to_json_line(p, r.info.run_id);
        const ResultFile again = parse_results(to_json_line(r.info) + "\n" + line + "\n", "again");
        EXPECT_EQ(to_json_line(again.runs.at(0).points.at(0), r.info.run_id), line);
      }
    }
  });
}

TEST(Fuzz, DeeplyNestedTextDoesNotOverflowTheStack) {
  for (const char* open : {"[", "{\"a\":", "{\"kind\":\"note\",\"a\":["}) {
    std::string text;
    for (int i = 0; i < 200000; ++i) text += open;
    EXPECT_NE(refusal([&] { parse_results(text + "\n", "deep"); }), "");
  }
  const std::string whole = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_EQ(parse_results("{\"kind\":\"note\",\"text\":" + whole + "}\n", "deep").note, "");
}

TEST(Fuzz, SizesAndDurationsAreTakenOrRefused) {
  const std::vector<std::string> seeds{"4096",    "4K", "1.5M", "64MiB", "0.0009765625K", "9223372036854775807",
                                       "8388607T"};
  expect_both(
      fuzz(seeds, 20000, [](const std::string& text) { EXPECT_LT(parse_bytes(text).value >> 63, 1u) << text; }));
  expect_both(fuzz({"30", "30s", "5m", "2h", "250ms"}, 10000,
                   [](const std::string& text) { EXPECT_GE(parse_duration(text).value, 0) << text; }));
}

TEST(Fuzz, NamesAreTakenOrRefusedAndTheirCanonicalTextIsStable) {
  const std::vector<std::string> seeds{"ring", "qsgd4:bucket=512,norm=l2", "mlp:784-1024-1024-10,act=relu",
                                       "a:x=b=c,y=:"};
  expect_both(fuzz(seeds, 20000, [](const std::string& text) {
    const std::string canonical = parse_name(text).canonical();
    EXPECT_EQ(parse_name(canonical).canonical(), canonical) << text;
  }));
  expect_both(fuzz({"a,b:x=1,y=2,c", "mlp:784-10,ring,qsgd4:bucket=512,norm=l2"}, 20000, [](const std::string& text) {
    for (const std::string& name : split_names(text)) EXPECT_FALSE(name.empty());
  }));
}

TEST(Fuzz, NearestTakesAnything) {
  const std::vector<std::string> known{"ring", "recursive-doubling", ""};
  fuzz({"ring", "recursive-doubling"}, 5000, [&](const std::string& text) { (void)nearest(text, known); });
}

}  // namespace
}  // namespace gradmeter::core
