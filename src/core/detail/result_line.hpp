// SPDX-License-Identifier: Apache-2.0
// One line of a result file: its JSON as a list of nodes, the fields of each kind of line, and the reader of lines of
// any kind. result_file.cpp handles the file as a whole (line numbers, an incomplete last line).
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/error.hpp"
#include "core/json.hpp"
#include "core/result.hpp"
#include "core/result_file.hpp"

namespace gradmeter::core::detail {

/// A JSON value. The values inside a list or an object follow it directly in JsonLine's list of nodes, in the order of
/// the text.
struct JsonNode {
  Json::value_t kind = Json::value_t::null;
  std::uint32_t nodes = 1;  ///< number of nodes: this one and all inside it
  std::string_view key;     ///< the value's key, if it is a member of an object
  std::string_view text;    ///< value of a string
  double real = 0;          ///< value of any number
  std::int64_t whole = 0;   ///< value of a whole number below 2^63; for true and false 1 and 0

  bool is_null() const { return kind == Json::value_t::null; }
  bool is_bool() const { return kind == Json::value_t::boolean; }
  bool is_whole() const { return kind == Json::value_t::number_integer; }
  bool is_beyond_63_bits() const { return kind == Json::value_t::number_unsigned; }
  bool is_number() const { return is_whole() || is_beyond_63_bits() || kind == Json::value_t::number_float; }
  bool is_text() const { return kind == Json::value_t::string; }
  bool is_list() const { return kind == Json::value_t::array; }
  bool is_object() const { return kind == Json::value_t::object; }

  /// Visits the elements of a list or an object, one after the other.
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
  /// The member with this key; the last if there are several, null if there is none.
  const JsonNode* find(std::string_view key) const;
};

/// Parses a line of JSON to a list of nodes. The next line reuses the memory of the list. A tree of maps would take
/// three times as long to build.
class JsonLine {
 public:
  /// The result is valid until the next call. Errors: NotJson.
  const JsonNode& parse(std::string_view);

 private:
  struct Builder;
  std::vector<JsonNode> nodes_;
  std::vector<std::size_t> open_;  ///< indices of the lists and objects that contain the next node
  std::string texts_;              ///< keys and strings, unescaped
};

// The fields of the lines of runs, plans and ends, stated once for reading and for writing.

/// Calls visit(key, member) for each field of a run's line, in the order of the line. Info: RunInfo or const RunInfo.
template <class Info, class Visit>
void each_run_field(Info& info, const Visit& visit) {
  visit("run_id", info.run_id);
  visit("time", info.time);
  visit("command", info.command);
  visit("version", info.version);
  visit("commit", info.commit);
  visit("hosts", info.hosts);
  visit("ranks", info.ranks);
  visit("nodes", info.nodes);
  visit("mapping", info.mapping);
  visit("mpi", info.mpi);
  visit("mpi_threads", info.mpi_threads);
  visit("mpi_single_copy", info.mpi_copy_mechanism);
  visit("libraries", info.libraries);
  visit("cpu", info.cpu);
  visit("cores_per_node", info.cores_per_node);
  visit("memory_bytes_per_node", info.memory_bytes_per_node);
  visit("gpus", info.gpus);
  visit("binding", info.binding);
  visit("fingerprint", info.fingerprint);
  visit("environment", info.environment);
}

template <class Plan, class Visit>
void each_plan_field(Plan& plan, const Visit& visit) {
  visit("points", plan.points);
  visit("kept", plan.kept);
}

template <class End, class Visit>
void each_end_field(End& end, const Visit& visit) {
  visit("time", end.time);
  visit("exit", end.exit);
  visit("reason", end.reason);
}

/// The error of a text that is not one complete JSON value, such as a last line that a killed run did not finish; also
/// of a number too large for a double.
class NotJson : public UsageError {
 public:
  using UsageError::UsageError;
};

/// Reads the lines of one file. Texts that several points share are stored once.
class LineReader {
 public:
  LineReader(Reading reading, RawTimes raw_times) : reading_(reading), raw_times_(raw_times) {}
  /// Adds the contents of the next line to `file`. Errors: UsageError ("'ranks' is a text; it should be a whole
  /// number"), to which the caller adds file and line; NotJson if the text breaks off or is no JSON.
  void read(std::string_view line, ResultFile& file);

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  Value read_text_value(std::string_view);
  Value read_value(const JsonNode&, std::string_view place, const std::vector<std::string>& nonfinite);
  void read_values(const JsonNode& line, const std::vector<std::string>& nonfinite, Point&);
  Point read_point(const JsonNode& line, std::vector<double> raw_times);
  /// Parses a line from which the raw times were removed. If that fails, parses the whole line, so that the error names
  /// the right place.
  const JsonNode& parse(std::string_view without_raw_times, std::string_view whole);

  Reading reading_;
  RawTimes raw_times_;
  JsonLine json_;
  std::string rest_;                                                     ///< the current line without raw times
  std::unordered_map<std::string, Value, Hash, std::equal_to<>> texts_;  ///< values by their text in the file
};

}  // namespace gradmeter::core::detail
