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
  std::vector<std::string> aliases;  ///< lower-case letters and digits only, its own name among them
  std::string link;                  ///< name of the link to the devices of its node; empty: not stated
  double link_bytes_per_s = 0;       ///< of all such links of a device together, one direction; 0: not stated
  std::string host_link;             ///< name of the link to its host; empty: not stated
};
/// A row of data/machines/links.csv. latency and overhead are 0, since no data sheet states them.
struct ListedLink {
  core::Link link;
  std::vector<std::string> aliases;
  std::string kind;  ///< network, node (between devices of a node), host (to the host)
  std::string source;
  double achieved_bytes_per_s = 0;  ///< measured by others; 0: not known
  std::string achieved_what;        ///< what was measured
};
std::span<const ListedDevice> listed_devices();
std::span<const ListedLink> listed_links();
/// By name or alias ("A100-80GB", "h100_80gb", "100GbE", "ndr"); null: none known.
const ListedDevice* find_device(std::string_view name);
const ListedLink* find_link(std::string_view name);

/// A machine of such devices. The link within a node is the device's, else that to its host, else PCIe 3. The ports of
/// a node carry a twelfth of what all links of its devices carry, as nodes are usually built (an eighth to a half),
/// until `connect` says what they are.
core::Machine machine_of(const ListedDevice&, std::uint32_t devices_per_node);
/// Connects nodes by links: "100GbE", "8xNDR" (eight ports a node), "400Gbit/s". A fit's rate between nodes changes in
/// the same proportion where the links before were stated; else the new links' share is the prior's. Errors: UsageError
/// that begins with the flag.
void connect(core::Machine&, const std::string& flag, const std::string& links);

/// The machine of a name ("H100"), or of a file as `predict --calibrate … --output FILE` writes it.
/// Errors: UsageError: a name that is neither, with those that are known; "FILE:LINE: …" for a bad file; a file without
/// a device.
core::Machine machine_named(const std::string& name_or_file, std::uint32_t devices_per_node);

// The files, which are part of the program.
std::span<const core::EmbeddedFile> machine_files();

}  // namespace gradmeter::predict
