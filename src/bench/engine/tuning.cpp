// SPDX-License-Identifier: Apache-2.0
#include "bench/engine/tuning.hpp"

#include <unistd.h>  // getpid

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <system_error>
#include <utility>

#include "allreduce/collective.hpp"
#include "allreduce/schedule/algorithms.hpp"
#include "allreduce/selection/shipped_tables.hpp"
#include "allreduce/test_data.hpp"
#include "bench/engine/flags.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "core/statistics.hpp"
#include "report/cells.hpp"
#include "runtime/clock.hpp"
#include "runtime/threads/backoff.hpp"
#include "runtime/transport/network.hpp"
#include "runtime/transport/shared_memory_transport.hpp"

namespace gradmeter::bench {
namespace {

using allreduce::AlgorithmPtr;
using allreduce::TunedTable;
using allreduce::TunedTables;
using core::UsageError;
using runtime::host_clock;

core::Seconds read_tune(const Flags& f) {
  const auto time = parse_time("--tune-auto", f.text("tune-auto"));
  if (!(time.value >= 0.1 && time.value <= 86400))
    throw UsageError(
        fmt::format("--tune-auto {}: too short or too long to measure; give 0.1s to 24h", f.text("tune-auto")));
  return time;
}

// Tables are kept in files of the user's cache.

/// The folder for kept tables; empty: there is none.
std::filesystem::path cache_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::filesystem::path(value ? value : "");
  };
  // A relative folder must be ignored. Source: XDG Base Directory Specification.
  if (const auto cache = variable("XDG_CACHE_HOME"); cache.is_absolute()) return cache / "gradmeter";
  const auto home = variable("HOME");
  return home.is_absolute() ? home / ".cache" / "gradmeter" : std::filesystem::path();
}

/// Names the machine, the settings, the ranks and the transport that a table is made for. Tables with equal text are
/// kept in one file.
std::string made_for(const core::RunInfo& run, const WantedTable& w) {
  std::string settings = run.mpi_copy_mechanism.empty() ? "" : "; single copy " + run.mpi_copy_mechanism;
  for (const auto& [name, value] : run.environment)
    if (!name.starts_with("SLURM_")) settings += fmt::format("; {}={}", name, value);
  return fmt::format("gradmeter {}, format {}; {}; {} cores a node, {}; {}; {} ranks as {}, {} a node on {}{}; {}{}",
                     run.version, allreduce::tuned_tables_format, run.cpu, run.cores_per_node, run.binding, run.mpi,
                     w.map.ranks(), name(w.map.ranks_as), w.map.ranks_per_node(),
                     report::counted(w.map.nodes(), "node"), w.map.fake ? ", " + w.map.mapping() : "",
                     runtime::name(w.use.transport), settings);
}

std::filesystem::path file_for(const std::string& made_for, const WantedTable& w) {
  auto folder = cache_folder();
  if (folder.empty()) return folder;
  return folder / fmt::format("auto-{}x{}-{}-{:016x}.json", w.map.ranks(), w.map.ranks_per_node(),
                              runtime::name(w.use.transport), allreduce::hash_of(std::as_bytes(std::span(made_for))));
}

/// The file's text; empty where there is no file.
std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The text of the file of kept tables; empty: there is none. A file that cannot be used counts as none, after a
/// warning. Rank 0 only.
std::string kept_text(const std::filesystem::path& path, const std::string& made_for) {
  std::string text = path.empty() ? "" : text_of(path);
  if (text.empty()) return text;
  try {
    // The file's name is only a hash of `made_for`, and users may copy files.
    if (allreduce::read_tuned_tables(text).made_for != made_for)
      throw UsageError("it is of another machine or setting");
  } catch (const UsageError& e) {
    core::print(stderr,
                "gradmeter: warning: the kept table {} is not used: {}; --tune-auto measures again and replaces it\n",
                path.string(), e.what());
    text.clear();
  }
  return text;
}

/// Writes a file such that other runs see either all of it or the file before. Returns the reason of a failure; empty:
/// it was written.
std::string write_whole(const std::filesystem::path& path, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) return fmt::format("{}: {}", path.parent_path().string(), error.message());
  const std::filesystem::path temporary = fmt::format("{}.{}", path.string(), getpid());
  std::ofstream out(temporary, std::ios::binary);
  out << text;
  out.close();
  if (!out) error = std::make_error_code(std::errc::io_error);
  if (!error) std::filesystem::rename(temporary, path, error);
  if (!error) return {};
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  return fmt::format("{}: {}", path.string(), error.message());
}

/// Writes the tables to the user's cache; warns if that fails.
void keep(const std::filesystem::path& path, const TunedTables& tables) {
  const std::string why =
      path.empty() ? "neither XDG_CACHE_HOME nor HOME names a folder" : write_whole(path, allreduce::to_text(tables));
  if (!why.empty())
    core::print(stderr,
                "gradmeter: warning: this run uses its tuned tables, but the next one will measure again, since they "
                "cannot be kept: {}; let XDG_CACHE_HOME name a folder that can be written\n",
                why);
}

// Measuring.

/// Measures the algorithms for one table, on its ranks.
class TableTuner {
 public:
  TableTuner(Session& s, const runtime::Communicator& c, const WantedTable& w)
      : session_(s),
        c_(c),
        wanted_(w),
        backoff_(runtime::spin_policy_for(s.ranks_per_node(c.size()), s.cores_per_node())) {}

  /// Takes about `seconds`. missed: gets the sizes at which the time was too short to compare algorithms, or at which
  /// memory was too small.
  TunedTable measure(double seconds, std::vector<std::uint64_t>& missed) {
    const double until = now() + seconds;
    const std::string shipped =
        allreduce::shipped_table({.shape = wanted_.use.shape, .collective_kind = wanted_.use.collective_kind},
                                 wanted_.use.transport, wanted_.use.private_buffers);
    auto sizes = allreduce::sizes_to_tune(wanted_.least_bytes, wanted_.most_bytes);
    find_candidates();
    while (!sizes.empty() && !fits(bytes_at(sizes.back()))) {
      missed.push_back(sizes.back());
      sizes.pop_back();
    }
    std::map<std::uint64_t, std::string> choices;
    if (!sizes.empty()) {
      bind(bytes_at(sizes.back()));
      const allreduce::SizeTable table(shipped);
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        const std::string& shipped_choice = table.candidates()[table.choose(sizes[i])]->name;
        // Small sizes take less than their share of the time; larger ones get the rest.
        const double begin = now(), share = std::max(0.0, until - begin) / static_cast<double>(sizes.size() - i);
        const auto times = measure_size(bytes_at(sizes[i]), shipped_choice, begin + share, until);
        if (!times) {
          missed.push_back(sizes[i]);
          continue;
        }
        if (const auto chosen = allreduce::faster_choice(*times, shipped_choice); chosen != shipped_choice)
          choices[sizes[i]] = chosen;
        session_.stop_if_interrupted(c_);
      }
    }
    return {.use = wanted_.use, .table = allreduce::tuned_table(shipped, choices)};
  }

 private:
  struct Candidate {
    AlgorithmPtr algorithm;
    std::unique_ptr<allreduce::Collective> bound;
  };
  /// most_in_turn: number of candidates that take turns. first_bytes: size of the call that tries a binding.
  static constexpr std::size_t most_rounds = 51, most_in_turn = 8, first_bytes = 256;
  /// A candidate is left out if its time is more than this many times the fastest one's: `hopeless` for its first
  /// sample, `slow` for its median after half of the fewest rounds.
  static constexpr double hopeless = 3, slow = 1.25;

  /// The latest of the ranks' clocks [s]: all ranks get the same time, since they must agree on when to end.
  double now() const { return c_.max(host_clock()); }

  /// The length of the calls that are measured for a size: a multiple of one float for each rank, and not longer than
  /// the calls that the table serves.
  std::size_t bytes_at(std::uint64_t size) const {
    const std::size_t unit = sizeof(float) * static_cast<std::size_t>(c_.size());
    const std::size_t bytes = std::min<std::size_t>(size, std::max(wanted_.most_bytes, unit));
    return std::max(unit, bytes / unit * unit);
  }

  void find_candidates() {
    for (const auto& row : allreduce::algorithms()) {
      if (row.backend == allreduce::Backend::selection) continue;
      auto a = allreduce::find_algorithm(row.name);
      if (allreduce::can_serve(*a, wanted_.use)) candidates_.push_back({.algorithm = std::move(a), .bound = nullptr});
    }
  }

  std::size_t buffer_bytes(std::size_t bytes) const {
    const std::size_t buffer_bytes = bytes + runtime::page_bytes;
    return wanted_.use.placement == allreduce::Placement::in_place ? buffer_bytes : 2 * buffer_bytes;
  }

  allreduce::ExchangeSpec spec(std::size_t bytes) const {
    return {.placement = wanted_.use.placement, .max_bytes = bytes, .private_buffers = wanted_.use.private_buffers};
  }

  /// The bytes of the network's arena. Candidates with schedules use the same scratch, as they do under `auto`; each
  /// other candidate has its own.
  std::size_t arena_bytes(std::size_t bytes) const {
    std::size_t shared = 0, sum = wanted_.use.private_buffers ? 0 : buffer_bytes(bytes);
    for (const Candidate& candidate : candidates_) {
      const auto own = runtime::page_bytes + candidate.algorithm->arena_bytes(wanted_.use.shape,
                                                                              static_cast<std::uint32_t>(c_.rank()),
                                                                              spec(bytes), wanted_.use.collective_kind);
      if (candidate.algorithm->has_schedule()) {
        shared = std::max(shared, own);
      } else {
        sum += own;
      }
    }
    return sum + shared;
  }

  bool fits(std::size_t bytes) const {
    const auto per_node = static_cast<std::size_t>(session_.ranks_per_node(c_.size()));
    const auto arena = static_cast<std::size_t>(c_.max(static_cast<double>(arena_bytes(bytes))));
    const std::size_t cell_bytes =
        runtime::shared_memory_cell_count(static_cast<int>(per_node), allreduce::most_lanes(c_.size())) *
        sizeof(runtime::SharedMemoryCell);
    const bool shares_memory = wanted_.use.transport != runtime::TransportKind::mpi;
    const std::size_t node_bytes =
        per_node * (arena + (wanted_.use.private_buffers ? buffer_bytes(bytes) : 0)) + cell_bytes;
    return node_bytes <= session_.free_memory_per_node() &&
           (!shares_memory || runtime::shm_for(per_node * arena + cell_bytes) <= session_.free_shm_per_node());
  }

  /// Binds all candidates for calls of up to `bytes` bytes, and drops those that cannot be bound on some rank.
  void bind(std::size_t bytes) {
    network_.emplace(
        c_, runtime::NetworkOptions{.transport = wanted_.use.transport,
                                    .memory_bytes = arena_bytes(bytes),
                                    .fake_nodes = wanted_.map.fake ? wanted_.map.node_of : std::vector<int>{}});
    transport_ = network_->connect(c_, allreduce::most_lanes(c_.size()));
    runtime::Arena& arena = network_->arena();
    if (wanted_.use.private_buffers) private_arena_.emplace(buffer_bytes(bytes), wanted_.pages);
    runtime::Arena& buffer_arena = private_arena_ ? static_cast<runtime::Arena&>(*private_arena_) : arena;
    in_ = buffer_arena.take(bytes);
    out_ = wanted_.use.placement == allreduce::Placement::in_place ? in_ : buffer_arena.take(bytes);
    // Sums of zeros stay zeros, however often they are made. Writing the zeros also touches the pages before calls do.
    for (const auto memory : {in_, out_}) std::memset(memory.data(), 0, memory.size());
    const auto bind_one = [&](Candidate& candidate) {
      std::string refusal;
      try {
        candidate.bound =
            candidate.algorithm->bind({c_, *network_, *transport_}, spec(bytes), wanted_.use.collective_kind);
        // Some algorithms refuse their buffers only when they are called.
        c_.barrier();
        call(*candidate.bound, bytes_at(first_bytes));
      } catch (const core::Unavailable& e) {
        refusal = e.what();
      } catch (const core::BackendError& e) {
        refusal = e.what();
      }
      if (!runtime::first_report(c_, refusal).text.empty()) candidate.bound.reset();
    };
    for (Candidate& candidate : candidates_)
      if (!candidate.algorithm->has_schedule()) bind_one(candidate);
    const auto begin = arena.mark();
    for (Candidate& candidate : candidates_) {
      if (!candidate.algorithm->has_schedule()) continue;
      arena.rewind(begin);
      bind_one(candidate);
    }
    std::erase_if(candidates_, [](const Candidate& candidate) { return !candidate.bound; });
  }

  /// Makes one call and returns its time on this rank [s].
  double call(allreduce::Collective& collective, std::size_t bytes) {
    const auto typed = [bytes](std::span<std::byte> memory) {
      return runtime::Buffer(core::Element::f32, memory.first(bytes));
    };
    const allreduce::Call call{.in = typed(in_), .out = typed(out_)};
    session_.activity().waiting({.operation = "tuning"});
    const double begin = host_clock();
    collective.start(call);
    while (!collective.advance()) backoff_.wait();
    const double time = host_clock() - begin;
    backoff_.reset();
    session_.activity().wait_ended();
    return time;
  }

  /// The median time of `calls` calls [s], each made after a barrier and timed on the slowest rank; the same on all
  /// ranks.
  double sample(Candidate& candidate, std::size_t bytes, std::size_t calls) {
    std::vector<double> times(calls);
    for (double& t : times) {
      c_.barrier();
      t = call(*candidate.bound, bytes);
    }
    c_.max(times);
    return core::median(times);
  }

  /// Measures the candidates that have a chance, in rounds in which they take turns: until the time `share_end`, or
  /// longer until there are enough rounds for an interval, but not beyond the time `until`. Empty if there were too few
  /// rounds.
  std::optional<allreduce::RoundTimes> measure_size(std::size_t bytes, const std::string& shipped_choice,
                                                    double share_end, double until) {
    std::vector<std::pair<double, Candidate*>> order;
    for (Candidate& candidate : candidates_) {
      constexpr std::size_t short_bytes = std::size_t{1} << 20;
      if (now() >= until) return std::nullopt;
      if (bytes <= short_bytes)
        sample(candidate, bytes, 1);  // the first call of a size touches memory for the later ones
      order.emplace_back(sample(candidate, bytes, bytes <= short_bytes ? 3 : 1), &candidate);
    }
    std::ranges::sort(order, {}, [](const auto& o) { return o.first; });
    if (order.empty()) return std::nullopt;
    const double best = order.front().first;
    std::vector<Candidate*> turns;
    for (const auto& [time, candidate] : order) {
      const bool has_chance = time <= hopeless * best && turns.size() < most_in_turn;
      if (has_chance || candidate->algorithm->name == shipped_choice) turns.push_back(candidate);
    }
    // Short calls are made several times in a round, so that no single interruption decides the round.
    const auto calls = static_cast<std::size_t>(std::clamp(200e-6 / std::max(best, 1e-6), 1.0, 21.0));
    allreduce::RoundTimes times;
    std::mt19937_64 draw(session_.run_seed() + bytes);  // no candidate always follows the same other one
    std::size_t rounds = 0;
    for (; rounds < most_rounds; ++rounds) {
      const double time = now();
      if (time >= until || (time >= share_end && rounds >= core::fewest_blocks)) break;
      std::ranges::shuffle(turns, draw);
      for (Candidate* candidate : turns) times[candidate->algorithm->name].push_back(sample(*candidate, bytes, calls));
      if (rounds + 1 == core::fewest_blocks / 2) drop_slow(turns, times, shipped_choice);
    }
    if (rounds < core::fewest_blocks || !times.contains(shipped_choice)) return std::nullopt;
    return times;
  }

  static void drop_slow(std::vector<Candidate*>& turns, const allreduce::RoundTimes& times,
                        const std::string& shipped_choice) {
    double best = core::median(times.begin()->second);
    for (const auto& [name, own] : times) best = std::min(best, core::median(own));
    std::erase_if(turns, [&](const Candidate* candidate) {
      const std::string& name = candidate->algorithm->name;
      return name != shipped_choice && core::median(times.at(name)) > slow * best;
    });
  }

  Session& session_;
  const runtime::Communicator& c_;
  const WantedTable& wanted_;
  runtime::Backoff backoff_;
  std::optional<runtime::Network> network_;
  std::unique_ptr<runtime::Transport> transport_;
  std::optional<runtime::PrivateArena> private_arena_;
  std::span<std::byte> in_, out_;
  std::vector<Candidate> candidates_;  ///< declared last, so destroyed first: they use the members above
};

/// A measured table, and the sizes that were not measured for it.
struct Tuned {
  TunedTable table;
  std::vector<std::uint64_t> missed;
};

/// Measures a table on its ranks, while the other ranks of the world sleep. The table is the same on all ranks,
/// `missed` only on its ranks. Collective over the world.
Tuned measure_on_ranks(Session& s, const WantedTable& wanted, double seconds) {
  const auto& world = s.world();
  const auto place = std::ranges::find(wanted.ranks, world.rank());
  Tuned out;
  std::optional<runtime::Pause> sitting_out;
  {
    const auto c = world.split(place == wanted.ranks.end() ? -1 : 0, static_cast<int>(place - wanted.ranks.begin()));
    if (c.is_null()) {
      sitting_out.emplace(s.activity());
    } else {
      try {
        out.table = TableTuner(s, c, wanted).measure(seconds, out.missed);
      } catch (const core::Interrupted&) {  // others would wait for this rank: all throw together, below
      }
    }
  }
  world.sleeping_barrier();
  s.stop_if_interrupted(world);
  // Rank 0 decides for all; it is the first of the ranks of every point.
  out.table.use = wanted.use;
  out.table.table = world.broadcast_text(out.table.table);
  out.table.least_bytes = wanted.least_bytes;
  out.table.most_bytes = wanted.most_bytes;
  return out;
}

bool serves(const TunedTable& t, const WantedTable& w, core::Seconds tune_time) {
  return t.least_bytes <= w.least_bytes && w.most_bytes <= t.most_bytes && tune_time.value <= t.seconds;
}

void say(const TunedTable& t) {
  core::print(stderr, "gradmeter: tuned table {}, {}: {}\n", t.hash(), describe(t.use), t.table);
}

/// The tables of one file.
struct TableFile {
  std::string made_for;
  std::filesystem::path path;
  TunedTables kept;
  std::vector<const WantedTable*> due;  ///< tables that have to be measured
  bool told = false;                    ///< the user was told that tables are taken from this file
};

}  // namespace

void check_tune(const Flags& f, std::span<const AlgorithmPtr> algorithms) {
  if (!f.has("tune-auto")) return;
  read_tune(f);
  if (f.text("device") != "cpu")
    throw UsageError("--tune-auto measures exchanges of the host's memory; leave it out, or take --device cpu");
  if (std::ranges::none_of(algorithms, [](const AlgorithmPtr& a) { return a->is_plain_auto(); }))
    throw UsageError(
        "--tune-auto makes the tables of auto, which --algorithm does not name; add auto, or leave --tune-auto out");
}

void add_wanted_table(std::vector<WantedTable>& tables, WantedTable w) {
  const auto same = std::ranges::find_if(tables, [&](const auto& o) { return o.use == w.use; });
  if (same == tables.end()) {
    tables.push_back(std::move(w));
  } else {
    same->least_bytes = std::min(same->least_bytes, w.least_bytes);
    same->most_bytes = std::max(same->most_bytes, w.most_bytes);
  }
}

TablesPtr tuned_tables(Session& s, const Flags& f, const std::vector<WantedTable>& wanted) {
  if (!f.has("tune-auto")) return nullptr;
  const core::Seconds tune_time = read_tune(f);
  const auto& world = s.world();
  auto out = std::make_shared<TunedTables>();
  std::map<std::string, TableFile> files;
  std::size_t due = 0, missed = 0;
  s.read_mpi_copy_mechanism();
  for (const WantedTable& w : wanted) {
    const std::string purpose = world.broadcast_text(made_for(s.run_info(), w));
    auto [entry, is_new] = files.try_emplace(purpose);
    TableFile& file = entry->second;
    if (is_new) {
      file.path = file_for(purpose, w);
      const std::string text = world.broadcast_text(s.is_root() ? kept_text(file.path, purpose) : "");
      if (!text.empty()) file.kept = allreduce::read_tuned_tables(text);
      file.kept.made_for = purpose;
    }
    const TunedTable* kept = file.kept.find(w.use);
    if (kept && serves(*kept, w, tune_time)) {
      if (s.is_root()) {
        if (!std::exchange(file.told, true))
          core::print(stderr, "gradmeter: auto has its tables of {}, which fit; delete that file to measure again\n",
                      file.path.string());
        say(*kept);
        missed += kept->missed;
      }
      out->put(*kept);
    } else {
      file.due.push_back(&w);
      ++due;
    }
  }
  if (wanted.empty() && s.is_root())
    core::print(
        stderr,
        "gradmeter: note: --tune-auto changes nothing, since no point takes its algorithm from auto's tables\n");
  const double until = host_clock() + tune_time.value;
  for (auto& [purpose, file] : files) {
    for (const WantedTable* w : file.due) {
      const double rest = world.broadcast_value(until - host_clock());
      auto tuned = measure_on_ranks(s, *w, std::max(0.0, rest) / static_cast<double>(due--));
      tuned.table.seconds = tune_time.value;
      tuned.table.missed = tuned.missed.size();
      if (s.is_root()) {
        say(tuned.table);
        missed += tuned.table.missed;
      }
      out->put(tuned.table);
      file.kept.put(std::move(tuned.table));
    }
    if (!file.due.empty() && s.is_root()) keep(file.path, file.kept);
  }
  if (missed > 0)
    core::print(
        stderr,
        "gradmeter: note: at {} the time of --tune-auto {} or the free memory was too little to compare, so auto "
        "keeps its shipped choice there; give more\n",
        report::counted(missed, "size"), f.text("tune-auto"));
  return out;
}

void fill_tuned(const allreduce::AlgorithmChoice& a, const allreduce::TableUse& use, core::Factors& f) {
  if (std::string hash = a.tuned_hash(use); !hash.empty()) f[core::Factor::tuned_table] = std::move(hash);
}

AlgorithmPtr with_tables(const AlgorithmPtr& a, const TablesPtr& tables) {
  return a && tables && a->is_plain_auto() ? a->tuned(tables) : a;
}

}  // namespace gradmeter::bench
