#include "allreduce/compressed/jobs.hpp"

#include <algorithm>

namespace gradmeter::allreduce {
namespace {

/// open: the index of the batch that is not full; none: the number of jobs or more.
void add_dense(const TensorPart& t, std::size_t most, std::size_t& open, std::vector<Job>& jobs) {
  for (std::size_t done = 0; done < t.count;) {
    if (open >= jobs.size() || jobs[open].elements == most) {
      open = jobs.size();
      jobs.push_back({});
    }
    Job& job = jobs[open];
    const std::size_t n = std::min(t.count - done, most - job.elements);
    job.parts.push_back({.offset = t.offset + done, .count = n});
    job.elements += n;
    done += n;
  }
}

/// open: as above.
void add_coded(const TensorPart& t, std::size_t most, std::size_t& open, std::vector<Job>& jobs) {
  if (open >= jobs.size() || jobs[open].parts.size() == most) {
    open = jobs.size();
    jobs.push_back({.coded = true});
  }
  jobs[open].parts.push_back(t);
  jobs[open].elements += t.count;
}

}  // namespace

std::vector<Job> cut_into_jobs(std::size_t count, std::span<const TensorPart> tensors, std::size_t most_dense,
                               std::size_t most_packed, const std::function<bool(const TensorPart&)>& is_encoded) {
  const TensorPart all{.offset = 0, .count = count};
  std::vector<Job> jobs;
  std::size_t open_batch = SIZE_MAX, open_pack = SIZE_MAX;
  for (const TensorPart& t : tensors.empty() ? std::span(&all, 1) : tensors) {
    if (t.count == 0) continue;
    if (is_encoded(t)) {
      add_coded(t, most_packed, open_pack, jobs);
    } else {
      add_dense(t, most_dense, open_batch, jobs);
    }
  }
  return jobs;
}

}  // namespace gradmeter::allreduce
