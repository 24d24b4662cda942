// SPDX-License-Identifier: Apache-2.0
#include "predict/machines.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <utility>

#include "core/csv.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "predict/measurements.hpp"

namespace gradmeter::predict {
namespace {

constexpr double tera = 1e12, giga = 1e9;

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

/// Calls `take` with each row of a file of data/machines. A fault in such a file is a fault of the program.
template <class Take>
void read_rows(std::string_view name, const Take& take) {
  const auto files = machine_files();
  const auto file = std::ranges::find(files, name, &core::EmbeddedFile::name);
  const auto faults = core::read_csv(
      file->text, std::string(name), [](const auto&) {}, [&](const core::CsvRow& row, std::size_t) { take(row); });
  if (!faults.empty()) throw std::logic_error(faults.front());
}

std::vector<std::string> aliases_of(const core::CsvRow& row) {
  auto out = words_of(row.text("aliases"));
  out.push_back(plain_name(row.text("name")));
  return out;
}

std::vector<ListedDevice> read_devices() {
  std::vector<ListedDevice> out;
  read_rows("devices", [&](const core::CsvRow& row) {
    const auto number = [&](const char* column) { return row.number(column).value_or(0); };
    ListedDevice device{.profile = {.name = row.text("name"), .source = row.text("source")},
                        .aliases = aliases_of(row),
                        .link = row.text("link"),
                        .link_bytes_per_s = giga * number("link_GBps"),
                        .host_link = row.text("host_link")};
    for (const char* precision : {"fp32", "tf32", "fp16", "bf16", "fp8", "fp4"})
      if (const double rate = number(fmt::format("{}_tflops", precision).c_str()); rate > 0)
        device.profile.peaks[precision] = tera * rate;
    if (const double rate = number("int8_tops"); rate > 0) device.profile.peaks["int8"] = tera * rate;
    device.profile.memory_bytes = giga * number("memory_gb");
    device.profile.memory_bytes_per_s = giga * number("memory_GBps");
    device.profile.multiprocessors = static_cast<std::uint32_t>(number("multiprocessors"));
    device.profile.power_w = number("power_w");
    device.profile.price_usd = number("price_usd");
    out.push_back(std::move(device));
  });
  return out;
}

std::vector<ListedLink> read_links() {
  std::vector<ListedLink> out;
  read_rows("links", [&](const core::CsvRow& row) {
    ListedLink listed_link{.link = {.name = row.text("name")},
                           .aliases = aliases_of(row),
                           .kind = row.text("kind"),
                           .source = row.text("source"),
                           .achieved_bytes_per_s = giga * row.number("achieved_GBps").value_or(0),
                           .achieved_what = row.text("achieved_what")};
    listed_link.link.bandwidth = {{0, giga * row.number("GBps").value_or(0)}};
    for (const std::string& pair : words_of(row.text("ring_GBps_by_ranks"))) {  // "4:85.6"
      core::GroupRate group;
      const std::size_t colon = pair.find(':');
      std::from_chars(pair.data(), pair.data() + colon, group.ranks);
      std::from_chars(pair.data() + colon + 1, pair.data() + pair.size(), group.bytes_per_s);
      group.bytes_per_s *= giga;
      listed_link.link.groups.push_back(group);
    }
    out.push_back(std::move(listed_link));
  });
  return out;
}

/// Bytes a second of "400Gbit/s", "50GB/s"; nothing if the text is no rate.
std::optional<double> rate_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || !(value > 0) || !std::isfinite(value)) return std::nullopt;
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  for (const auto& [name, factor] : {std::pair{"Gbit/s", giga / 8},
                                     {"Gbit", giga / 8},
                                     {"Mbit/s", giga / 8e3},
                                     {"GB/s", giga},
                                     {"MB/s", giga / 1e3}})
    if (unit == name) return value * factor;
  return std::nullopt;
}

template <class Row>
const Row* find_alias(std::span<const Row> rows, std::string_view name) {
  const std::string wanted = plain_name(name);
  const auto at =
      std::ranges::find_if(rows, [&](const Row& r) { return std::ranges::find(r.aliases, wanted) != r.aliases.end(); });
  return at == rows.end() ? nullptr : &*at;
}

}  // namespace

std::span<const ListedDevice> listed_devices() {
  static const std::vector<ListedDevice> devices = read_devices();
  return devices;
}

std::span<const ListedLink> listed_links() {
  static const std::vector<ListedLink> links = read_links();
  return links;
}

const ListedDevice* find_device(std::string_view name) { return find_alias(listed_devices(), name); }
const ListedLink* find_link(std::string_view name) { return find_alias(listed_links(), name); }

core::Machine machine_of(const ListedDevice& device, std::uint32_t devices_per_node) {
  constexpr double port_share = 1.0 / 12;
  core::Machine machine;
  machine.name = device.profile.name;
  machine.ranks_per_node = devices_per_node;
  machine.device = device.profile;
  machine.memory_bytes_per_s = std::max(1.0, device.profile.memory_bytes_per_s);
  const ListedLink* link = find_link(device.link);
  if (!link && device.link_bytes_per_s <= 0) link = find_link(device.host_link);
  if (link) machine.within_node = link->link;
  if (device.link_bytes_per_s > 0) {
    machine.within_node.name = device.link;
    machine.within_node.bandwidth = {{0, device.link_bytes_per_s}};
  } else if (!link) {
    machine.within_node = find_link("PCIe 3 x16")->link;
  }
  const double within = machine.within_node.bandwidth.front().bytes_per_s;
  machine.node_port.bytes_per_s = devices_per_node * within * port_share;
  machine.between_nodes.bandwidth = {{0, machine.node_port.bytes_per_s}};
  return machine;
}

void connect(core::Machine& machine, const std::string& flag, const std::string& links) {
  std::size_t port_count = 1, name_begin = 0;
  if (const std::size_t x = links.find('x'); x != std::string::npos && x > 0) {
    const auto [end, error] = std::from_chars(links.data(), links.data() + x, port_count);
    if (error == std::errc{} && end == links.data() + x && port_count > 0) {
      name_begin = x + 1;
    } else {
      port_count = 1;
    }
  }
  const std::string name = links.substr(name_begin);
  const bool was_stated = !machine.between_nodes.name.empty();
  if (const ListedLink* const listed = find_link(name)) {
    machine.between_nodes = listed->link;
  } else if (const auto rate = rate_of(name)) {
    machine.between_nodes = {.name = name, .bandwidth = {{0, *rate}}};
  } else {
    std::vector<std::string> names;
    for (const ListedLink& l : listed_links())
      if (l.kind == "network") names.push_back(l.link.name);
    throw core::UsageError(
        fmt::format("{}: '{}' is no link; write one of {}, a rate as 400Gbit/s or 50GB/s, or several "
                    "ports of a node as 8xNDR",
                    flag, core::printable(name), fmt::join(names, ", ")));
  }
  const double before = machine.node_port.bytes_per_s;
  machine.node_port.bytes_per_s = static_cast<double>(port_count) * machine.between_nodes.bandwidth.front().bytes_per_s;
  if (!machine.fit) return;
  const auto rate = machine.fit->terms.find("between_rate");
  if (rate == machine.fit->terms.end()) return;
  if (was_stated && before > 0) {
    rate->second *= machine.node_port.bytes_per_s / before;
  } else {
    // The rate was fitted to links of an unknown rate, so the prior for the new links takes its place.
    machine.fit->terms.erase(rate);
  }
}

core::Machine machine_named(const std::string& name_or_file, std::uint32_t devices_per_node) {
  if (const ListedDevice* const device = find_device(name_or_file)) return machine_of(*device, devices_per_node);
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(name_or_file, ignored)) {
    std::vector<std::string> names;
    for (const ListedDevice& device : listed_devices()) names.push_back(device.profile.name);
    throw core::UsageError(fmt::format("--machine: '{}' is no file, and no data sheet of it is known; there are {}",
                                       core::printable(name_or_file), fmt::join(names, ", ")));
  }
  std::ifstream in(name_or_file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in && !in.eof())
    throw core::UsageError(fmt::format("cannot read '{}'; check its permissions", core::printable(name_or_file)));
  core::Machine machine = core::machine_from_json(text, name_or_file);
  if (!machine.device)
    throw core::UsageError(
        fmt::format("{}:1: machine: there is no device, from which steps are predicted; add \"device\"",
                    core::printable(name_or_file)));
  return machine;
}

}  // namespace gradmeter::predict
