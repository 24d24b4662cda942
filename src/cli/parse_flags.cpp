// SPDX-License-Identifier: Apache-2.0
#include <boost/program_options.hpp>

#include <sstream>

#include "cli/commands.hpp"
#include "core/format.hpp"
#include "core/name.hpp"

namespace gradmeter::cli {
namespace {

namespace options = boost::program_options;
using core::UsageError;

using Texts = std::vector<std::string>;

/// The flags as Boost describes them.
options::options_description described(const FlagList& list) {
  options::options_description out(list.title, list.columns);
  for (const auto& f : list.flags) {
    const std::string name = f.short_name.empty() ? f.name : fmt::format("{},{}", f.name, f.short_name);
    if (!f.takes_value) {
      out.add_options()(name.c_str(), f.help.c_str());
      continue;
    }
    if (f.repeats) {
      out.add_options()(name.c_str(), options::value<Texts>(), f.help.c_str());
      continue;
    }
    auto* value = options::value<std::string>();
    if (!f.fallback.empty()) value->default_value(f.fallback);
    out.add_options()(name.c_str(), value, f.help.c_str());
  }
  return out;
}

/// Refuses what Boost lets through: values that are flags (`--out --dry-run`), and words that belong to no flag.
void refuse_stray(std::string_view command, const options::parsed_options& parsed, bool takes_words) {
  for (const auto& o : parsed.options) {
    if (o.position_key >= 0 && !takes_words) {
      throw UsageError(
          fmt::format("{}: '{}' belongs to no flag; write flags only, as in --model mlp; see gradmeter {} --help",
                      command, fmt::join(o.value, " "), command));
    }
    if (o.original_tokens.size() == 2 && o.original_tokens[1].starts_with("--")) {
      throw UsageError(fmt::format("{}: the value of --{} is missing before {}; see gradmeter {} --help", command,
                                   o.string_key, o.original_tokens[1], command));
    }
  }
}

}  // namespace

Flags parse_flags(std::string_view command, const Usage& usage, const std::vector<std::string>& given) {
  // --resume=any is read here: Boost would take the word after a bare --resume for the value of a switch that may have
  // one.
  std::vector<std::string> arguments = given;
  bool resumes_any = false;
  for (std::string& argument : arguments) {
    if (argument != "--resume=any") continue;
    resumes_any = true;
    argument = "--resume";
  }
  const std::string& words = usage.words;
  options::options_description descriptions = described(usage.flags);
  options::positional_options_description positions;
  if (!words.empty()) {
    descriptions.add_options()(words.c_str(), options::value<Texts>());
    positions.add(words.c_str(), -1);
  }
  try {
    const auto style = options::command_line_style::unix_style & ~options::command_line_style::allow_guessing;
    options::command_line_parser parser(arguments);
    parser.options(descriptions).style(style);
    if (!words.empty()) parser.positional(positions);  // else refuse_stray explains a stray word better than Boost
    const auto parsed = parser.run();
    refuse_stray(command, parsed, !words.empty());
    options::variables_map map;
    options::store(parsed, map);
    options::notify(map);
    std::map<std::string, Flags::Value> values;
    std::vector<std::string> words_given;
    for (const auto& [name, value] : map) {
      if (name == words) {
        words_given = value.as<Texts>();
      } else if (const auto* texts = boost::any_cast<Texts>(&value.value())) {
        values[name] = {.text = texts->back(), .is_fallback = false, .texts = *texts};
      } else {
        const auto* text = boost::any_cast<std::string>(&value.value());
        values[name] = {text ? *text : "", value.defaulted()};
      }
    }
    return {std::move(values), std::move(words_given), resumes_any};
  } catch (const options::unknown_option& e) {
    std::vector<std::string> names;
    for (const auto& f : usage.flags.flags) names.push_back("--" + f.name);
    const std::string near = core::nearest(e.get_option_name(), names);
    throw UsageError(fmt::format("{}: unknown flag {}{}; see gradmeter {} --help", command, e.get_option_name(),
                                 near.empty() ? "" : fmt::format(" (did you mean {}?)", near), command));
  } catch (const options::multiple_occurrences& e) {
    throw UsageError(
        fmt::format("{}: {} is given twice; give it once, with a comma list", command, e.get_option_name()));
  } catch (const options::error& e) {
    throw UsageError(fmt::format("{}: {}; see gradmeter {} --help", command, e.what(), command));
  }
}

std::string help_text(const Usage& usage) {
  std::ostringstream text;
  text << described(usage.flags);
  return fmt::format("{}\n\n{}", usage.about, text.str());
}

}  // namespace gradmeter::cli
