#include <cmath>

#include "core/detail/result_fields.hpp"
#include "core/format.hpp"
#include "core/json.hpp"
#include "core/result_file.hpp"

namespace gradmeter::core {

namespace {

/// A number, or null and a remark of where it was.
Json finite(double x, const std::string& place, Json& nonfinite) {
  if (std::isfinite(x)) return x;
  nonfinite.push_back(place);
  return nullptr;
}

Json summary_json(const Summary& s, const std::string& place, Json& nonfinite) {
  Json json = Json::object();
  for (const auto& [part, value] : statistics) {
    const std::string key(part);
    json[key] = finite(s.*value, place + "." + key, nonfinite);
  }
  json["n"] = s.n;
  json["stop"] = name(s.stop);
  return json;
}

Json spans_json(const Spans& spans, const std::string& place, Json& nonfinite) {
  Json json = Json::array();
  for (const Span& s : spans) {
    const std::string here = fmt::format("{}.{}", place, json.size());
    Json one{{"name", s.name}};
    if (s.ready_s) one["ready_s"] = finite(*s.ready_s, here + ".ready_s", nonfinite);
    one["begin_s"] = finite(s.begin_s, here + ".begin_s", nonfinite);
    one["end_s"] = finite(s.end_s, here + ".end_s", nonfinite);
    if (s.bytes) one["bytes"] = *s.bytes;
    json.push_back(std::move(one));
  }
  return json;
}

Json value_json(const Value& value, const std::string& place, Json& nonfinite) {
  if (const auto* summary = value.as<Summary>()) return summary_json(*summary, place, nonfinite);
  if (const auto* spans = value.as<Spans>()) return spans_json(*spans, place, nonfinite);
  if (const auto* number = value.as<double>()) return finite(*number, place, nonfinite);
  if (const auto* integer = value.as<std::int64_t>()) return *integer;
  if (const auto* truth = value.as<bool>()) return *truth;
  if (const auto* text = value.as<std::string>()) return *text;
  return nullptr;
}

/// Host names and commands may hold bytes that are not UTF-8: they are replaced rather than lose the point.
std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

std::string to_json_line(const RunInfo& info) {
  Json json{{"kind", "run"}, {"schema", result_schema}};
  detail::each_field(info, [&json](const char* key, const auto& value) { json[key] = value; });
  return dump(json);
}

std::string to_json_line(const RunPlan& plan, const std::string& run_id) {
  Json json{{"kind", "plan"}, {"run_id", run_id}};
  detail::each_plan_field(plan, [&json](const char* key, const auto& value) { json[key] = value; });
  return dump(json);
}

std::string to_json_line(const RunEnd& end, const std::string& run_id) {
  Json json{{"kind", "end"}, {"run_id", run_id}};
  detail::each_end_field(end, [&json](const char* key, const auto& value) { json[key] = value; });
  return dump(json);
}

std::string to_json_line(const Point& point, const std::string& run_id) {
  Json nonfinite = Json::array(), factors = Json::object(), metrics = Json::object(), raw = Json::array();
  for (std::size_t i = 0; i < factor_count; ++i) {
    const auto factor = static_cast<Factor>(i);
    const std::string key(name(factor));
    factors[key] = value_json(point.factors[factor], "factors." + key, nonfinite);
  }
  for (std::size_t i = 0; i < metric_count; ++i) {
    const auto metric = static_cast<Metric>(i);
    if (is_null(point.metrics[metric])) continue;
    const std::string key(name(metric));
    metrics[key] = value_json(point.metrics[metric], "metrics." + key, nonfinite);
  }
  for (std::size_t i = 0; i < point.raw_times_s.size(); ++i) {
    raw.push_back(finite(point.raw_times_s[i], "raw_times_s." + std::to_string(i), nonfinite));
  }
  Json json{{"kind", "point"},
            {"run_id", run_id},
            {"experiment", point.experiment},
            {"status", name(point.status)},
            {"reason", point.reason},
            {"factors", std::move(factors)},
            {"metrics", std::move(metrics)}};
  if (!nonfinite.empty()) json["nonfinite"] = std::move(nonfinite);
  json["raw_times_s"] = std::move(raw);
  return dump(json);
}

}  // namespace gradmeter::core
