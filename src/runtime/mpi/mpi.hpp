// SPDX-License-Identifier: Apache-2.0
// The adapter of MPI, included in this folder only: turns among threads that call MPI, checked calls, and owners of
// MPI's handles.
#pragma once
#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <source_location>

#include "runtime/communicator.hpp"
#include "runtime/handle.hpp"
#include "runtime/threads/backoff.hpp"

namespace gradmeter::runtime {

/// A thread's turn to call MPI. One thread at a time has a turn, in the order in which threads asked
/// (MPI_THREAD_SERIALIZED). If several threads of a session call MPI, each call is made within a turn; if only one
/// thread does, a turn does nothing. Turns do not nest. A call that waits for other ranks must not be made within a
/// turn, since those ranks may wait for another thread of this rank: `begin` starts such a call, and `finish` waits for
/// it between turns. Exceptions: the vendor's blocking collectives, which are measured unchanged, and, after a barrier,
/// calls that MPI has only in blocking form. Cost: one locked instruction if no other thread wants a turn.
class MpiTurn {
 public:
  MpiTurn() : taken_(is_shared()) {
    if (!taken_) return;
    ticket_ = next_.fetch_add(1, std::memory_order_relaxed);
    if (serving_.load(std::memory_order_acquire) != ticket_) wait();
  }
  ~MpiTurn() {
    if (taken_) serving_.store(ticket_ + 1, std::memory_order_release);
  }
  MpiTurn(const MpiTurn&) = delete;
  MpiTurn& operator=(const MpiTurn&) = delete;

  /// Must be called before a second thread calls MPI.
  static void share(bool by_several_threads) { shared_ = by_several_threads; }
  static bool is_shared() { return shared_.load(std::memory_order_relaxed); }

 private:
  void wait() const;

  // Static, since there is one MPI in a process.
  static inline std::atomic<bool> shared_{false};
  alignas(64) static inline std::atomic<std::uint32_t> next_{0};
  alignas(64) static inline std::atomic<std::uint32_t> serving_{0};
  bool taken_;
  std::uint32_t ticket_ = 0;
};

/// Throws if a call failed. Errors: BackendError with MPI's own text.
void check_mpi(int error, const char* call, std::source_location where = std::source_location::current());

/// Notes the error of a call whose caller, such as a destructor, cannot throw it.
void note_mpi_error(int error, const char* call) noexcept;

/// Starts a call by `start(MPI_Request*)`, which returns MPI's error code.
template <class Start>
MPI_Request begin(const char* call, Start start) {
  MPI_Request request = MPI_REQUEST_NULL;
  const MpiTurn turn;
  check_mpi(start(&request), call);
  return request;
}
/// Waits for a request. Each test takes a turn, and `wait()` is called between turns, so that other threads can call
/// MPI.
template <class Wait>
void finish(MPI_Request request, const char* call, Wait wait) {
  for (int done = 0;; wait()) {
    const MpiTurn turn;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), call);
    if (done) return;
  }
}
inline void finish(MPI_Request request, const char* call) {
  finish(request, call, [backoff = Backoff({.spins = 200, .yields = 0})]() mutable { backoff.wait(); });
}

struct CommunicatorTraits {
  using type = MPI_Comm;
  static type null() noexcept { return MPI_COMM_NULL; }
  static void free(type c) noexcept {
    if (!may_call_collectives()) return;
    const MpiTurn turn;
    note_mpi_error(MPI_Comm_free(&c), "MPI_Comm_free");
  }
};
struct WindowTraits {
  using type = MPI_Win;
  static type null() noexcept { return MPI_WIN_NULL; }
  static void free(type w) noexcept {
    if (!may_call_collectives()) return;
    const MpiTurn turn;
    note_mpi_error(MPI_Win_unlock_all(w), "MPI_Win_unlock_all");
    note_mpi_error(MPI_Win_free(&w), "MPI_Win_free");
  }
};
struct DatatypeTraits {
  using type = MPI_Datatype;
  static type null() noexcept { return MPI_DATATYPE_NULL; }
  static void free(type t) noexcept {
    const MpiTurn turn;
    note_mpi_error(MPI_Type_free(&t), "MPI_Type_free");
  }
};
struct OperationTraits {
  using type = MPI_Op;
  static type null() noexcept { return MPI_OP_NULL; }
  static void free(type o) noexcept {
    const MpiTurn turn;
    note_mpi_error(MPI_Op_free(&o), "MPI_Op_free");
  }
};

/// The MPI handle of a communicator. Errors: BackendError if its ranks are threads.
MPI_Comm mpi_handle(const Communicator&);

MPI_Op mpi_op(Combine);

/// Makes a GroupMember that owns the handle; null for MPI_COMM_NULL.
std::unique_ptr<GroupMember> make_mpi_member(MPI_Comm owned);

}  // namespace gradmeter::runtime
