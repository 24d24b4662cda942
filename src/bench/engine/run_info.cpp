#include "bench/engine/run_info.hpp"

#include <time.h>  // clock_gettime

#include <algorithm>
#include <array>
#include <ctime>

#include "bench/engine/version.hpp"
#include "core/format.hpp"
#include "core/printable.hpp"
#include "kernels/library.hpp"
#include "runtime/communicator.hpp"
#include "runtime/host/cuda_adapter.hpp"
#include "runtime/host/environment.hpp"
#include "runtime/host/gpu_libraries.hpp"
#include "runtime/mpi/session.hpp"

namespace gradmeter::bench {

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
  core::RunInfo i;
  i.run_id = new_run_id();
  i.time = utc_now();
  command = core::printable(command);
  i.command = std::move(command);
  i.version = version();
  i.commit = commit();
  i.hosts = {host.hostname};
  i.mapping = std::string("0");
  i.mpi = runtime::MpiSession::library_version();
  i.mpi_threads = runtime::MpiSession::thread_level();
  i.cpu = core::printable(host.cpu_model);
  i.binding = host.binding;
  i.cores_per_node = static_cast<std::int64_t>(std::max<std::size_t>(1, host.available_units));
  i.memory_bytes_per_node = static_cast<std::int64_t>(host.memory_bytes);
  i.libraries = runtime::library_versions();
  i.libraries.merge(kernels::library_versions());
  i.libraries.merge(runtime::gpu_library_versions());
  for (const auto& [name, value] : runtime::named_environment())
    i.environment[core::printable(name)] = core::printable(value);
  for (const auto& g : cuda.gpus) i.gpus.push_back(core::printable(g.name));
  i.fingerprint = runtime::machine_fingerprint(host, i.mpi, runtime::accelerator_names(cuda));
  return i;
}

}  // namespace gradmeter::bench
