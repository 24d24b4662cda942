// Parses one line of a result file. result_file.cpp handles the file as a whole (order, line numbers, torn ends).
#pragma once
#include <string>
#include <string_view>
#include <variant>

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

/// Errors: UsageError without place ("'ranks' is a text; it should be a whole number"): the caller knows the line.
/// NotJson when the text breaks off or was never JSON.
Line parse_line(std::string_view text, Reading);

}  // namespace gradmeter::core::detail
