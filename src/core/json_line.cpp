#include "core/detail/json_line.hpp"

#include <limits>
#include <utility>

#include "core/detail/result_line.hpp"
#include "core/format.hpp"

namespace gradmeter::core::detail {

/// What nlohmann's parser tells of a text as it goes.
struct JsonLine::Builder {
  JsonLine& line;
  std::string_view key_of_next = {};

  std::string_view keep(const std::string& text) const {
    // No text is longer than what it was written as, so that the reserved memory never moves.
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

}  // namespace gradmeter::core::detail
