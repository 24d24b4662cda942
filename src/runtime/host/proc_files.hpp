// Small text files that the kernel writes: /proc, /sys, control groups.
#pragma once
#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradmeter::runtime {

/// The whole text. Nothing where the file is missing or unreadable: such files are never required.
std::optional<std::string> read_small_file(const std::filesystem::path& path);

/// Words between blanks.
std::vector<std::string_view> words(std::string_view text);
std::vector<std::string_view> lines(std::string_view text);
/// The rest of the first line that starts with `key`, without the key and the blanks around: /proc/meminfo's
/// "MemTotal:   47 kB" for "MemTotal:" is "47 kB". Nothing where there is no such line.
std::optional<std::string_view> value_of(std::string_view text, std::string_view key);
std::string_view trimmed(std::string_view text);

/// The number that `text` starts with; nothing where it starts with none or with one that is out of range.
template <class Number>
std::optional<Number> leading_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  return number;
}
/// The same of a file's text.
template <class Number>
std::optional<Number> read_number(const std::filesystem::path& path) {
  const auto text = read_small_file(path);
  return text ? leading_number<Number>(trimmed(*text)) : std::nullopt;
}

}  // namespace gradmeter::runtime
