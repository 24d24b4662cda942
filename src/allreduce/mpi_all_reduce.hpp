// The vendor's MPI_Allreduce as shipped: the baseline to beat.
#pragma once
#include "allreduce/all_reduce.hpp"
#include "runtime/mpi.hpp"

namespace gradmeter::allreduce {

/// `advance` blocks until the call is complete: as shipped means the blocking call, which most MPIs do better than the
/// non-blocking one. Average: the sum, then one pass that divides.
class MpiAllReduce final : public AllReduce {
 public:
  explicit MpiAllReduce(const runtime::Communicator& c) : communicator_(c.duplicate()) {}
  const std::string& name() const override { return name_; }
  void start(const Call& call) override;
  bool advance() override;

 private:
  std::string name_ = "mpi";
  runtime::Communicator communicator_;
  Call call_{};
  bool running_ = false;
};

}  // namespace gradmeter::allreduce
