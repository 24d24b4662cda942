// The settings around this program that change its times. Never the whole environment: it holds secrets.
#pragma once
#include <map>
#include <string>
#include <string_view>

namespace gradmeter::runtime {

/// Is this variable one that results record? A fixed list of names, and the name spaces of Open MPI's tuning
/// parameters, NCCL and the like; never one that looks like a key, token or password, and none of those that mpirun
/// sets for its own use (addresses, session directories, the transport key).
bool is_recorded_variable(std::string_view name);

/// The recorded ones among "NAME=value" strings, by name. `block` ends with a null pointer; by default this process'.
std::map<std::string, std::string> named_environment(const char* const* block = nullptr);

/// hwloc, glibc and the compiler; MPI and CUDA state their own.
std::map<std::string, std::string> library_versions();

}  // namespace gradmeter::runtime
