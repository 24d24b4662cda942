// SPDX-License-Identifier: Apache-2.0
// PyTorch's execution traces: operations in their order, without times. Names identify collectives and the waits for
// them.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "importers/collectives.hpp"
#include "importers/importers.hpp"
#include "importers/text.hpp"
#include "importers/traces.hpp"

namespace gradmeter::importers {
namespace {

using core::Json;
using core::UsageError;
using dataparallel::ReplayEvent;
using dataparallel::TracedCall;
using dataparallel::TracedStep;

[[noreturn]] void refuse_node(std::int64_t id, const std::string& why) {
  throw UsageError(fmt::format("node {}: {}", id, why));
}

/// A list of a node's inputs or outputs (`side`): their values, shapes or types (`what`). Schema 1.0.1 has each list
/// under a key of its own, such as input_shapes.
const Json& listed(const Json& node, const char* side, const char* what) {
  static const Json none = Json::array();
  const auto found = node.find(side);
  if (found == node.end()) return none;
  if (found->is_array()) {
    if (std::string_view(what) == "values") return *found;
    const std::string key = std::string(side).substr(0, std::string_view(side).size() - 1) + "_" + what;
    const auto other = node.find(key);
    return other != node.end() && other->is_array() ? *other : none;
  }
  const auto list = found->find(what);
  return list != found->end() && list->is_array() ? *list : none;
}

const Json* attribute(const Json& node, std::string_view name) {
  const auto attributes = node.find("attrs");
  if (attributes == node.end() || !attributes->is_array()) return nullptr;
  for (const Json& a : *attributes)
    if (text_of(a, "name") == name && a.contains("value")) return &a["value"];
  return nullptr;
}

/// The attribute's number; 0 if absent.
std::uint64_t count_in(const Json& node, std::int64_t id, const char* name) {
  const Json* value = attribute(node, name);
  if (!value) return 0;
  constexpr std::uint64_t most = std::uint64_t{1} << 56U;  // no buffer is longer, whatever its elements
  if (!value->is_number_unsigned() || value->get<std::uint64_t>() > most)
    refuse_node(id, fmt::format("its '{}' is {}, which is no count", name, core::json_text(*value)));
  return value->get<std::uint64_t>();
}

/// The bytes of all tensors in nested lists; a tensor is [id, storage, offset, elements, bytes of one, device]. Sets
/// `device` to that of the last tensor.
std::uint64_t tensor_bytes(const Json& values, std::string& device, int depth = 0) {
  constexpr int deepest = 4;
  constexpr std::size_t tensor_words = 6, elements = 3, element_bytes = 4, device_place = 5;
  if (!values.is_array() || depth > deepest) return 0;
  const bool is_tensor = values.size() == tensor_words && values[elements].is_number_unsigned() &&
                         values[element_bytes].is_number_unsigned() && values[device_place].is_string();
  if (is_tensor) {
    device = values[device_place].get<std::string>();
    return checked_product(values[elements].get<std::uint64_t>(), values[element_bytes].get<std::uint64_t>());
  }
  std::uint64_t sum = 0;
  for (const Json& v : values) sum += tensor_bytes(v, device, depth + 1);
  return sum;
}

/// The element type in the first tensor's brackets: c10::BFloat16 of "GenericList[Tensor(c10::BFloat16)]".
std::string tensor_type(const Json& types) {
  for (const Json& t : types) {
    if (!t.is_string()) continue;
    const std::string text = t.get<std::string>();
    const std::size_t at = text.find("Tensor("), begin = at + std::string_view("Tensor(").size();
    if (at != std::string::npos) return text.substr(begin, text.find(')', begin) - begin);
  }
  return {};
}

/// Gloo and MPI have no `record_param_comms`, but a label for each collective: "gloo:all_reduce".
bool is_labelled(std::string_view name) { return name.starts_with("gloo:") || name.starts_with("mpi:"); }

/// One `record_param_comms` or label: a collective, or the wait for one.
struct Communication {
  std::string name;      ///< in PyTorch's spelling
  std::string sequence;  ///< the sequence number as JSON, by which a wait finds its collective
  std::string device;
  TracedCall call;
};

/// The collective's name, which is an attribute in schema 1.1 and before that the first plain text among the inputs.
std::string name_of(const Json& node) {
  if (const std::string label = text_of(node, "name"); is_labelled(label)) return label.substr(label.find(':') + 1);
  if (const Json* name_attribute = attribute(node, "collective_name"); name_attribute && name_attribute->is_string())
    return name_attribute->get<std::string>();
  for (const Json& v : listed(node, "inputs", "values"))
    if (v.is_string()) return v.get<std::string>();
  return {};
}

/// The sequence number as JSON: the first or the second input, since at most the tensors stand before it. From PyTorch
/// 2.5 on it is a pair, whose second part says whether it belongs to a message.
std::string sequence_of(const Json& inputs) {
  const auto is_sequence = [](const Json& v) {
    return v.is_number_integer() || (v.is_array() && v.size() == 2 && v[0].is_number_integer() && v[1].is_boolean());
  };
  for (std::size_t i = 0; i < std::min<std::size_t>(2, inputs.size()); ++i)
    if (is_sequence(inputs[i])) return core::json_text(inputs[i]);
  return {};
}

Communication communication_of(const Json& node, std::int64_t id) {
  const Json& inputs = listed(node, "inputs", "values");
  Communication c{.name = name_of(node), .sequence = sequence_of(inputs), .device = {}, .call = {}};
  if (c.name.empty()) refuse_node(id, "it does not say which collective it is");
  c.call.collective = collective_of(c.name).value_or(c.name);
  c.call.ranks = static_cast<std::int64_t>(count_in(node, id, "pg_size"));
  if (c.call.ranks == 0 && !inputs.empty() && inputs.back().is_number_unsigned())
    c.call.ranks = static_cast<std::int64_t>(std::min<std::uint64_t>(inputs.back().get<std::uint64_t>(), 1U << 30U));
  const std::uint64_t tensors =
      std::max(tensor_bytes(inputs, c.device), tensor_bytes(listed(node, "outputs", "values"), c.device));
  const Json* dtype = attribute(node, "dtype");
  const auto element = element_of(dtype && dtype->is_string() ? dtype->get<std::string>()
                                                              : tensor_type(listed(node, "inputs", "types")));
  const std::uint64_t n = std::max(count_in(node, id, "in_msg_nelems"), count_in(node, id, "out_msg_nelems"));
  c.call.element = element.value_or(core::Element::i8);  // other types travel as bytes
  c.call.bytes = element && n > 0 ? checked_product(n, core::size_of(*element)) : tensors;
  return c;
}

/// Nodes by their ids, which are in the order in which the nodes began. Errors: as `read_execution_trace`.
std::map<std::int64_t, const Json*> nodes_by_id(const Json& nodes) {
  std::map<std::int64_t, const Json*> out;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const std::int64_t id = nodes[i].is_object() ? whole_of(nodes[i], "id") : -1;
    if (id < 0 || text_of(nodes[i], "name").empty())
      throw UsageError(fmt::format("nodes[{}] is no node with an 'id' and a 'name'", i));
    if (!out.emplace(id, &nodes[i]).second) refuse_node(id, "another node has this id");
  }
  return out;
}

/// Errors: UsageError if callers form a cycle. Each node names its caller; only the root is its own caller.
void check_callers(const std::map<std::int64_t, const Json*>& nodes) {
  std::map<std::int64_t, std::int64_t> seen;  // by node: the begin of the walk that first reached it
  for (const auto& [begin, unused] : nodes) {
    for (std::int64_t id = begin;;) {
      const auto node = nodes.find(id);
      if (node == nodes.end()) break;
      if (const auto [before, is_new] = seen.emplace(id, begin); !is_new) {
        if (before->second == begin) refuse_node(id, "its dependencies form a cycle");
        break;
      }
      const char* key = node->second->contains("ctrl_deps") ? "ctrl_deps" : "parent";
      if (node->second->contains(key) && whole_of(*node->second, key) < 0)
        refuse_node(id, fmt::format("its '{}' is no node", key));
      const std::int64_t caller = whole_of(*node->second, key);
      if (caller == id) break;
      id = caller;
    }
  }
}

/// Builds the steps, and keeps the collectives of the present step that nothing has waited for.
class Steps {
 public:
  void begin() {
    end();
    step_.emplace();
  }
  void end() {
    if (!step_) return;
    for (const auto& [sequence, call] : open_) wait(call);
    open_.clear();
    steps.push_back(std::move(*step_));
    step_.reset();
  }
  void add(Communication c) {
    if (!step_) return;  // between steps
    if (c.name == "wait") {
      const auto waited = std::ranges::find(open_, c.sequence, &std::pair<std::string, std::size_t>::first);
      if (waited == open_.end()) return;
      wait(waited->second);
      open_.erase(waited);
      return;
    }
    step_->events.push_back({.kind = ReplayEvent::Kind::start, .call = step_->calls.size()});
    open_.emplace_back(c.sequence, step_->calls.size());
    step_->calls.push_back(std::move(c.call));
  }
  bool has_begun() const { return step_.has_value(); }
  std::vector<TracedStep> steps;

 private:
  void wait(std::size_t call) { step_->events.push_back({.kind = ReplayEvent::Kind::wait, .call = call}); }
  std::optional<TracedStep> step_;
  // sequence numbers, and the places of their calls in the step
  std::vector<std::pair<std::string, std::size_t>> open_;
};

/// The ranks of each process group, from the nodes that PyTorch writes first; -1: not given.
std::vector<std::int64_t> group_sizes(const std::map<std::int64_t, const Json*>& nodes) {
  std::vector<std::int64_t> out;
  for (const auto& [id, node] : nodes) {
    if (text_of(*node, "name").find("process_group:init") == std::string::npos) continue;
    const Json& values = listed(*node, "inputs", "values");
    if (values.empty() || !values[0].is_string()) continue;
    const Json groups = core::try_parse_json(values[0].get<std::string>()).value_or(nullptr);
    if (!groups.is_array()) continue;
    for (const Json& g : groups) out.push_back(whole_of(g, "group_size"));
  }
  return out;
}

/// Gloo only notes a call's input; for all-gather and gather, that is one rank's part.
void set_group_size(std::int64_t ranks, TracedCall& call) {
  call.ranks = ranks;
  if (call.collective == "all_gather" || call.collective == "gather")
    call.bytes = checked_product(call.bytes, static_cast<std::uint64_t>(ranks));
}

void check_schema(const Json& json) {
  const std::string schema = text_of(json, "schema");
  if (!schema.starts_with("1.0.") && !schema.starts_with("1.1."))
    throw UsageError(fmt::format("its schema is '{}'; 1.0 and 1.1 are known", schema));
}

bool is_execution_trace(std::string_view log) {
  return begins_with(log, '{') && log.find("\"schema\"") != std::string_view::npos &&
         log.find("\"nodes\"") != std::string_view::npos && log.find("\"fw_parent\"") != std::string_view::npos;
}

}  // namespace

ImportedTrace read_execution_trace(std::string_view text) {
  const Json json = parse_json(text);
  check_schema(json);
  const auto list = json.find("nodes");
  if (list == json.end() || !list->is_array()) throw UsageError("it has no 'nodes'");
  const auto nodes = nodes_by_id(*list);
  check_callers(nodes);
  const auto is_step = [](const auto& n) { return text_of(*n.second, "name").starts_with("ProfilerStep#"); };
  ImportedTrace out;
  out.trace.timed = false;
  const bool has_metadata =
      std::ranges::any_of(nodes, [](const auto& n) { return text_of(*n.second, "name") == "record_param_comms"; });
  const std::vector<std::int64_t> sizes = group_sizes(nodes);
  for (const std::int64_t size : sizes) out.trace.ranks = std::max(out.trace.ranks, size);
  const bool are_equal = std::ranges::all_of(sizes, [&](std::int64_t n) { return n > 0 && n == sizes.front(); });
  const std::int64_t group_size = are_equal && !sizes.empty() ? sizes.front() : 0;  // 0: unknown
  Steps steps;
  if (std::ranges::none_of(nodes, is_step)) steps.begin();
  for (const auto& entry : nodes) {
    const auto& [id, node] = entry;
    if (is_step(entry)) steps.begin();
    const std::string name = text_of(*node, "name");
    if (!is_labelled(name) && name != "record_param_comms") continue;
    static const std::set<std::string> no_collectives{"init", "barrier"};
    Communication c = communication_of(*node, id);
    if (no_collectives.contains(c.name)) continue;
    if (is_labelled(name) && has_metadata) {
      out.calls_of_other_backends += steps.has_begun();
      continue;
    }
    if (is_labelled(name)) set_group_size(group_size, c.call);
    out.trace.ranks = std::max(out.trace.ranks, c.call.ranks);
    // One call on a GPU's memory makes it the trace of a GPU, also if other calls are on the host's memory.
    if (!c.device.empty() && out.trace.device != "cuda")
      out.trace.device = c.device.starts_with("cpu") ? "cpu" : "cuda";
    steps.add(std::move(c));
  }
  steps.end();
  out.trace.steps = std::move(steps.steps);
  for (const auto& s : out.trace.steps)
    for (const TracedCall& c : s.calls) out.calls_without_size += c.bytes == 0;
  return out;
}

namespace {

Imported read_execution(std::string_view log, const UserFacts& user_facts) {
  const ImportedTrace t = read_execution_trace(log);
  Imported out = trace_rows(t, user_facts);
  out.run().info.version = "PyTorch execution trace";
  out.not_stated += "; how long anything took, so that it has no time to compare";
  if (t.calls_without_size > 0)
    out.not_stated += fmt::format("; {} collectives are of unknown size", t.calls_without_size);
  return out;
}

}  // namespace

const Format execution_trace_format{
    .name = "execution-trace",
    .about = "PyTorch's execution traces, which PARAM replays: collectives of steps in order, no times",
    .source = "pytorch/pytorch, torch/csrc/profiler/standalone/execution_trace_observer.cpp, schemas 1.0 and 1.1",
    .recognises = is_execution_trace,
    .read = read_execution};

}  // namespace gradmeter::importers
