// SPDX-License-Identifier: Apache-2.0
// Reads users' files: decodes text that may be compressed or in UTF-16, and parses JSON that may have errors.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.hpp"

namespace gradmeter::importers {

/// The text as UTF-8 without a byte-order mark. The bytes may be UTF-8 or UTF-16, plain or compressed by gzip. Errors:
/// UsageError for a gzip stream that is cut or damaged.
std::string decoded_text(std::string_view bytes);

/// The number of the line, from 1, in which the byte at offset `place` lies.
std::size_t line_at(std::string_view text, std::size_t place);
/// True if `first` is the first character that is not blank.
bool begins_with(std::string_view text, char first);
/// Repairs JSON. Outside of strings, NaN, inf, Infinity and the like (written by Python's json and printf) become null.
/// Inside strings, control characters become blanks. Bytes that are not UTF-8, such as a path in another encoding,
/// become "?" everywhere.
std::string mended_json(std::string_view json);
/// Parses JSON, if need be after `mended_json`. Errors: UsageError "line 3: it is no whole JSON; ...".
core::Json parse_json(std::string_view json);
/// The string under this key; empty if there is none.
std::string text_of(const core::Json& object, const char* key);
/// The whole number of at least 0 under this key; -1: there is none.
std::int64_t whole_of(const core::Json& object, const char* key);
/// The product; 0 if it is above 2^62, so that it also fits into a signed number.
std::uint64_t checked_product(std::uint64_t n, std::uint64_t by);

}  // namespace gradmeter::importers
