// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_emulator/grid.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "support/cuda_emulator/block.hpp"
#include "support/cuda_emulator/memory.hpp"
#include "support/cuda_emulator/order.hpp"
#include "support/cuda_emulator/sanitizers.hpp"
#include "support/cuda_emulator/schedule.hpp"

namespace cuda_emulator {

const Place* place = nullptr;

namespace {

struct Grid {
  const Call& call;
  const GridShape& shape;
  std::vector<std::unique_ptr<Block>> blocks = {};  ///< that run at once
  std::deque<Thread*> runnable = {};
  FiberPool& fibers;
  std::size_t resident = 0, left = 0;  ///< threads
  std::size_t pauses = 0;              ///< that threads made since the grid paused
  Barrier barrier = {};
  std::uint64_t began = 0, ended = 0;  ///< the thread sanitizer's
};

Grid* grid = nullptr;
Thread* current = nullptr;
std::uint64_t all_threads = 0;
std::uint64_t all_fences = 0;                           ///< the thread sanitizer's
auto& hung = *new std::vector<std::unique_ptr<Block>>;  ///< what hangs has its block and its stacks for ever

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
  ++b.round;
  for (Thread* t : b.waiting) wake(t);
  b.waiting.clear();
}

void arrive(Barrier& b, std::size_t expected, std::size_t left, const char* what, Site site) {
  if (left > 0) report("%s of line %u after %zu threads have left", what, site.line(), left);
  if (b.arrived > 0 && b.line != site.line()) {
    report("threads of one block are at barriers of lines %u and %u", b.line, site.line());
  }
  b.line = site.line();
  std::uint64_t* const passed = &b.passed[b.round % 2];
  release(passed);
  if (++b.arrived >= expected) {
    open(b);
  } else {
    b.waiting.push_back(current);
    wait(what, site);
  }
  acquire(passed);
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

void run_thread(Thread& t) {
  acquire(&grid->began);
  {
    const Watched watched;
    grid->call();
  }
  release(&grid->ended);
  leave(t);
}

Fiber& fiber_for(Thread& t) {
  if (t.fiber) return *t.fiber;
  t.fiber = grid->fibers.take(t.block->color);
  t.fiber->begin([&t] { run_thread(t); });
  return *t.fiber;
}

/// To the thread sanitizer a fiber is one thread until its block is over.
void give_back(Thread& t) { grid->fibers.give(std::exchange(t.fiber, nullptr), t.block->color); }

/// For others: what the threads wait for may be theirs.
void pause_grid() {
  Grid* const g = std::exchange(grid, nullptr);
  g->pauses = 0;
  place = nullptr;
  pause_work();
  grid = g;
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

template <class F>
void for_each_thread(Grid& g, F f) {
  for (const auto& b : g.blocks) std::ranges::for_each(b->threads, f);
}

/// To the thread sanitizer blocks of one colour have the same threads, so that it finds no races between them; more
/// colours than these cost a millisecond a thread.
std::size_t colors_of(const GridShape& shape) {
  constexpr std::size_t most_fibers = 512;
  if (!finds_races()) return 1;
  return std::max<std::size_t>(2, most_fibers / (std::size_t{shape.block.x} * shape.block.y * shape.block.z));
}

/// Takes one of those that can run: the first with seed 0, else any. runs_ahead: mostly what was woken last, so that a
/// warp goes as far as it can while others have not begun.
Thread* take_runnable(bool runs_ahead) {
  auto& all = grid->runnable;
  if (runs_ahead && order.below(16) > 0) {
    Thread* const last = all.back();
    all.pop_back();
    return last;
  }
  std::swap(all[order.choose(all.size())], all.front());
  Thread* const any = all.front();
  all.pop_front();
  return any;
}

/// Until all threads of the blocks have left, or none of them can go on.
void run_resident() {
  for_each_thread(*grid, [](Thread& t) { grid->runnable.push_back(&t); });
  grid->resident = grid->runnable.size();
  grid->left = 0;
  const bool runs_ahead = order.choose(2) == 1;
  while (!grid->runnable.empty()) {
    current = take_runnable(runs_ahead);
    place = &current->place;
    if (fiber_for(*current).resume() && !finds_races()) give_back(*current);
    // Early: others then see what some threads of this grid have written, and not what the rest will.
    const bool pauses_early = runs_ahead && grid->pauses > 0 && order.below(32) == 0;
    if (pauses_early || grid->pauses > 2 * grid->resident + 16) pause_grid();
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
  const Unwatched unwatched;
  Block& b = *current->block;
  arrive(b.barrier, b.threads.size() - b.left, b.left, "__syncthreads", site);
}

void grid_barrier(Site site) {
  const Unwatched unwatched;
  arrive(grid->barrier, grid->resident, 0, "grid barrier", site);
}

/// A total order of all of them: more than the device promises.
void fence() {
  acquire(&all_fences);
  release(&all_fences);
}

void yield() {
  const Unwatched unwatched;
  ++grid->pauses;
  wake(current);
  wait("spin_pause", Site::current());
}

/// An allocation of its own, so that the address sanitizer sees its ends.
void* shared_memory(const void* key, std::size_t bytes) {
  const Unwatched unwatched;
  auto& memory = current->block->shared[key];
  if (!memory) {
    memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
    fill_with_noise(memory.get(), bytes);
  }
  return memory.get();
}

void* dynamic_shared_memory() { return shared_memory(nullptr, grid->shape.shared_bytes); }

const std::uint64_t* exchange(unsigned mask, std::uint64_t value, const char* operation, Site site, bool orders) {
  const Unwatched unwatched;
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
  if (orders) release(&deposits);
  m.arrived |= 1u << lane;
  if (m.arrived == (mask & ~w.gone)) {
    open(w, m);
  } else {
    wait(operation, site);
  }
  if (orders) acquire(&deposits);
  return deposits.data();
}

void run_grid(const Call& call, const GridShape& shape) {
  const unsigned count = shape.grid.x * shape.grid.y * shape.grid.z;
  std::vector<unsigned> indices(count);
  std::iota(indices.begin(), indices.end(), 0u);
  for (std::size_t i = count; i > 1 && order.is_random(); --i) std::swap(indices[i - 1], indices[order.below(i)]);
  const auto g = std::make_unique<Grid>(Grid{.call = call, .shape = shape, .fibers = kernel_fibers()});
  grid = g.get();
  release(&g->began);
  const std::size_t colors = colors_of(shape);
  for (std::size_t done = 0; done < count;) {
    const std::size_t most = shape.cooperative ? count : 1 + order.choose(2), now = std::min(count - done, most);
    g->blocks.clear();
    for (std::size_t i = 0; i < now; ++i) {
      g->blocks.push_back(make_block(shape.grid, shape.block, indices[done + i]));
      g->blocks.back()->color = (done + i) % colors;
    }
    run_resident();
    done += now;
    if (g->left < g->resident) {
      std::ranges::move(g->blocks, std::back_inserter(hung));
      break;
    }
    for_each_thread(*g, [](Thread& t) {
      if (t.fiber) give_back(t);
    });
  }
  acquire(&g->ended);  // only here: blocks of a grid are not ordered
  grid = nullptr;
  current = nullptr;
  place = nullptr;
}

bool in_kernel() { return grid != nullptr; }
std::uint64_t threads_run() { return all_threads; }

}  // namespace cuda_emulator
