// SPDX-License-Identifier: Apache-2.0
// Reads the lines of a result file.
#include <algorithm>
#include <charconv>
#include <limits>
#include <span>
#include <unordered_map>
#include <utility>

#include "core/detail/result_line.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/result_file.hpp"

namespace gradmeter::core::detail {

/// Builds the list of nodes from the events of nlohmann's parser.
struct JsonLine::Builder {
  JsonLine& line;
  std::string_view key_of_next = {};

  std::string_view keep(const std::string& text) const {
    // No text is longer than its form in the file, so the memory that `parse` has reserved never moves.
    const std::size_t begin = line.texts_.size();
    line.texts_ += text;
    return std::string_view(line.texts_).substr(begin);
  }
  JsonNode& add(Json::value_t kind) {
    JsonNode& node = line.nodes_.emplace_back();
    node.kind = kind;
    node.key = std::exchange(key_of_next, {});
    return node;
  }
  bool open(Json::value_t kind) {
    line.open_.push_back(line.nodes_.size());
    add(kind);
    return true;
  }
  bool close() {
    const std::size_t place = line.open_.back();
    line.open_.pop_back();
    line.nodes_[place].nodes = static_cast<std::uint32_t>(line.nodes_.size() - place);
    return true;
  }

  bool null() { return add(Json::value_t::null), true; }
  bool boolean(bool truth) { return add(Json::value_t::boolean).whole = truth ? 1 : 0, true; }
  bool number_integer(std::int64_t number) {
    JsonNode& node = add(Json::value_t::number_integer);
    node.whole = number;
    node.real = static_cast<double>(number);
    return true;
  }
  bool number_unsigned(std::uint64_t number) {
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (number <= most) return number_integer(static_cast<std::int64_t>(number));
    return add(Json::value_t::number_unsigned).real = static_cast<double>(number), true;
  }
  bool number_float(double number, const std::string&) { return add(Json::value_t::number_float).real = number, true; }
  bool string(const std::string& text) { return add(Json::value_t::string).text = keep(text), true; }
  bool binary(const Json::binary_t&) { return false; }
  bool key(const std::string& text) { return key_of_next = keep(text), true; }
  bool start_object(std::size_t) { return open(Json::value_t::object); }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(Json::value_t::array); }
  bool end_array() { return close(); }
  bool parse_error(std::size_t byte, const std::string&, const Json::exception& e) {
    if (dynamic_cast<const Json::parse_error*>(&e))
      throw NotJson(fmt::format("not JSON from byte {} on; each line should be one JSON object", byte));
    throw NotJson("a number is too large; it should fit a 64-bit float");
  }
};

const JsonNode* JsonNode::find(std::string_view name) const {
  const JsonNode* found = nullptr;
  for (const JsonNode& member : *this)
    if (member.key == name) found = &member;
  return found;
}

const JsonNode& JsonLine::parse(std::string_view text) {
  nodes_.clear();
  open_.clear();
  texts_.clear();
  texts_.reserve(text.size());
  Builder builder{*this};
  Json::sax_parse(text, &builder);
  return nodes_.front();
}

namespace {

std::string_view kind_of(const JsonNode& json) {
  if (json.is_null()) return "null";
  if (json.is_bool()) return "true or false";
  if (json.is_number()) return "a number";
  if (json.is_text()) return "a text";
  return json.is_list() ? "a list" : "an object";
}

[[noreturn]] void refuse(std::string_view key, const JsonNode& json, std::string_view right) {
  throw UsageError(fmt::format("{} is {}; it should be {}", quote(key), kind_of(json), right));
}

/// Reads a text and makes it printable, since anybody may have written the file, and its text must not control a
/// terminal.
std::string read_text(std::string_view key, const JsonNode& json) {
  if (!json.is_text()) refuse(key, json, "a text");
  return printable(json.text);
}

/// Refuses integers of more than 63 bits, which gradmeter never writes, instead of wrapping them.
std::int64_t read_integer(std::string_view key, const JsonNode& json) {
  if (!json.is_whole()) refuse(key, json, "a whole number below 2^63");
  return json.whole;
}

/// Null stands for a number that was not finite.
double read_number(std::string_view key, const JsonNode& json) {
  if (json.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (!json.is_number()) refuse(key, json, "a number or null");
  return json.real;
}

void read_member(const JsonNode& object, const char* key, std::string& to) {
  if (const JsonNode* json = object.find(key)) to = read_text(key, *json);
}
void read_member(const JsonNode& object, const char* key, std::int64_t& to) {
  if (const JsonNode* json = object.find(key)) to = read_integer(key, *json);
}
void read_member(const JsonNode& object, const char* key, std::vector<std::string>& to) {
  const JsonNode* json = object.find(key);
  if (!json) return;
  if (!json->is_list()) refuse(key, *json, "a list of texts");
  for (const JsonNode& item : *json) to.push_back(read_text(key, item));
}
void read_member(const JsonNode& object, const char* key, std::map<std::string, std::string>& to) {
  const JsonNode* json = object.find(key);
  if (!json) return;
  if (!json->is_object()) refuse(key, *json, "an object of texts");
  for (const JsonNode& item : *json) to[printable(item.key)] = read_text(item.key, item);
}

std::string required_text(const JsonNode& object, const char* key) {
  const JsonNode* json = object.find(key);
  if (!json) throw UsageError(fmt::format("the key '{}' is missing", key));
  return read_text(key, *json);
}

template <class Enum>
Enum read_enum(const char* key, const std::string& text, std::initializer_list<Enum> all) {
  std::vector<std::string_view> names;
  for (const Enum e : all) {
    if (name(e) == text) return e;
    names.push_back(name(e));
  }
  throw UsageError(fmt::format("'{}' is {}; it should be one of {}", key, quote(text), fmt::join(names, ", ")));
}

Summary read_summary(std::string_view key, const JsonNode& json) {
  Summary s;
  for (const auto& [part, value] : statistics) {
    const JsonNode* found = json.find(part);
    s.*value = !found               ? std::numeric_limits<double>::quiet_NaN()
               : found->is_number() ? found->real
                                    : read_number(fmt::format("{}.{}", key, part), *found);
  }
  std::int64_t n = 0;
  read_member(json, "n", n);
  if (n < 0) throw UsageError(fmt::format("'{}.n' is {}; it should be a count", key, n));
  s.n = static_cast<std::size_t>(n);
  std::string stop(name(Stop::none));
  read_member(json, "stop", stop);
  s.stop = read_enum("stop", stop, {Stop::none, Stop::interval, Stop::samples, Stop::budget, Stop::interrupted});
  return s;
}

Spans read_spans(std::string_view key, const JsonNode& json) {
  if (!json.is_list()) refuse(key, json, "a list of spans");
  Spans spans;
  for (const JsonNode& item : json) {
    if (!item.is_object()) refuse(key, item, "a list of spans, each of them an object");
    Span& s = spans.emplace_back(Span{.name = required_text(item, "name")});
    for (const auto& [part, to] : {std::pair{"begin_s", &s.begin_s}, std::pair{"end_s", &s.end_s}}) {
      const JsonNode* time = item.find(part);
      if (!time) throw UsageError(fmt::format("a span of '{}' has no '{}'", key, part));
      *to = read_number(part, *time);
    }
    if (const JsonNode* ready = item.find("ready_s")) s.ready_s = read_number("ready_s", *ready);
    if (const JsonNode* bytes = item.find("bytes")) s.bytes = read_integer("bytes", *bytes);
  }
  return spans;
}

const JsonNode* find_object(const JsonNode& line, const char* key) {
  const JsonNode* json = line.find(key);
  if (json && !json->is_object()) refuse(key, *json, "an object");
  return json;
}

RunInfo read_run(const JsonNode& line, Reading reading) {
  const JsonNode* schema = line.find("schema");
  if (!schema) throw UsageError("the key 'schema' is missing");
  if (const std::int64_t schema_number = read_integer("schema", *schema); schema_number != result_schema) {
    if (schema_number < result_schema || reading == Reading::strict) {
      throw UsageError(
          fmt::format("schema {} is not known; this gradmeter reads schema {}{}", schema_number, result_schema,
                      schema_number > result_schema ? " (with --lenient what it knows of newer ones)" : ""));
    }
  }
  RunInfo info;
  required_text(line, "run_id");
  each_run_field(info, [&line](const char* key, auto& to) { read_member(line, key, to); });
  return info;
}

/// Reads one JSON number, or null as NaN. Returns the address behind it; null pointer: there is something else.
const char* read_time(const char* at, const char* end, double& to) {
  if (std::string_view(at, end).starts_with("null")) {
    to = std::numeric_limits<double>::quiet_NaN();
    return at + 4;
  }
  const auto is_digit = [end](const char* c) { return c < end && *c >= '0' && *c <= '9'; };
  const char* first = at < end && *at == '-' ? at + 1 : at;
  if (!is_digit(first) || (*first == '0' && is_digit(first + 1))) return nullptr;
  const auto [number_end, error] = std::from_chars(at, end, to);
  const char* point = std::find(at, number_end, '.');
  const bool is_json = error == std::errc() && (point == number_end || is_digit(point + 1));
  return is_json ? number_end : nullptr;
}

/// Reads the raw times, which are most of a line, in a fifth of the time that the JSON parser takes. `rest` becomes the
/// line with an empty list in place of the raw times. False: they are missing, or not a list of numbers and nulls; the
/// parser then reads the whole line, and reports what is wrong.
bool take_raw_times(std::string_view line, std::vector<double>& times, std::string& rest) {
  constexpr std::string_view key = "\"raw_times_s\"";
  const std::size_t place = line.find(key);
  if (place == std::string_view::npos || line.find(key, place + 1) != std::string_view::npos) return false;
  const char *at = line.data() + place + key.size(), *end = line.data() + line.size();
  const auto skip = [&](char c) {
    while (at < end && *at == ' ') ++at;
    const bool is_it = at < end && *at == c;
    if (is_it) ++at;
    while (is_it && at < end && *at == ' ') ++at;
    return is_it;
  };
  if (!skip(':')) return false;
  const char* const list = at;
  if (!skip('[')) return false;
  while (!skip(']')) {
    if (!times.empty() && !skip(',')) return false;
    at = read_time(at, end, times.emplace_back());
    if (!at) return false;
  }
  while (at[-1] != ']') --at;
  rest.assign(line.data(), list);
  rest += "[]";
  rest.append(at, end);
  return true;
}

/// The enumerators of a table's keys, by name. The table is in the order of the enum.
template <class Key>
std::unordered_map<std::string_view, Key> by_name(std::span<const KeyInfo> table) {
  std::unordered_map<std::string_view, Key> out;
  for (std::size_t i = 0; i < table.size(); ++i) out.emplace(table[i].key, static_cast<Key>(i));
  return out;
}

RunPlan read_plan(const JsonNode& line) {
  RunPlan plan;
  each_plan_field(plan, [&line](const char* key, std::int64_t& to) {
    read_member(line, key, to);
    if (to < 0) throw UsageError(fmt::format("'{}' is {}; it should be a count", key, to));
  });
  return plan;
}

RunEnd read_end(const JsonNode& line) {
  if (!line.find("exit")) throw UsageError("the key 'exit' is missing");
  RunEnd end;
  each_end_field(end, [&line](const char* key, auto& to) { read_member(line, key, to); });
  return end;
}

Run* find_run(ResultFile& file, const std::string& run_id) {
  // The search goes backwards, since most lines belong to the last run.
  const auto found =
      std::find_if(file.runs.rbegin(), file.runs.rend(), [&](const Run& run) { return run.info.run_id == run_id; });
  return found == file.runs.rend() ? nullptr : &*found;
}

/// The run to which a line belongs. `what` names the line in the error: "a point".
Run& run_of(ResultFile& file, const std::string& run_id, std::string_view what) {
  Run* run = find_run(file, run_id);
  if (run) return *run;
  throw UsageError(
      fmt::format("{} of run {} stands before its run; the run's own line should come first", what, quote(run_id)));
}

void add_run(ResultFile& file, RunInfo info) {
  if (info.run_id.empty()) throw UsageError("the run_id is empty; each run needs its own");
  if (find_run(file, info.run_id)) {
    throw UsageError(fmt::format("run {} is in the file twice; keep one", quote(info.run_id)));
  }
  file.runs.push_back({std::move(info), {}});
}

void add_plan(Run& run, const RunPlan& plan) {
  if (!run.plan) run.plan.emplace();
  run.plan->points += plan.points;
  run.plan->kept += plan.kept;
}

}  // namespace

Value LineReader::read_text_value(std::string_view text) {
  const auto known = texts_.find(text);
  return known != texts_.end() ? known->second : texts_.emplace(text, printable(text)).first->second;
}

/// A null whose place, such as "metrics.time_s", is listed in `nonfinite` stands for a number that was not finite; it
/// becomes NaN. `place`: "factors." or "metrics.".
Value LineReader::read_value(const JsonNode& json, std::string_view place, const std::vector<std::string>& nonfinite) {
  if (json.is_null()) {
    const bool was_nonfinite = std::ranges::any_of(nonfinite, [&](std::string_view entry) {
      return entry.starts_with(place) && entry.substr(place.size()) == json.key;
    });
    return was_nonfinite ? Value(std::numeric_limits<double>::quiet_NaN()) : Value();
  }
  if (json.is_bool()) return json.whole != 0;
  if (json.is_text()) return read_text_value(json.text);
  if (json.is_whole()) return json.whole;
  if (json.is_beyond_63_bits()) refuse(json.key, json, "a whole number below 2^63");
  if (json.is_number()) return json.real;
  refuse(json.key, json, "a number, a text, true, false or null");
}

void LineReader::read_values(const JsonNode& line, const std::vector<std::string>& nonfinite, Point& point) {
  static const auto factor_of = by_name<Factor>(factor_table());
  static const auto metric_of = by_name<Metric>(metric_table());
  if (const JsonNode* factors = find_object(line, "factors")) {
    // In lines written before the factor ranks_as existed, ranks were processes.
    if (factors->find("ranks")) point.factors[Factor::ranks_as] = read_text_value("processes");
    for (const JsonNode& json : *factors) {
      const auto factor = factor_of.find(json.key);
      if (factor != factor_of.end()) point.factors[factor->second] = read_value(json, "factors.", nonfinite);
    }
    point.factors.shrink_to_fit();
  }
  if (const JsonNode* metrics = find_object(line, "metrics")) {
    for (const JsonNode& json : *metrics) {
      const auto found = metric_of.find(json.key);
      if (found == metric_of.end()) continue;
      const Metric metric = found->second;
      if (metric_table()[static_cast<std::size_t>(metric)].kind == KeyKind::spans && !json.is_null()) {
        point.metrics[metric] = read_spans(json.key, json);
      } else if (json.is_object()) {
        point.metrics[metric] = read_summary(json.key, json);
      } else {
        point.metrics[metric] = read_value(json, "metrics.", nonfinite);
      }
    }
    point.metrics.shrink_to_fit();
  }
}

Point LineReader::read_point(const JsonNode& line, std::vector<double> raw_times) {
  Point point;
  point.experiment = required_text(line, "experiment");
  point.status =
      read_enum("status", required_text(line, "status"),
                {Status::ok, Status::unsupported, Status::skipped, Status::failed, Status::wrong, Status::mistrusted});
  read_member(line, "reason", point.reason);
  std::vector<std::string> nonfinite;
  read_member(line, "nonfinite", nonfinite);
  read_values(line, nonfinite, point);
  if (const JsonNode* list = line.find("raw_times_s")) {
    if (!list->is_list()) refuse("raw_times_s", *list, "a list of numbers");
    for (const JsonNode& sample : *list) raw_times.push_back(read_number("raw_times_s", sample));
    if (raw_times_ == RawTimes::kept) point.raw_times_s = std::move(raw_times);
  }
  return point;
}

const JsonNode& LineReader::parse(std::string_view without_raw_times, std::string_view whole) {
  try {
    return json_.parse(without_raw_times);
  } catch (const NotJson&) {
    return json_.parse(whole);  // fails too, and reports the place in the whole line
  }
}

void LineReader::read(std::string_view text, ResultFile& file) {
  std::vector<double> raw_times;
  const bool is_shorter = take_raw_times(text, raw_times, rest_);
  if (!is_shorter) raw_times.clear();
  const JsonNode& line = parse(is_shorter ? rest_ : text, text);
  const JsonNode* kind = line.is_object() ? line.find("kind") : nullptr;
  if (!kind || !kind->is_text()) {
    throw UsageError(
        "not a line of a gradmeter result file: it should have a \"kind\" of run, plan, point, end or note");
  }
  if (kind->text == "run") return add_run(file, read_run(line, reading_));
  if (kind->text == "note") return;
  const bool is_point = kind->text == "point", is_plan = kind->text == "plan";
  if (!is_point && !is_plan && kind->text != "end") {
    throw UsageError(
        fmt::format("kind {} is not known; there are: run, plan, point, end, note", quote(std::string(kind->text))));
  }
  // The whole line is read, and its errors are reported, before its run is looked up.
  const std::string run_id = required_text(line, "run_id");
  if (is_point) {
    Point point = read_point(line, std::move(raw_times));
    run_of(file, run_id, "a point").points.push_back(std::move(point));
  } else if (is_plan) {
    const RunPlan plan = read_plan(line);
    add_plan(run_of(file, run_id, "a plan"), plan);
  } else {
    RunEnd end = read_end(line);
    run_of(file, run_id, "an end").end = std::move(end);
  }
}

}  // namespace gradmeter::core::detail
