// SPDX-License-Identifier: Apache-2.0
#include "bench/allreduce/measure.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "allreduce/vendor/vendor.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "runtime/communicator.hpp"
#include "runtime/host/gpus.hpp"

namespace gradmeter::bench {
namespace {

runtime::SpinPolicy spin_policy_of(const Session& s, const NodeMap& map) {
  // Fake nodes share the cores of a real one.
  return runtime::spin_policy_for(s.ranks_per_node(map.ranks()), s.cores_per_node());
}

/// A hash of the factors that decide the data. It is the same for ranks that are threads as for processes, since both
/// must have equal results.
std::uint64_t data_hash(const CollectivePoint& p) {
  const std::string key =
      fmt::format("{} {} {} {} {} {}", p.algorithm->name, p.bytes(), p.in_place, static_cast<int>(p.cadence),
                  static_cast<int>(p.element), static_cast<int>(p.collective->collective_kind));
  return allreduce::hash_of(std::as_bytes(std::span(key)));
}

/// A hash of all factors, by which points draw independently of each other.
std::uint64_t point_hash(const core::Point& row) {
  const std::string key = row.factors.key();
  return allreduce::hash_of(std::as_bytes(std::span(key)));
}

/// The algorithm that serves the point's calls; with a codec, the one whose calls carry the encoded data.
allreduce::AlgorithmPtr serving_algorithm(const CollectivePoint& p, const allreduce::Collective& bound) {
  const std::string& serving = bound.algorithm_for(p.bytes());
  return p.codec || serving == p.algorithm->name ? p.algorithm : allreduce::find_algorithm(serving);
}

}  // namespace

void CodingTimes::add(const allreduce::CodingTime& before, const allreduce::CodingTime& after) {
  block_.encode_s += after.encode_s - before.encode_s;
  block_.decode_s += after.decode_s - before.decode_s;
  block_.calls += after.calls - before.calls;
}

void CodingTimes::end_block() {
  if (block_.calls > 0) {
    const auto calls = static_cast<double>(block_.calls);
    const double encode_s = block_.encode_s / calls, decode_s = block_.decode_s / calls;
    encode_s_.add({&encode_s, 1});
    decode_s_.add({&decode_s, 1});
  }
  block_ = {};
  turns_.note(encode_s_.count());
}

std::optional<allreduce::CodingTime> CodingTimes::of_a_call(const MachineState& state) const {
  if (encode_s_.count() == 0) return std::nullopt;
  return allreduce::CodingTime{.encode_s = core::median(turns_.undisturbed(encode_s_, state).samples()),
                               .decode_s = core::median(turns_.undisturbed(decode_s_, state).samples())};
}

void OverlapPartTimes::add(const PartTimes& times) {
  exchange_s_.add(times.exchange_s);
  compute_s_.add(times.compute_s);
  turns_.note(exchange_s_.count());
}

std::optional<OverlapTimes> OverlapPartTimes::medians(const MachineState& state) const {
  if (exchange_s_.count() == 0) return std::nullopt;
  return OverlapTimes{.exchange_s = core::summarise(turns_.undisturbed(exchange_s_, state)).median,
                      .compute_s = core::summarise(turns_.undisturbed(compute_s_, state)).median};
}

CollectiveBenchmark::CollectiveBenchmark(Session& s, CollectiveSetup& setup, const NodeMap& map,
                                         runtime::SharedClock& clock, CollectivePoint& p, const BenchmarkOptions& o)
    : session_(s),
      setup_(setup),
      map_(map),
      point_(p),
      options_(o),
      row_(p.row),
      bound_(setup.bound(p)),
      serving_(serving_algorithm(p, *bound_.collective)),
      buffers_(setup.buffers(p)),
      call_(call_of(p, buffers_)),
      pace_{setup.world(), clock, p.cadence, p.reduction},
      caller_(s.activity(), spin_policy_of(s, map), *bound_.collective, bound_.label.c_str(), call_,
              p.calls_of_iteration(), bound_.graph_of_iteration.get(), &first_elements_),
      data_seed_(o.seed + data_hash(p)),
      checked_call_draw_(o.run_seed, point_hash(p.row)),
      first_page_draw_(o.run_seed, point_hash(p.row) + 1) {}

void CollectiveBenchmark::end(core::Status status, std::string reason) {
  row_.status = status;
  row_.reason = std::move(reason);
  done_ = true;
}

/// Makes one call, through the task that makes the timed calls once that exists.
void CollectiveBenchmark::call_once() {
  if (task_) return task_->call_once();
  caller_.announce();
  caller_.run_one();
  caller_.announce_end();
}

/// Makes the first call and counts its bytes. Returns false after refusing the point: algorithms on shared memory may
/// refuse their buffers only when they are called.
bool CollectiveBenchmark::make_first_call() {
  fill();
  setup_.world().barrier();
  const auto before = serving_collective().sent();
  const auto required_before = serving_collective().bytes_required().value_or(0);
  std::string mine;
  try {
    call_once();
  } catch (const core::BackendError& e) {
    if (!runtime::lost_gpu().empty()) throw;
    mine = e.what();
  }
  if (auto why = runtime::first_report(setup_.world(), mine).text; !why.empty()) {
    return end(core::Status::unsupported, std::move(why)), false;
  }
  count_bytes(before, required_before);
  return true;
}

/// True where calls leave their data as they are.
bool CollectiveBenchmark::timed_data_are_known() const {
  using enum allreduce::CollectiveKind;
  const auto kind = point_.collective->collective_kind;
  return !point_.codec && (!point_.in_place || kind == all_gather || kind == broadcast);
}

/// The data of the last call of an iteration, whose result is in `out` when the iteration has ended.
allreduce::KnownCollective CollectiveBenchmark::timed_data() const {
  auto timed = known_call(point_, allreduce::Pattern::exact, data_seed_ + blocks_, setup_.world().size());
  timed.data.stamp = stamp_;
  timed.data.element_0_stamp = stamp_ + first_elements_.values.size();
  return timed;
}

/// Makes the data of short calls in advance, so that hardly any code runs between calls of 0.3 us; after some
/// iterations the same data come again. Where calls change their data, only first elements are made, which differ from
/// iteration to iteration.
void CollectiveBenchmark::prepare_inputs() {
  constexpr std::size_t in_advance = 64, short_count = 64;
  const bool is_known_data = timed_data_are_known();
  prepared_inputs_.clear();
  if (point_.codec || setup_.is_on_device() || point_.count == 0 || !first_elements_.values.empty()) return;
  if (is_known_data && point_.count > short_count) return;
  for (std::size_t i = 0; i < in_advance; ++i) {
    auto data = timed_data();
    data.data.stamp = stamp_ + 1 + i;
    const auto rank = static_cast<std::size_t>(setup_.world().rank());
    const auto first = allreduce::first_element(data.data, rank);
    auto& to = prepared_inputs_.emplace_back(
        first.begin(), first.begin() + static_cast<std::ptrdiff_t>(core::size_of(point_.element)));
    if (!is_known_data) continue;
    to.assign(buffers_.in.begin(), buffers_.in.end());
    allreduce::restamp(data, rank, to);
  }
  first_stamp_ = stamp_ + 1;
  stamp_ += in_advance;
}

/// Gives the next iteration, and each of its calls, other data. On a device that would be work in its queue, so there
/// the data change only from block to block.
void CollectiveBenchmark::restamp() {
  if (!prepared_inputs_.empty()) {
    const std::size_t turn = ++inputs_taken_ % prepared_inputs_.size();
    std::memcpy(buffers_.in.data(), prepared_inputs_[turn].data(), prepared_inputs_[turn].size());
    stamp_ = first_stamp_ + turn;
    return;
  }
  if (!timed_data_are_known() || setup_.is_on_device()) return;
  const auto rank = static_cast<std::size_t>(setup_.world().rank());
  stamp_ += 1 + first_elements_.values.size();
  auto known = timed_data();
  allreduce::restamp(known, rank, buffers_.in);
  for (std::size_t i = 0; i < first_elements_.values.size(); ++i) {
    known.data.stamp = stamp_ + 1 + i;
    first_elements_.values[i] = allreduce::first_element(known.data, rank);
  }
}

/// Notes the hash of the result. To be called before this rank communicates again, since a library may finish in its
/// next call what it has left undone in this one.
void CollectiveBenchmark::note_result() {
  setup_.download(buffers_);
  result_hash_ = allreduce::hash_of(buffers_.out);
}

/// Judges the result of the noted call. Collective.
void CollectiveBenchmark::check_noted_result(const allreduce::KnownCollective& known) {
  const runtime::Computing note(session_.activity(), "check");
  auto found = check_known(known, setup_.world(), buffers_.out);
  // A vendor's ranks may round differently.
  found.same_bits |= serving_->is_vendor();
  add(found);
}

/// Adds the finding, and a fault if the result has changed since `note_result`.
void CollectiveBenchmark::add(CheckOfAllRanks found) {
  setup_.download(buffers_);
  const double has_changed = allreduce::hash_of(buffers_.out) == result_hash_ ? 0 : 1;
  if (setup_.world().max(has_changed) > 0) {
    found.wrong = std::max<std::uint64_t>(found.wrong, 1);
    found.fault = "a result changed after its call had returned";
  }
  findings_.add(found);
}

/// Makes `calls` calls on such data and checks the result of the last one.
void CollectiveBenchmark::check(allreduce::Pattern pattern, std::uint64_t seed, std::size_t calls) {
  const auto& c = setup_.world();
  auto known = known_call(point_, pattern, seed, c.size());
  known.data.calls_in_place = calls;
  {
    const runtime::Computing note(session_.activity(), "known data");
    give_known(known, c.rank(), buffers_);
    setup_.upload(buffers_);
  }
  c.barrier();
  for (std::size_t i = 0; i < calls; ++i) call_once();
  note_result();
  c.barrier();  // no rank refills what a peer may still read
  check_noted_result(known);
}

/// Checks one call with a codec, without the state of earlier calls, since error feedback would add what it has kept to
/// the sum. The state is restored afterwards.
void CollectiveBenchmark::check_codec(std::uint64_t seed, CodedData data) {
  if (data == CodedData::signs && !keeps_signs(*point_.codec)) return;
  const auto& c = setup_.world();
  const CodedTensor tensor{
      .codec = *point_.codec,
      .encodings = allreduce::encodings_on_the_way(exchange_of(point_, setup_.shape(), point_.bytes()),
                                                   {.offset = 0, .count = point_.count}),
      .seed = seed,
      .op = point_.call_op(),
      .data = data};
  auto state = bound_.collective->take_state();
  {
    const runtime::Computing note(session_.activity(), "gradients");
    give_coded(tensor, c, buffers_);
    setup_.upload(buffers_);
  }
  c.barrier();
  call_once();
  note_result();
  c.barrier();
  if (state) bound_.collective->restore_state(state);
  const runtime::Computing note(session_.activity(), "check");
  add(check_coded(tensor, c, buffers_.out));
}

void CollectiveBenchmark::check_all() {
  if (point_.codec) {
    check_codec(options_.seed, CodedData::gradient);
    return check_codec(options_.seed, CodedData::signs);
  }
  check(allreduce::Pattern::exact, data_seed_);
  check(allreduce::Pattern::random, data_seed_);
}

/// Checks an extra call, which is no sample, with other data each time, so that an earlier result would not pass. For
/// all-reduces in place, several calls follow each other directly, as long as sums stay exact, and the last is checked.
void CollectiveBenchmark::check_extra_call() {
  const std::uint64_t seed = (point_.codec ? options_.seed : data_seed_) + ++blocks_;
  filled_ = false;
  if (point_.codec) {
    const bool signs = blocks_ % 2 == 0 && keeps_signs(*point_.codec);
    return check_codec(seed, signs ? CodedData::signs : CodedData::gradient);
  }
  const bool repeats = point_.in_place && point_.collective->collective_kind == allreduce::CollectiveKind::all_reduce;
  const auto known = known_call(point_, allreduce::Pattern::exact, seed, setup_.world().size());
  check(allreduce::Pattern::exact, seed, repeats ? 1 + blocks_ % allreduce::most_calls_in_place(known.data) : 1);
}

/// Moves the buffers to other pages for the next block. On a device they stay: a graph may have captured them.
void CollectiveBenchmark::move_buffers() {
  if (setup_.is_on_device()) return;
  buffers_ = setup_.buffers(point_, first_page_draw_.below(turns_.count(), CollectiveSetup::first_page_count));
  call_ = call_of(point_, buffers_);
  first_elements_.at = buffers_.in.data();
}

/// Writes the data for timed calls. With a codec these are gradients, since its encoding time may depend on the
/// numbers.
void CollectiveBenchmark::fill() {
  const runtime::Computing note(session_.activity(), "timed data");
  const int rank = setup_.world().rank();
  if (point_.codec) {
    give_gradient(options_.seed, rank, buffers_);
  } else if (timed_data_are_known()) {
    give_known(timed_data(), rank, buffers_);
  } else {
    fill_for_timing(point_, buffers_);
  }
  setup_.upload(buffers_);
  prepare_inputs();
  filled_ = true;
}

/// Makes the function that runs blocks. Where a codec's sums in place grow, it writes the data anew before they leave
/// the range of fp32.
RunBlock CollectiveBenchmark::refilled_blocks() {
  RunBlock plain = blocks_of(*task_, point_.calls_of_iteration());
  const double growth = static_cast<double>(point_.calls) * std::log10(std::max(2, map_.ranks()));
  if (!point_.grows()) return plain;
  const auto most_iterations = std::max<std::size_t>(1, static_cast<std::size_t>(most_growth / growth));
  return [this, plain, most_iterations](std::size_t iterations, bool keep) {
    std::vector<double> times;
    for (std::size_t left = iterations; left > 0;) {
      const std::size_t piece = std::min(left, most_iterations);
      fill();
      const auto part = plain(piece, keep);
      times.insert(times.end(), part.begin(), part.end());
      left -= piece;
    }
    return times;
  };
}

/// Makes the function that runs blocks with a checked call at a random place: the last call of a block's first part, or
/// an extra call after that part. The check uses the caches, so some iterations are discarded before the second part.
RunBlock CollectiveBenchmark::checked_blocks() {
  return [this, plain = refilled_blocks()](std::size_t iterations, bool keep) {
    const auto run = [&](std::size_t n, bool counts) {
      if (!filled_) fill();
      const auto before = bound_.collective->coding();
      auto out = plain(n, counts);
      if (before && counts) coding_.add(*before, *bound_.collective->coding());
      return out;
    };
    if (!keep || !options_.check) return run(iterations, keep);
    const bool checks_timed_call = timed_data_are_known();
    const auto first_part =
        static_cast<std::size_t>(checked_call_draw_.below(blocks_, checks_timed_call ? iterations : iterations + 1)) +
        (checks_timed_call ? 1 : 0);
    std::vector<double> times;
    notes_results_ = checks_timed_call;
    if (first_part > 0) times = run(first_part, keep);
    notes_results_ = false;
    checks_timed_call ? check_noted_result(timed_data()) : check_extra_call();
    if (options_.rounds.discarded > 0) (void)run(options_.rounds.discarded, false);
    if (first_part == iterations) return times;
    const auto rest = run(iterations - first_part, keep);
    times.insert(times.end(), rest.begin(), rest.end());
    return times;
  };
}

void CollectiveBenchmark::prepare() {
  if (!make_first_call()) return;
  if (options_.check) check_all();
  session_.stop_if_interrupted(setup_.world());
  if (!findings_.is_right()) {
    done_ = true;
    return finish({});
  }
  fill();
  if (point_.overlap == OverlapLoad::gemm) {
    task_ = make_overlap_task(pace_, {session_, *bound_.collective, bound_.label.c_str(), call_, point_.threads});
  } else {
    task_ = make_call_task(pace_, caller_);
  }
  if (timed_data_are_known() && point_.overlap == OverlapLoad::none && !bound_.graph_of_iteration &&
      !setup_.is_on_device()) {
    first_elements_ = {.at = buffers_.in.data(), .width = core::size_of(point_.element), .values = {}};
    if (point_.count > 0) first_elements_.values.resize(caller_.calls() - 1);
  }
  task_->set_between({.before = [this] { restamp(); },
                      .after_last =
                          [this] {
                            if (notes_results_) note_result();
                          }});
  rounds_.emplace(session_, setup_.world(), options_.rounds, checked_blocks());
}

void CollectiveBenchmark::warm_up() {
  filled_ = false;
  rounds_->warm_up();
}

bool CollectiveBenchmark::round() {
  const bool is_exact = options_.rounds.exact_samples > 0;
  if (is_exact && rounds_->stop() == core::Stop::samples) return true;
  if (timed_data_are_known()) ++blocks_;
  move_buffers();
  filled_ = false;  // other points have used the buffers
  noise_.begin();
  const auto stop = rounds_->round();
  noise_.end();
  turns_.note(rounds_->blocks().count());
  own_times_.add(task_->take_own_times());
  own_turns_.note(own_times_.count());
  coding_.end_block();
  parts_.add(task_->take_part_times());
  done_ = !findings_.is_right();
  return done_ || stop != core::Stop::none;
}

/// Sets the bytes of one call over all ranks, from what `call_once` has sent since the counters were `before`.
void CollectiveBenchmark::count_bytes(const std::optional<runtime::Traffic>& before, std::uint64_t required_before) {
  const auto now = serving_collective().sent();
  if (!now || !before) return;
  const std::uint64_t calls = caller_.calls_of_one();
  const std::uint64_t sent = (now->bytes - before->bytes) / calls;
  const std::uint64_t between = (now->bytes_between_nodes - before->bytes_between_nodes) / calls;
  const std::uint64_t required = (serving_collective().bytes_required().value_or(0) - required_before) / calls;
  const auto& c = setup_.world();
  // Exact up to 8 PiB over all ranks.
  std::array sums{static_cast<double>(sent), static_cast<double>(between), static_cast<double>(required)};
  c.sum(sums);
  bytes_of_a_call_ = SentBytes{.most_by_one_rank = static_cast<std::uint64_t>(c.max(static_cast<double>(sent))),
                               .total = static_cast<std::uint64_t>(sums[0]),
                               .between_nodes = static_cast<std::uint64_t>(sums[1]),
                               .required = static_cast<std::uint64_t>(sums[2]),
                               .right = c.all(sent == required)};
}

/// The bytes of one call; they count as right only if the bytes of all calls are right.
std::optional<SentBytes> CollectiveBenchmark::sent_bytes() const {
  if (!bytes_of_a_call_) return std::nullopt;
  SentBytes s = *bytes_of_a_call_;
  const auto& counted = serving_collective();
  s.right &= setup_.world().all(counted.sent()->bytes == counted.bytes_required());
  return s;
}

/// Each time on the rank where it is longest.
std::optional<allreduce::CodingTime> CollectiveBenchmark::coding_of_a_call(const MachineState& state) const {
  const auto mine = coding_.of_a_call(state);
  if (!mine) return std::nullopt;
  return allreduce::CodingTime{.encode_s = setup_.world().max(mine->encode_s),
                               .decode_s = setup_.world().max(mine->decode_s)};
}

bool CollectiveBenchmark::is_oversubscribed() const {
  const int threads_per_rank = point_.overlap == OverlapLoad::gemm ? point_.threads + 1 : 1;
  return session_.ranks_per_node(map_.ranks()) * threads_per_rank > session_.cores_per_node();
}

/// Says how a device's memory passes through the host; empty: it does not.
std::string CollectiveBenchmark::path_through_the_host() const {
  if (point_.algorithm->info().on_device) return {};
  if (!bound_.works_on_device_memory) return ", staged through the host";
  const bool cuda_mpi = point_.transport == runtime::TransportKind::cuda_mpi;
  return cuda_mpi ? ", messages of the GPU's memory" : ", messages staged through the host";
}

/// The text of the metric `implementation`. To be called while the task exists.
std::string CollectiveBenchmark::implementation(bool overlaps) const {
  std::string out = allreduce::library_of(serving_->info());
  if (out.empty()) {
    out = serving_->is_vendor() ? session_.run_info().mpi : fmt::format("gradmeter {}", session_.run_info().version);
  }
  const auto& by = bound_.collective->algorithm_for(point_.bytes());
  if (setup_.is_on_device()) out += path_through_the_host();
  if (by != point_.algorithm->name) out += fmt::format(", by {}", by);
  if (overlaps) out += fmt::format(", {}", task_->implementation());
  return out;
}

void CollectiveBenchmark::finish(const MachineState& state) {
  const bool timed = rounds_.has_value();
  const bool is_exact = options_.rounds.exact_samples > 0;
  const auto overlap = parts_.medians(is_exact ? MachineState{} : state);
  std::string implementation_text = implementation(overlap.has_value());
  task_.reset();  // a progress thread must be gone before this thread calls MPI again
  if (timed) by_rank_ = own_times_by_rank(setup_.world(), own_turns_.undisturbed(own_times_, state));
  const auto coding = timed ? coding_of_a_call(is_exact ? MachineState{} : state) : std::nullopt;
  if (timed && options_.check) point_.codec ? check_all() : check(allreduce::Pattern::exact, data_seed_);
  const auto stop = timed ? rounds_->stop() : core::Stop::none;
  const core::Blocks timed_blocks = timed ? rounds_->blocks() : core::Blocks{};
  const core::Blocks used = is_exact ? timed_blocks : turns_.undisturbed(timed_blocks, state);
  const CollectiveMeasurement measurement{
      .point = point_,
      .times = used,
      .blocks = UsedBlocks::of(state, turns_.count(), timed_blocks.count(), used.count()),
      .stop = timed && stop == core::Stop::none ? core::Stop::budget : stop,
      .warmup_s = timed ? rounds_->warmup_s() : 0,
      .warmup_iterations = timed ? rounds_->warmup_iterations() : 0,
      .check = options_.check ? std::optional(findings_) : std::nullopt,
      .sent = sent_bytes(),
      .overlap = overlap,
      .coding = coding,
      .noise = timed ? noise_.over(setup_.world()) : MachineNoise{},
      .oversubscribed = is_oversubscribed(),
      .implementation = std::move(implementation_text)};
  fill_collective_row(measurement, map_.ranks(), row_);
}

}  // namespace gradmeter::bench
