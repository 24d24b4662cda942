// SPDX-License-Identifier: Apache-2.0
// gradmeter list: the members of every registry, with their sources.
#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/engine/flags.hpp"
#include "bench/train/step_size.hpp"
#include "cli/commands.hpp"
#include "compression/registry.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/json.hpp"
#include "core/name.hpp"
#include "core/print.hpp"
#include "core/result.hpp"
#include "core/table.hpp"
#include "dataparallel/optimizers/optimizer.hpp"
#include "dataparallel/optimizers/weight_format.hpp"
#include "dataparallel/server/protocol.hpp"
#include "kernels/cases/kernel_case.hpp"
#include "kernels/op.hpp"
#include "kernels/problems/problem_file.hpp"
#include "model/registry.hpp"
#include "model/table/layer_table.hpp"
#include "predict/machines.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::cli {
namespace {

using core::Align;
using kernels::KernelKind;

/// One line of the list.
struct Member {
  std::string name, about, source;
  std::string wire = {};        ///< codecs: the bits of an element
  std::string parameters = {};  ///< the parameters that the name takes, with defaults
  std::string unit = {};        ///< factors and metrics: the unit
  std::string kind = {};        ///< factors and metrics: the kind of values
  std::string sends = {};       ///< strategies: the bytes that a rank sends in a step, for a model of M bytes
  std::optional<model::LayerTable> layers = {};  ///< layer tables: the table
  core::Json more = core::Json::object();        ///< figures of a machine or link, as JSON has them
};

Member member(std::string_view name, std::string_view about, std::string_view source) {
  return {std::string(name), std::string(about), std::string(source)};
}

/// Makes a member of each row of a registry, by `describe`.
template <class Rows, class Describe>
std::vector<Member> members_of(const Rows& rows, const Describe& describe) {
  std::vector<Member> out;
  for (const auto& row : rows) out.push_back(describe(row));
  return out;
}

std::vector<Member> algorithms() {
  return members_of(allreduce::algorithms(), [](const auto& a) { return member(a.name, a.cost_text, a.source); });
}
std::vector<Member> strategies() {
  return members_of(dataparallel::strategies(), [](const auto& s) {
    Member out = member(s.name, s.rule, s.source);
    out.parameters = s.parameters;
    out.sends = s.bytes_text;
    return out;
  });
}
/// Describes a rule with the parameters that its name takes.
template <class Row>
Member rule_with_parameters(const Row& row) {
  Member out = member(row.name, row.rule, row.source);
  out.parameters = row.parameters;
  return out;
}
std::vector<Member> optimizers() {
  return members_of(dataparallel::optimizers(), [](const auto& o) { return rule_with_parameters(o); });
}
std::vector<Member> updates() {
  return members_of(dataparallel::update_formats(), [](const auto& u) { return member(u.name, u.rule, u.source); });
}
std::vector<Member> step_size_rules() {
  return members_of(bench::step_size_rules(), [](const auto& r) { return rule_with_parameters(r); });
}
/// Adds a row's precision to the last member if that is of the same operation and backend, or else a new member: the
/// rows of a backend follow each other.
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
    if (b.is_untimed) add_precision_of(definitions, b, b.name);
  for (Member& m : definitions) {
    m.about += ", of models and tests";
    out.push_back(std::move(m));
  }
  return out;
}
std::vector<Member> transports() {
  return members_of(runtime::transport_table(), [](const auto& t) { return member(t.name, t.about, t.source); });
}
std::vector<Member> codecs() {
  std::vector<Member> out{{"none", "fp32 on the wire", "", "32"}};
  for (const auto& c : compression::codecs()) {
    const auto codec = compression::find_codec(c.name);
    std::string parameters;
    for (const auto& [key, value] : codec->parsed.parameters)
      parameters += fmt::format("{}{}={}", parameters.empty() ? "" : ",", key, value);
    const bool dense_weights = !dataparallel::Coding::why_dense_weights(*codec).empty();
    out.push_back({std::string(c.name), fmt::format("{}{}", c.rule, dense_weights ? "; servers' weights dense" : ""),
                   std::string(c.source), std::string(c.wire_text), parameters});
  }
  return out;
}
std::vector<Member> precisions() {
  return members_of(kernels::precision_table(), [](const auto& p) { return member(p.name, p.about, p.source); });
}
std::vector<Member> keys(std::span<const core::KeyInfo> table) {
  return members_of(table, [](const core::KeyInfo& k) {
    Member out = member(k.key, k.meaning, "");
    out.unit = k.unit;
    out.kind = core::name(k.kind);
    return out;
  });
}
std::vector<Member> factors() { return keys(core::factor_table()); }
std::vector<Member> metrics() { return keys(core::metric_table()); }
std::vector<Member> data() {
  return {{"digits", "28x28 digits drawn from a seed: the default", "built in"},
          {"idx", "MNIST's files, plain or gzipped: --data DIR", "LeCun et al. 1998"},
          {"language", "sentences drawn by the program, of known entropy: --data language:vocabulary=16,steps=20", "-"},
          {"text", "words in windows: --data FILE:steps=35", "Marcus et al. 1993"}};
}

/// The models with a name of their own, and the shipped layer tables with their figures.
std::vector<Member> models() {
  std::vector<Member> out;
  for (const auto& m : model::model_table()) {
    out.push_back(
        {std::string(m.name), fmt::format("{} (default {})", m.description, m.default_name), std::string(m.source)});
  }
  for (const auto name : model::shipped_layer_tables()) {
    const model::LayerTable table = model::shipped_layer_table(name);
    out.push_back({.name = table.name, .about = table.sample, .source = table.source, .layers = table});
  }
  return out;
}

/// Devices with the figures of their data sheets: the text has the sheets' units (GB, T(FL)OP/s), the JSON bytes and
/// FLOP/s.
std::vector<Member> machines() {
  return members_of(predict::listed_devices(), [](const predict::ListedDevice& d) {
    const core::DeviceProfile& p = d.profile;
    std::vector<std::string> peaks, about;
    for (const auto& [precision, rate] : p.peaks) peaks.push_back(fmt::format("{} {:g}", precision, rate / 1e12));
    about.push_back(fmt::format("{} T(FL)OP/s", fmt::join(peaks, ", ")));
    if (p.memory_bytes > 0)
      about.push_back(fmt::format("{:g} GB at {:g} GB/s", p.memory_bytes / 1e9, p.memory_bytes_per_s / 1e9));
    if (d.link_bytes_per_s > 0) about.push_back(fmt::format("{} {:g} GB/s", d.link, d.link_bytes_per_s / 1e9));
    if (p.power_w > 0) about.push_back(fmt::format("{:g} W", p.power_w));
    if (p.price_usd > 0) about.push_back(fmt::format("{:g} USD", p.price_usd));
    Member out = member(p.name, fmt::format("{}", fmt::join(about, "; ")), p.source);
    const auto stated = [&](const char* key, double value) {
      out.more[key] = value > 0 ? core::Json(value) : core::Json(nullptr);
    };
    out.more["peaks"] = p.peaks;
    stated("memory_bytes", p.memory_bytes);
    stated("memory_bytes_per_s", p.memory_bytes_per_s);
    stated("multiprocessors", p.multiprocessors);
    stated("link_bytes_per_s", d.link_bytes_per_s);
    stated("power_w", p.power_w);
    stated("price_usd", p.price_usd);
    return out;
  });
}

std::vector<Member> links() {
  return members_of(predict::listed_links(), [](const predict::ListedLink& l) {
    const double rate = l.link.bandwidth.front().bytes_per_s;
    std::string about = fmt::format("{}: {:g} GB/s", l.kind, rate / 1e9);
    for (const core::GroupRate& g : l.link.groups)
      about += fmt::format("; a ring of {} has {:g}", g.ranks, g.bytes_per_s / 1e9);
    if (l.achieved_bytes_per_s > 0)
      about += fmt::format("; measured {:g} ({})", l.achieved_bytes_per_s / 1e9, l.achieved_what);
    Member out = member(l.link.name, about, l.source);
    out.more["kind"] = l.kind;
    out.more["bytes_per_s"] = rate;
    if (l.achieved_bytes_per_s > 0) out.more["achieved_bytes_per_s"] = l.achieved_bytes_per_s;
    return out;
  });
}

/// Calls visit(name, problems) for each set of problems that is not empty.
template <class Visit>
void each_set(Visit visit) {
  for (const auto set : kernels::deepbench_sets()) {
    for (const KernelKind op :
         {KernelKind::gemm, KernelKind::conv, KernelKind::rnn, KernelKind::sparse, KernelKind::pointwise}) {
      const auto problems = kernels::deepbench(op, set);
      if (!problems.empty()) visit(fmt::format("{}/{}", set, name(op)), problems);
    }
  }
}

const char* source_of(KernelKind op) { return op == KernelKind::pointwise ? "own" : "DeepBench"; }

/// A member for each set of problems: its name, such as "training/gemm", and how many problems it has.
std::vector<Member> problem_sets() {
  std::vector<Member> out;
  each_set([&](const std::string& set, const std::vector<kernels::Problem>& problems) {
    std::size_t forward = 0;
    for (const auto& p : problems) forward += p.pass == kernels::Pass::forward;
    const std::string passes =
        forward == problems.size() ? "" : fmt::format(" in {} passes", problems.size() / forward);
    out.push_back({set, fmt::format("{} problems{}; list problems {} names them", forward, passes, set),
                   source_of(problems.front().operation())});
  });
  return out;
}

/// A member for each set of published times: its name, such as "v100-mixed", and how many times it has of each
/// operation.
std::vector<Member> published_members() {
  std::vector<Member> out;
  for (const auto& s : kernels::published_sets()) {
    std::vector<std::string> counts;
    const auto add = [&](std::size_t n, const char* what) {
      if (n > 0) counts.push_back(fmt::format("{} {}", n, what));
    };
    add(s.gemm, "gemm");
    add(s.conv, "conv");
    add(s.rnn, "rnn");
    add(s.sparse, "sparse");
    out.push_back({s.name, fmt::format("{} {}: times of {}", s.platform, s.precision, fmt::join(counts, ", ")),
                   "DeepBench, 2016-2018"});
  }
  return out;
}

/// The problems of the set `wanted`, such as "training/gemm". Errors: UsageError that names the sets.
std::vector<Member> problems_of(const std::string& wanted) {
  std::vector<Member> out;
  std::vector<std::string> names;
  each_set([&](const std::string& set, const std::vector<kernels::Problem>& problems) {
    names.push_back(set);
    if (set != wanted) return;
    for (const auto& p : problems)
      out.push_back({kernels::problem_text(p.shape), std::string(name(p.pass)), p.application});
  });
  if (out.empty()) core::refuse_unknown("list of problems", wanted, names);
  return out;
}

double flops_per_parameter(const model::LayerTable& t) {
  return t.forward_flops() / static_cast<double>(t.parameters());
}

double largest_share(const model::LayerTable& t) {
  return static_cast<double>(t.largest().parameters) / static_cast<double>(t.parameters());
}

/// The words that `gradmeter list` takes, and the functions that list what they name.
constexpr std::array kinds{std::pair{"algorithms", &algorithms},
                           std::pair{"codecs", &codecs},
                           std::pair{"data", &data},
                           std::pair{"factors", &factors},
                           std::pair{"kernels", &kernels},
                           std::pair{"links", &links},
                           std::pair{"lr-rules", &step_size_rules},
                           std::pair{"machines", &machines},
                           std::pair{"metrics", &metrics},
                           std::pair{"models", &models},
                           std::pair{"optimizers", &optimizers},
                           std::pair{"precisions", &precisions},
                           std::pair{"problems", &problem_sets},
                           std::pair{"published", &published_members},
                           std::pair{"strategies", &strategies},
                           std::pair{"transports", &transports},
                           std::pair{"updates", &updates}};

/// The batches for which the table of layer tables shows the memory of activations.
constexpr std::array batches{1, 16, 64};

core::Table figures(const std::vector<Member>& members) {
  std::vector<core::Column> columns{
      {"layer table", "", Align::left},
      {"tensors", "", Align::right, 1},
      {"parameters", ""},
      {"GFLOP", "a sample"},
      {"FLOP/", "parameter", Align::right, 2},
      {.header = "largest tensor", .unit = "", .align = Align::left, .expendable = 3, .wraps = true},
      {"share", "%", Align::right, 3}};
  for (const int batch : batches) columns.push_back({"MiB", fmt::format("batch {}", batch), Align::right, 4});
  core::Table table(columns);
  for (const Member& m : members) {
    if (!m.layers) continue;
    const model::LayerTable& t = *m.layers;
    std::vector<std::string> cells{m.name,
                                   fmt::format("{}", t.tensors()),
                                   fmt::format("{}", t.parameters()),
                                   fmt::format("{:.3f}", t.forward_flops() / 1e9),
                                   fmt::format("{:.1f}", flops_per_parameter(t)),
                                   t.largest().layer,
                                   fmt::format("{:.1f}", 100 * largest_share(t))};
    for (const int batch : batches) cells.push_back(fmt::format("{:.1f}", batch * t.activation_bytes() / (1 << 20)));
    table.add_row(std::move(cells));
  }
  return table;
}

core::Table sources(const std::vector<Member>& members) {
  core::Table table({{"layer table", "", Align::left},
                     {.header = "a sample", .unit = "", .align = Align::left, .wraps = true},
                     {.header = "source", .unit = "", .align = Align::left, .wraps = true}});
  for (const Member& m : members)
    if (m.layers) table.add_row({m.name, m.about, m.source});
  return table;
}

/// Prints the figures, then the samples and sources, of the members that are layer tables; prints nothing if there are
/// none.
void print_layer_tables(const std::vector<Member>& members, std::size_t width) {
  if (std::ranges::none_of(members, [](const Member& m) { return m.layers.has_value(); })) return;
  core::print("{}", figures(members).to_string(width));
  core::print("GFLOP: forward, of products; MiB: activations, the products' results\n\n");
  core::print("{}\n", sources(members).to_string(width));
}

std::vector<std::string> kind_names() {
  std::vector<std::string> out;
  for (const auto& [name, members] : kinds) out.emplace_back(name);
  return out;
}

/// Members by their kind; the problems of a single set stand under "problems".
using Shown = std::vector<std::pair<std::string_view, std::vector<Member>>>;

/// The kinds that are asked for, each once, in the order of `kinds`; all of them if none is asked for.
Shown chosen_kinds(const std::vector<std::string>& asked) {
  std::vector<std::string> names = kind_names();
  names.emplace_back("all");
  for (const auto& what : asked)
    if (std::ranges::find(names, what) == names.end()) core::refuse_unknown("list", what, names);
  Shown chosen;
  for (const auto& [name, members] : kinds) {
    const bool is_wanted = std::ranges::any_of(asked, [&name](const auto& w) { return w == "all" || w == name; });
    if (is_wanted || asked.empty()) chosen.emplace_back(name, members());
  }
  return chosen;
}

void add_layers(core::Json& json, const model::LayerTable& t) {
  json["tensors"] = t.tensors();
  json["parameter_count"] = t.parameters();
  json["forward_flop_per_sample"] = t.forward_flops();
  json["flop_per_parameter"] = flops_per_parameter(t);
  json["largest_tensor"] = t.largest().layer;
  json["largest_share"] = largest_share(t);
  json["activation_bytes_per_sample"] = t.activation_bytes();
}

void print_json(const Shown& chosen) {
  core::Json out;
  for (const auto& [kind, members] : chosen) {
    for (const auto& m : members) {
      core::Json json{{"name", m.name}, {"about", m.about}, {"source", m.source}};
      if (!m.wire.empty()) json["wire_bits"] = m.wire;
      if (!m.parameters.empty()) json["parameters"] = m.parameters;
      if (!m.sends.empty()) json["sends"] = m.sends;
      if (!m.unit.empty()) json["unit"] = m.unit;
      if (!m.kind.empty()) json["kind"] = m.kind;
      if (m.layers) add_layers(json, *m.layers);
      json.update(m.more);
      out[std::string(kind)].push_back(std::move(json));
    }
  }
  core::print("{}\n", core::json_text(out, 2));
}

core::Column prose(const char* header, const char* unit = "") {
  return {.header = header, .unit = unit, .align = core::Align::left, .wraps = true};
}

void print_table(std::string_view kind, const std::vector<Member>& table_members, std::size_t width) {
  std::vector<Member> members;
  std::ranges::copy_if(table_members, std::back_inserter(members), [](const Member& m) { return !m.layers; });
  const auto any_has = [&members](std::string Member::*text) {
    return std::ranges::any_of(members, [text](const Member& m) { return !(m.*text).empty(); });
  };
  std::vector<core::Column> columns{{std::string(kind), "", core::Align::left}, prose("")};
  std::vector<std::string Member::*> texts{&Member::name, &Member::about};
  const auto add = [&](const core::Column& column, std::string Member::*text, bool is_shown) {
    if (!is_shown) return;
    columns.push_back(column);
    texts.push_back(text);
  };
  add(prose("wire bits"), &Member::wire, any_has(&Member::wire));
  add(prose("a rank sends", "a step"), &Member::sends, any_has(&Member::sends));
  add(prose("parameters"), &Member::parameters, any_has(&Member::parameters));
  add(prose("unit"), &Member::unit, any_has(&Member::kind));
  add(prose("source"), &Member::source, any_has(&Member::source));
  core::Table table(columns);
  for (const auto& m : members) {
    std::vector<std::string> cells;
    for (const auto text : texts) cells.push_back(m.*text);
    table.add_row(std::move(cells));
  }
  core::print("{}\n", table.to_string(width));
  print_layer_tables(table_members, width);
}

/// Prints for each kind how many members it has, and the command that prints them.
void print_index(std::size_t width) {
  core::Table table({{"what", "", Align::left}, {"count", "", Align::right}, {"", "", Align::left}});
  for (const auto& [kind, members] : kinds)
    table.add_row({std::string(kind), fmt::format("{}", members().size()), fmt::format("gradmeter list {}", kind)});
  core::print("{}gradmeter list all prints every one\n", table.to_string(width));
}

Usage list_usage() {
  FlagList flag_list("Flags");
  add_switch(flag_list, "help,h", "this text");
  add_switch(flag_list, "all", "list every kind, as list all does");
  add_switch(flag_list, "json", "print JSON");
  add_wide_flag(flag_list);
  return {
      .flags = flag_list,
      .about = fmt::format("gradmeter list: the kinds of things that flags can name, and how many there are of each\n"
                           "gradmeter list WHAT ...: all of one kind, with parameters and sources\n\n"
                           "WHAT is one of: {}, all\n"
                           "list problems SET names the problems of one list",
                           fmt::join(kind_names(), " ")),
      .words = "kinds",
      .choices = kind_names()};
}

int run_list_command(const Flags& flags, const Invocation&) {
  const auto& asked = flags.words();
  const bool is_problem_set = asked.size() == 2 && asked[0] == "problems" && asked[1].find('/') != std::string::npos;
  const auto kinds_asked = flags.on("all") ? std::vector<std::string>{"all"} : asked;
  const Shown chosen = is_problem_set ? Shown{{"problems", problems_of(asked[1])}} : chosen_kinds(kinds_asked);
  if (flags.on("json")) {
    print_json(chosen);
  } else if (asked.empty() && !flags.on("all")) {
    print_index(table_width(flags));
  } else {
    for (const auto& [kind, members] : chosen) print_table(kind, members, table_width(flags));
  }
  return 0;
}

}  // namespace

extern const Command list_command{.name = "list",
                                  .summary = "algorithms, strategies, models, …: names, parameters, sources",
                                  .with_ranks = false,
                                  .usage = list_usage,
                                  .run = run_list_command};

std::vector<std::string> member_names(std::string_view kind) {
  std::vector<std::string> out;
  for (const auto& [name, members] : kinds) {
    if (name != kind) continue;
    for (const Member& m : members()) out.push_back(m.name);
  }
  return out;
}

}  // namespace gradmeter::cli
