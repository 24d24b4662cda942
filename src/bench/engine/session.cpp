// SPDX-License-Identifier: Apache-2.0
#include "bench/engine/session.hpp"

#include <time.h>  // clock_gettime

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <limits>

#include "allreduce/test_data.hpp"
#include "bench/engine/version.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "kernels/host/library.hpp"
#include "runtime/communicator.hpp"
#include "runtime/host/environment.hpp"
#include "runtime/host/gpus.hpp"
#include "runtime/mpi/session.hpp"

namespace gradmeter::bench {
namespace {

/// The host name of each node, in the order of the nodes' lowest ranks. Only the first rank of a node gives its name.
std::vector<std::string> hosts_of_nodes(const runtime::Communicator& world, const runtime::Communicator& node,
                                        const std::string& hostname) {
  const auto leaders = world.split(node.rank() == 0 ? 0 : -1, world.rank());
  std::string joined;
  if (!leaders.is_null()) joined = fmt::format("{}", fmt::join(leaders.all_gather_text(hostname), "\n"));
  joined = world.broadcast_text(joined);
  std::vector<std::string> out;
  for (std::size_t at = 0; at <= joined.size();) {
    const std::size_t end = std::min(joined.find('\n', at), joined.size());
    out.push_back(joined.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

}  // namespace

Session::Session(const runtime::Communicator& world, const ProcessWatch& process, core::Seconds timeout,
                 std::string command)
    : world_(world.duplicate()), watched_(process, activity_, world_.rank(), timeout), host_(runtime::read_host()) {
  const runtime::Communicator node = world_.split_by_node();
  map_.ranks_as = world_.ranks_as();
  map_.node_of = world_.all_gather_value(node.broadcast_value(world_.rank()));
  node_indices_.emplace(map_.node_of);
  // The least of all nodes is the negated maximum of negated values.
  cores_per_node_ = static_cast<int>(-world_.max(-static_cast<double>(units_of_job(node, host_))));
  free_memory_per_node_ = static_cast<std::size_t>(-world_.max(-static_cast<double>(host_.available_memory_bytes)));
  // The shared memory that Open MPI needs for its messages, for each rank of a node; 2.1 MiB were measured.
  constexpr double mpi_segment = 2.1 * (1 << 20);
  const double shm = static_cast<double>(host_.shm_free_bytes);
  if (world_.all(shm > 0) && world_.ranks_as() == runtime::RanksAs::processes)
    free_shm_per_node_ = static_cast<std::size_t>(-world_.max(std::min(0.0, mpi_segment * node.size() - shm)));
  describe(std::move(command), node);
}

WatchedActivity::WatchedActivity(const ProcessWatch& process, runtime::Activity& activity, int rank,
                                 core::Seconds timeout)
    : process_(process), activity_(activity) {
  process_.watchdog.watch(activity, rank, timeout);
  process_.signals.describe_with(this, [&activity, rank] { return runtime::describe(rank, activity.doing()); });
}

WatchedActivity::~WatchedActivity() {
  process_.signals.describe_with(this, {});
  process_.watchdog.forget(activity_);
}

void Session::describe(std::string command, const runtime::Communicator& node) {
  auto& info = run_info_;
  info = describe_process(host_, std::move(command));
  info.run_id = world_.broadcast_text(info.run_id);
  info.time = world_.broadcast_text(info.time);
  info.fingerprint = world_.broadcast_text(info.fingerprint);
  info.ranks = world_.size();
  info.nodes = map_.nodes();
  info.hosts = hosts_of_nodes(world_, node, host_.hostname);
  info.mapping = map_.ranks_by_node();
  info.cores_per_node = cores_per_node_;
}

void Session::read_mpi_copy_mechanism() {
  if (is_root()) run_info_.mpi_copy_mechanism = runtime::MpiSession::single_copy();
}

std::uint64_t Session::run_seed() const { return allreduce::hash_of(std::as_bytes(std::span(run_info_.run_id))); }

const std::string& Session::host_of(int rank) const {
  return run_info_.hosts.at(node_indices_->index_of(map_.node_of.at(static_cast<std::size_t>(rank))));
}

void Session::stop_if_interrupted(const runtime::Communicator& c) const {
  if (const double seen = c.max(watched_.signals().first_signal()); seen > 0)
    throw core::Interrupted(static_cast<int>(seen));
}

void Session::stop_between_points(const runtime::Communicator& c) const {
  const double seen = c.max(watched_.signals().pending_signal_or_warning());
  if (seen > 0) throw core::Interrupted(static_cast<int>(seen));
}

std::size_t units_of_job(const runtime::Communicator& node, const runtime::HostFacts& host) {
  const auto& mine = host.bound_units;
  const double end = node.max(mine.empty() ? 0.0 : static_cast<double>(1 + *std::ranges::max_element(mine)));
  std::vector<double> bound(static_cast<std::size_t>(end), 0);
  for (const std::size_t unit : mine) bound[unit] = 1;
  node.max(bound);
  auto units = static_cast<double>(std::ranges::count(bound, 1.0));
  if (!node.all(!mine.empty())) units = static_cast<double>(host.processing_units);
  // The quota is that of a control group, which the ranks of a node share, so it does not grow with their number.
  const double quota = node.max(host.cpu_quota.value_or(std::numeric_limits<double>::infinity()));
  return static_cast<std::size_t>(std::max(1.0, std::min(units, std::floor(quota))));
}

NodeMap find_nodes(const Session& s, const std::vector<int>& fake) {
  const auto& world = s.world();
  if (!fake.empty()) {
    if (fake.size() != static_cast<std::size_t>(world.size())) {
      throw core::UsageError(fmt::format("--fake-nodes names {} nodes for {} ranks; give one number for each rank",
                                         fake.size(), world.size()));
    }
    return {.node_of = fake, .fake = true, .ranks_as = world.ranks_as()};
  }
  return s.map();
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  const std::size_t n = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return std::string(text.data(), n);
}

namespace {

std::string new_run_id() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  const auto ns = static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
  return fmt::format("{:016x}", ns);
}

}  // namespace

core::RunInfo describe_process(const runtime::HostFacts& host, std::string command) {
  const auto cuda = runtime::read_cuda();
  core::RunInfo info;
  info.run_id = new_run_id();
  info.time = utc_now();
  command = core::printable(command);
  info.command = std::move(command);
  info.version = version();
  info.commit = commit();
  info.hosts = {host.hostname};
  info.mapping = std::string("0");
  info.mpi = runtime::MpiSession::library_version();
  info.mpi_threads = runtime::MpiSession::thread_level();
  info.cpu = core::printable(host.cpu_model);
  info.binding = host.binding;
  info.cores_per_node = static_cast<std::int64_t>(std::max<std::size_t>(1, host.available_units));
  info.memory_bytes_per_node = static_cast<std::int64_t>(host.memory_bytes);
  info.libraries = runtime::library_versions();
  info.libraries.merge(kernels::library_versions());
  info.libraries.merge(runtime::gpu_library_versions());
  for (const auto& [name, value] : runtime::recorded_environment())
    info.environment[core::printable(name)] = core::printable(value);
  for (const auto& g : cuda.gpus) info.gpus.push_back(core::printable(g.name));
  info.fingerprint = runtime::machine_fingerprint(host, info.mpi, runtime::accelerator_names(cuda));
  return info;
}

}  // namespace gradmeter::bench
