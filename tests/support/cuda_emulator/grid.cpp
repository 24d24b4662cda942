#include "support/cuda_emulator/grid.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "support/cuda_emulator/block.hpp"
#include "support/cuda_emulator/order.hpp"

namespace cuda_emulator {

const Place* place = nullptr;

namespace {

struct Grid {
  const Call& call;
  const GridShape& shape;
  std::vector<std::unique_ptr<Block>> blocks = {};  ///< that run at once
  std::deque<Thread*> runnable = {};
  std::vector<std::unique_ptr<Fiber>> fibers = {};
  std::vector<Fiber*> idle = {};
  std::size_t resident = 0, left = 0;  ///< threads
  Barrier barrier = {};
};

Grid* grid = nullptr;
Thread* current = nullptr;
std::uint64_t all_threads = 0;

void wait(const char* what, Site site) {
  Thread* const me = current;
  me->waits_at = what;
  me->line = site.line();
  me->fiber->leave();
  me->waits_at = nullptr;
}

void wake(Thread* t) { grid->runnable.push_back(t); }

void open(Barrier& b) {
  b.arrived = 0;
  for (Thread* t : b.waiting) wake(t);
  b.waiting.clear();
}

void arrive(Barrier& b, std::size_t expected, std::size_t left, const char* what, Site site) {
  if (left > 0) report("%s of line %u after %zu threads have left", what, site.line(), left);
  if (b.arrived > 0 && b.line != site.line()) {
    report("threads of one block are at barriers of lines %u and %u", b.line, site.line());
  }
  b.line = site.line();
  if (++b.arrived >= expected) return open(b);
  b.waiting.push_back(current);
  wait(what, site);
}

void open(const Warp& w, LaneMeeting& m) {
  const unsigned waiting = m.arrived & ~w.gone;
  m.arrived = 0;
  ++m.round;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((waiting >> lane & 1) != 0 && w.lanes[lane] != current) wake(w.lanes[lane]);
  }
}

/// Whoever waits for it would wait for ever.
void leave(Thread& t) {
  Block& b = *t.block;
  ++b.left;
  ++grid->left;
  t.warp->gone |= 1u << t.place.lane;
  if (b.barrier.arrived > 0) {
    report("a thread left while %zu wait at the barrier of line %u", b.barrier.arrived, b.barrier.line);
    if (b.barrier.arrived >= b.threads.size() - b.left) open(b.barrier);
  }
  for (LaneMeeting& m : t.warp->meetings) {
    if (m.arrived == 0 || (m.mask >> t.place.lane & 1) == 0) continue;
    report("lane %u left while others wait for it in %s of line %u", t.place.lane, m.operation, m.line);
    if (m.arrived == (m.mask & ~t.warp->gone)) open(*t.warp, m);
  }
}

LaneMeeting& meeting_of(Warp& w, unsigned mask) {
  const auto found = std::ranges::find(w.meetings, mask, &LaneMeeting::mask);
  return found != w.meetings.end() ? *found : w.meetings.emplace_back(LaneMeeting{.mask = mask});
}

Fiber& fiber_for(Thread& t) {
  if (t.fiber) return *t.fiber;
  if (grid->idle.empty()) grid->idle.push_back(grid->fibers.emplace_back(std::make_unique<Fiber>()).get());
  t.fiber = grid->idle.back();
  grid->idle.pop_back();
  t.fiber->begin([&t] {
    grid->call();
    leave(t);
  });
  return *t.fiber;
}

void report_hang() {
  for (const auto& b : grid->blocks) {
    for (const Thread& t : b->threads) {
      if (!t.waits_at) continue;
      return report("hang: %zu of %zu threads never go on; thread %u waits at %s of line %u",
                    grid->resident - grid->left, grid->resident, t.place.thread.x, t.waits_at, t.line);
    }
  }
}

/// Until all threads of the blocks have left, or none of them can go on.
void run_resident() {
  for (const auto& b : grid->blocks) {
    for (Thread& t : b->threads) grid->runnable.push_back(&t);
  }
  grid->resident = grid->runnable.size();
  grid->left = 0;
  while (!grid->runnable.empty()) {
    std::swap(grid->runnable[order.choose(grid->runnable.size())], grid->runnable.front());
    current = grid->runnable.front();
    grid->runnable.pop_front();
    place = &current->place;
    Fiber& f = fiber_for(*current);
    if (f.resume()) grid->idle.push_back(&f);
  }
  if (grid->left < grid->resident) report_hang();
  all_threads += grid->resident;
}

dim3 at(unsigned index, dim3 size) { return {index % size.x, index / size.x % size.y, index / size.x / size.y}; }
uint3 at_uint3(unsigned index, dim3 size) {
  const dim3 d = at(index, size);
  return {d.x, d.y, d.z};
}

}  // namespace

std::unique_ptr<Block> make_block(dim3 grid_size, dim3 size, unsigned index) {
  auto b = std::make_unique<Block>();
  const unsigned threads = size.x * size.y * size.z;
  b->threads.resize(threads);
  b->warps.resize((threads + 31) / 32);
  for (unsigned i = 0; i < threads; ++i) {
    Thread& t = b->threads[i];
    t.place = {.thread = at_uint3(i, size),
               .block = at_uint3(index, grid_size),
               .block_size = size,
               .grid_size = grid_size,
               .lane = i % 32};
    t.block = b.get();
    t.warp = &b->warps[i / 32];
    t.warp->lanes[t.place.lane] = &t;
  }
  if (threads % 32 != 0) b->warps.back().gone = ~0u << threads % 32;
  return b;
}

void block_barrier(Site site) {
  Block& b = *current->block;
  arrive(b.barrier, b.threads.size() - b.left, b.left, "__syncthreads", site);
}

void grid_barrier(Site site) { arrive(grid->barrier, grid->resident, 0, "grid barrier", site); }

void yield() {
  wake(current);
  wait("spin_pause", Site::current());
}

void* shared_memory(const void* key, std::size_t bytes) {
  auto& memory = current->block->shared[key];
  if (memory.empty()) {
    memory.resize(bytes + 1);  // one more: of no bytes there is none either
    for (std::byte& b : memory) b = order.is_random() ? static_cast<std::byte>(order.bits() | 1) : std::byte{0xff};
  }
  return memory.data();
}

void* dynamic_shared_memory() { return shared_memory(nullptr, grid->shape.shared_bytes); }

const std::uint64_t* exchange(unsigned mask, std::uint64_t value, const char* operation, Site site) {
  const unsigned lane = current->place.lane;
  Warp& w = *current->warp;
  if ((mask >> lane & 1) == 0) {
    report("%s of line %u: lane %u is not in its own mask %08x", operation, site.line(), lane, mask);
    mask |= 1u << lane;
  }
  if ((mask & w.gone) != 0) {
    report("%s of line %u: mask %08x has lanes that left or never were: %08x", operation, site.line(), mask,
           mask & w.gone);
  }
  LaneMeeting& m = meeting_of(w, mask);
  if (m.arrived > 0 && (m.operation != operation || m.line != site.line())) {
    report("lanes of one warp are in %s of line %u and %s of line %u", m.operation, m.line, operation, site.line());
  }
  m.operation = operation;
  m.line = site.line();
  auto& deposits = m.deposits[m.round % 2];
  deposits[lane] = value;
  m.arrived |= 1u << lane;
  if (m.arrived == (mask & ~w.gone)) {
    open(w, m);
  } else {
    wait(operation, site);
  }
  return deposits.data();
}

void run_grid(const Call& call, const GridShape& shape) {
  const unsigned count = shape.grid.x * shape.grid.y * shape.grid.z;
  std::vector<unsigned> indices(count);
  std::iota(indices.begin(), indices.end(), 0u);
  for (std::size_t i = count; i > 1 && order.is_random(); --i) std::swap(indices[i - 1], indices[order.below(i)]);
  Grid g{.call = call, .shape = shape};
  grid = &g;
  for (std::size_t done = 0; done < count;) {
    const std::size_t most = shape.cooperative ? count : 1 + order.choose(2), now = std::min(count - done, most);
    g.blocks.clear();
    for (std::size_t i = 0; i < now; ++i) g.blocks.push_back(make_block(shape.grid, shape.block, indices[done + i]));
    run_resident();
    done += now;
    if (g.left < g.resident) {
      for (auto& f : g.fibers) (void)f.release();  // NOLINT: what hangs has its stack for ever
      for (auto& b : g.blocks) (void)b.release();  // NOLINT: and its block
      break;
    }
  }
  grid = nullptr;
  current = nullptr;
  place = nullptr;
}

bool in_kernel() { return grid != nullptr; }
std::uint64_t threads_run() { return all_threads; }

}  // namespace cuda_emulator
