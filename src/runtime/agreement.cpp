#include "runtime/agreement.hpp"

#include <array>
#include <limits>

#include "runtime/mpi_collectives.hpp"

namespace gradmeter::runtime {

bool same_on_all(const Communicator& c, std::optional<std::uint64_t> mine) {
  constexpr auto none = std::numeric_limits<std::int64_t>::min();
  // ~x falls as x grows: the largest of both are one number's only where all are equal.
  std::array<std::int64_t, 2> most{none, none};
  if (mine) most = {static_cast<std::int64_t>(*mine), ~static_cast<std::int64_t>(*mine)};
  auto* bytes = reinterpret_cast<std::byte*>(most.data());
  mpi_all_reduce(c, {bytes, bytes, most.size()}, Reduction(core::Element::i64, Combine::max), nullptr);
  const bool nobody = most[0] == none && most[1] == none;
  return nobody || most[0] == ~most[1];
}

FirstReport first_report(const Communicator& c, const std::string& mine) {
  const bool says = !mine.empty();
  if (!c.any(says)) return {};
  FirstReport said{.text = {}, .rank = static_cast<int>(-c.max(says ? -c.rank() : -c.size())), .by_all = c.all(says)};
  said.text = c.broadcast_text(mine, said.rank);
  return said;
}

void collect(const Communicator& c, const std::string& mine, const std::function<void(const std::string&)>& take) {
  constexpr int tag = 0;
  if (c.rank() > 0) {  // not before it is asked for: early texts would lie in rank 0's memory all at once
    check_mpi(MPI_Recv(nullptr, 0, MPI_BYTE, 0, tag, c.get(), MPI_STATUS_IGNORE), "MPI_Recv");
    check_mpi(MPI_Send(mine.data(), mpi_count(mine.size()), MPI_BYTE, 0, tag, c.get()), "MPI_Send");
    return;
  }
  take(mine);
  for (int r = 1; r < c.size(); ++r) {
    MPI_Status status;
    int bytes = 0;
    check_mpi(MPI_Send(nullptr, 0, MPI_BYTE, r, tag, c.get()), "MPI_Send");
    check_mpi(MPI_Probe(r, tag, c.get(), &status), "MPI_Probe");
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    std::string text(static_cast<std::size_t>(bytes), '\0');
    check_mpi(MPI_Recv(text.data(), bytes, MPI_BYTE, r, tag, c.get(), MPI_STATUS_IGNORE), "MPI_Recv");
    take(text);
  }
}

}  // namespace gradmeter::runtime
