// gradmeter list: the members of every registry, with their sources.
#include <algorithm>
#include <array>
#include <iterator>

#include "bench/train/step_size.hpp"
#include "cli/command.hpp"
#include "cli/flags/flags.hpp"
#include "cli/list_models.hpp"
#include "cli/list_problems.hpp"
#include "cli/terminal.hpp"
#include "compression/registry.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/json.hpp"
#include "core/name.hpp"
#include "core/print.hpp"
#include "core/result.hpp"
#include "core/table.hpp"
#include "dataparallel/optimizers/number_format.hpp"
#include "dataparallel/optimizers/registry.hpp"
#include "dataparallel/server/protocol.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/op.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::cli {
namespace {

struct Kind {
  std::string_view name;
  std::vector<Member> (*members)();
};

std::vector<Member> algorithms() {
  std::vector<Member> out;
  for (const auto& a : allreduce::algorithms()) {
    out.push_back({std::string(a.name), std::string(a.cost_text), std::string(a.source)});
  }
  return out;
}
std::vector<Member> strategies() {
  std::vector<Member> out;
  for (const auto& s : dataparallel::strategies()) {
    out.push_back({.name = std::string(s.name),
                   .about = std::string(s.rule),
                   .source = std::string(s.source),
                   .wire = {},
                   .parameters = std::string(s.parameters),
                   .sends = std::string(s.bytes_text)});
  }
  return out;
}
std::vector<Member> optimizers() {
  std::vector<Member> out;
  for (const auto& o : dataparallel::optimizers()) {
    out.push_back({std::string(o.name), std::string(o.rule), std::string(o.source), "", std::string(o.parameters)});
  }
  return out;
}
std::vector<Member> updates() {
  std::vector<Member> out;
  for (const auto& u : dataparallel::update_formats()) {
    out.push_back({std::string(u.name), std::string(u.rule), std::string(u.source)});
  }
  return out;
}
std::vector<Member> step_size_rules() {
  std::vector<Member> out;
  for (const auto& r : bench::step_size_rules()) {
    out.push_back({std::string(r.name), std::string(r.rule), std::string(r.source), "", std::string(r.parameters)});
  }
  return out;
}
/// One member for all precisions of a backend, which follow each other.
template <class Row>
void add_precision_of(std::vector<Member>& to, const Row& row, std::string_view backend) {
  const std::string name = fmt::format("{}/{}", kernels::name(row.operation), backend);
  const std::string precision(kernels::name(row.precision));
  if (to.empty() || to.back().name != name) {
    to.push_back({name, precision, std::string(row.source)});
  } else {
    to.back().about += fmt::format(", {}", precision);
  }
}
std::vector<Member> kernels() {
  std::vector<Member> out, definitions;
  for (const auto& t : kernels::kernel_cases()) add_precision_of(out, t, t.backend);
  for (const auto& b : kernels::op_backends())
    if (b.is_definition) add_precision_of(definitions, b, b.name);
  for (Member& m : definitions) {
    m.about += ", of models and tests";
    out.push_back(std::move(m));
  }
  return out;
}
std::vector<Member> transports() {
  std::vector<Member> out;
  for (const auto& t : runtime::transport_table()) {
    out.push_back({std::string(t.name), std::string(t.about), std::string(t.source)});
  }
  return out;
}
std::vector<Member> codecs() {
  std::vector<Member> out{{"none", "fp32 on the wire", "", "32"}};
  for (const auto& c : compression::codecs()) {
    const auto codec = compression::find_codec(c.name);
    std::string parameters;
    for (const auto& [key, value] : codec->parsed.parameters) {
      parameters += fmt::format("{}{}={}", parameters.empty() ? "" : ",", key, value);
    }
    const bool dense_weights = !dataparallel::Coding::why_dense_weights(*codec).empty();
    out.push_back({std::string(c.name), fmt::format("{}{}", c.rule, dense_weights ? "; servers' weights dense" : ""),
                   std::string(c.source), std::string(c.wire_text), parameters});
  }
  return out;
}
std::vector<Member> precisions() {
  std::vector<Member> out;
  for (const auto& p : kernels::precision_table()) {
    out.push_back({std::string(p.name), std::string(p.about), std::string(p.source)});
  }
  return out;
}
std::vector<Member> keys(std::span<const core::KeyInfo> table) {
  std::vector<Member> out;
  for (const auto& k : table) {
    out.push_back({.name = std::string(k.key),
                   .about = std::string(k.meaning),
                   .source = {},
                   .unit = std::string(k.unit),
                   .kind = std::string(core::name(k.kind))});
  }
  return out;
}
std::vector<Member> factors() { return keys(core::factor_table()); }
std::vector<Member> metrics() { return keys(core::metric_table()); }
std::vector<Member> data() {
  return {{"digits", "28x28 digits drawn from a seed: the default", "built in"},
          {"idx", "MNIST's files, plain or gzipped: --data DIR", "LeCun et al. 1998"},
          {"language", "sentences drawn by the program, of known entropy: --data language:vocabulary=16,steps=20", "-"},
          {"text", "words in windows: --data FILE:steps=35", "Marcus et al. 1993"}};
}

constexpr std::array kinds{
    Kind{"algorithms", algorithms}, Kind{"codecs", codecs},         Kind{"data", data},
    Kind{"factors", factors},       Kind{"kernels", kernels},       Kind{"lr-rules", step_size_rules},
    Kind{"metrics", metrics},       Kind{"models", models},         Kind{"optimizers", optimizers},
    Kind{"precisions", precisions}, Kind{"problems", problem_sets}, Kind{"published", published_members},
    Kind{"strategies", strategies}, Kind{"transports", transports}, Kind{"updates", updates}};

std::vector<std::string> kind_names() {
  std::vector<std::string> out;
  for (const auto& k : kinds) out.emplace_back(k.name);
  return out;
}

/// In the table's order, each once; nothing asked means all.
std::vector<Kind> chosen_kinds(const std::vector<std::string>& asked) {
  std::vector<std::string> names = kind_names();
  names.emplace_back("all");
  for (const auto& what : asked) {
    if (std::find(names.begin(), names.end(), what) == names.end()) core::refuse_unknown("list", what, names);
  }
  std::vector<Kind> chosen;
  for (const auto& k : kinds) {
    const bool wanted =
        std::any_of(asked.begin(), asked.end(), [&](const auto& w) { return w == "all" || w == k.name; });
    if (wanted || asked.empty()) chosen.push_back(k);
  }
  return chosen;
}

/// Members of a kind, or of one of its members.
struct Shown {
  std::string_view name;
  std::vector<Member> members;
};

void add_layers(core::Json& json, const model::TableSummary& s) {
  json["tensors"] = s.tensors;
  json["parameter_count"] = s.parameters;
  json["forward_flop_per_sample"] = s.forward_flops;
  json["flop_per_parameter"] = s.flops_per_parameter();
  json["largest_tensor"] = s.largest_tensor;
  json["largest_share"] = s.largest_share();
  json["activation_bytes_per_sample"] = s.activation_bytes;
}

void print_json(const std::vector<Shown>& chosen) {
  core::Json out;
  for (const auto& k : chosen) {
    for (const auto& m : k.members) {
      core::Json json{{"name", m.name}, {"about", m.about}, {"source", m.source}};
      if (!m.wire.empty()) json["wire_bits"] = m.wire;
      if (!m.parameters.empty()) json["parameters"] = m.parameters;
      if (!m.sends.empty()) json["sends"] = m.sends;
      if (!m.unit.empty()) json["unit"] = m.unit;
      if (!m.kind.empty()) json["kind"] = m.kind;
      if (m.layers) add_layers(json, *m.layers);
      out[std::string(k.name)].push_back(std::move(json));
    }
  }
  core::print("{}\n", out.dump(2));
}

core::Column prose(const char* header, const char* unit = "") {
  return {.header = header, .unit = unit, .align = core::Align::left, .wraps = true};
}

void print_table(const Shown& k, std::size_t width) {
  std::vector<Member> members;
  std::ranges::copy_if(k.members, std::back_inserter(members), [](const Member& m) { return !m.layers; });
  const bool encoded = std::any_of(members.begin(), members.end(), [](const auto& m) { return !m.wire.empty(); });
  const bool adjusted =
      std::any_of(members.begin(), members.end(), [](const auto& m) { return !m.parameters.empty(); });
  const bool sending = std::any_of(members.begin(), members.end(), [](const auto& m) { return !m.sends.empty(); });
  const bool typed = std::any_of(members.begin(), members.end(), [](const auto& m) { return !m.kind.empty(); });
  std::vector<core::Column> columns{{std::string(k.name), "", core::Align::left}, prose("")};
  if (encoded) columns.push_back(prose("wire bits"));
  if (sending) columns.push_back(prose("a rank sends", "a step"));
  if (adjusted) columns.push_back(prose("parameters"));
  if (typed) columns.push_back(prose("unit"));
  const bool sourced = std::any_of(members.begin(), members.end(), [](const auto& m) { return !m.source.empty(); });
  if (sourced) columns.push_back(prose("source"));
  core::Table table(columns);
  for (const auto& m : members) {
    std::vector<std::string> cells{m.name, m.about};
    if (encoded) cells.push_back(m.wire);
    if (sending) cells.push_back(m.sends);
    if (adjusted) cells.push_back(m.parameters);
    if (typed) cells.push_back(m.unit);
    if (sourced) cells.push_back(m.source);
    table.add_row(std::move(cells));
  }
  core::print("{}\n", table.to_string(width));
  print_layer_tables(k.members, width);
}

}  // namespace

std::vector<std::string> member_names(std::string_view kind) {
  std::vector<std::string> out;
  for (const auto& k : kinds) {
    if (k.name != kind) continue;
    for (const auto& m : k.members()) out.push_back(m.name);
  }
  return out;
}

Usage list_usage() {
  options::options_description d("Flags");
  d.add_options()("help,h", "this text");
  add_switch(d, "json", "machine-readable");
  add_wide_flag(d);
  return {.flags = d,
          .about = fmt::format("gradmeter list [WHAT ...]: what there is, with its source\n\nWHAT is one of: {}\n"
                               "list problems SET names the problems of one list",
                               fmt::join(kind_names(), " ")),
          .words = "kinds",
          .choices = kind_names()};
}

int run_list_command(const Flags& flags, const Invocation& invocation) {
  if (invocation.rank != 0) return 0;
  const auto asked = flags.words();
  std::vector<Shown> chosen;
  if (asked.size() == 2 && asked[0] == "problems" && asked[1].find('/') != std::string::npos) {
    chosen.push_back({"problems", problems_of(asked[1])});
  } else {
    for (const auto& k : chosen_kinds(asked)) chosen.push_back({k.name, k.members()});
  }
  if (flags.on("json")) {
    print_json(chosen);
  } else {
    for (const auto& k : chosen) print_table(k, table_width(flags));
  }
  return 0;
}

}  // namespace gradmeter::cli
