// The one door for MPI: the session, communicators, checked calls, the vendor's own collectives.
#pragma once
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "core/element.hpp"
#include "runtime/handle.hpp"

namespace gradmeter::runtime {

/// Errors: BackendError with MPI's own text.
void check_mpi(int error, const char* call, std::source_location where = std::source_location::current());

/// Freeing is collective: while an exception is on its way out it is left undone, since the peers may be elsewhere.
/// The process is about to end then.
bool may_free() noexcept;

struct CommunicatorTraits {
  using type = MPI_Comm;
  static type null() noexcept { return MPI_COMM_NULL; }
  static void free(type c) noexcept {
    if (may_free()) MPI_Comm_free(&c);
  }
};
struct WindowTraits {
  using type = MPI_Win;
  static type null() noexcept { return MPI_WIN_NULL; }
  static void free(type w) noexcept {
    if (may_free()) MPI_Win_free(&w);
  }
};
using Window = Handle<WindowTraits>;

struct DatatypeTraits {
  using type = MPI_Datatype;
  static type null() noexcept { return MPI_DATATYPE_NULL; }
  static void free(type t) noexcept { MPI_Type_free(&t); }
};
struct OperationTraits {
  using type = MPI_Op;
  static type null() noexcept { return MPI_OP_NULL; }
  static void free(type o) noexcept { MPI_Op_free(&o); }
};

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
  static bool running();
  static int world_size();
  /// Ends all ranks, now, with this exit code.
  [[noreturn]] static void abort(int code);
  /// "Open MPI 4.1.4": the library's own name and version, shortened to its first clause. Needs no session.
  static std::string library_version();

 private:
  bool serialized_;
};

enum class Combine { sum, min, max, product };

/// inout[i] = in[i] ∘ inout[i] for n elements; must be commutative, and must not throw.
using Combiner = void (*)(const std::byte* in, std::byte* inout, std::size_t n);

/// What MPI must be told to reduce elements of one type by one operation.
class Reduction {
 public:
  /// MPI's own type and operator. NaN, and zeros of both signs, in its min and max are as its vendor made them: the
  /// result may depend on the order of operands. Errors: BackendError for 16-bit and 8-bit floats, which MPI lacks.
  Reduction(core::Element, Combine);
  /// Any element, as so many bytes that only `combiner` understands.
  template <Combiner combiner>
  static Reduction with(core::Element e) {
    return Reduction(e, [](void* in, void* inout, int* n, MPI_Datatype*) {
      combiner(static_cast<const std::byte*>(in), static_cast<std::byte*>(inout), static_cast<std::size_t>(*n));
    });
  }
  static bool is_native(core::Element e) { return !core::is_small_float(e); }

  MPI_Datatype type() const { return type_; }
  MPI_Op operation() const { return operation_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Reduction(core::Element, MPI_User_function*);
  Handle<DatatypeTraits> own_type_;
  Handle<OperationTraits> own_operation_;
  MPI_Datatype type_;
  MPI_Op operation_;
  std::size_t bytes_;
};

/// A group of ranks that talk to each other. Calls marked collective must be made by all of them.
class Communicator {
 public:
  static Communicator world();
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_null() const { return comm_.get() == MPI_COMM_NULL; }
  MPI_Comm get() const { return comm_.get(); }

  /// Collective. Ranks of one colour form a group; a negative colour gives a null communicator.
  Communicator split(int color, int key) const;
  /// Collective. The ranks that share memory with this one.
  Communicator split_by_node() const;
  /// Collective.
  Communicator duplicate() const;

  void barrier() const;
  /// Collective. For ranks with nothing to do while others measure: sleeps between tests, so that it costs no core.
  void sleeping_barrier() const;

  template <class T>
  requires std::is_trivially_copyable_v<T>
  void broadcast(std::span<T> values, int root = 0) const { broadcast_bytes(std::as_writable_bytes(values), root); }
  template <class T>
  T broadcast_value(T value, int root = 0) const {
    broadcast(std::span<T>(&value, 1), root);
    return value;
  }
  std::string broadcast_text(std::string text, int root = 0) const;
  /// Everybody's values, in rank order, on every rank.
  template <class T>
  requires std::is_trivially_copyable_v<T> std::vector<T> all_gather(std::span<const T> mine)
  const {
    std::vector<T> all(mine.size() * static_cast<std::size_t>(size_));
    all_gather_bytes(std::as_bytes(mine), std::as_writable_bytes(std::span<T>(all)));
    return all;
  }
  template <class T>
  std::vector<T> all_gather_value(const T& mine) const {
    return all_gather(std::span<const T>(&mine, 1));
  }
  std::vector<std::string> all_gather_text(const std::string& mine) const;
  /// Everybody's values, in rank order, on rank 0; elsewhere none.
  template <class T>
  requires std::is_trivially_copyable_v<T> std::vector<T> gather_value(const T& mine)
  const {
    std::vector<T> all(rank_ == 0 ? static_cast<std::size_t>(size_) : 0);
    gather_bytes(std::as_bytes(std::span<const T>(&mine, 1)), std::as_writable_bytes(std::span<T>(all)));
    return all;
  }
  double max(double value) const;
  /// In place, element by element. Collective.
  void max(std::span<double> values) const;
  double sum(double value) const;
  /// In place, element by element. Collective.
  void sum(std::span<double> values) const;
  bool any(bool mine) const { return max(mine ? 1.0 : 0.0) > 0; }
  bool all(bool mine) const { return !any(!mine); }

 private:
  explicit Communicator(MPI_Comm owned);
  void broadcast_bytes(std::span<std::byte> bytes, int root) const;
  void all_gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) const;
  void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) const;

  Handle<CommunicatorTraits> comm_;
  int rank_ = 0, size_ = 0;
};

/// Narrows a count for MPI 3's int arguments. Errors: BackendError when it does not fit.
int mpi_count(std::size_t n);

}  // namespace gradmeter::runtime
