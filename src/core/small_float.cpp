#include "core/small_float.hpp"

#include <cstring>

namespace gradmeter::core {
namespace {

template <class T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void write(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

}  // namespace

double load(Element e, const std::byte* from) {
  switch (e) {
    case Element::f64:
      return read<double>(from);
    case Element::f32:
      return static_cast<double>(read<float>(from));
    case Element::i64:
      return static_cast<double>(read<std::int64_t>(from));
    case Element::i32:
      return read<std::int32_t>(from);
    case Element::i8:
      return read<std::int8_t>(from);
    case Element::f16:
    case Element::bf16:
      return static_cast<double>(to_float(small_format(e), read<std::uint16_t>(from)));
    case Element::e4m3:
    case Element::e5m2:
      break;
  }
  return static_cast<double>(to_float(small_format(e), read<std::uint8_t>(from)));
}

void store(Element e, std::byte* to, double value) {
  switch (e) {
    case Element::f64:
      return write(to, value);
    case Element::f32:
      return write(to, static_cast<float>(value));
    case Element::i64:
      return write(to, static_cast<std::int64_t>(value));
    case Element::i32:
      return write(to, static_cast<std::int32_t>(value));
    case Element::i8:
      return write(to, static_cast<std::int8_t>(value));
    case Element::f16:
    case Element::bf16:
      return write(to, from_double(small_format(e), value));
    case Element::e4m3:
    case Element::e5m2:
      break;
  }
  write(to, static_cast<std::uint8_t>(from_double(small_format(e), value)));
}

}  // namespace gradmeter::core
