#include "dataparallel/server/chunk_weights.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace gradmeter::dataparallel {

ChunkWeights::ChunkWeights(std::span<float> memory, std::span<const float> first, int workers, int nearest)
    : copies_{{{.memory = memory.first(first.size())}, {.memory = memory.last(first.size())}}},
      nearest_(nearest),
      newest_(copies_[0].memory),
      places_(static_cast<std::size_t>(workers)) {
  std::ranges::copy(first, copies_[0].memory.begin());
}

bool ChunkWeights::OwnCopy::unread() {
  std::erase_if(readers, [](const Ticket& t) { return t->done(); });
  return readers.empty();
}

/// Whatever is lent, one copy stays free for a step.
bool ChunkWeights::lends() {
  return copies_[1 - home_].unread() && (holder_ == server_itself || copies_[home_].unread());
}

/// One of the server's that nobody reads.
std::span<float> ChunkWeights::free_copy() {
  if (!copies_[home_].unread()) home_ = 1 - home_;
  if (!copies_[home_].unread()) throw std::logic_error("both copies of a chunk are being read");
  return copies_[home_].memory;
}

std::span<const float> ChunkWeights::to_lend(ExecutionContext& f) {
  if (holder_ == server_itself) return newest_;
  const std::span<float> to = free_copy();
  f.submit("server.copy", {0, 8.0 * double(to.size())}, [&] { std::ranges::copy(newest_, to.begin()); });
  holder_ = server_itself;
  return newest_ = to;
}

void ChunkWeights::forget(ExecutionContext& f, int worker) {
  if (holder_ == worker) to_lend(f);
  place(worker) = {};
}

void ChunkWeights::offer(int worker, std::span<float> memory) { place(worker) = {.memory = memory}; }

std::span<float> ChunkWeights::withdraw(int worker) {
  const WorkerPlace p = std::exchange(place(worker), {});
  return p.newest ? p.memory : std::span<float>{};
}

ChunkWeights::Step ChunkWeights::begin_step() {
  Step step{.from = newest_};
  for (int w = 0; w < static_cast<int>(places_.size()); ++w) {
    if (!place(w).is_due()) continue;
    step.copies.push_back(place(w).memory);
    if (w == nearest_) std::swap(step.copies.front(), step.copies.back());
  }
  if (step.copies.empty()) {
    step.to = free_copy();
  } else {
    step.to = step.copies.front();
    step.copies.erase(step.copies.begin());
  }
  return step;
}

void ChunkWeights::end_step(const Step& step) {
  newest_ = step.to;
  holder_ = server_itself;
  for (std::size_t w = 0; w < places_.size(); ++w) {
    WorkerPlace& p = places_[w];
    p.newest = p.is_due();
    p.joins = false;
    if (p.newest && p.memory.data() == newest_.data()) holder_ = static_cast<int>(w);
  }
}

}  // namespace gradmeter::dataparallel
