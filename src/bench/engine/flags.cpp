// SPDX-License-Identifier: Apache-2.0
#include "bench/engine/flags.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <numeric>
#include <string_view>

#include "allreduce/selection/size_table.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/table.hpp"
#include "runtime/clock.hpp"

namespace gradmeter::bench {

using core::UsageError;

namespace {

/// name: "help", or with its short form "help,h".
FlagDescription& add_flag(FlagList& list, std::string_view name, const char* help) {
  const auto comma = name.find(',');
  list.flags.push_back({.name = std::string(name.substr(0, comma)),
                        .short_name = comma == name.npos ? "" : std::string(name.substr(comma + 1)),
                        .help = help});
  return list.flags.back();
}

}  // namespace

void add_text(FlagList& list, std::string_view name, const std::string& fallback, const char* help) {
  auto& flag = add_flag(list, name, help);
  flag.takes_value = true;
  flag.fallback = fallback;
}

void add_texts(FlagList& list, std::string_view name, const char* help) {
  auto& flag = add_flag(list, name, help);
  flag.takes_value = true;
  flag.repeats = true;
}

void add_switch(FlagList& list, std::string_view name, const char* help) { add_flag(list, name, help); }

std::string read_label(const Flags& f, const std::string& name) { return core::printable(f.text(name)); }

void add_stopping_flags(FlagList& list, const StoppingHelp& help) {
  add_text(list, "time-budget", "", help.budget);
  add_text(list, "min-samples", help.least_samples, help.samples);
  add_text(list, "precision-goal", "0.025", help.goal);
  add_switch(list, "strict", help.strict);
}

void add_repeats_flag(FlagList& list) {
  add_text(list, "repeats", "1",
           "measurements of each point in this launch, with a row for each: believe a difference between two settings "
           "only if it exceeds the differences between rows of one setting");
}

std::size_t read_repeats(const Flags& f) { return parse_count("--repeats", f.text("repeats"), 1, 100); }

std::vector<std::size_t> numbers_of_repeats(std::size_t n) {
  std::vector<std::size_t> out(n);
  std::iota(out.begin(), out.end(), n == 1 ? 0 : 1);
  return out;
}

void read_stopping(const Flags& f, core::StoppingRule& rule, std::optional<TimeBudget>& budget) {
  if (f.has("time-budget"))
    budget = {parse_time("--time-budget", f.text("time-budget")), runtime::process_begin(), f.on("strict")};
  rule.min_samples = parse_count("--min-samples", f.text("min-samples"), 3, 1'000'000);
  rule.relative_half_width = parse_number("--precision-goal", f.text("precision-goal"), 1e-4, 1);
}

void add_rank_flags(FlagList& list) {
  add_text(list, "timeout", "5m",
           "time without progress after which a rank says which rank it waits for, and ends the job");
  add_text(list, "thread-ranks", "", thread_ranks_help);
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

void add_injection(FlagList& list) {
  add_text(
      list, "inject", "",
      "faults to inject, to see whether they are found; several are joined by commas and act together, as "
      "slow:rank=1,factor=2,drift:ppm=20. They are: slow:rank=1,factor=2 | flip:call=40,rank=0 (results are wrong from "
      "that call on) | omit:call=40,rank=0 (sums lack the rank's contribution from that call on) | "
      "drop:p=0.01,timeout=200ms (messages are lost and resent) | delay:time=1ms,jitter=200us (messages are late) | "
      "cut:rank=1,at=5s,for=2s (its link is down) | drift:ppm=20 (the last rank's clock is fast)");
}

core::Injection read_injection(const Flags& f, int ranks) {
  if (!f.has("inject")) return {};
  const auto injection = core::parse_injection(f.text("inject"));
  injection.check_ranks(ranks);
  injection.check_lasting();
  return injection;
}

std::string injection_line(const core::Injection& injection) {
  return injection.any() ? fmt::format("injected on purpose: {}\n", injection.text()) : "";
}

void start_drift(const core::Injection& injection, const runtime::Communicator& world) {
  if (!injection.drift) return;
  if (world.ranks_as() == runtime::RanksAs::threads) {
    throw UsageError("--inject drift gives a rank a clock of its own, and threads have one; use mpirun");
  }
  if (injection.drift->rank_of(world.size()) == world.rank()) runtime::inject_clock_drift(injection.drift->ppm);
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
    const bool is_listed = std::any_of(out.begin(), out.end(), [&](const auto& b) { return a->name == b->name; });
    if (!is_listed) out.push_back(std::move(a));
  };
  for (const auto& item : allreduce::join_tables(split_list("--algorithm", text))) {
    if (item != "all") {
      add(item);
      continue;
    }
    for (const auto& a : allreduce::algorithms()) {
      if (a.backend == allreduce::Backend::selection) continue;
      constexpr allreduce::RankShape plain_shape{.ranks = 4,
                                                 .ranks_per_node = 4};  // no algorithm refuses so plain a shape
      if (!collective_kind || allreduce::find_algorithm(a.name)->refusal(plain_shape, *collective_kind).empty())
        add(a.name);
    }
  }
  return out;
}

std::vector<dataparallel::TransportKind> parse_transports(const std::string& text) {
  using enum dataparallel::TransportKind;
  if (text == "all") return {mpi, shm};  // automatic and hybrid only choose between these two
  std::vector<runtime::TransportKind> choices;
  for (const auto& t : runtime::transport_table()) choices.push_back(t.kind);
  return choose("--transport", "transport", text, choices, [](auto t) { return std::string(runtime::name(t)); });
}

std::vector<runtime::Cadence> parse_cadences(const std::string& text) {
  const auto choices = runtime::cadences();
  return choose("--cadence", "cadence", text, std::vector<runtime::Cadence>(choices.begin(), choices.end()),
                [](auto c) { return std::string(runtime::name(c)); });
}

void check_one_of(const std::string& flag, const std::string& text, const std::vector<std::string>& known) {
  if (std::ranges::find(known, text) == known.end()) core::refuse_unknown(flag.substr(2), text, known);
}

void add_wide_flag(FlagList& list) {
  add_switch(list, "wide", "show all columns, even if the tables are wider than the terminal");
}

void add_legend_flag(FlagList& list) {
  add_switch(list, "legend", "below the tables, explain every column and mark; without it, only those easily misread");
}

report::Legend read_legend(const Flags& f) { return f.on("legend") ? report::Legend::whole : report::Legend::brief; }

std::size_t table_width(const Flags& f) {
  constexpr std::size_t default_width = 80;
  if (f.on("wide")) return core::any_width;
  const char* columns = std::getenv("COLUMNS");
  const std::string_view text(columns ? columns : "");
  std::size_t width = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), width).ec == std::errc{} && width > 0) return width;
  winsize size{};
  const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : default_width;
}

}  // namespace gradmeter::bench
