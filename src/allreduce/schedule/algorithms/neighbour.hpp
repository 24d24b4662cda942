// Every rank sends its whole buffer to the next rank and gets the one of the rank before.
#pragma once
#include "allreduce/request.hpp"

namespace gradmeter::allreduce {

/// As a member of the registry: send-receive. A single rank keeps its buffer.
/// Cost:   1 round of one message by each rank; n sent by each.
/// Source: MPI_Sendrecv round a ring, as nccl-tests' sendrecv does it.
std::string neighbour_refusal(const Request&);
std::vector<SchedulePtr> make_neighbour(const Request&);
StatedCost neighbour_cost(const Request&);

}  // namespace gradmeter::allreduce
