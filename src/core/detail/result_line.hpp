// Parses one line of a result file. result_file.cpp handles the file as a whole (order, line numbers, torn ends).
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>

#include "core/detail/json_line.hpp"
#include "core/error.hpp"
#include "core/result_file.hpp"

namespace gradmeter::core::detail {

struct PointLine {
  std::string run_id;
  Point point;
};
struct PlanLine {
  std::string run_id;
  RunPlan plan;
};
struct EndLine {
  std::string run_id;
  RunEnd end;
};
struct NoteLine {};
using Line = std::variant<RunInfo, PointLine, PlanLine, EndLine, NoteLine>;

/// The text is not one whole JSON value; at the end of a file that is left by a killed run.
class NotJson : public UsageError {
 public:
  using UsageError::UsageError;
};

/// Reads lines of one file, whose points share the texts that they have in common.
class LineReader {
 public:
  LineReader(Reading reading, Samples samples) : reading_(reading), samples_(samples) {}
  /// Errors: UsageError without place ("'ranks' is a text; it should be a whole number"): the caller knows the line.
  /// NotJson when the text breaks off or was never JSON.
  Line read(std::string_view);

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  Value read_text_value(std::string_view);
  Value read_value(const JsonNode&, std::string_view place, const std::vector<std::string>& nonfinite);
  void read_values(const JsonNode& line, const std::vector<std::string>& nonfinite, Point&);
  PointLine read_point(const JsonNode& line, std::vector<double> raw_times);
  const JsonNode& parse(std::string_view without_raw_times, std::string_view whole);

  Reading reading_;
  Samples samples_;
  JsonLine json_;
  std::string rest_;                                                     ///< of a line without its raw times
  std::unordered_map<std::string, Value, Hash, std::equal_to<>> texts_;  ///< by what the file has
};

}  // namespace gradmeter::core::detail
