// SPDX-License-Identifier: Apache-2.0
#include "core/machine.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/json.hpp"
#include "core/print.hpp"

namespace gradmeter::core {

double Link::bytes_per_s(std::uint64_t bytes) const {
  const auto after = std::upper_bound(bandwidth.begin(), bandwidth.end(), bytes,
                                      [](std::uint64_t b, const Bandwidth& x) { return b < x.from_bytes; });
  return std::prev(after)->bytes_per_s;
}

double Link::group_bytes_per_s(std::uint32_t ranks) const {
  if (groups.empty()) return bandwidth.back().bytes_per_s;
  const auto after = std::upper_bound(groups.begin(), groups.end(), ranks,
                                      [](std::uint32_t r, const GroupRate& g) { return r < g.ranks; });
  return after == groups.begin() ? after->bytes_per_s : std::prev(after)->bytes_per_s;
}

double DeviceProfile::peak(std::string_view precision) const {
  const auto is_named = [&](std::initializer_list<std::string_view> words) {
    return std::any_of(words.begin(), words.end(), [&](auto w) { return precision.find(w) != std::string_view::npos; });
  };
  const auto first_of = [&](std::initializer_list<std::string_view> names) {
    for (const auto wanted : names)
      if (const auto at = peaks.find(wanted); at != peaks.end() && at->second > 0) return at->second;
    return 0.0;
  };
  if (is_named({"fp4", "FP4"})) return first_of({"fp4", "fp8", "bf16", "fp16", "fp32"});
  if (is_named({"fp8", "FP8"})) return first_of({"fp8", "bf16", "fp16", "fp32"});
  if (is_named({"bf16", "BF16"})) return first_of({"bf16", "fp16", "fp32"});
  if (is_named({"fp16", "amp"})) return first_of({"fp16", "bf16", "fp32"});
  if (is_named({"tf32"})) return first_of({"tf32", "fp32"});
  return first_of({"fp32"});
}

double Link::seconds(std::uint64_t bytes) const {
  return overhead_s + latency_s + static_cast<double>(bytes) / bytes_per_s(bytes);
}

const Link& Machine::link(std::uint32_t from, std::uint32_t to) const {
  const bool is_same_node = ranks_per_node == 0 || from / ranks_per_node == to / ranks_per_node;
  return is_same_node ? within_node : between_nodes;
}

double Machine::compute_rate(std::string_view operation, std::string_view precision,
                             std::string_view shape_class) const {
  const auto fits = [](std::string_view entry, std::string_view wanted) { return entry.empty() || entry == wanted; };
  double rate = flops_per_s;
  int best = -1;
  for (const ComputeRate& c : compute) {
    if (!fits(c.operation, operation) || !fits(c.precision, precision) || !fits(c.shape_class, shape_class)) continue;
    const int matches = !c.operation.empty() + !c.precision.empty() + !c.shape_class.empty();
    if (matches > best) rate = c.flops_per_s, best = matches;
  }
  return rate;
}

Machine Machine::with_links_faster(double factor) const {
  Machine m = *this;
  const auto speed_up = [&](Link& l) {
    for (Bandwidth& b : l.bandwidth) {
      b.from_bytes = static_cast<std::uint64_t>(static_cast<double>(b.from_bytes) * factor);
      b.bytes_per_s *= factor;
    }
    for (GroupRate& g : l.groups) g.bytes_per_s *= factor;
  };
  speed_up(m.within_node);
  speed_up(m.between_nodes);
  if (m.trunk) speed_up(*m.trunk);
  m.node_port.bytes_per_s *= factor;
  return m;
}

namespace {

/// What is wrong with a description, and at which key: "machine.trunk.latency_s".
struct MachineFault {
  std::string place, what;
};

/// Reads the keys of one object of a machine's description.
class MachineObject {
 public:
  MachineObject(const Json& json, std::string place, std::initializer_list<std::string_view> keys)
      : json_(json), place_(std::move(place)) {
    if (!json.is_object()) fail("", "an object {...}");
    for (const auto& item : json.items()) {
      if (std::find(keys.begin(), keys.end(), item.key()) != keys.end()) continue;
      throw MachineFault{
          fmt::format("{}.{}", place_, item.key()),
          fmt::format("{} has no key {}; write one of {}", place_, detail::quote(item.key()), fmt::join(keys, ", "))};
    }
  }

  const Json* find(const char* key) const { return json_.contains(key) ? &json_[key] : nullptr; }
  std::string place(std::string_view key) const { return fmt::format("{}.{}", place_, key); }

  void rate(const char* key, double& to) const {
    if (number(key, to) && to <= 0) fail(key, "a finite number above 0");
  }
  void amount(const char* key, double& to) const {
    if (number(key, to) && to < 0) fail(key, "a finite number, 0 or more");
  }
  template <class Whole>
  void whole(const char* key, Whole& to) const {
    const Json* json = find(key);
    if (json == nullptr) return;
    if (!json->is_number_unsigned() || json->get<std::uint64_t>() > std::numeric_limits<Whole>::max()) {
      fail(key, fmt::format("a whole number from 0 to {}", std::numeric_limits<Whole>::max()));
    }
    to = json->get<Whole>();
  }
  void text(const char* key, std::string& to) const {
    const Json* json = find(key);
    if (json == nullptr) return;
    if (!json->is_string()) fail(key, "a text");
    to = json->get<std::string>();
  }
  [[noreturn]] void fail(std::string_view key, std::string_view advice) const {
    const std::string where = key.empty() ? place_ : place(key);
    throw MachineFault{where, fmt::format("{} is not usable; write {}", printable(where), advice)};
  }

 private:
  bool number(const char* key, double& to) const {
    const Json* json = find(key);
    if (json == nullptr) return false;
    if (!json->is_number() || !std::isfinite(json->get<double>())) fail(key, "a finite number");
    to = json->get<double>();
    return true;
  }

  const Json& json_;
  std::string place_;
};

std::vector<Bandwidth> bandwidth_from(const MachineObject& link, const Json& list) {
  if (!list.is_array() || list.empty()) link.fail("bandwidth", "a list with at least one entry");
  std::vector<Bandwidth> out;
  for (const Json& json : list) {
    const MachineObject entry(json, link.place("bandwidth"), {"from_bytes", "bytes_per_s"});
    Bandwidth& b = out.emplace_back();
    entry.whole("from_bytes", b.from_bytes);
    entry.rate("bytes_per_s", b.bytes_per_s);
    const bool fits = out.size() == 1 ? b.from_bytes == 0 : b.from_bytes > out[out.size() - 2].from_bytes;
    if (!fits) link.fail("bandwidth", "entries from 0, each from_bytes above the one before it");
  }
  return out;
}

Link link_from(const Json& json, std::string place) {
  const MachineObject object(json, std::move(place), {"name", "latency_s", "overhead_s", "bandwidth", "groups"});
  Link link;
  object.text("name", link.name);
  object.amount("latency_s", link.latency_s);
  object.amount("overhead_s", link.overhead_s);
  if (const Json* list = object.find("bandwidth")) link.bandwidth = bandwidth_from(object, *list);
  if (const Json* list = object.find("groups")) {
    if (!list->is_array()) object.fail("groups", "a list");
    for (const Json& group_json : *list) {
      const MachineObject entry(group_json, object.place("groups"), {"ranks", "bytes_per_s"});
      GroupRate g;
      entry.whole("ranks", g.ranks);
      entry.rate("bytes_per_s", g.bytes_per_s);
      if (g.ranks <= (link.groups.empty() ? 1 : link.groups.back().ranks) || g.bytes_per_s == 0)
        object.fail("groups", "entries with ranks from 2, each above the one before it, and bytes_per_s");
      link.groups.push_back(g);
    }
  }
  return link;
}

/// Reads an object of named numbers, all above 0.
std::map<std::string, double, std::less<>> rates_from(const MachineObject& object, const char* key) {
  std::map<std::string, double, std::less<>> out;
  const Json* json = object.find(key);
  if (json == nullptr) return out;
  if (!json->is_object()) object.fail(key, "an object {...}");
  for (const auto& item : json->items()) {
    const double value = item.value().is_number() ? item.value().get<double>() : 0;
    if (!(value > 0) || !std::isfinite(value))
      object.fail(fmt::format("{}.{}", key, item.key()), "a finite number above 0");
    out[item.key()] = value;
  }
  return out;
}

DeviceProfile device_from(const Json& json, std::string place) {
  const MachineObject object(json, std::move(place),
                             {"name", "source", "peaks", "memory_bytes", "memory_bytes_per_s", "multiprocessors",
                              "tiles", "launch_s", "power_w", "price_usd"});
  DeviceProfile d;
  object.text("name", d.name);
  object.text("source", d.source);
  d.peaks = rates_from(object, "peaks");
  object.amount("memory_bytes", d.memory_bytes);
  object.amount("memory_bytes_per_s", d.memory_bytes_per_s);
  object.whole("multiprocessors", d.multiprocessors);
  if (const Json* list = object.find("tiles")) {
    if (!list->is_array() || list->empty()) object.fail("tiles", "a list with at least one entry");
    d.tiles.clear();
    for (const Json& tile : *list) {
      const MachineObject entry(tile, object.place("tiles"), {"rows", "columns", "share"});
      Tile& t = d.tiles.emplace_back();
      entry.whole("rows", t.rows);
      entry.whole("columns", t.columns);
      entry.rate("share", t.share);
      if (t.rows == 0 || t.columns == 0 || t.share > 1)
        object.fail("tiles", "entries with rows and columns above 0, and a share of at most 1");
    }
  }
  object.amount("launch_s", d.launch_s);
  object.amount("power_w", d.power_w);
  object.amount("price_usd", d.price_usd);
  return d;
}

MachineFit fit_from(const Json& json, std::string place) {
  const MachineObject object(json, std::move(place), {"terms", "spread", "ranks", "rows", "residuals"});
  MachineFit fit;
  fit.terms = rates_from(object, "terms");
  object.amount("spread", fit.spread);
  object.rate("ranks", fit.ranks);
  object.whole("rows", fit.rows);
  if (const Json* list = object.find("residuals")) {
    if (!list->is_object()) object.fail("residuals", "an object {...}");
    for (const auto& item : list->items()) {
      if (!item.value().is_number()) object.fail("residuals", "an object of finite numbers");
      fit.residuals[item.key()] = item.value().get<double>();
    }
  }
  return fit;
}

Json device_json(const DeviceProfile& d) {
  Json json{{"name", d.name},
            {"source", d.source},
            {"peaks", d.peaks},
            {"memory_bytes", d.memory_bytes},
            {"memory_bytes_per_s", d.memory_bytes_per_s},
            {"multiprocessors", d.multiprocessors},
            {"tiles", Json::array()},
            {"launch_s", d.launch_s},
            {"power_w", d.power_w},
            {"price_usd", d.price_usd}};
  for (const Tile& t : d.tiles) json["tiles"].push_back({{"rows", t.rows}, {"columns", t.columns}, {"share", t.share}});
  return json;
}

Json link_json(const Link& link) {
  Json list = Json::array();
  for (const Bandwidth& b : link.bandwidth)
    list.push_back({{"from_bytes", b.from_bytes}, {"bytes_per_s", b.bytes_per_s}});
  Json json{{"latency_s", link.latency_s}, {"overhead_s", link.overhead_s}, {"bandwidth", std::move(list)}};
  if (!link.name.empty()) json["name"] = link.name;
  for (const GroupRate& g : link.groups) json["groups"].push_back({{"ranks", g.ranks}, {"bytes_per_s", g.bytes_per_s}});
  return json;
}

void read_tables(const MachineObject& object, Machine& m) {
  if (const Json* list = object.find("compute")) {
    if (!list->is_array()) object.fail("compute", "a list");
    for (const Json& json : *list) {
      const MachineObject e(json, object.place("compute"), {"operation", "precision", "shape_class", "flops_per_s"});
      ComputeRate& c = m.compute.emplace_back();
      e.text("operation", c.operation);
      e.text("precision", c.precision);
      e.text("shape_class", c.shape_class);
      e.rate("flops_per_s", c.flops_per_s);
      if (c.flops_per_s == 0) e.fail("flops_per_s", "a finite number above 0");
    }
  }
  if (const Json* codecs = object.find("codecs")) {
    if (!codecs->is_object()) object.fail("codecs", "an object {...}");
    for (const auto& item : codecs->items()) {
      const MachineObject e(item.value(), object.place("codecs"), {"encode", "decode", "add"});
      CodecRates& c = m.codecs[item.key()];
      e.amount("encode", c.encode);
      e.amount("decode", c.decode);
      e.amount("add", c.add);
    }
  }
}

}  // namespace

std::string to_json(const Machine& m, int indent) {
  Json json{{"ranks_per_node", m.ranks_per_node},
            {"within_node", link_json(m.within_node)},
            {"between_nodes", link_json(m.between_nodes)}};
  if (m.trunk) json["trunk"] = link_json(*m.trunk);
  json["node_port"] = {{"bytes_per_s", m.node_port.bytes_per_s}};
  json["reduce_bytes_per_s"] = m.reduce_bytes_per_s;
  json["flops_per_s"] = m.flops_per_s;
  json["memory_bytes_per_s"] = m.memory_bytes_per_s;
  json["compute"] = Json::array();
  for (const ComputeRate& c : m.compute) {
    json["compute"].push_back({{"operation", c.operation},
                               {"precision", c.precision},
                               {"shape_class", c.shape_class},
                               {"flops_per_s", c.flops_per_s}});
  }
  json["codecs"] = Json::object();
  for (const auto& [name, c] : m.codecs) {
    json["codecs"][name] = {{"encode", c.encode}, {"decode", c.decode}, {"add", c.add}};
  }
  json["noise"] = m.noise;
  if (!m.name.empty()) json["name"] = m.name;
  if (m.device) json["device"] = device_json(*m.device);
  if (m.fit) {
    json["fit"] = {{"terms", m.fit->terms},
                   {"spread", m.fit->spread},
                   {"ranks", m.fit->ranks},
                   {"rows", m.fit->rows},
                   {"residuals", m.fit->residuals}};
  }
  return json_text(json, indent);
}

namespace {

/// Iterates over a text, and counts in `line` the line ends that it has passed.
struct CountingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  std::size_t* line;
  const char& operator*() const { return *at; }
  CountingIterator& operator++() {
    *line += *at == '\n' ? 1 : 0;
    ++at;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& o) const { return at == o.at; }
};

/// The JSON of a text, and the line of each key, by the key's place: "machine.trunk.latency_s".
struct LocatedJson {
  Json json;
  std::map<std::string, std::size_t> lines = {};
  std::size_t last_line = 1;  ///< the line at which reading ended
};
LocatedJson located_json(std::string_view text) {
  LocatedJson out;
  std::vector<std::string> keys;  // the keys above the current value, by depth; empty for entries of lists
  const auto note = [&](int depth, Json::parse_event_t event, Json& parsed) {
    keys.resize(static_cast<std::size_t>(depth));
    if (event == Json::parse_event_t::key) {
      keys.back() = parsed.get<std::string>();
      std::string place = "machine";
      for (const auto& k : keys)
        if (!k.empty()) place += "." + k;
      out.lines.try_emplace(place, out.last_line);
    }
    return true;
  };
  const CountingIterator begin{text.data(), &out.last_line}, end{text.data() + text.size(), &out.last_line};
  out.json = Json::parse(begin, end, note, false);
  return out;
}

Machine machine_of(const Json& json) {
  const MachineObject object(
      json, "machine",
      {"ranks_per_node", "within_node", "between_nodes", "trunk", "node_port", "reduce_bytes_per_s", "flops_per_s",
       "memory_bytes_per_s", "compute", "codecs", "noise", "name", "device", "fit"});
  Machine m;
  object.text("name", m.name);
  object.whole("ranks_per_node", m.ranks_per_node);
  if (const Json* j = object.find("within_node")) m.within_node = link_from(*j, object.place("within_node"));
  if (const Json* j = object.find("between_nodes")) m.between_nodes = link_from(*j, object.place("between_nodes"));
  if (const Json* j = object.find("trunk")) m.trunk = link_from(*j, object.place("trunk"));
  if (const Json* j = object.find("node_port")) {
    const MachineObject port(*j, object.place("node_port"), {"bytes_per_s"});
    port.amount("bytes_per_s", m.node_port.bytes_per_s);
  }
  object.rate("reduce_bytes_per_s", m.reduce_bytes_per_s);
  object.rate("flops_per_s", m.flops_per_s);
  object.rate("memory_bytes_per_s", m.memory_bytes_per_s);
  read_tables(object, m);
  object.amount("noise", m.noise);
  if (const Json* j = object.find("device")) m.device = device_from(*j, object.place("device"));
  if (const Json* j = object.find("fit")) m.fit = fit_from(*j, object.place("fit"));
  return m;
}

}  // namespace

Machine machine_from_json(std::string_view text, const std::string& file) {
  const LocatedJson located = located_json(text);
  const auto fail = [&](std::size_t line, const std::string& what) {
    throw UsageError(file.empty() ? "machine: " + what : fmt::format("{}:{}: machine: {}", file, line, what));
  };
  if (located.json.is_discarded()) fail(located.last_line, "the text is no JSON; write an object {...}");
  try {
    return machine_of(located.json);
  } catch (const MachineFault& fault) {
    const auto at = located.lines.find(fault.place);
    fail(at == located.lines.end() ? 1 : at->second, fault.what);
  }
  return {};
}

LinksInUse::LinksInUse(const Machine& machine, std::vector<double> free_at_s)
    : machine_(machine), out_(std::move(free_at_s)) {}

std::size_t LinksInUse::node_of(std::uint32_t rank) {
  const std::size_t node = rank / machine_.ranks_per_node;
  if (port_out_.size() <= node) {
    port_out_.resize(node + 1);
    port_in_.resize(node + 1);
  }
  return node;
}

LinksInUse::Passage LinksInUse::send(std::uint32_t from, std::uint32_t to, std::uint64_t bytes, double ready) {
  const Link& link = machine_.link(from, to);
  const auto size = static_cast<double>(bytes);
  Passage p{.begin = std::max(ready + link.overhead_s, out_[from]),
            .occupied_s = size / link.bytes_per_s(bytes),
            .latency_s = link.latency_s};
  if (&link == &machine_.between_nodes) {
    const std::optional<Link>& trunk = machine_.trunk;
    const bool has_port = machine_.node_port.bytes_per_s > 0;
    const std::size_t sender = has_port ? node_of(from) : 0, receiver = has_port ? node_of(to) : 0;
    const double port_seconds = has_port ? size / machine_.node_port.bytes_per_s : 0;
    const double trunk_seconds = trunk ? size / trunk->bytes_per_s(bytes) : 0;
    if (trunk) p.latency_s += trunk->latency_s;
    if (trunk) p.begin = std::max(p.begin, trunk_);
    if (has_port) p.begin = std::max({p.begin, port_out_[sender], port_in_[receiver] - p.latency_s});
    p.occupied_s = std::max({p.occupied_s, port_seconds, trunk_seconds});
    if (trunk) trunk_ = p.begin + trunk_seconds;
    if (has_port) {
      port_out_[sender] = p.begin + port_seconds;
      port_in_[receiver] = p.begin + p.latency_s + port_seconds;
    }
  }
  out_[from] = p.begin + p.occupied_s;
  return p;
}

}  // namespace gradmeter::core
