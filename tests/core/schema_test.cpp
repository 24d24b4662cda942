// SPDX-License-Identifier: Apache-2.0
// The schema, the documentation and the program name the same keys, and what is written is valid.
#include <gmock/gmock.h>

#include <cstdlib>
#include <set>

#include "core/format.hpp"
#include "core/json.hpp"
#include "core/result_file.hpp"
#include "support.hpp"

namespace gradmeter::core {
namespace {

const std::filesystem::path kSource = GRADMETER_SOURCE_DIR;

std::set<std::string> keys(const Json& object) {
  std::set<std::string> names;
  for (const auto& [key, value] : object.items()) names.insert(key);
  return names;
}

template <class Enum>
std::set<std::string> names(std::size_t count) {
  std::set<std::string> all;
  for (std::size_t i = 0; i < count; ++i) all.emplace(name(static_cast<Enum>(i)));
  return all;
}

/// As scripts/write-result-keys.py writes it.
void expect_described(const Json& part, const KeyInfo& k) {
  const Json& written = part.at("properties").at(std::string(k.key));
  const std::string unit = k.unit.empty() ? "" : fmt::format("[{}] ", k.unit);
  EXPECT_EQ(written.at("description"), unit + std::string(k.meaning)) << k.key;
  const Json wanted = fmt::format("#/$defs/{}", name(k.kind));
  EXPECT_EQ(written.value("$ref", wanted), wanted) << k.key;  // of two kinds: no single reference
}

TEST(Schema, NamesTheKeysOfTheProgram) {
  const Json schema = Json::parse(read_file(kSource / "data/schema/result.schema.json"));
  const Json& parts = schema.at("$defs");
  EXPECT_EQ(keys(parts.at("factors").at("properties")), names<Factor>(factor_count));
  // Every line of this schema's number has the factors that it began with; those added since are optional.
  std::set<std::string> required;
  for (const auto& name : parts.at("factors").at("required")) required.insert(name.get<std::string>());
  EXPECT_EQ(required.size(), 45u);
  EXPECT_THAT(names<Factor>(factor_count), testing::IsSupersetOf(required));
  for (const KeyInfo& k : factor_table()) expect_described(parts.at("factors"), k);
  for (const KeyInfo& k : metric_table()) expect_described(parts.at("metrics"), k);
  EXPECT_EQ(keys(parts.at("metrics").at("properties")), names<Metric>(metric_count));
  EXPECT_EQ(parts.at("run").at("properties").at("schema").at("const"), result_schema);
  std::set<std::string> run_keys = keys(Json::parse(to_json_line(RunInfo{})));
  run_keys.erase("kind");
  EXPECT_EQ(keys(parts.at("run").at("properties")), run_keys);
  for (const auto& status : parts.at("point").at("properties").at("status").at("enum")) {
    Point point;
    point.status = Status::ok;
    while (name(point.status) != status.get<std::string>()) {
      point.status = static_cast<Status>(static_cast<int>(point.status) + 1);  // name() throws past the last
    }
  }
}

TEST(Schema, TheDocumentationHasARowForEachKey) {
  const std::string text = read_file(kSource / "docs/result-file.md");
  for (const auto& table : {factor_table(), metric_table()}) {
    for (const KeyInfo& k : table) {
      EXPECT_THAT(text, testing::HasSubstr(fmt::format("\n| `{}` |", k.key)));
      EXPECT_THAT(text, testing::HasSubstr(fmt::format(" | {} |\n", k.meaning))) << k.key;
    }
  }
}

class ResultValidation : public testing::Test {
 protected:
  /// The validator's exit status and what it printed, for all files in the folder at once.
  struct Verdict {
    int status;
    std::string output;
  };
  Verdict validate() {
    const auto output = folder_ / "output";
    const std::string command =
        fmt::format("'{}' '{}' '{}'/*.jsonl >'{}' 2>&1", GRADMETER_PYTHON,
                    (kSource / "scripts/validate-results.py").string(), (folder_ / "").string(), output.string());
    const int status = std::system(command.c_str());
    return {WEXITSTATUS(status), read_file(output)};
  }
  Folder folder_;
};

/// One of each status, and values of every kind in every place that takes them.
void write_everything(const std::filesystem::path& path) {
  ResultWriter writer(path, OpenMode::create);
  writer.append(sample_run("r1"));
  for (int i = 0; i < 6; ++i) {
    Point point = sample_point();
    point.status = static_cast<Status>(i);
    if (point.status != Status::ok) point.reason = "because";
    writer.append(point);
  }
  Point infinite = sample_point();
  infinite.raw_times_s = {1, INFINITY, NAN};
  infinite.metrics[Metric::loss] = -INFINITY;
  infinite.metrics[Metric::exposed_s] = -1e-6;
  writer.append(infinite);
  writer.append(RunEnd{.time = "2024-05-01T12:01:00Z", .exit = 143, .reason = "interrupted"});
  writer.append(sample_run("r2"));
  writer.append(make_plan(1, 2));
  Point bare = sample_point();
  bare.factors = {};
  bare.metrics = {};
  bare.raw_times_s = {};
  writer.append(bare);
  const std::vector<double> samples{1, 2, 3, 4, 5, 6};
  for (std::size_t i = 0; i < metric_count; ++i) {
    auto value = bare.metrics[static_cast<Metric>(i)];
    value = std::int64_t{1};
    if (metric_table()[i].kind == KeyKind::label) value = std::string("x");
    if (metric_table()[i].kind == KeyKind::truth) value = true;
    if (metric_table()[i].kind == KeyKind::spans) value = Spans{{.name = "x", .begin_s = 0, .end_s = 1}};
  }
  bare.metrics[Metric::time_s] = summarise(samples);
  writer.append(bare);
}

TEST_F(ResultValidation, AcceptsWhatTheWriterWrites) {
  write_everything(folder_ / "r.jsonl");
  const Verdict verdict = validate();
  EXPECT_EQ(verdict.status, 0) << verdict.output;
  EXPECT_EQ(verdict.output, "");
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return text.replace(place, from.size(), to);
}

TEST_F(ResultValidation, RefusesEachKindOfDamageWithFileAndLine) {
  const std::string run = to_json_line(sample_run()) + "\n", point = to_json_line(sample_point(), "r1") + "\n";
  const std::string plan = to_json_line(make_plan(3, 0), "r1") + "\n";
  const std::string end = to_json_line(RunEnd{.time = "2024-05-01T12:01:00Z", .exit = 3, .reason = ""}, "r1") + "\n";
  const std::vector<std::string> damages{replaced(point, "\"ranks\":4", "\"ranks\":\"4\""),
                                         replaced(point, "\"ranks\":4", "\"ranks\":0"),
                                         replaced(point, "\"codec\":null,", ""),
                                         replaced(point, "\"status\":\"ok\"", "\"status\":\"fine\""),
                                         replaced(point, "\"status\":\"ok\"", "\"status\":\"failed\""),
                                         replaced(point, "\"median\":0.1", "\"median\":NaN"),
                                         replaced(point, "\"median\":0.1,", ""),
                                         replaced(point, "\"stop\":\"budget\"", "\"stop\":\"tired\""),
                                         replaced(point, ",\"metrics.wait_s\"", ""),
                                         replaced(point, "\"metrics.wait_s\"", "\"metrics.loss\""),
                                         replaced(point, "\"r1\"", "\"r9\""),
                                         replaced(point, "\"point\"", "\"pont\""),
                                         replaced(point, "0.05", "1e999"),
                                         replaced(point, "\"kind\":\"point\",", ""),
                                         replaced(point, "\"begin_s\":0.5,", ""),
                                         replaced(point, "\"bytes\":4096", "\"bytes\":-1"),
                                         replaced(plan, "\"points\":3", "\"points\":-3"),
                                         replaced(plan, "\"r1\"", "\"r9\""),
                                         replaced(end, "\"exit\":3", "\"exit\":\"3\""),
                                         point.substr(0, point.size() - 1),
                                         point.substr(0, 50) + "\n",
                                         "\xff\n",
                                         run};
  for (std::size_t i = 0; i < damages.size(); ++i) write_file(folder_ / fmt::format("d{}.jsonl", i), run + damages[i]);
  write_file(folder_ / "good.jsonl", run + plan + point + end);
  const Verdict verdict = validate();
  EXPECT_EQ(verdict.status, 1);
  for (std::size_t i = 0; i < damages.size(); ++i) {
    EXPECT_THAT(verdict.output, testing::HasSubstr(fmt::format("/d{}.jsonl:2: ", i))) << damages[i];
  }
  EXPECT_THAT(verdict.output, testing::Not(testing::HasSubstr("good.jsonl")));
  EXPECT_THAT(verdict.output, testing::Not(testing::HasSubstr("Traceback")));
}

TEST_F(ResultValidation, SaysThatAFileIsMissing) { EXPECT_EQ(validate().status, 2); }

}  // namespace
}  // namespace gradmeter::core
