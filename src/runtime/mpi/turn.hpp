// Who may call MPI now: one thread at a time, in the order in which they asked (MPI_THREAD_SERIALIZED).
#pragma once

namespace gradmeter::runtime {

/// Held around every MPI call of a session that several threads call from; nothing where only one does. Not recursive.
/// A call that waits for other ranks must not be made in a turn, since those may wait for another thread of this rank:
/// `begin` and `finish` wait between turns. Exceptions are the vendor's blocking collectives, measured as they are.
/// Cost: two atomic operations where nobody else wants it.
class MpiTurn {
 public:
  MpiTurn();
  ~MpiTurn();
  MpiTurn(const MpiTurn&) = delete;
  MpiTurn& operator=(const MpiTurn&) = delete;

  /// Before a second thread calls MPI.
  static void share(bool by_several_threads);

 private:
  bool taken_;
};

}  // namespace gradmeter::runtime
