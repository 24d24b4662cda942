#include "cli/flags/flag_facts.hpp"

#include <algorithm>

#include "cli/list_member.hpp"
#include "core/format.hpp"

namespace gradmeter::cli {
namespace {

/// A flag has the name of one of a kind's members: --codec of codecs, --strategy of strategies.
std::string kind_of(const std::string& flag) {
  return flag.ends_with('y') ? fmt::format("{}ies", flag.substr(0, flag.size() - 1)) : fmt::format("{}s", flag);
}

std::string usual_of(const options::value_semantic& value) {
  boost::any usual;
  if (!value.apply_default(usual)) return {};
  const auto* text = boost::any_cast<std::string>(&usual);
  return text ? *text : std::string{};
}

}  // namespace

std::vector<FlagFacts> flag_facts(const Usage& usage) {
  std::vector<FlagFacts> out;
  for (const auto& flag : usage.flags.options()) {
    FlagFacts f{.name = fmt::format("--{}", flag->long_name()),
                .short_name = flag->canonical_display_name(options::command_line_style::allow_dash_for_short),
                .takes_value = flag->semantic()->max_tokens() > 0,
                .usual = usual_of(*flag->semantic()),
                .help = flag->description(),
                .values = {}};
    if (!f.short_name.starts_with('-') || f.short_name.size() != 2) f.short_name.clear();
    std::ranges::replace(f.help, '\n', ' ');  // completions are lines
    if (f.takes_value) f.values = member_names(kind_of(flag->long_name()));
    out.push_back(std::move(f));
  }
  return out;
}

}  // namespace gradmeter::cli
