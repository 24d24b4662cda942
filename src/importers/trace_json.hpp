// What readers of traces share: JSON with the place of what is wrong in it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.hpp"

namespace gradmeter::importers {

/// The line of the byte at `place`, from 1.
std::size_t line_at(std::string_view text, std::size_t place);
/// Errors: UsageError "line 3: it is no whole JSON; ...".
core::Json parsed_trace(std::string_view json);
/// Empty where there is no such text.
std::string text_of(const core::Json& object, const char* key);
/// A whole number of at least 0; -1: none.
std::int64_t whole_of(const core::Json& object, const char* key);
/// n · by; 0 where that is none.
std::uint64_t times(std::uint64_t n, std::uint64_t by);

}  // namespace gradmeter::importers
