// SPDX-License-Identifier: Apache-2.0
// Layer tables: the shipped ones have the published totals, a user's has its faults named, any garbage is refused.
#include "model/table/layer_table.hpp"

#include <gmock/gmock.h>

#include <map>
#include <random>

#include "core/csv.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* plain_head = "layer,kind,shape,params,forward_flops_per_sample\n";
constexpr const char* full_head =
    "layer,kind,shape,params,forward_flops_per_sample,input,stride,padding,groups,steps,heads\n";

std::string refusal(const std::string& text) {
  try {
    parse_layer_table(text, "t.csv");
  } catch (const core::UsageError& e) {
    return e.what();
  }
  return "accepted";
}

std::string_view embedded(std::string_view name) {
  for (const auto& f : embedded_layer_tables()) {
    if (f.name == name) return f.text;
  }
  return {};
}

std::size_t tensors(const LayerTable& t) {
  return static_cast<std::size_t>(
      std::count_if(t.rows.begin(), t.rows.end(), [](const TableRow& r) { return r.parameters > 0; }));
}

TEST(ShippedTables, HaveThePublishedParameterCounts) {
  const std::map<std::string_view, std::size_t> published{
      {"alexnet", 61'100'840},        {"vgg11", 132'863'336},          {"vgg16", 138'357'544},
      {"vgg19", 143'667'240},         {"resnet50", 25'557'032},        {"resnet101", 44'549'160},
      {"resnet152", 60'192'808},      {"inception_v3", 23'834'568},    {"inception_v3_aux", 27'161'264},
      {"gpt2_small", 124'439'808},    {"bert_base", 110'106'428},      {"ptb_lstm_small", 4'651'600},
      {"ptb_lstm_large", 66'022'000}, {"ptb_lstm_medium", 19'775'200}, {"googlenet", 6'998'552}};
  for (const auto& [name, parameters] : published)
    EXPECT_EQ(shipped_layer_table(name).parameters(), parameters) << name;
}

TEST(ShippedTables, HaveTheTotalsOfTheIndex) {
  std::vector<std::string> seen;
  const auto faults = core::read_csv(
      embedded("index"), "index.csv", [](const auto&) {},
      [&](const core::CsvRow& row, std::size_t) {
        const LayerTable t = shipped_layer_table(row.text("model"));
        EXPECT_EQ(t.parameters(), row.count("params", 1)) << t.name;
        EXPECT_EQ(tensors(t), row.count("tensors", 1)) << t.name;
        EXPECT_NEAR(t.forward_flops(), 1e9 * row.number("forward_gflops_per_sample").value(), 5.1e4) << t.name;
        EXPECT_EQ(t.sample, row.text("sample"));
        EXPECT_EQ(t.source, row.text("source"));
        EXPECT_FALSE(t.sample.empty() || t.source.empty()) << t.name;
        seen.push_back(t.name);
      });
  EXPECT_THAT(faults, ElementsAre());
  EXPECT_THAT(seen, testing::UnorderedElementsAreArray(shipped_layer_tables()));
  EXPECT_EQ(seen.size(), 22u);
}

/// Every row that computes has a geometry, and the reader has checked that its FLOP follow from it.
TEST(ShippedTables, HaveAGeometryForEveryRowThatComputes) {
  std::size_t rows = 0;
  for (const auto name : shipped_layer_tables()) {
    for (const TableRow& r : shipped_layer_table(name).rows) {
      if (r.forward_flops == 0 && r.kind != RowKind::embedding) continue;
      EXPECT_TRUE(r.has_geometry) << name << ": " << r.layer;
      ++rows;
    }
  }
  EXPECT_EQ(rows, 958u);
}

/// In a network without branches each convolution reads what the one before gives, as it is or after pooling.
TEST(ShippedTables, HaveInputsThatTheLayersBeforeGive) {
  for (const auto name : {"alexnet", "alexnet_tfcnn", "vgg11", "vgg16", "vgg19"}) {
    const LayerTable table = shipped_layer_table(name);
    std::size_t channels = 3, side = name == std::string("alexnet_tfcnn") ? 227 : 224;
    for (const TableRow& r : table.rows) {
      const std::size_t pooled = name[0] == 'v' ? side / 2 : (side - 3) / 2 + 1;
      if (r.kind == RowKind::linear) {
        EXPECT_EQ(r.input[0], channels * pooled * pooled) << name << ": " << r.layer;
        break;
      }
      if (r.kind != RowKind::conv) continue;
      EXPECT_THAT(r.input, testing::AnyOf(ElementsAre(channels, side, side), ElementsAre(channels, pooled, pooled)))
          << name << ": " << r.layer;
      channels = r.shape[0];
      side = (r.input[1] + 2 * r.padding[0] - r.shape[2]) / r.stride[0] + 1;
    }
  }
}

TEST(ShippedTables, AnUnknownNameIsRefusedWithThoseKnown) {
  try {
    shipped_layer_table("resnet51");
    FAIL() << "accepted";
  } catch (const core::UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("resnet50"));
  }
}

TEST(LayerTable, ARowWithAnInputAndNoShapeIsRefused) {
  EXPECT_THAT(refusal(fmt::format("{}head,linear_tied,-,0,12800,16,,,,,\n", full_head)), HasSubstr("needs a shape"));
}

TEST(LayerTable, KeepsRowsInTheFilesOrderWithTheirLines) {
  const LayerTable t =
      parse_layer_table(fmt::format("# mine\n{}fc,linear,3x5,15,30\nfc.bias,bias,3,3,0\n", plain_head), "mine.csv");
  EXPECT_EQ(t.name, "mine.csv");
  ASSERT_EQ(t.rows.size(), 2u);
  EXPECT_EQ(t.rows[0].layer, "fc");
  EXPECT_THAT(t.rows[0].shape, ElementsAre(3, 5));
  EXPECT_EQ(t.rows[0].line, 3u);
  EXPECT_FALSE(t.rows[0].has_geometry);
  EXPECT_EQ(t.rows[1].kind, RowKind::bias);
  EXPECT_EQ(t.parameters(), 18u);
  EXPECT_EQ(t.forward_flops(), 30);
}

TEST(LayerTable, ReadsTheGeometryOfEachKind) {
  const LayerTable t = parse_layer_table(fmt::format("{}"
                                                     "c,conv,4x3x3x5,180,2880,6x8x7,2x3,1,2,,\n"
                                                     "d,conv1d,3x4x6,72,720,4x5,,1,,,\n"
                                                     "l,linear,3x5,15,60,5,,,,2,\n"
                                                     "t,linear_tied,3x5,0,30,5,,,,,\n"
                                                     "ih,lstm,8x5,40,240,5,,,,3,\n"
                                                     "hh,lstm,8x2,16,96,,,,,3,\n"
                                                     "fused,gru,7x6,42,252,5,,,,3,\n"
                                                     "a,attention_matmul,-,0,288,8,,,,3,2\n"
                                                     "b,attention_matmul,-,0,144,8,,,,3,\n"
                                                     "e,embedding,9x4,36,0,,,,,7,\n"
                                                     "v,vector,6,6,84,,,,,7,\n",
                                                     full_head),
                                         "t.csv");
  for (const auto& r : t.rows) EXPECT_TRUE(r.has_geometry) << r.layer;
  EXPECT_THAT(t.rows[0].input, ElementsAre(6, 8, 7));
  EXPECT_THAT(t.rows[0].stride, ElementsAre(2, 3));
  EXPECT_THAT(t.rows[0].padding, ElementsAre(1, 1));
  EXPECT_EQ(t.rows[0].groups, 2u);
  EXPECT_EQ(t.rows[3].steps, 1u);
  EXPECT_EQ(t.rows[7].heads, 2u);
  EXPECT_EQ(t.rows[8].heads, 1u);
  EXPECT_EQ(t.rows[9].steps, 7u);
}

TEST(LayerTable, CountsTheResultsOfProducts) {
  const LayerTable t = parse_layer_table(fmt::format("{}"
                                                     "c,conv,4x3x3x5,180,2880,6x8x7,2x3,1,2,,\n"
                                                     "d,conv1d,3x4x6,72,720,4x5,,1,,,\n"
                                                     "l,linear,3x5,15,60,3,,,,2,\n"
                                                     "m,linear,7x5,35,140,,,,,,\n"
                                                     "ih,lstm,8x5,40,240,5,,,,3,\n"
                                                     "hh,lstm,8x2,16,96,,,,,3,\n"
                                                     "fused,gru,7x6,42,252,5,,,,3,\n"
                                                     "a,attention_matmul,-,0,288,8,,,,3,2\n"
                                                     "b,attention_matmul,-,0,144,8,,,,3,\n"
                                                     "e,embedding,9x4,36,0,,,,,7,\n"
                                                     "v,vector,6,6,84,,,,,7,\n",
                                                     full_head),
                                         "t.csv");
  std::vector<double> results;
  for (const auto& r : t.rows) results.push_back(output_elements(r));
  EXPECT_THAT(results, ElementsAre(4 * 4 * 2, 6 * 5, 2 * 5, 2 * 7, 3 * 8, 3 * 8, 3 * 6, 24 + 2 * 9, 24, 0, 7));
}

/// tests/scripts checks that the exporter writes this file.
TEST(LayerTable, ReadsWhatTheExporterWrites) {
  const LayerTable t = read_layer_table(GRADMETER_SOURCE_DIR "/tests/scripts/models/recorded.csv");
  std::vector<std::string> without;
  for (const auto& r : t.rows) {
    if (r.forward_flops > 0 && !r.has_geometry) without.push_back(r.layer);
  }
  EXPECT_THAT(without, ElementsAre("same.weight")) << "its padding differs between the sides";
  EXPECT_EQ(t.rows.size(), 42u);
}

TEST(LayerTable, IsSummarised) {
  const LayerTable t = parse_layer_table(
      fmt::format("{}e,embedding,2x8,16,0\na,linear,3x5,15,60\nb,linear,2x8,16,96\nn,norm,3,3,0\n", plain_head),
      "t.csv");
  EXPECT_EQ(t.tensors(), 4u);
  EXPECT_EQ(t.parameters(), 50u);
  EXPECT_EQ(t.forward_flops(), 156);
  EXPECT_EQ(t.largest().layer, "e");
  EXPECT_EQ(t.largest().parameters, 16u);
  EXPECT_EQ(t.activation_bytes(), 4 * (2 * 3 + 3 * 2)) << "two rows of 3 and three of 2";
}

struct Fault {
  const char* what;
  std::string text, says;
};

TEST(LayerTable, NamesFileLineAndColumnOfWhatIsWrong) {
  const std::string plain = plain_head, full = full_head;
  const Fault faults[] = {
      {"no file", "", "t.csv:1:1"},
      {"a column that is missing", "layer,kind,shape,params\n",
       "t.csv:1:1: there is no column forward_flops_per_sample"},
      {"an unknown column", "layer,kind,shape,params,forward_flops_per_sample,strides\n", "t.csv:1:50: 'strides'"},
      {"a column twice", "layer,kind,shape,params,forward_flops_per_sample,layer\n", "t.csv:1:1: the column layer"},
      {"an unknown kind", plain + "a,convolution,3x5,15,30\n", "t.csv:2:3: 'convolution' is none of conv, conv1d"},
      {"a bad shape", plain + "a,linear,3xx5,15,30\n", "t.csv:2:12: '' of '3xx5'"},
      {"a shape of too few extents", plain + "a,conv,3x5,15,30\n", "t.csv:2:8: the shape of a conv row has 4"},
      {"no shape", plain + "a,linear,-,0,30\n", "t.csv:2:10: a linear row needs a shape"},
      {"parameters that are not the shape's", plain + "a,linear,3x5,16,30\n", "t.csv:2:14: 16 parameters"},
      {"parameters of a tied row", plain + "a,linear_tied,3x5,15,30\n", "t.csv:2:19: 15 parameters"},
      {"FLOP of a norm", plain + "a,norm,5,5,10\n", "t.csv:2:12: a norm row has no products"},
      {"FLOP that are no product", plain + "a,linear,3x5,15,31\n", "t.csv:2:17: '31' is no multiple"},
      {"FLOP of a tied row that are no product", plain + "a,linear_tied,3x5,0,31\n", "t.csv:2:21: '31' is no multiple"},
      {"a shape of an attention", plain + "a,attention_matmul,3x5,0,30\n", "t.csv:2:20: an attention_matmul row"},
      {"negative FLOP", plain + "a,linear,3x5,15,-30\n", "t.csv:2:17: '-30' is no whole number"},
      {"a name twice", plain + "a,linear,3x5,15,30\n\na,bias,3,3,0\n", "t.csv:4:1: 'a' is the name of an earlier row"},
      {"no name", plain + ",linear,3x5,15,30\n", "t.csv:2:1: a row needs a name"},
      {"no parameters", plain + "a,linear_tied,3x5,0,30\n", "t.csv:1:1: no row has parameters"},
      {"no FLOP", plain + "a,bias,5,5,0\n", "t.csv:1:1: no row has FLOP"},
      {"too many values", plain + "a,linear,3x5,15,30,1\n", "t.csv:2:20: more than 5 values"},
      {"geometry of other FLOP", full + "a,conv,4x3x3x3,108,216,3x4x4,1,1,,,\n",
       "t.csv:2:20: 216 FLOP, but the geometry gives 3456"},
      {"a column of another kind", full + "a,linear,3x5,15,30,5,2,,,,\n", "t.csv:2:22: a linear row has no stride"},
      {"other channels", full + "a,conv,4x3x3x3,108,216,4x3x3,,,,,\n", "t.csv:2:24: its channels"},
      {"a filter too large", full + "a,conv,4x3x3x3,108,216,3x2x3,,,,,\n", "t.csv:2:24: the filter is larger"},
      {"other features", full + "a,linear,3x5,15,30,4,,,,,\n", "t.csv:2:20: the features are no extent"},
      {"groups that do not divide", full + "a,conv,4x2x1x1,8,16,6x1x1,,,3,,\n", "t.csv:2:29: groups do not divide"},
      {"a recurrent row without steps", full + "a,lstm,8x5,40,80,5,,,,,\n", "t.csv:2:23: a recurrent row"},
      {"products that nothing implies", full + "a,attention_matmul,-,0,288,,,,,,\n",
       "t.csv:2:28: a row without a shape"},
      {"heads that do not divide", full + "a,attention_matmul,-,0,288,8,,,,3,3\n", "t.csv:2:35: heads do not divide"},
      {"three strides", full + "a,conv,4x3x1x1,12,24,3x1x1,1x1x1,,,,\n", "t.csv:2:28: stride is one number or"},
  };
  for (const auto& f : faults) EXPECT_THAT(refusal(f.text), HasSubstr(f.says)) << f.what;
  EXPECT_THROW(read_layer_table("/no/such/file.csv"), core::UsageError);
}

/// A few edits of a text: characters replaced, inserted and taken out.
std::string mutated(std::string text, std::mt19937& random) {
  const auto any = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  const std::string letters = std::string("0123456789,,,xx-\"\n\r#=.e \t") + '\0' + "\xff\x80";
  for (std::size_t edits = 1 + any(6); edits > 0 && !text.empty(); --edits) {
    const std::size_t at = any(text.size());
    switch (any(4)) {
      case 0:
        text[at] = letters[any(letters.size())];
        break;
      case 1:
        text.insert(at, 1 + any(3), letters[any(letters.size())]);
        break;
      case 2:
        text.erase(at, 1 + any(40));
        break;
      default:
        text.insert(at, "999999999999999999999999");
    }
  }
  return text;
}

TEST(LayerTable, SurvivesAnyGarbage) {
  std::mt19937 random(11);
  std::vector<std::string> seeds;
  for (const auto name : shipped_layer_tables()) {
    const std::string_view text = embedded(name);
    seeds.emplace_back(text.substr(0, text.find('\n', std::min<std::size_t>(text.size() - 1, 700))));
  }
  std::size_t accepted = 0, refused = 0;
  for (std::size_t round = 0; round < 8000; ++round) {
    try {
      const LayerTable t = parse_layer_table(mutated(seeds[round % seeds.size()], random), "f.csv");
      EXPECT_GT(t.parameters(), 0u);
      EXPECT_GT(t.forward_flops(), 0);
      ++accepted;
    } catch (const core::UsageError& e) {
      EXPECT_THAT(e.what(), testing::StartsWith("f.csv:"));
      EXPECT_EQ(std::string_view(e.what()).find('\n'), std::string_view::npos);
      ++refused;
    }
  }
  EXPECT_GT(accepted, 200u);
  EXPECT_GT(refused, 2000u);
}

}  // namespace
}  // namespace gradmeter::model
