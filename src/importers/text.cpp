// SPDX-License-Identifier: Apache-2.0
#include "importers/text.hpp"

#define ZLIB_CONST  // zlib then takes its input as const
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>

#include "core/error.hpp"
#include "core/format.hpp"
#include "importers/rows.hpp"

namespace gradmeter::importers {
namespace {

using core::UsageError;

/// Inflates all members of a gzip file, as `cat a.gz b.gz` makes it.
std::string inflated(std::string_view bytes) {
  constexpr int gzip_window = 15 + 16;
  constexpr std::size_t most_at_once = std::size_t{1} << 30;
  z_stream stream{};
  if (inflateInit2(&stream, gzip_window) != Z_OK) throw UsageError("there is no memory to uncompress it");
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> end(&stream, inflateEnd);
  std::string out;
  std::array<char, std::size_t{1} << 16> part{};
  for (int code = Z_OK; code == Z_OK || !bytes.empty() || stream.avail_in > 0;) {
    if (code == Z_STREAM_END && inflateReset(&stream) != Z_OK) throw UsageError("its gzip stream is damaged");
    if (stream.avail_in == 0) {
      const std::size_t taken = std::min(bytes.size(), most_at_once);
      stream.next_in = reinterpret_cast<const Bytef*>(bytes.data());
      stream.avail_in = static_cast<uInt>(taken);
      bytes.remove_prefix(taken);
    }
    stream.next_out = reinterpret_cast<Bytef*>(part.data());
    stream.avail_out = static_cast<uInt>(part.size());
    code = inflate(&stream, Z_NO_FLUSH);
    if (code == Z_BUF_ERROR) throw UsageError("its gzip stream is cut; copy the file again");
    if (code != Z_OK && code != Z_STREAM_END) throw UsageError("its gzip stream is damaged; copy the file again");
    out.append(part.data(), part.size() - stream.avail_out);
  }
  return out;
}

void append_utf8(std::string& out, std::uint32_t c) {
  constexpr std::array<std::uint32_t, 4> leads{0x00, 0xC0, 0xE0, 0xF0};  // by the number of bytes that follow
  const std::uint32_t more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  out += static_cast<char>(leads.at(more) | c >> 6 * more);
  for (std::uint32_t left = more; left > 0; --left) out += static_cast<char>(0x80 | (c >> 6 * (left - 1) & 0x3F));
}

/// `high`: the offset of the upper byte in a 16-bit unit, 0 in big-endian text and 1 in little-endian.
std::string utf8_of(std::string_view utf16, std::size_t high) {
  constexpr std::uint32_t replacement = 0xFFFD;
  std::string out;
  const auto unit = [&](std::size_t at) -> std::uint32_t {
    return at + 1 < utf16.size() ? static_cast<std::uint32_t>(static_cast<unsigned char>(utf16[at + high]) << 8 |
                                                              static_cast<unsigned char>(utf16[at + 1 - high]))
                                 : 0;
  };
  for (std::size_t at = 0; at + 1 < utf16.size(); at += 2) {
    std::uint32_t c = unit(at);
    if (c >= 0xD800 && c < 0xE000) {
      const std::uint32_t low = unit(at + 2);
      const bool is_pair = c < 0xDC00 && low >= 0xDC00 && low < 0xE000;
      c = is_pair ? 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00) : replacement;
      if (is_pair) at += 2;
    }
    append_utf8(out, c);
  }
  return out;
}

}  // namespace

std::string decoded_text(std::string_view bytes) {
  std::string text = bytes.starts_with("\x1f\x8b") ? inflated(bytes) : std::string(bytes);
  if (text.starts_with("\xEF\xBB\xBF")) return text.substr(3);
  if (text.starts_with("\xFF\xFE")) return utf8_of(std::string_view(text).substr(2), 1);
  if (text.starts_with("\xFE\xFF")) return utf8_of(std::string_view(text).substr(2), 0);
  // Without a byte-order mark: the first character of a log is below 256, so its upper byte is 0.
  if (text.size() > 1 && (text[0] == 0) != (text[1] == 0)) return utf8_of(text, text[0] == 0 ? 0 : 1);
  return text;
}

std::size_t line_at(std::string_view text, std::size_t place) {
  return 1 + static_cast<std::size_t>(std::ranges::count(text.substr(0, place), '\n'));
}

bool begins_with(std::string_view text, char first) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && text[begin] == first;
}

namespace {

/// The length of the UTF-8 character with which `text` begins; 0: it begins with none.
std::size_t utf8_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t length = lead < 0x80                   ? 1
                             : lead >= 0xC2 && lead < 0xE0 ? 2
                             : lead >= 0xE0 && lead < 0xF0 ? 3
                             : lead >= 0xF0 && lead < 0xF5 ? 4
                                                           : 0;
  if (length == 0 || text.size() < length) return 0;
  const auto goes_on = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; };
  return std::ranges::all_of(text.substr(1, length - 1), goes_on) ? length : 0;
}

}  // namespace

std::string mended_json(std::string_view json) {
  std::string out;
  bool in_text = false;
  for (std::size_t at = 0; at < json.size();) {
    const auto rest = json.substr(at);
    std::size_t length = 1;
    if (!in_text)
      for (const std::string_view name : {"-Infinity", "Infinity", "-inf", "inf", "-nan", "nan", "NaN"})
        if (length == 1 && rest.starts_with(name)) length = name.size();
    if (length > 1) {
      out += "null";
    } else if (in_text && rest.size() > 1 && rest[0] == '\\') {
      length = 2;
      out += rest.substr(0, length);
    } else if (in_text && static_cast<unsigned char>(rest[0]) < ' ') {
      out += ' ';
    } else if (const std::size_t character = utf8_length(rest); character > 0) {
      length = character;
      out += rest.substr(0, length);
    } else {
      out += '?';
    }
    if (rest[0] == '"') in_text = !in_text;
    at += length;
  }
  return out;
}

core::Json parse_json(std::string_view json) {
  try {
    return core::parse_json(json);
  } catch (const core::Json::parse_error& e) {
    if (auto mended = core::try_parse_json(mended_json(json))) return *std::move(mended);
    refuse_line(line_at(json, e.byte), "it is no whole JSON; the program may not have ended");
  } catch (const core::Json::exception& e) {  // the only other exception: a number beyond all bounds, which it quotes
    const std::string_view why = e.what();
    const std::size_t begin = std::min(why.find('\'') + 1, why.size());
    const std::string_view number = why.substr(begin, why.rfind('\'') - begin);
    refuse_line(line_at(json, json.find(number)), fmt::format("{} is beyond all numbers", number));
  }
}

std::string text_of(const core::Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::int64_t whole_of(const core::Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer() || !(*found >= 0)) return -1;
  return *found > std::numeric_limits<std::int64_t>::max() ? -1 : found->get<std::int64_t>();
}

std::uint64_t checked_product(std::uint64_t n, std::uint64_t by) {
  constexpr std::uint64_t most = std::uint64_t{1} << 62U;
  return by == 0 || n > most / by ? 0 : n * by;
}

}  // namespace gradmeter::importers
