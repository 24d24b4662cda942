#include "importers/text.hpp"

#define ZLIB_CONST  // input is not changed
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/error.hpp"

namespace gradmeter::importers {
namespace {

using core::UsageError;

/// All members of a gzip file, as `cat a.gz b.gz` makes it.
std::string inflated(std::string_view bytes) {
  constexpr int gzip_window = 15 + 16;
  constexpr std::size_t most_at_once = std::size_t{1} << 30;
  struct Stream : z_stream {
    Stream() : z_stream{} {}
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    ~Stream() { inflateEnd(this); }
  } stream;
  if (inflateInit2(&stream, gzip_window) != Z_OK) throw UsageError("there is no memory to uncompress it");
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
  const auto tail = [&](unsigned shift) { out += static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

/// `high`: the place of a unit's upper byte, 0 in big-endian text and 1 in little-endian.
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

std::string plain_text(std::string_view bytes) {
  std::string text = bytes.starts_with("\x1f\x8b") ? inflated(bytes) : std::string(bytes);
  if (text.starts_with("\xEF\xBB\xBF")) return text.substr(3);
  if (text.starts_with("\xFF\xFE")) return utf8_of(std::string_view(text).substr(2), 1);
  if (text.starts_with("\xFE\xFF")) return utf8_of(std::string_view(text).substr(2), 0);
  // Without a mark: the first character of a log is below 256.
  if (text.size() > 1 && (text[0] == 0) != (text[1] == 0)) return utf8_of(text, text[0] == 0 ? 0 : 1);
  return text;
}

}  // namespace gradmeter::importers
