// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/session.hpp"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/mpi/collectives.hpp"
#include "runtime/mpi/mpi.hpp"
#include "runtime/threads/backoff.hpp"
#include "runtime/threads/thread_group.hpp"

#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

namespace gradmeter::runtime {
namespace {

/// MPI's own text for an error. While MPI does not run, the error's number, since a call of MPI would end the program.
/// The text ends with a null character.
std::array<char, MPI_MAX_ERROR_STRING + 1> text_of(int error) noexcept {
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  if (!MpiSession::running() || MPI_Error_string(error, text.data(), &length) != MPI_SUCCESS)
    std::snprintf(text.data(), text.size(), "error %d", error);
  return text;
}

}  // namespace

void check_mpi(int error, const char* call, std::source_location where) {
  if (error != MPI_SUCCESS) throw core::BackendError("MPI", call, text_of(error).data(), where);
}

void note_mpi_error(int error, const char* call) noexcept {
  if (error != MPI_SUCCESS) core::note_failed_release("MPI", call, text_of(error).data());
}

int mpi_count(std::size_t n) {
  if (n > INT_MAX) throw core::BackendError("MPI", "count", fmt::format("{} does not fit MPI's int", n));
  return static_cast<int>(n);
}

std::string mpi_refusal() {
  if (!thread_ranks_running()) return {};
  return "MPI's ranks are processes, and these are threads; use mpirun without --thread-ranks";
}

MpiSession::MpiSession(int& argc, char**& argv, MpiThreads threads) {
  allow_forced_algorithms();
  int provided = MPI_THREAD_SINGLE;
  const int wanted = threads == MpiThreads::serialized ? MPI_THREAD_SERIALIZED : MPI_THREAD_FUNNELED;
  check_mpi(MPI_Init_thread(&argc, &argv, wanted, &provided), "MPI_Init_thread");
  serialized_ = provided >= MPI_THREAD_SERIALIZED;
  MpiTurn::share(serialized_ && wanted == MPI_THREAD_SERIALIZED);
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

MpiSession::~MpiSession() { note_mpi_error(MPI_Finalize(), "MPI_Finalize"); }

Communicator MpiSession::world() {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
  return Communicator(make_mpi_member(copy));
}

int MpiSession::world_size() {
  int n = 0;
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &n), "MPI_Comm_size");
  return n;
}

void MpiSession::abort(int code) {
  (void)MPI_Abort(MPI_COMM_WORLD, code);  // this process ends whatever MPI_Abort returns
  std::_Exit(code);
}

bool MpiSession::running() {
  int started = 0, ended = 0;
  if (MPI_Initialized(&started) != MPI_SUCCESS || MPI_Finalized(&ended) != MPI_SUCCESS) return false;
  return started && !ended;
}

std::string MpiSession::thread_level() {
  if (!running()) return {};
  int level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  if (level == MPI_THREAD_SINGLE) return "single";
  if (level == MPI_THREAD_FUNNELED) return "funneled";
  return level == MPI_THREAD_SERIALIZED ? "serialized" : "multiple";
}

std::string MpiSession::library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check_mpi(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  std::string version(text.data(), static_cast<std::size_t>(length));
  std::string first_clause = version.substr(0, version.find_first_of(",\n"));
  if (first_clause.rfind("Open MPI v", 0) == 0) first_clause = "Open MPI " + first_clause.substr(10);
  return first_clause;
}

// Turns have tickets and not a mutex, which is not fair: a thread that polls takes turn after turn, and another thread
// could wait for the mutex for ever.
void MpiTurn::wait() const {
  Backoff backoff({.spins = 200, .yields = 0});
  while (serving_.load(std::memory_order_acquire) != ticket_) backoff.wait();
}

CudaAwareMpi cuda_aware_mpi() {
#if defined(OMPI_HAVE_MPI_EXT_CUDA) && defined(MPIX_CUDA_AWARE_SUPPORT)
  constexpr bool built = MPIX_CUDA_AWARE_SUPPORT;
  const bool aware = MpiSession::running() ? MPIX_Query_cuda_support() == 1 : built;
  return aware ? CudaAwareMpi::yes : CudaAwareMpi::no;
#elif defined(MPIX_GPU_SUPPORT_CUDA)
  if (!MpiSession::running()) return CudaAwareMpi::unknown;
  int aware = 0;
  check_mpi(MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &aware), "MPIX_GPU_query_support");
  return aware ? CudaAwareMpi::yes : CudaAwareMpi::no;
#else
  return CudaAwareMpi::unknown;
#endif
}

namespace {

constexpr const char* dynamic_rules_variable = "coll_tuned_use_dynamic_rules";
constexpr const char* algorithm_variable = "coll_tuned_allreduce_algorithm";
constexpr const char* segment_variable = "coll_tuned_allreduce_algorithm_segmentsize";

/// Opens MPI_T until the process ends. It is left open: opening it loads every component of Open MPI, and Open MPI
/// 4.1.4 crashes when it is opened again after its last user closed it.
void open_tools() {
  static const int provided = [] {
    int level = MPI_THREAD_SINGLE;
    check_mpi(MPI_T_init_thread(MPI_THREAD_SERIALIZED, &level), "MPI_T_init_thread");
    return level;
  }();
  (void)provided;
}

/// One control variable that holds a number. Errors: BackendError when there is none of this name or kind.
class ControlVariable {
 public:
  explicit ControlVariable(const char* name) : name_(name) {
    int index = 0;
    check_mpi(MPI_T_cvar_get_index(name, &index), name);
    check_type(index);
    int count = 0;
    check_mpi(MPI_T_cvar_handle_alloc(index, nullptr, &handle_, &count), name);
    if (count != 1) {
      (void)MPI_T_cvar_handle_free(&handle_);  // the error below is the one to report
      throw core::BackendError("MPI_T", name, fmt::format("it holds {} values and not one", count));
    }
  }
  ~ControlVariable() { note_mpi_error(MPI_T_cvar_handle_free(&handle_), "MPI_T_cvar_handle_free"); }
  ControlVariable(const ControlVariable&) = delete;
  ControlVariable& operator=(const ControlVariable&) = delete;

  static bool exists(const char* name) {
    int index = 0;
    return MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS;
  }
  int read() const {
    // MPI_T writes one byte for a flag and four for a number; bytes that it does not write stay 0.
    int value = 0;
    check_mpi(MPI_T_cvar_read(handle_, &value), name_);
    return value;
  }
  void write(int value) const { check_mpi(MPI_T_cvar_write(handle_, &value), name_); }
  /// The name of the variable's value; the value as a number if values have no names.
  std::string read_name() const {
    const int value = read();
    int count = 0, length = 256;
    std::array<char, 256> text{};
    if (values_ != MPI_T_ENUM_NULL) check_mpi(MPI_T_enum_get_info(values_, &count, text.data(), &length), name_);
    for (int i = 0; i < count; ++i) {
      int item_value = 0;
      length = 256;
      check_mpi(MPI_T_enum_get_item(values_, i, &item_value, text.data(), &length), name_);
      if (item_value == value) return text.data();
    }
    return fmt::format("{}", value);
  }

 private:
  void check_type(int index) {
    std::array<char, 256> name{}, description{};
    int name_length = 256, description_length = 256, verbosity = 0, bind = 0, scope = 0;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    check_mpi(MPI_T_cvar_get_info(index, name.data(), &name_length, &verbosity, &type, &values_, description.data(),
                                  &description_length, &bind, &scope),
              name_);
    if (type != MPI_INT && type != MPI_C_BOOL) throw core::BackendError("MPI_T", name_, "it holds no number");
  }

  const char* name_;
  MPI_T_enum values_ = MPI_T_ENUM_NULL;
  MPI_T_cvar_handle handle_ = MPI_T_CVAR_HANDLE_NULL;
};

/// Gives a control variable another value until the end of the scope.
class Overridden {
 public:
  Overridden(const char* name, int value) : variable_(name), before_(variable_.read()) { variable_.write(value); }
  ~Overridden() {
    try {
      variable_.write(before_);
    } catch (const core::BackendError&) {
      // Cannot happen, since the variable could be written before; a destructor could do nothing else.
    }
  }
  Overridden(const Overridden&) = delete;
  Overridden& operator=(const Overridden&) = delete;

 private:
  ControlVariable variable_;
  int before_;
};

/// A component of Open MPI that takes precedence over coll/tuned; null: none.
const char* component_before_tuned() {
  const int tuned = ControlVariable("coll_tuned_priority").read();
  constexpr std::array others{std::pair{"coll_han_priority", "han"}, std::pair{"coll_adapt_priority", "adapt"},
                              std::pair{"coll_hcoll_priority", "hcoll"}, std::pair{"coll_ucc_priority", "ucc"},
                              std::pair{"coll_sm_priority", "sm"}};
  for (const auto& [variable, component] : others) {
    if (ControlVariable::exists(variable) && ControlVariable(variable).read() > tuned) return component;
  }
  return nullptr;
}

bool is_open_mpi() { return MpiSession::library_version().starts_with("Open MPI"); }

}  // namespace

std::string MpiSession::single_copy() {
  if (!running() || !is_open_mpi()) return {};
  open_tools();
  // Open MPI 4 has vader, where Open MPI 5 has sm.
  for (const char* name : {"btl_vader_single_copy_mechanism", "btl_sm_single_copy_mechanism"})
    if (ControlVariable::exists(name)) return ControlVariable(name).read_name();
  return {};
}

void allow_forced_algorithms() {
  constexpr int overwrite = 0;  // the user's value stays
  if (is_open_mpi()) setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", overwrite);
}

std::string forced_all_reduce_refusal(ForcedAllReduce algorithm) {
  if (!is_open_mpi()) {
    return fmt::format("forced algorithms are Open MPI's, and this is {}; use mpi", MpiSession::library_version());
  }
  if (!MpiSession::running()) return {};
  open_tools();
  for (const char* name : {dynamic_rules_variable, algorithm_variable, segment_variable, "coll_tuned_priority"}) {
    if (!ControlVariable::exists(name)) {
      return fmt::format("this Open MPI has no variable {}, so no algorithm can be forced; use mpi", name);
    }
  }
  if (ControlVariable(dynamic_rules_variable).read() == 0) {
    return "Open MPI was told not to listen to forced algorithms; unset OMPI_MCA_coll_tuned_use_dynamic_rules";
  }
  if (const char* other = component_before_tuned()) {
    return fmt::format(
        "Open MPI's {} serves all-reduces before tuned, whose algorithms can be forced; use mpirun "
        "--mca coll ^{}",
        other, other);
  }
  const std::string count_variable = "coll_tuned_allreduce_algorithm_count";
  if (ControlVariable::exists(count_variable.c_str()) &&
      ControlVariable(count_variable.c_str()).read() <= static_cast<int>(algorithm)) {
    return fmt::format("this Open MPI has no all-reduce algorithm {}", static_cast<int>(algorithm));
  }
  return {};
}

Communicator duplicate_forced(const Communicator& c, ForcedAllReduce a, int segment_bytes) {
  if (const auto why = forced_all_reduce_refusal(a); !why.empty()) throw core::UsageError(why);
  if ((a == ForcedAllReduce::segmented_ring) != (segment_bytes > 0) || segment_bytes < 0) {
    throw core::UsageError(
        fmt::format("{} bytes are no segment for Open MPI's algorithm {}; the segmented ring needs at least 1, the "
                    "others 0",
                    segment_bytes, static_cast<int>(a)));
  }
  const Overridden algorithm(algorithm_variable, static_cast<int>(a)), segment(segment_variable, segment_bytes);
  return c.duplicate();
}

}  // namespace gradmeter::runtime
