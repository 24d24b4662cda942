#include "runtime/mpi/tuning.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/mpi/mpi.hpp"
#include "runtime/mpi/session.hpp"

namespace gradmeter::runtime {
namespace {

constexpr const char* listens = "coll_tuned_use_dynamic_rules";
constexpr const char* algorithm_variable = "coll_tuned_allreduce_algorithm";
constexpr const char* segment_variable = "coll_tuned_allreduce_algorithm_segmentsize";

/// MPI_T, until the process ends. It is opened once and left open: opening it loads every component that Open MPI has,
/// and Open MPI 4.1.4 crashes when it is opened again after its last user closed it.
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
      (void)MPI_T_cvar_handle_free(&handle_);  // the error that follows is the one to tell
      throw core::BackendError("MPI_T", name, fmt::format("it holds {} values and not one", count));
    }
  }
  ~ControlVariable() { release_mpi(MPI_T_cvar_handle_free(&handle_), "MPI_T_cvar_handle_free"); }
  ControlVariable(const ControlVariable&) = delete;
  ControlVariable& operator=(const ControlVariable&) = delete;

  static bool exists(const char* name) {
    int index = 0;
    return MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS;
  }
  int read() const {
    // A flag is one byte, a number four: what is not written stays 0.
    int value = 0;
    check_mpi(MPI_T_cvar_read(handle_, &value), name_);
    return value;
  }
  void write(int value) const { check_mpi(MPI_T_cvar_write(handle_, &value), name_); }

 private:
  void check_type(int index) const {
    std::array<char, 256> name{}, description{};
    int name_length = 256, description_length = 256, verbosity = 0, bind = 0, scope = 0;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_T_enum values = MPI_T_ENUM_NULL;
    check_mpi(MPI_T_cvar_get_info(index, name.data(), &name_length, &verbosity, &type, &values, description.data(),
                                  &description_length, &bind, &scope),
              name_);
    if (type != MPI_INT && type != MPI_C_BOOL) throw core::BackendError("MPI_T", name_, "it holds no number");
  }

  const char* name_;
  MPI_T_cvar_handle handle_ = MPI_T_CVAR_HANDLE_NULL;
};

/// A control variable with another value until the end of the scope.
class Overridden {
 public:
  Overridden(const char* name, int value) : variable_(name), before_(variable_.read()) { variable_.write(value); }
  ~Overridden() {
    try {
      variable_.write(before_);
    } catch (const core::BackendError&) {
      // It could be written a moment ago; and there is nothing else to be done while the scope is left.
    }
  }
  Overridden(const Overridden&) = delete;
  Overridden& operator=(const Overridden&) = delete;

 private:
  ControlVariable variable_;
  int before_;
};

/// A component that serves communicators before coll/tuned does; null: none.
const char* before_tuned() {
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

void listen_to_forced_algorithms() {
  constexpr int keep_the_users = 0;
  if (is_open_mpi()) setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", keep_the_users);
}

std::string forced_all_reduce_refusal(ForcedAllReduce a) {
  if (!is_open_mpi()) {
    return fmt::format("forced algorithms are Open MPI's, and this is {}; use mpi", MpiSession::library_version());
  }
  if (!MpiSession::running()) return {};
  open_tools();
  for (const char* name : {listens, algorithm_variable, segment_variable, "coll_tuned_priority"}) {
    if (!ControlVariable::exists(name)) {
      return fmt::format("this Open MPI has no variable {}, so no algorithm can be forced; use mpi", name);
    }
  }
  if (ControlVariable(listens).read() == 0) {
    return "Open MPI was told not to listen to forced algorithms; unset OMPI_MCA_coll_tuned_use_dynamic_rules";
  }
  if (const char* other = before_tuned()) {
    return fmt::format(
        "Open MPI's {} serves all-reduces before tuned, whose algorithms can be forced; use mpirun "
        "--mca coll ^{}",
        other, other);
  }
  const std::string counter = "coll_tuned_allreduce_algorithm_count";
  if (ControlVariable::exists(counter.c_str()) && ControlVariable(counter.c_str()).read() <= static_cast<int>(a)) {
    return fmt::format("this Open MPI has no all-reduce algorithm {}", static_cast<int>(a));
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
