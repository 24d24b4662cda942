// SPDX-License-Identifier: Apache-2.0
// Machines from data sheets: data/machines has the devices and links, each figure with its source.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/embedded.hpp"
#include "core/machine.hpp"

namespace gradmeter::predict {

/// A row of data/machines/devices.csv.
struct ListedDevice {
  core::DeviceProfile profile;
  std::vector<std::string> aliases;  ///< lower-case letters and digits only; the device's own name is one of them
  std::string link;                  ///< name of the link to the devices of its node; empty: not stated
  double link_bytes_per_s = 0;       ///< rate of all these links of a device together, in one direction; 0: not stated
  std::string host_link;             ///< name of the link to its host; empty: not stated
};
/// A row of data/machines/links.csv. latency and overhead are 0, since no data sheet states them.
struct ListedLink {
  core::Link link;
  std::vector<std::string> aliases;
  std::string kind;  ///< network, node (between devices of a node), host (to the host)
  std::string source;
  double achieved_bytes_per_s = 0;  ///< rate that others measured; 0: unknown
  std::string achieved_what;        ///< the quantity that was measured
};
std::span<const ListedDevice> listed_devices();
std::span<const ListedLink> listed_links();
/// Finds a row by name or alias ("A100-80GB", "h100_80gb", "100GbE", "ndr"); null: no row has this name.
const ListedDevice* find_device(std::string_view name);
const ListedLink* find_link(std::string_view name);

/// Makes a machine whose nodes each have `devices_per_node` of this device. The link within a node is the device's link
/// to its node's devices; if none is stated, its link to the host; if that is not stated either, PCIe 3. Until
/// `connect` states the links between nodes, the ports of a node carry a twelfth of the rate that all links of the
/// node's devices have together.
core::Machine machine_of(const ListedDevice&, std::uint32_t devices_per_node);
/// Connects nodes by links: "100GbE", "8xNDR" (eight ports a node), "400Gbit/s". If the machine has a fitted rate
/// between nodes and its previous links were stated, that rate changes in proportion to the rate of the ports. If they
/// were not stated, the fitted rate is dropped, and the prior applies to the new links. Errors: UsageError that begins
/// with `flag`.
void connect(core::Machine&, const std::string& flag, const std::string& links);

/// Makes the machine of a listed device ("H100"), or reads one from a file that `predict --calibrate … --output FILE`
/// has written.
/// Errors: UsageError for a name that is neither a device nor a file (it lists the devices), for a bad file
/// ("FILE:LINE: …"), and for a file without a device.
core::Machine machine_named(const std::string& name_or_file, std::uint32_t devices_per_node);

// The files of data/machines, which are compiled into the program.
std::span<const core::EmbeddedFile> machine_files();

}  // namespace gradmeter::predict
