#include "cli/flags/flags.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "allreduce/chooser.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "core/printable.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::cli {
namespace {

using core::UsageError;

std::vector<std::string> flag_names(const options::options_description& d) {
  std::vector<std::string> out;
  for (const auto& o : d.options()) out.push_back("--" + o->long_name());
  return out;
}

/// What Boost lets through: values that are flags (`--out --dry-run`), and words that belong to no flag.
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

Flags::Flags(std::string_view command, const Usage& usage, const std::vector<std::string>& given)
    : words_(usage.words) {
  // A switch that may have a value: Boost would take the next word for it.
  std::vector<std::string> arguments = given;
  for (std::string& argument : arguments) {
    if (argument != "--resume=any") continue;
    resumes_any_ = true;
    argument = "--resume";
  }
  const std::string& words = usage.words;
  options::options_description all;
  all.add(usage.flags);
  options::positional_options_description places;
  if (!words.empty()) {
    all.add_options()(words.c_str(), options::value<std::vector<std::string>>());
    places.add(words.c_str(), -1);
  }
  try {
    const auto style = options::command_line_style::unix_style & ~options::command_line_style::allow_guessing;
    options::command_line_parser parser(arguments);
    parser.options(all).style(style);
    if (!words.empty()) parser.positional(places);  // without, refuse_stray says more of a stray word than Boost
    const auto parsed = parser.run();
    refuse_stray(command, parsed, !words.empty());
    options::store(parsed, map_);
    options::notify(map_);
  } catch (const options::unknown_option& e) {
    const auto names = flag_names(usage.flags);
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

std::vector<std::string> Flags::words() const {
  return !words_.empty() && has(words_) ? map_[words_].as<std::vector<std::string>>() : std::vector<std::string>{};
}

std::string help_text(const Usage& usage) {
  std::ostringstream text;
  text << usage.flags;
  return fmt::format("{}\n\n{}", usage.about, text.str());
}

void add_text(options::options_description& d, const char* name, const std::string& fallback, const char* help) {
  auto* value = options::value<std::string>();
  if (!fallback.empty()) value->default_value(fallback);
  d.add_options()(name, value, help);
}

void add_switch(options::options_description& d, const char* name, const char* help) {
  d.add_options()(name, options::bool_switch(), help);
}

std::string read_label(const Flags& f, const std::string& name) { return core::printable(f.text(name)); }

void add_rank_flags(options::options_description& d) {
  add_text(d, "timeout", "5m", "silence after which a rank says who it waits for and ends the job");
  add_text(d, "thread-ranks", "", thread_ranks_help);
}

ThreadRanks parse_thread_ranks(const std::string& text) {
  constexpr std::string_view bind = ":bind";
  constexpr std::uint64_t most = 1024;
  const bool bound = text.ends_with(bind);
  const std::string count = bound ? text.substr(0, text.size() - bind.size()) : text;
  return {static_cast<int>(parse_count("--thread-ranks", count, 1, most)), bound};
}

runtime::Launcher planned_launcher(const Flags& f) {
  if (!f.has("thread-ranks")) return runtime::read_launcher();
  return {.name = "--thread-ranks", .rank = 0, .size = parse_thread_ranks(f.text("thread-ranks")).ranks};
}

void add_injection(options::options_description& d) {
  add_text(
      d, "inject", "",
      "faults, to see them found: slow:rank=1,factor=2; flip:call=40,rank=0 (results are wrong from that call on); "
      "omit:call=40,rank=0 (sums lack the rank's contribution); drop:p=0.01,timeout=200ms (messages are lost and sent "
      "again); delay:time=1ms,jitter=200us (of each message); cut:rank=1,at=5s,for=2s (of its link); "
      "drift:ppm=20 (the last rank's clock); a comma list");
}

core::Injection read_injection(const Flags& f, int ranks) {
  if (!f.has("inject")) return {};
  const auto injection = core::parse_injection(f.text("inject"));
  injection.check_ranks(ranks);
  injection.check_lasting();
  return injection;
}

std::string injection_line(const core::Injection& i) {
  return i.any() ? fmt::format("injected on purpose: {}\n", i.text()) : "";
}

void start_drift(const core::Injection& i, const runtime::Communicator& world) {
  if (!i.drift) return;
  if (world.ranks_as() == runtime::RanksAs::threads) {
    throw UsageError("--inject drift gives a rank a clock of its own, and threads have one; use mpirun");
  }
  if (i.drift->rank_of(world.size()) == world.rank()) runtime::inject_clock_drift(i.drift->ppm);
}

std::vector<std::string> split_list(const std::string& flag, const std::string& text) {
  std::vector<std::string> out = naming_flag(flag, [&] { return core::split_names(text); });
  if (out.empty()) throw UsageError(fmt::format("{} is empty; give at least one value", flag));
  return out;
}

std::uint64_t parse_count(const std::string& flag, const std::string& text, std::uint64_t least, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most) {
    throw UsageError(fmt::format("{} {}: must be a whole number from {} to {}", flag, text, least, most));
  }
  return value;
}

std::vector<std::uint64_t> parse_counts(const std::string& flag, const std::string& text, std::uint64_t least,
                                        std::uint64_t most) {
  std::vector<std::uint64_t> out;
  for (const auto& item : split_list(flag, text)) {
    const auto value = parse_count(flag, item, least, most);
    if (std::find(out.begin(), out.end(), value) == out.end()) out.push_back(value);
  }
  return out;
}

std::vector<int> to_ints(const std::vector<std::uint64_t>& v) { return {v.begin(), v.end()}; }

double parse_number(const std::string& flag, const std::string& text, double least, double most) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= least && value <= most)) {
    throw UsageError(fmt::format("{} {}: must be a number from {} to {}", flag, text, least, most));
  }
  return value;
}

std::size_t parse_size(const std::string& flag, const std::string& text) {
  return naming_flag(flag, [&] { return core::parse_bytes(text).value; });
}

core::Seconds parse_time(const std::string& flag, const std::string& text) {
  return naming_flag(flag, [&] { return core::parse_duration(text); });
}

std::vector<allreduce::AlgorithmPtr> parse_algorithms(const std::string& text,
                                                      std::optional<allreduce::CollectiveKind> collective_kind) {
  std::vector<allreduce::AlgorithmPtr> out;
  auto add = [&](std::string_view name) {
    auto a = naming_flag("--algorithm", [&] { return allreduce::find_algorithm(name); });
    const bool had = std::any_of(out.begin(), out.end(), [&](const auto& b) { return a->name == b->name; });
    if (!had) out.push_back(std::move(a));
  };
  for (const auto& item : allreduce::join_tables(split_list("--algorithm", text))) {
    if (item != "all") {
      add(item);
      continue;
    }
    for (const auto& a : allreduce::algorithms()) {
      if (a.backend == allreduce::Backend::selection) continue;
      constexpr allreduce::Shape any{.ranks = 4, .ranks_per_node = 4};  // no algorithm refuses so plain a shape
      if (!collective_kind || allreduce::find_algorithm(a.name)->refusal(any, *collective_kind).empty()) add(a.name);
    }
  }
  return out;
}

std::vector<compression::CodecChoicePtr> parse_codecs(const std::string& text) {
  std::vector<compression::CodecChoicePtr> out;
  auto add = [&](std::string_view name) {
    auto c = naming_flag("--codec", [&] { return compression::find_codec(name); });
    const bool had =
        std::any_of(out.begin(), out.end(), [&](const auto& b) { return c ? b && c->name == b->name : !b; });
    if (!had) out.push_back(std::move(c));
  };
  for (const auto& item : split_list("--codec", text)) {
    if (item != "all") {
      add(item);
      continue;
    }
    add("none");
    for (const auto& row : compression::codecs()) add(row.name);
  }
  return out;
}

std::vector<dataparallel::TransportKind> parse_transports(const std::string& text) {
  using enum dataparallel::TransportKind;
  if (text == "all") return {mpi, shm};  // automatic and hybrid are made of these
  std::vector<runtime::TransportKind> all;
  for (const auto& t : runtime::transport_table()) all.push_back(t.kind);
  return choose("--transport", "transport", text, all, [](auto t) { return std::string(runtime::name(t)); });
}

std::vector<runtime::Cadence> parse_cadences(const std::string& text) {
  const auto all = runtime::cadences();
  return choose("--cadence", "cadence", text, std::vector<runtime::Cadence>(all.begin(), all.end()),
                [](auto c) { return std::string(runtime::name(c)); });
}

void check_only(const std::string& flag, const std::string& text, const std::vector<std::string>& known) {
  for (const auto& item : split_list(flag, text)) {
    if (item != "all" && std::find(known.begin(), known.end(), item) == known.end()) {
      core::refuse_unknown(flag.substr(2), item, known);
    }
  }
}

}  // namespace gradmeter::cli
