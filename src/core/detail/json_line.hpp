// One line of JSON as a list of nodes, in memory that is kept from line to line: a tree of maps takes three times as
// long.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.hpp"

namespace gradmeter::core::detail {

/// A value with what is inside it: these nodes follow it in the list, in the order of the text.
struct JsonNode {
  Json::value_t kind = Json::value_t::null;
  std::uint32_t nodes = 1;  ///< itself and all inside it
  std::string_view key;     ///< of a member of an object
  std::string_view text;    ///< of a string
  double real = 0;          ///< of any number
  std::int64_t whole = 0;   ///< of a number without a point that 63 bits hold, and 1 for true

  bool is_null() const { return kind == Json::value_t::null; }
  bool is_truth() const { return kind == Json::value_t::boolean; }
  bool is_whole() const { return kind == Json::value_t::number_integer; }
  bool is_beyond_63_bits() const { return kind == Json::value_t::number_unsigned; }
  bool is_number() const { return is_whole() || is_beyond_63_bits() || kind == Json::value_t::number_float; }
  bool is_text() const { return kind == Json::value_t::string; }
  bool is_list() const { return kind == Json::value_t::array; }
  bool is_object() const { return kind == Json::value_t::object; }

  /// What a list or an object holds, one after the other.
  class Iterator {
   public:
    explicit Iterator(const JsonNode* at) : at_(at) {}
    const JsonNode& operator*() const { return *at_; }
    Iterator& operator++() {
      at_ += at_->nodes;
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    const JsonNode* at_;
  };
  Iterator begin() const { return Iterator(this + 1); }
  Iterator end() const { return Iterator(this + nodes); }
  /// The member of an object, the last of several with one key; null where there is none.
  const JsonNode* find(std::string_view key) const;
};

class JsonLine {
 public:
  /// Valid until the next call. Errors: NotJson.
  const JsonNode& parse(std::string_view);

 private:
  struct Builder;
  std::vector<JsonNode> nodes_;
  std::vector<std::size_t> open_;  ///< places of the lists and objects around the next node
  std::string texts_;              ///< of keys and strings
};

}  // namespace gradmeter::core::detail
