#include "importers/trace_json.hpp"

#include <algorithm>
#include <limits>

#include "core/format.hpp"
#include "importers/lines.hpp"

namespace gradmeter::importers {

std::size_t line_at(std::string_view text, std::size_t place) {
  return 1 + static_cast<std::size_t>(std::ranges::count(text.substr(0, place), '\n'));
}

namespace {

/// With null for NaN, inf, Infinity and their like, which Python's json and printf write, outside of texts.
std::string with_nulls(std::string_view json) {
  std::string out;
  bool in_text = false;
  for (std::size_t at = 0; at < json.size(); ++at) {
    const auto rest = json.substr(at);
    if (json[at] == '"') in_text = !in_text;
    if (in_text && json[at] == '\\') out += json[at++];
    std::size_t length = 0;
    if (!in_text)
      for (const std::string_view name : {"-Infinity", "Infinity", "-inf", "inf", "-nan", "nan", "NaN"})
        if (length == 0 && rest.starts_with(name)) length = name.size();
    if (length > 0) {
      out += "null";
      at += length - 1;
    } else if (at < json.size()) {
      out += json[at];
    }
  }
  return out;
}

}  // namespace

core::Json parsed_trace(std::string_view json) {
  try {
    return core::Json::parse(json);
  } catch (const core::Json::parse_error& e) {
    if (core::Json mended = core::Json::parse(with_nulls(json), nullptr, /*allow_exceptions=*/false);
        !mended.is_discarded())
      return mended;
    refuse_line(line_at(json, e.byte), "it is no whole JSON; the program may not have ended");
  } catch (const core::Json::exception& e) {  // the only other one: a number beyond all bounds, which it quotes
    const std::string_view why = e.what();
    const std::size_t begin = std::min(why.find('\'') + 1, why.size());
    const std::string_view number = why.substr(begin, why.rfind('\'') - begin);
    refuse_line(line_at(json, json.find(number)), fmt::format("{} is beyond all numbers", number));
  }
}

std::string text_of(const core::Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::int64_t whole_of(const core::Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer() || !(*found >= 0)) return -1;
  return *found > std::numeric_limits<std::int64_t>::max() ? -1 : found->get<std::int64_t>();
}

std::uint64_t times(std::uint64_t n, std::uint64_t by) {
  constexpr std::uint64_t most = std::uint64_t{1} << 62U;
  return by == 0 || n > most / by ? 0 : n * by;
}

}  // namespace gradmeter::importers
