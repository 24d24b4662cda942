#include <algorithm>
#include <limits>
#include <set>

#include "core/detail/quote.hpp"
#include "core/detail/result_fields.hpp"
#include "core/detail/result_line.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/json.hpp"
#include "core/printable.hpp"
#include "core/result_file.hpp"

namespace gradmeter::core::detail {

namespace {

std::string_view kind_of(const Json& json) {
  if (json.is_null()) return "null";
  if (json.is_boolean()) return "true or false";
  if (json.is_number()) return "a number";
  if (json.is_string()) return "a text";
  return json.is_array() ? "a list" : "an object";
}

[[noreturn]] void refuse(std::string_view key, const Json& json, std::string_view right) {
  throw UsageError(fmt::format("{} is {}; it should be {}", quote(key), kind_of(json), right));
}

const Json* find(const Json& object, const char* key) {
  const auto place = object.find(key);
  return place == object.end() ? nullptr : &*place;
}

/// Whoever wrote the file may be anybody: no text of it may command a terminal.
std::string read_text(std::string_view key, const Json& json) {
  if (!json.is_string()) refuse(key, json, "a text");
  return printable(json.get_ref<const std::string&>());
}

/// Integers beyond 63 bits are not ours: refused rather than wrapped.
std::int64_t read_integer(std::string_view key, const Json& json) {
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!json.is_number_integer() || (json.is_number_unsigned() && json.get<std::uint64_t>() > most)) {
    refuse(key, json, "a whole number below 2^63");
  }
  return json.get<std::int64_t>();
}

/// Null stands for a number that was not finite.
double read_number(std::string_view key, const Json& json) {
  if (json.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (!json.is_number()) refuse(key, json, "a number or null");
  return json.get<double>();
}

void read(const Json& object, const char* key, std::string& to) {
  if (const Json* json = find(object, key)) to = read_text(key, *json);
}
void read(const Json& object, const char* key, std::int64_t& to) {
  if (const Json* json = find(object, key)) to = read_integer(key, *json);
}
void read(const Json& object, const char* key, std::vector<std::string>& to) {
  const Json* json = find(object, key);
  if (!json) return;
  if (!json->is_array()) refuse(key, *json, "a list of texts");
  for (const Json& item : *json) to.push_back(read_text(key, item));
}
void read(const Json& object, const char* key, std::map<std::string, std::string>& to) {
  const Json* json = find(object, key);
  if (!json) return;
  if (!json->is_object()) refuse(key, *json, "an object of texts");
  for (const auto& [name, item] : json->items()) to[printable(name)] = read_text(name, item);
}

std::string required_text(const Json& object, const char* key) {
  const Json* json = find(object, key);
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

Summary read_summary(const std::string& key, const Json& json) {
  Summary s;
  for (const auto& [part, value] : statistics) {
    const auto found = json.find(part);
    s.*value = found == json.end() ? std::numeric_limits<double>::quiet_NaN()
                                   : read_number(fmt::format("{}.{}", key, part), *found);
  }
  std::int64_t n = 0;
  read(json, "n", n);
  if (n < 0) throw UsageError(fmt::format("'{}.n' is {}; it should be a count", key, n));
  s.n = static_cast<std::size_t>(n);
  std::string stop(name(Stop::none));
  read(json, "stop", stop);
  s.stop = read_enum("stop", stop, {Stop::none, Stop::interval, Stop::samples, Stop::budget, Stop::interrupted});
  return s;
}

Spans read_spans(const std::string& key, const Json& json) {
  if (!json.is_array()) refuse(key, json, "a list of spans");
  Spans spans;
  for (const Json& item : json) {
    if (!item.is_object()) refuse(key, item, "a list of spans, each of them an object");
    Span& s = spans.emplace_back(Span{.name = required_text(item, "name")});
    for (const auto& [part, to] : {std::pair{"begin_s", &s.begin_s}, std::pair{"end_s", &s.end_s}}) {
      const Json* time = find(item, part);
      if (!time) throw UsageError(fmt::format("a span of '{}' has no '{}'", key, part));
      *to = read_number(part, *time);
    }
    if (const Json* ready = find(item, "ready_s")) s.ready_s = read_number("ready_s", *ready);
    if (const Json* bytes = find(item, "bytes")) s.bytes = read_integer("bytes", *bytes);
  }
  return spans;
}

/// `was_nonfinite`: null then means a number that could not be written, not an absent one.
Value read_value(const std::string& key, const Json& json, bool was_nonfinite) {
  if (json.is_null()) return was_nonfinite ? Value{std::numeric_limits<double>::quiet_NaN()} : Value{};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return read_integer(key, json);
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return printable(json.get_ref<const std::string&>());
  refuse(key, json, "a number, a text, true, false or null");
}

const Json* find_object(const Json& line, const char* key) {
  const Json* json = find(line, key);
  if (json && !json->is_object()) refuse(key, *json, "an object");
  return json;
}

RunInfo read_run(const Json& line, Reading reading) {
  const Json* schema = find(line, "schema");
  if (!schema) throw UsageError("the key 'schema' is missing");
  if (const std::int64_t given = read_integer("schema", *schema); given != result_schema) {
    if (given < result_schema || reading == Reading::strict) {
      throw UsageError(fmt::format("schema {} is not known; this gradmeter reads schema {}{}", given, result_schema,
                                   given > result_schema ? " (with --lenient what it knows of newer ones)" : ""));
    }
  }
  RunInfo info;
  required_text(line, "run_id");
  each_field(info, [&line](const char* key, auto& to) { read(line, key, to); });
  return info;
}

void read_values(const Json& line, const std::vector<std::string>& nonfinite, Point& point) {
  const std::set<std::string> lost(nonfinite.begin(), nonfinite.end());
  if (const Json* factors = find_object(line, "factors")) {
    for (std::size_t i = 0; i < factor_count; ++i) {
      const std::string key(name(static_cast<Factor>(i)));
      const Json* json = find(*factors, key.c_str());
      // For lines older than the key.
      if (!json && static_cast<Factor>(i) == Factor::ranks_as && find(*factors, "ranks"))
        point.factors[Factor::ranks_as] = std::string("processes");
      if (json) point.factors[static_cast<Factor>(i)] = read_value(key, *json, lost.contains("factors." + key));
    }
  }
  if (const Json* metrics = find_object(line, "metrics")) {
    for (std::size_t i = 0; i < metric_count; ++i) {
      const std::string key(name(static_cast<Metric>(i)));
      const Json* json = find(*metrics, key.c_str());
      if (!json) continue;
      Value& to = point.metrics[static_cast<Metric>(i)];
      if (metric_table()[i].kind == KeyKind::spans && !json->is_null()) {
        to = read_spans(key, *json);
      } else if (json->is_object()) {
        to = read_summary(key, *json);
      } else {
        to = read_value(key, *json, lost.contains("metrics." + key));
      }
    }
  }
}

PointLine read_point(const Json& line) {
  PointLine result{.run_id = required_text(line, "run_id"), .point = {}};
  Point& point = result.point;
  point.experiment = required_text(line, "experiment");
  point.status =
      read_enum("status", required_text(line, "status"),
                {Status::ok, Status::unsupported, Status::skipped, Status::failed, Status::wrong, Status::mistrusted});
  read(line, "reason", point.reason);
  std::vector<std::string> nonfinite;
  read(line, "nonfinite", nonfinite);
  read_values(line, nonfinite, point);
  if (const Json* raw = find(line, "raw_times_s")) {
    if (!raw->is_array()) refuse("raw_times_s", *raw, "a list of numbers");
    for (const Json& sample : *raw) point.raw_times_s.push_back(read_number("raw_times_s", sample));
  }
  return result;
}

PlanLine read_plan(const Json& line) {
  PlanLine result{.run_id = required_text(line, "run_id"), .plan = {}};
  each_plan_field(result.plan, [&line](const char* key, std::int64_t& to) {
    read(line, key, to);
    if (to < 0) throw UsageError(fmt::format("'{}' is {}; it should be a count", key, to));
  });
  return result;
}

EndLine read_end(const Json& line) {
  EndLine result{.run_id = required_text(line, "run_id"), .end = {}};
  if (!find(line, "exit")) throw UsageError("the key 'exit' is missing");
  each_end_field(result.end, [&line](const char* key, auto& to) { read(line, key, to); });
  return result;
}

Json parse_json(std::string_view text) {
  // Only the parser's own exception says where it stopped.
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& e) {
    throw NotJson(fmt::format("not JSON from byte {} on; each line should be one JSON object", e.byte));
  } catch (const Json::exception&) {
    throw NotJson("a number is too large; it should fit a 64-bit float");
  }
}

}  // namespace

Line parse_line(std::string_view text, Reading reading) {
  const Json line = parse_json(text);
  const Json* kind = line.is_object() ? find(line, "kind") : nullptr;
  if (!kind || !kind->is_string()) {
    throw UsageError(
        "not a line of a gradmeter result file: it should have a \"kind\" of run, plan, point, end or note");
  }
  const std::string what = kind->get<std::string>();
  if (what == "run") return read_run(line, reading);
  if (what == "point") return read_point(line);
  if (what == "plan") return read_plan(line);
  if (what == "end") return read_end(line);
  if (what == "note") return NoteLine{};
  throw UsageError(fmt::format("kind {} is not known; there are: run, plan, point, end, note", quote(what)));
}

}  // namespace gradmeter::core::detail
