// SPDX-License-Identifier: Apache-2.0
#include "core/element.hpp"

#include <cstring>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"

namespace gradmeter::core {
namespace {

constexpr std::array<std::pair<std::string_view, Element>, 14> aliases{{{"double", Element::f64},
                                                                        {"float", Element::f32},
                                                                        {"half", Element::f16},
                                                                        {"float16", Element::f16},
                                                                        {"bfloat16", Element::bf16},
                                                                        {"fp8", Element::e4m3},
                                                                        {"e4m3", Element::e4m3},
                                                                        {"fp8_e4m3", Element::e4m3},
                                                                        {"f8e4m3", Element::e4m3},
                                                                        {"e5m2", Element::e5m2},
                                                                        {"fp8_e5m2", Element::e5m2},
                                                                        {"f8e5m2", Element::e5m2},
                                                                        {"int", Element::i32},
                                                                        {"char", Element::i8}}};

}  // namespace

Element parse_element(std::string_view text) {
  for (const auto& row : elements) {
    if (row.name == text) return row.element;
  }
  for (const auto& [alias, element] : aliases) {
    if (alias == text) return element;
  }
  std::vector<std::string> known;
  for (const auto& row : elements) known.emplace_back(row.name);
  if (text.starts_with("uint"))
    throw UsageError(fmt::format("type '{}' is nccl-tests', but nothing is measured in it here; there are: {}", text,
                                 fmt::join(known, ", ")));
  refuse_unknown("type", text, known);
}

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
