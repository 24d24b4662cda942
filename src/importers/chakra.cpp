// SPDX-License-Identifier: Apache-2.0
// Chakra's traces as JSON: nodes that depend on each other and take a time; a schedule of them makes a step.
#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <iterator>
#include <map>
#include <queue>
#include <set>
#include <sstream>
#include <tuple>

#include "core/format.hpp"
#include "core/name.hpp"
#include "importers/collectives.hpp"
#include "importers/importers.hpp"
#include "importers/rows.hpp"
#include "importers/text.hpp"
#include "importers/traces.hpp"

namespace gradmeter::importers {
namespace {

using core::Json;
using dataparallel::Interval;
using dataparallel::ReplayEvent;
using dataparallel::TracedCall;
using dataparallel::TracedStep;

/// The resource that a node occupies while it lasts.
enum class Resource : std::uint8_t { host, device, network, none };
constexpr std::size_t resource_count = 3;

struct ChakraNode {
  std::size_t line = 0;
  std::uint64_t id = 0;
  Resource resource = Resource::none;
  double seconds = 0;
  std::vector<std::uint64_t> depends_on;
  TracedCall call;         ///< for a node of the network
  std::string group = {};  ///< for a node of the network; empty: not given
};

/// Reads the count under a key; protocol buffers write 64-bit numbers as text in JSON. Errors: UsageError for anything
/// else.
std::uint64_t whole_number(const Json& value, const char* key, std::size_t line) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  const std::string text = value.is_string() ? value.get<std::string>() : std::string();
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size())
    refuse_line(line, fmt::format("'{}' is {}, which is no count", key, core::json_text(value)));
  return number;
}

/// The number with this key; 0 if absent.
std::uint64_t number_in(const Json& object, const char* key, std::size_t line) {
  const auto found = object.find(key);
  return found == object.end() ? 0 : whole_number(*found, key, line);
}

std::vector<std::uint64_t> numbers_in(const Json& object, const char* key, std::size_t line) {
  std::vector<std::uint64_t> out;
  const auto found = object.find(key);
  if (found == object.end()) return out;
  if (!found->is_array()) refuse_line(line, fmt::format("'{}' is no list", key));
  for (const Json& n : *found) out.push_back(whole_number(n, key, line));
  return out;
}

const Json* attribute_of(const Json& node, std::string_view name) {
  const auto attributes = node.find("attr");
  if (attributes == node.end() || !attributes->is_array()) return nullptr;
  const auto found = std::ranges::find_if(*attributes, [&](const Json& a) { return text_of(a, "name") == name; });
  return found == attributes->end() ? nullptr : &*found;
}

/// The attribute's value, whichever whole type it has; null: it has none of them.
const Json* whole_value(const Json& attribute) {
  for (const char* key : {"int64Val", "uint64Val", "int32Val", "uint32Val", "sint64Val", "sint32Val", "fixed64Val",
                          "fixed32Val", "sfixed64Val", "sfixed32Val"})
    if (const auto found = attribute.find(key); found != attribute.end()) return &*found;
  return nullptr;
}

/// The attribute's number; 0 if absent.
std::uint64_t attribute_number(const Json& node, std::string_view name, std::size_t line) {
  const Json* attribute = attribute_of(node, name);
  if (!attribute) return 0;
  const Json* value = whole_value(*attribute);
  if (!value) refuse_line(line, fmt::format("'{}' is no whole number", name));
  return whole_number(*value, std::string(name).c_str(), line);
}

bool is_on_device(const Json& node) {
  const Json* attribute = attribute_of(node, "is_cpu_op");
  return attribute && attribute->contains("boolVal") && (*attribute)["boolVal"] == false;
}

/// The names in the order of the schema's CollectiveCommType.
constexpr std::array<std::string_view, 10> collective_types{
    "ALL_REDUCE", "REDUCE",         "ALL_GATHER",           "GATHER", "SCATTER", "BROADCAST",
    "ALL_TO_ALL", "REDUCE_SCATTER", "REDUCE_SCATTER_BLOCK", "BARRIER"};

/// The schema's name of a node's collective, which the node has as a number or as this name.
std::string_view collective_type(const Json& node, std::size_t line) {
  const Json* attribute = attribute_of(node, "comm_type");
  if (!attribute)
    refuse_line(line, fmt::format("node {} is a collective, but has no 'comm_type'", number_in(node, "id", line)));
  if (const std::string name = text_of(*attribute, "stringVal"); !name.empty()) {
    const auto* const found = std::ranges::find(collective_types, name);
    if (found == collective_types.end()) refuse_line(line, fmt::format("comm_type '{}' is no collective", name));
    return *found;
  }
  const std::uint64_t type = attribute_number(node, "comm_type", line);
  if (type >= collective_types.size()) refuse_line(line, fmt::format("comm_type {} is no collective", type));
  return collective_types.at(type);
}

/// A process group's name, which is a text or a number; empty: the node states none.
std::string group_in(const Json& node) {
  const Json* attribute = attribute_of(node, "pg_name");
  if (!attribute) return {};
  if (std::string name = text_of(*attribute, "stringVal"); !name.empty()) return name;
  const Json* number = whole_value(*attribute);
  return !number ? "" : number->is_string() ? number->get<std::string>() : core::json_text(*number);
}

/// The properties of a collective besides its kind, for the factor `problem`.
std::string problem_of(const Json& node, std::string_view type, std::size_t line) {
  std::string out = type == "REDUCE_SCATTER_BLOCK" ? "block" : "";
  const bool has_root = type == "BROADCAST" || type == "REDUCE" || type == "GATHER" || type == "SCATTER";
  for (const char* name : {"root_rank", "root"})
    if (const Json* root = attribute_of(node, name); root && has_root && out.empty())
      if (const std::uint64_t rank = attribute_number(node, name, line); rank > 0) out = fmt::format("root={}", rank);
  return out;
}

/// The widest of fp32, bf16 and int8 whose size divides the buffer's, since the trace states no type.
core::Element element_for(std::uint64_t bytes) {
  if (bytes % core::size_of(core::Element::f32) == 0) return core::Element::f32;
  return bytes % core::size_of(core::Element::bf16) == 0 ? core::Element::bf16 : core::Element::i8;
}

TracedCall call_of(const Json& node, const std::string& type, std::int64_t ranks, std::size_t line) {
  TracedCall call;
  if (type == "COMM_COLL_NODE") {
    const std::string_view name = collective_type(node, line);
    call.problem = problem_of(node, name, line);
    call.collective =
        name == "REDUCE_SCATTER_BLOCK" ? "reduce_scatter" : collective_of(name).value_or(core::lower(name));
  } else {
    call.collective = type == "COMM_SEND_NODE" ? "send" : "recv";
  }
  call.bytes = attribute_number(node, "comm_size", line);
  if (call.bytes > std::uint64_t{1} << 62U)
    refuse_line(line, fmt::format("comm_size {} is beyond all buffers", call.bytes));
  if (gives_size_of_one_part(call.collective) && call.collective != "all_to_all")
    call.bytes = checked_product(call.bytes, static_cast<std::uint64_t>(std::max<std::int64_t>(0, ranks)));
  call.element = element_for(call.bytes);
  return call;
}

ChakraNode node_of(const Json& json, std::int64_t ranks, std::size_t line) {
  constexpr double longest_us = 1e15;
  ChakraNode node{
      .line = line, .id = number_in(json, "id", line), .depends_on = numbers_in(json, "dataDeps", line), .call = {}};
  std::ranges::copy(numbers_in(json, "ctrlDeps", line), std::back_inserter(node.depends_on));
  const std::string type = text_of(json, "type");
  if (type.empty() && json.contains("type"))
    refuse_line(line, fmt::format("{} is no type of nodes", core::json_text(json["type"])));
  const auto us = static_cast<double>(number_in(json, "durationMicros", line));
  if (us > longest_us) refuse_line(line, fmt::format("durationMicros {:.0f} is beyond all times", us));
  node.seconds = us * 1e-6;
  if (type == "COMP_NODE" || type == "MEM_LOAD_NODE" || type == "MEM_STORE_NODE") {
    node.resource = is_on_device(json) ? Resource::device : Resource::host;
  } else if (type == "COMM_COLL_NODE" || type == "COMM_SEND_NODE" || type == "COMM_RECV_NODE") {
    node.call = call_of(json, type, ranks, line);
    node.group = group_in(json);
    node.resource = node.call.collective == "barrier" ? Resource::none : Resource::network;
  } else if (!type.empty() && type != "METADATA_NODE") {  // an absent type is INVALID_NODE, the value 0
    refuse_line(line, fmt::format("'{}' is no type of nodes", type));
  }
  return node;
}

/// Reads the JSON objects of the text; the first describes the trace and is no node.
std::vector<ChakraNode> nodes_of(std::string_view text, std::int64_t ranks) {
  std::vector<ChakraNode> out;
  std::istringstream in{std::string(text)};
  std::size_t line = 1, counted = 0;
  for (bool is_first = true; (in >> std::ws).peek() != std::istringstream::traits_type::eof(); is_first = false) {
    const auto begin = static_cast<std::size_t>(in.tellg());
    line += line_at(text.substr(counted, begin - counted), begin - counted) - 1;
    counted = begin;
    Json json;
    try {
      in >> json;
    } catch (const Json::exception&) {
      if (const std::string mended = mended_json(text); mended != text) return nodes_of(mended, ranks);
      refuse_line(line, "what begins here is no whole JSON; the file may be cut");
    }
    if (!json.is_object()) refuse_line(line, "what begins here is no node");
    if (!is_first) out.push_back(node_of(json, ranks, line));
  }
  return out;
}

/// Finds when nodes begin, from their dependencies and free resources.
class Schedule {
 public:
  explicit Schedule(const std::vector<ChakraNode>& nodes)
      : nodes_(nodes), begins_(nodes.size()), ready_(nodes.size()), needed_by_(nodes.size()), missing_(nodes.size()) {
    std::map<std::uint64_t, std::size_t> index_of_id;
    for (std::size_t i = 0; i < nodes.size(); ++i)
      if (!index_of_id.emplace(nodes[i].id, i).second)
        refuse_line(nodes[i].line, fmt::format("node {} is there twice", nodes[i].id));
    depends_on_.resize(nodes.size());
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      for (const std::uint64_t id : nodes[i].depends_on) {
        const auto found = index_of_id.find(id);
        if (found == index_of_id.end()) continue;  // the converter removed that node
        depends_on_[i].push_back(found->second);
        needed_by_[found->second].push_back(i);
      }
      missing_[i] = depends_on_[i].size();
    }
    run();
  }
  /// Indices of nodes, in the order in which the nodes became ready.
  const std::vector<std::size_t>& order() const { return order_; }
  const std::vector<std::size_t>& depends_on(std::size_t node) const { return depends_on_[node]; }
  /// The time at which the node's dependencies have ended.
  double ready(std::size_t node) const { return ready_[node]; }
  Interval when(std::size_t node) const { return {begins_[node], begins_[node] + nodes_[node].seconds}; }

 private:
  void run() {
    using Ready = std::tuple<double, std::uint64_t, std::size_t>;  // time, id, index
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> queue;
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (missing_[i] == 0) queue.emplace(0, nodes_[i].id, i);
    std::array<double, resource_count> free_at{};
    while (!queue.empty()) {
      const auto [time, id, node] = queue.top();
      queue.pop();
      order_.push_back(node);
      begins_[node] = time;
      if (nodes_[node].resource != Resource::none) {
        double& resource_free_at = free_at.at(static_cast<std::size_t>(nodes_[node].resource));
        begins_[node] = std::max(time, resource_free_at);
        resource_free_at = when(node).end;
      }
      for (const std::size_t next : needed_by_[node]) {
        ready_[next] = std::max(ready_[next], when(node).end);
        if (--missing_[next] == 0) queue.emplace(ready_[next], nodes_[next].id, next);
      }
    }
    if (order_.size() < nodes_.size()) refuse_cycle();
  }
  /// Names a node of a cycle. Each remaining node depends on another remaining node, so the walk from node to
  /// dependency has reached a cycle after as many steps as there are nodes.
  [[noreturn]] void refuse_cycle() const {
    const auto is_left = [this](std::size_t n) { return missing_[n] > 0; };
    std::size_t node = 0;
    while (!is_left(node)) ++node;
    for (std::size_t i = 0; i < nodes_.size(); ++i) node = *std::ranges::find_if(depends_on_[node], is_left);
    refuse_line(nodes_[node].line, fmt::format("node {}: its dependencies form a cycle", nodes_[node].id));
  }

  const std::vector<ChakraNode>& nodes_;
  std::vector<double> begins_, ready_;
  std::vector<std::vector<std::size_t>> depends_on_, needed_by_;
  std::vector<std::size_t> missing_, order_;  // missing_: by node, how many of its dependencies have not ended
};

/// Makes the events of the one thread with which a rank replays the step: a collective starts when it is ready,
/// computation of host and device at the same time counts once, and a node that depends on a collective first waits for
/// it.
class Events {
 public:
  Events(const std::vector<ChakraNode>& nodes, const Schedule& schedule) : nodes_(nodes), schedule_(schedule) {}

  /// Adds the events of a node. Nodes must come in the order of their times.
  void reach(std::size_t node, double time) {
    advance(time);
    for (const std::size_t dependency : schedule_.depends_on(node)) {
      if (const auto call = open_.find(dependency); call != open_.end()) {
        out.push_back({.kind = ReplayEvent::Kind::wait, .call = call->second});
        open_.erase(call);
      }
    }
    if (nodes_[node].resource == Resource::network) {
      out.push_back({.kind = ReplayEvent::Kind::start, .call = calls_});
      open_[node] = calls_++;
    } else if (nodes_[node].resource != Resource::none) {
      busy_until_ = std::max(busy_until_, schedule_.when(node).end);
    }
  }
  void end() {
    advance(busy_until_);
    for (const auto& [node, call] : open_) out.push_back({.kind = ReplayEvent::Kind::wait, .call = call});
  }
  std::vector<ReplayEvent> out;

 private:
  void advance(double time) {
    const double busy = std::min(time, busy_until_) - now_;
    if (busy > 0) out.push_back({.kind = ReplayEvent::Kind::compute, .seconds = busy});
    now_ = std::max(now_, time);
  }

  const std::vector<ChakraNode>& nodes_;
  const Schedule& schedule_;
  std::map<std::size_t, std::size_t> open_;  // by node: the number of its call, which nothing has waited for yet
  double now_ = 0, busy_until_ = 0;
  std::size_t calls_ = 0;
};

TracedStep step_of(const std::vector<ChakraNode>& nodes) {
  const Schedule schedule(nodes);
  // At equal times the node that was ready first comes first, so that no node comes before its dependencies.
  const auto time_of = [&](std::size_t n) {
    return nodes[n].resource == Resource::network ? schedule.ready(n) : schedule.when(n).begin;
  };
  std::vector<std::size_t> order = schedule.order();
  std::ranges::stable_sort(order, {}, time_of);
  TracedStep step;
  std::vector<Interval> computed;
  Events events(nodes, schedule);
  for (const std::size_t n : order) {
    events.reach(n, time_of(n));
    const Interval when = schedule.when(n);
    step.seconds = std::max(step.seconds, when.end);
    if (nodes[n].resource == Resource::network) {
      step.calls.push_back(nodes[n].call);
      step.calls.back().when = when;
    } else if (nodes[n].resource != Resource::none) {
      computed.push_back(when);
    }
  }
  events.end();
  step.events = std::move(events.out);
  step.compute = dataparallel::unite(computed);
  return step;
}

bool is_chakra(std::string_view log) {
  static constexpr std::array types{"\"COMP_NODE\"", "\"COMM_COLL_NODE\"", "\"COMM_SEND_NODE\"", "\"COMM_RECV_NODE\""};
  return begins_with(log, '{') &&
         std::ranges::any_of(types, [&](const char* type) { return log.find(type) != std::string_view::npos; });
}

}  // namespace

ImportedTrace read_chakra_trace(std::string_view json, std::int64_t ranks) {
  ImportedTrace out;
  out.has_element_types = false;
  auto nodes = nodes_of(json, ranks);
  std::set<std::string> groups;
  for (const ChakraNode& n : nodes)
    if (n.resource == Resource::network) groups.insert(n.group);
  out.groups = std::max<std::size_t>(1, groups.size());
  if (groups.size() > 1)
    for (ChakraNode& n : nodes)
      if (!n.group.empty()) n.call.problem += fmt::format("{}group={}", n.call.problem.empty() ? "" : ",", n.group);
  out.trace.steps.push_back(step_of(nodes));
  out.trace.timed = std::ranges::none_of(
      nodes, [](const ChakraNode& n) { return n.resource == Resource::network && n.seconds == 0; });
  for (const TracedCall& c : out.trace.steps[0].calls) out.calls_without_size += c.bytes == 0;
  return out;
}

namespace {

Imported read_chakra(std::string_view log, const UserFacts& user_facts) {
  // With several groups, it is not known to which of them --ranks applies.
  ImportedTrace t = read_chakra_trace(log, user_facts.ranks);
  UserFacts known = user_facts;
  if (t.groups > 1) known.ranks = 0;
  if (t.groups > 1 && user_facts.ranks > 0) t = read_chakra_trace(log, 0);
  Imported out = trace_rows(t, known);
  out.run().info.version = "Chakra";
  out.not_stated += "; element types; when nodes began, so that the step is the shortest that its dependencies allow";
  if (t.groups > 1) out.not_stated += fmt::format("; how many ranks each of its {} process groups has", t.groups);
  if (!t.trace.timed) out.not_stated += "; how long collectives took, so that the step has no time";
  if (t.calls_without_size > 0)
    out.not_stated +=
        fmt::format("; {} collectives are of no or unknown size (all-gathers, gathers and scatters need --ranks)",
                    t.calls_without_size);
  return out;
}

}  // namespace

const Format chakra_format{.name = "chakra",
                           .about = "Chakra's traces as JSON: a step by its dependencies, and collectives",
                           .source = "mlcommons/chakra, schema/protobuf/et_def.proto, src/jsonizer",
                           .recognises = is_chakra,
                           .read = read_chakra};

}  // namespace gradmeter::importers
