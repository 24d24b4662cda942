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
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

/// Calls `take` with each row of one of our own files. A fault in it is a fault of the program.
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
    ListedDevice d{.profile = {.name = row.text("name"), .source = row.text("source")},
                   .aliases = aliases_of(row),
                   .link = row.text("link"),
                   .link_bytes_per_s = giga * number("link_GBps"),
                   .host_link = row.text("host_link")};
    for (const char* precision : {"fp32", "tf32", "fp16", "bf16", "fp8", "fp4"})
      if (const double rate = number(fmt::format("{}_tflops", precision).c_str()); rate > 0)
        d.profile.peaks[precision] = tera * rate;
    if (const double rate = number("int8_tops"); rate > 0) d.profile.peaks["int8"] = tera * rate;
    d.profile.memory_bytes = giga * number("memory_gb");
    d.profile.memory_bytes_per_s = giga * number("memory_GBps");
    d.profile.multiprocessors = static_cast<std::uint32_t>(number("multiprocessors"));
    d.profile.power_w = number("power_w");
    d.profile.price_usd = number("price_usd");
    out.push_back(std::move(d));
  });
  return out;
}

std::vector<ListedLink> read_links() {
  std::vector<ListedLink> out;
  read_rows("links", [&](const core::CsvRow& row) {
    ListedLink l{.link = {.name = row.text("name")},
                 .aliases = aliases_of(row),
                 .kind = row.text("kind"),
                 .source = row.text("source"),
                 .achieved_bytes_per_s = giga * row.number("achieved_GBps").value_or(0),
                 .achieved_what = row.text("achieved_what")};
    l.link.bandwidth = {{0, giga * row.number("GBps").value_or(0)}};
    for (const std::string& pair : words_of(row.text("ring_GBps_by_ranks"))) {  // "4:85.6"
      core::GroupRate g;
      const std::size_t colon = pair.find(':');
      std::from_chars(pair.data(), pair.data() + colon, g.ranks);
      std::from_chars(pair.data() + colon + 1, pair.data() + pair.size(), g.bytes_per_s);
      g.bytes_per_s *= giga;
      l.link.groups.push_back(g);
    }
    out.push_back(std::move(l));
  });
  return out;
}

/// Bytes a second of "400Gbit/s", "50GB/s"; none where it is no such text.
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

core::Machine machine_of(const ListedDevice& d, std::uint32_t devices_per_node) {
  constexpr double ports_a_link = 1.0 / 12;
  core::Machine m;
  m.name = d.profile.name;
  m.ranks_per_node = devices_per_node;
  m.device = d.profile;
  m.memory_bytes_per_s = std::max(1.0, d.profile.memory_bytes_per_s);
  const ListedLink* link = find_link(d.link);
  if (!link && d.link_bytes_per_s <= 0) link = find_link(d.host_link);
  if (link) m.within_node = link->link;
  if (d.link_bytes_per_s > 0) {
    m.within_node.name = d.link;
    m.within_node.bandwidth = {{0, d.link_bytes_per_s}};
  } else if (!link) {
    m.within_node = find_link("PCIe 3 x16")->link;
  }
  const double within = m.within_node.bandwidth.front().bytes_per_s;
  m.node_port.bytes_per_s = devices_per_node * within * ports_a_link;
  m.between_nodes.bandwidth = {{0, m.node_port.bytes_per_s}};
  return m;
}

void connect(core::Machine& m, const std::string& flag, const std::string& links) {
  std::size_t times = 1, at = 0;
  if (const std::size_t x = links.find('x'); x != std::string::npos && x > 0) {
    const auto [end, error] = std::from_chars(links.data(), links.data() + x, times);
    if (error == std::errc{} && end == links.data() + x && times > 0) {
      at = x + 1;
    } else {
      times = 1;
    }
  }
  const std::string name = links.substr(at);
  const bool was_stated = !m.between_nodes.name.empty();
  if (const ListedLink* const listed = find_link(name)) {
    m.between_nodes = listed->link;
  } else if (const auto rate = rate_of(name)) {
    m.between_nodes = {.name = name, .bandwidth = {{0, *rate}}};
  } else {
    std::vector<std::string> names;
    for (const ListedLink& l : listed_links())
      if (l.kind == "network") names.push_back(l.link.name);
    throw core::UsageError(
        fmt::format("{}: '{}' is no link; write one of {}, a rate as 400Gbit/s or 50GB/s, or several "
                    "ports of a node as 8xNDR",
                    flag, core::printable(name), fmt::join(names, ", ")));
  }
  const double before = m.node_port.bytes_per_s;
  m.node_port.bytes_per_s = static_cast<double>(times) * m.between_nodes.bandwidth.front().bytes_per_s;
  if (!m.fit) return;
  const auto rate = m.fit->terms.find("between_rate");
  if (rate == m.fit->terms.end()) return;
  if (was_stated && before > 0) {
    rate->second *= m.node_port.bytes_per_s / before;
  } else {
    m.fit->terms.erase(rate);  // the rate of which it was a share is unknown, so the prior's share holds
  }
}

core::Machine machine_named(const std::string& name, std::uint32_t devices_per_node) {
  if (const ListedDevice* const d = find_device(name)) return machine_of(*d, devices_per_node);
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(name, unknown)) {
    std::vector<std::string> names;
    for (const ListedDevice& d : listed_devices()) names.push_back(d.profile.name);
    throw core::UsageError(fmt::format("--machine: '{}' is no file, and no data sheet of it is known; there are {}",
                                       core::printable(name), fmt::join(names, ", ")));
  }
  std::ifstream in(name, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in && !in.eof())
    throw core::UsageError(fmt::format("cannot read '{}'; check its permissions", core::printable(name)));
  core::Machine m = core::machine_from_json(text, name);
  if (!m.device)
    throw core::UsageError(fmt::format(
        "{}:1: machine: there is no device, from which steps are predicted; add \"device\"", core::printable(name)));
  return m;
}

}  // namespace gradmeter::predict
