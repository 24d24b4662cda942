// SPDX-License-Identifier: Apache-2.0
// Names with parameters: "ring", "torus2d:rows=4", "qsgd4:bucket=512,norm=l2", "mlp:784-1024-1024-10".
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradmeter::core {

/// The text without blanks and tabs at both ends.
std::string_view trim(std::string_view text);
/// Turns A-Z into a-z, whatever the locale.
std::string lower(std::string_view text);

/// A name: `base` is the text before the colon. The colon may be followed by text without a key (`bare`), such as a
/// model's widths, and by key=value parameters.
struct ParsedName {
  std::string base;
  std::string bare;
  std::map<std::string, std::string> parameters;
  /// The name with its parameters, sorted by key. If all parameters are written out (`with_defaults`), two names mean
  /// the same if and only if their canonical texts are equal.
  std::string canonical() const;
};
/// Errors: UsageError on an empty name, an empty parameter, a parameter given twice.
ParsedName parse_name(std::string_view text);
/// True if the text begins with a range of sizes, as a table of algorithms by size does: "0-64K:ring,64K-:direct".
bool is_table(std::string_view text);
/// Parses a text from a result file. A text that is not a name, such as a table of algorithms by size, becomes the
/// `base` as a whole, so there are no errors.
ParsedName parse_name_or_text(std::string_view text);

/// Splits "a,b:x=1,y=2,c" into the names "a", "b:x=1,y=2" and "c": key=value after a comma belongs to the name before
/// it, which must have a colon.
std::vector<std::string> split_names(std::string_view list);

/// Completes the parameters that a user gave with the defaults of a table's row, for example
/// with_defaults("strategy", "bmuf", "every=16,mu=0.9", given). In the result every parameter is written out, and
/// numbers have a canonical form, so that 0.90 and 0.9 give equal names. Errors: UsageError for bare text, and for a
/// parameter that has no default.
ParsedName with_defaults(std::string_view kind, std::string_view name, std::string_view parameters,
                         const ParsedName& given);
/// The values that a parameter may have: from `least` to below `below`. `number_parameter` refuses other values by a
/// UsageError that states the range.
struct NumberRange {
  double least, below;
};
double number_parameter(const ParsedName&, std::string_view key, NumberRange);
/// The whole numbers that a parameter may have: from `least` to `most`. `count_parameter` refuses others likewise.
struct CountRange {
  std::uint64_t least, most;
};
std::uint64_t count_parameter(const ParsedName&, std::string_view key, CountRange);

/// Throws UsageError: "algorithm 'foo' is not known; there are: mpi, recursive-doubling, ring".
[[noreturn]] void refuse_unknown(std::string_view what, std::string_view given, std::span<const std::string> known);
/// The known name with the least edit distance to `given`, for "did you mean …"; empty: none is similar enough.
std::string nearest(std::string_view given, std::span<const std::string> known);

}  // namespace gradmeter::core
