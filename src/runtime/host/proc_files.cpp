#include "runtime/host/proc_files.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>

namespace gradmeter::runtime {

namespace {
constexpr std::string_view blanks = " \t\r\n";

std::vector<std::string_view> pieces(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> found;
  for (std::size_t start = text.find_first_not_of(separators); start != std::string_view::npos;
       start = text.find_first_not_of(separators, start)) {
    const std::size_t end = std::min(text.find_first_of(separators, start), text.size());
    found.push_back(text.substr(start, end - start));
    start = end;
  }
  return found;
}
}  // namespace

std::optional<std::string> read_small_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) return std::nullopt;
  return text;
}

std::vector<std::string_view> words(std::string_view text) { return pieces(text, blanks); }
std::vector<std::string_view> lines(std::string_view text) { return pieces(text, "\n"); }

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::optional<std::string_view> value_of(std::string_view text, std::string_view key) {
  for (std::string_view line : lines(text)) {
    if (line.starts_with(key)) return trimmed(line.substr(key.size()));
  }
  return std::nullopt;
}

}  // namespace gradmeter::runtime
