#include "core/element.hpp"

#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"

namespace gradmeter::core {
namespace {

struct Alias {
  std::string_view name;
  Element element;
};
constexpr std::array aliases{
    Alias{"double", Element::f64},    Alias{"float", Element::f32},     Alias{"half", Element::f16},
    Alias{"float16", Element::f16},   Alias{"bfloat16", Element::bf16}, Alias{"fp8", Element::e4m3},
    Alias{"e4m3", Element::e4m3},     Alias{"fp8_e4m3", Element::e4m3}, Alias{"e5m2", Element::e5m2},
    Alias{"fp8_e5m2", Element::e5m2}, Alias{"f8e4m3", Element::e4m3},   Alias{"f8e5m2", Element::e5m2},
    Alias{"int", Element::i32},       Alias{"char", Element::i8},
};

}  // namespace

Element parse_element(std::string_view text) {
  for (const auto& row : elements) {
    if (row.name == text) return row.element;
  }
  for (const auto& alias : aliases) {
    if (alias.name == text) return alias.element;
  }
  std::vector<std::string> known;
  for (const auto& row : elements) known.emplace_back(row.name);
  if (text.starts_with("uint"))
    throw UsageError(fmt::format("type '{}' is nccl-tests', but nothing is measured in it here; there are: {}", text,
                                 fmt::join(known, ", ")));
  refuse_unknown("type", text, known);
}

}  // namespace gradmeter::core
