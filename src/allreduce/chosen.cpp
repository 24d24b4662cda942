#include "allreduce/chosen.hpp"

#include <algorithm>

#include "allreduce/known_data.hpp"
#include "allreduce/predicted_table.hpp"
#include "allreduce/shipped_table.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/agreement.hpp"

namespace gradmeter::allreduce {

ChosenCollective::ChosenCollective(std::shared_ptr<const Chooser> chooser,
                                   std::vector<std::unique_ptr<Collective>> members)
    : chooser_(std::move(chooser)), members_(std::move(members)) {}

bool ChosenCollective::takes_device_memory() const {
  return std::ranges::all_of(members_, [](const auto& m) { return m->takes_device_memory(); });
}

void ChosenCollective::start(const Call& call) {
  if (running_) throw core::BackendError("allreduce", name(), "started before the last call was complete");
  Collective& member = *members_.at(chooser_->choose(call.out.bytes()));
  member.start(call);
  current_ = &member;
  running_ = true;
  if (!member.sent() || !member.bytes_due()) counted_ = false;
}

bool ChosenCollective::advance() {
  if (!running_) return true;
  running_ = !current_->advance();
  return !running_;
}

Waiting ChosenCollective::waiting() const { return running_ ? current_->waiting() : Waiting{}; }

std::optional<runtime::Traffic> ChosenCollective::sent() const {
  if (!counted_) return std::nullopt;
  runtime::Traffic sum;
  for (const auto& m : members_) {
    const auto one = m->sent().value_or(runtime::Traffic{});
    sum.bytes += one.bytes;
    sum.messages += one.messages;
    sum.bytes_between_nodes += one.bytes_between_nodes;
  }
  return sum;
}

std::optional<std::uint64_t> ChosenCollective::bytes_due() const {
  if (!counted_) return std::nullopt;
  std::uint64_t sum = 0;
  for (const auto& m : members_) sum += m->bytes_due().value_or(0);
  return sum;
}

namespace {

/// Null: as shipped.
std::shared_ptr<const Chooser> chooser_of(const Request& r) {
  if (!r.machine) return r.chooser;
  return std::make_shared<TableChooser>(predicted_table(*r.machine, r));
}

}  // namespace

std::string auto_refusal(const Request& r) {
  std::shared_ptr<const Chooser> chooser;
  try {
    chooser = chooser_of(r);
    if (!chooser) return shipped_table(r, runtime::TransportKind::mpi), "";
  } catch (const core::UsageError& e) {
    return e.what();
  }
  for (const auto& a : chooser->candidates()) {
    if (auto why = a->refusal(r.shape, r.collective_kind); !why.empty()) return why;
  }
  return {};
}

namespace {

/// Ranks on other nodes may have read another file of the same name.
void check_same_on_all(const Chooser& chooser, const runtime::Communicator& c) {
  if (!runtime::same_on_all(c, hash_of(std::as_bytes(std::span(chooser.name()))))) {
    throw core::UsageError("the ranks have different tables of algorithms; give all of them the same file");
  }
}

/// A candidate's longest buffer is the longest call that the chooser can choose it for.
ExecutorOptions options_for(const Chooser& chooser, std::size_t candidate, ExecutorOptions o) {
  o.max_bytes = static_cast<std::size_t>(std::min<std::uint64_t>(o.max_bytes, chooser.longest(candidate)));
  return o;
}

std::size_t arena_bytes(const Chooser& chooser, const Request& r, std::uint32_t rank, const ExecutorOptions& options) {
  std::size_t shared = 0, others = 0;
  for (std::size_t i = 0; i < chooser.candidates().size(); ++i) {
    const AlgorithmPtr& a = chooser.candidates()[i];
    const std::size_t bytes = a->arena_bytes(r.shape, rank, options_for(chooser, i, options), r.collective_kind);
    if (a->has_schedule()) {
      shared = std::max(shared, bytes);
    } else {
      others += bytes;
    }
  }
  return shared + others;
}

}  // namespace

std::size_t auto_arena_bytes(const Request& r, std::uint32_t rank, const ExecutorOptions& options) {
  if (const auto chooser = chooser_of(r)) return arena_bytes(*chooser, r, rank, options);
  std::size_t most = 0;
  for (const ShippedTable& t : shipped_tables()) {
    most = std::max(most, arena_bytes(TableChooser(shipped_table(r, t.transport)), r, rank, options));
  }
  return most;
}

std::unique_ptr<Collective> bind_auto(const Request& r, const Site& site, const ExecutorOptions& options) {
  auto chooser = chooser_of(r);
  if (!chooser) chooser = std::make_shared<TableChooser>(shipped_table(r, site.network.transport()));
  check_same_on_all(*chooser, site.communicator);
  const auto candidates = chooser->candidates();
  std::vector<std::unique_ptr<Collective>> members(candidates.size());
  auto bind = [&](std::size_t i) {
    members[i] = candidates[i]->bind(site, options_for(*chooser, i, options), r.collective_kind, r.root);
  };
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i]->has_schedule()) bind(i);
  }
  // Schedules keep nothing in their scratch between calls, so all of them are given the same memory.
  runtime::Arena& arena = site.network.arena();
  const auto begin = arena.mark();
  auto end = begin;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i]->has_schedule()) continue;
    arena.rewind(begin);
    bind(i);
    end = std::max(end, arena.mark());
  }
  arena.rewind(end);
  return std::make_unique<ChosenCollective>(std::move(chooser), std::move(members));
}

}  // namespace gradmeter::allreduce
