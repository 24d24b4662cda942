// SPDX-License-Identifier: Apache-2.0
#include "allreduce/selection/selection.hpp"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "allreduce/registry.hpp"
#include "allreduce/schedule/cost_model.hpp"
#include "allreduce/selection/shipped_tables.hpp"
#include "allreduce/selection/size_table.hpp"
#include "allreduce/selection/tuned_tables.hpp"
#include "allreduce/test_data.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/communicator.hpp"
#include "runtime/transport/network.hpp"

namespace gradmeter::allreduce {

SelectedCollective::SelectedCollective(std::shared_ptr<const SizeTable> table,
                                       std::vector<std::unique_ptr<Collective>> collectives)
    : table_(std::move(table)), collectives_(std::move(collectives)) {}

bool SelectedCollective::takes_device_memory() const {
  return std::ranges::all_of(collectives_, [](const auto& m) { return m->takes_device_memory(); });
}

bool SelectedCollective::holds_up_other_calls() const {
  return std::ranges::any_of(collectives_, [](const auto& m) { return m->holds_up_other_calls(); });
}

void SelectedCollective::start(const Call& call) {
  if (running_) throw core::BackendError("allreduce", name(), "started before the last call was complete");
  Collective& chosen = *collectives_.at(table_->choose(call.out.bytes()));
  chosen.start(call);
  current_ = &chosen;
  running_ = true;
  if (!chosen.sent() || !chosen.bytes_required()) bytes_counted_ = false;
}

bool SelectedCollective::advance() {
  if (!running_) return true;
  running_ = !current_->advance();
  return !running_;
}

Waiting SelectedCollective::waiting() const { return running_ ? current_->waiting() : Waiting{}; }

std::optional<runtime::Traffic> SelectedCollective::sent() const {
  if (!bytes_counted_) return std::nullopt;
  runtime::Traffic sum;
  for (const auto& c : collectives_) sum += c->sent().value_or(runtime::Traffic{});
  return sum;
}

std::optional<std::uint64_t> SelectedCollective::bytes_required() const {
  if (!bytes_counted_) return std::nullopt;
  std::uint64_t sum = 0;
  for (const auto& c : collectives_) sum += c->bytes_required().value_or(0);
  return sum;
}

namespace {

/// The tuned table for these calls; the shipped one if there is none.
SizeTable tuned_or_shipped_table(const Request& r, runtime::TransportKind transport, const ExchangeSpec& spec) {
  const TunedTable* tuned = r.tuned ? r.tuned->find({.shape = r.shape,
                                                     .transport = transport,
                                                     .collective_kind = r.collective_kind,
                                                     .private_buffers = spec.private_buffers,
                                                     .placement = spec.placement})
                                    : nullptr;
  return SizeTable(tuned ? tuned->table : shipped_table(r, transport, spec.private_buffers));
}

/// The table that the request gives, or the one predicted for its machine; null: it gives neither, and
/// `tuned_or_shipped_table` is used.
std::shared_ptr<const SizeTable> requested_table(const Request& r) {
  if (!r.machine) return r.table;
  return std::make_shared<SizeTable>(predicted_table(*r.machine, r));
}

std::string auto_refusal(const Request& r) {
  std::shared_ptr<const SizeTable> table;
  try {
    table = requested_table(r);
    if (!table) return shipped_table(r, runtime::TransportKind::mpi), "";
  } catch (const core::UsageError& e) {
    return e.what();
  }
  for (const auto& a : table->candidates()) {
    if (auto why = a->refusal(r.shape, r.collective_kind); !why.empty()) return why;
  }
  return {};
}

/// Compares the ranks' tables, since ranks on other nodes may have read another file of the same name.
void check_same_on_all(const SizeTable& table, const runtime::Communicator& c) {
  if (!runtime::same_on_all(c, hash_of(std::as_bytes(std::span(table.name()))))) {
    throw core::UsageError("the ranks have different tables of algorithms; give all of them the same file");
  }
}

/// The options for one candidate, whose longest buffer is the longest call for which the table chooses it.
ExchangeSpec spec_for(const SizeTable& table, std::size_t candidate, ExchangeSpec spec) {
  spec.max_bytes = static_cast<std::size_t>(std::min<std::uint64_t>(spec.max_bytes, table.longest(candidate)));
  return spec;
}

std::size_t arena_bytes(const SizeTable& table, const Request& r, std::uint32_t rank, const ExchangeSpec& spec) {
  std::size_t shared_scratch = 0, others = 0;
  for (std::size_t i = 0; i < table.candidates().size(); ++i) {
    const AlgorithmPtr& a = table.candidates()[i];
    const std::size_t bytes = a->arena_bytes(r.shape, rank, spec_for(table, i, spec), r.collective_kind);
    if (a->has_schedule()) {
      shared_scratch = std::max(shared_scratch, bytes);
    } else {
      others += bytes;
    }
  }
  return shared_scratch + others;
}

std::size_t auto_arena_bytes(const Request& r, std::uint32_t rank, const ExchangeSpec& spec) {
  if (const auto table = requested_table(r)) return arena_bytes(*table, r, rank, spec);
  std::size_t most = 0;
  using enum runtime::TransportKind;
  for (const auto transport : {shm, mpi, hybrid}) {
    // Over hybrid, private buffers are served by MPI alone, which takes nothing from the arena. Threads have no MPI.
    if (transport == hybrid && spec.private_buffers) continue;
    most = std::max(most, arena_bytes(tuned_or_shipped_table(r, transport, spec), r, rank, spec));
  }
  return most;
}

std::unique_ptr<Collective> bind_auto(const Request& r, const GroupConnection& connection, const ExchangeSpec& spec) {
  auto table = requested_table(r);
  if (!table) table = std::make_shared<SizeTable>(tuned_or_shipped_table(r, connection.network.transport(), spec));
  check_same_on_all(*table, connection.communicator);
  const auto candidates = table->candidates();
  std::vector<std::unique_ptr<Collective>> collectives(candidates.size());
  auto bind = [&](std::size_t i) {
    collectives[i] = candidates[i]->bind(connection, spec_for(*table, i, spec), r.collective_kind, r.root);
  };
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i]->has_schedule()) bind(i);
  }
  // Schedules keep nothing in their scratch between calls, so all of them are given the same memory.
  runtime::Arena& arena = connection.network.arena();
  const auto begin = arena.mark();
  auto end = begin;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i]->has_schedule()) continue;
    arena.rewind(begin);
    bind(i);
    end = std::max(end, arena.mark());
  }
  arena.rewind(end);
  return std::make_unique<SelectedCollective>(std::move(table), std::move(collectives));
}

}  // namespace

constinit const AlgorithmInfo auto_row{.name = "auto",
                                       .cost_text = "one of the others, by bytes; auto:table=FILE, auto:machine=FILE",
                                       .source = "a shipped, measured or given table",
                                       .backend = Backend::selection,
                                       .refusal = auto_refusal,
                                       .bind = bind_auto,
                                       .arena_bytes = auto_arena_bytes};

namespace {

constexpr std::size_t smallest_bytes = std::size_t{1} << 10, largest_bytes = std::size_t{64} << 20;
/// A prediction cuts buffers as transports inside a node do, but into at most `most_slices` slices, since its cost
/// grows with their number.
constexpr std::size_t usual_slice_bytes = std::size_t{256} << 10, most_slices = 16;

double predicted_s(const core::Machine& machine, const std::vector<SchedulePtr>& schedules, const Request& r,
                   std::size_t bytes) {
  const std::size_t element_bytes = core::size_of(r.arithmetic.element);
  const SliceCut cut = slice_cut_for(r.collective_kind);
  const std::size_t longest = message_bytes_for(schedules, bytes, std::max(usual_slice_bytes, bytes / most_slices));
  const Slices slices(cut, bytes / element_bytes, element_bytes, schedules.front()->blocks(), longest,
                      cut == SliceCut::share_of_each_block);
  return std::ranges::max(hockney_finish_times(schedules, slices, element_bytes,
                                               std::vector<double>(schedules.front()->ranks(), 0.0), machine));
}

}  // namespace

std::string predicted_table(const core::Machine& machine, const Request& r) {
  std::vector<MeasuredSize> times;
  for (const AlgorithmInfo& row : algorithms()) {
    if (row.backend != Backend::schedule) continue;
    const AlgorithmPtr a = find_algorithm(row.name);
    if (!a->refusal(r.shape, r.collective_kind, r.arithmetic).empty()) continue;
    const auto schedules = a->make(r.shape, r.collective_kind, r.root);
    for (std::size_t bytes = smallest_bytes; bytes <= largest_bytes; bytes *= 2)
      times.push_back({bytes, a->name, predicted_s(machine, schedules, r, bytes)});
  }
  return fit_table(times);
}

core::Machine read_machine_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in)
    throw core::UsageError(fmt::format("{}: the machine's description cannot be read; check its path", path.string()));
  return core::machine_from_json(text.str(), path.string());
}

}  // namespace gradmeter::allreduce
