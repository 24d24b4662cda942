// MPI's beginning and end, and its world. No MPI header is needed to include this.
#pragma once
#include <string>

#include "runtime/communicator.hpp"
#include "runtime/mpi/session.hpp"

namespace gradmeter::runtime {

/// Who may call MPI. serialized: one thread at a time, and a progress thread may be that one. funneled: the main thread
/// alone, beside threads that do not call it. With Open MPI 4.1 an 8-byte all-reduce of 0.61 us takes 0.65 serialized
/// (and 0.53 in a program without any other thread).
enum class MpiThreads { funneled, serialized };

/// MPI from here to the end of the scope.
class MpiSession {
 public:
  MpiSession(int& argc, char**& argv, MpiThreads threads = MpiThreads::serialized);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  bool serialized() const { return serialized_; }
  /// A duplicate of MPI's world. Collective.
  static Communicator world();
  static bool running();
  /// What the library grants: "funneled", "serialized" (it counts in the time of small calls); empty while none runs.
  static std::string thread_level();
  static int world_size();
  /// Ends all ranks, now, with this exit code.
  [[noreturn]] static void abort(int code);
  /// "Open MPI 4.1.4": the library's own name and version, shortened to its first clause. Needs no session.
  static std::string library_version();

 private:
  bool serialized_;
};

/// Why no MPI collective can be called in this process, with what to do; empty: it can be, once a session runs.
std::string mpi_refusal();

}  // namespace gradmeter::runtime
