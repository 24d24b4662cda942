// One owner for every C handle: MPI_Comm, MPI_Win, CUDA streams and events, file descriptors, hwloc topologies.
#pragma once
#include <concepts>
#include <utility>

namespace gradmeter::runtime {

/// What `Handle` must know of a C handle. `null()` is a function because MPI's null handles are not constants;
/// `free` is never called with null and must not throw (it runs in destructors).
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
  /// Gives the handle away: the caller frees it.
  type release() noexcept { return std::exchange(value_, Traits::null()); }
  void reset() noexcept { reset(Traits::null()); }
  void reset(type value) noexcept {
    const type old = std::exchange(value_, value);
    if (!(old == Traits::null())) Traits::free(old);
  }
  /// Where a C call stores a new handle: `MPI_Comm_dup(world, comm.receive())`. What was owned is freed first.
  type* receive() noexcept {
    reset();
    return &value_;
  }

 private:
  type value_;
};

}  // namespace gradmeter::runtime
