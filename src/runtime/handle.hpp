// SPDX-License-Identifier: Apache-2.0
// An owner for every C handle: MPI_Comm, MPI_Win, CUDA streams and events, file descriptors, hwloc topologies. Also
// functions that write whole texts to file descriptors.
#pragma once
#include <concepts>
#include <source_location>
#include <string_view>
#include <utility>

namespace gradmeter::runtime {

/// The functions that `Handle` needs for a C handle. `null()` is a function because MPI's null handles are not
/// constants; `free` is never called with null and must not throw (it runs in destructors).
template <class Traits>
concept HandleTraits = requires(typename Traits::type value) {
  { Traits::null() } -> std::convertible_to<typename Traits::type>;
  { Traits::free(value) }
  noexcept;
  { value == value } -> std::convertible_to<bool>;
};

/// Owns one C handle and frees it once. Move only; empty after a move.
template <HandleTraits Traits>
class Handle {
 public:
  using type = typename Traits::type;

  Handle() : value_(Traits::null()) {}
  explicit Handle(type value) : value_(value) {}
  Handle(Handle&& other) noexcept : value_(other.release()) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { reset(); }

  type get() const noexcept { return value_; }
  explicit operator bool() const { return !(value_ == Traits::null()); }
  /// Returns the handle and stops owning it: the caller must free it.
  type release() noexcept { return std::exchange(value_, Traits::null()); }
  void reset() noexcept { reset(Traits::null()); }
  void reset(type value) noexcept {
    const type old = std::exchange(value_, value);
    if (!(old == Traits::null())) Traits::free(old);
  }
  /// The address at which a C call stores a new handle: `MPI_Comm_dup(world, comm.out_address())`. An owned handle is
  /// freed first.
  type* out_address() noexcept {
    reset();
    return &value_;
  }

 private:
  type value_;
};

struct DescriptorTraits {
  using type = int;
  static type null() noexcept { return -1; }
  static void free(type descriptor) noexcept;
};
using Descriptor = Handle<DescriptorTraits>;  ///< a file descriptor that closes itself

/// Owns the descriptor that a system call returned. Errors: BackendError with errno's text for a negative `result`.
Descriptor checked_descriptor(int result, const char* call,
                              std::source_location where = std::source_location::current());

/// Writes all of `text`, even if single writes are interrupted or shortened. False if the descriptor takes no more,
/// such as a closed pipe.
bool write_all(int descriptor, std::string_view text) noexcept;

/// Writes a line and its line end to standard error in one write, so that lines of several ranks do not mix.
void write_stderr_line(std::string_view line);

}  // namespace gradmeter::runtime
