// SPDX-License-Identifier: Apache-2.0
#include "predict/collective_fit.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "compression/registry.hpp"
#include "core/csv.hpp"
#include "core/element.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/statistics.hpp"

namespace gradmeter::predict {
namespace {

using allreduce::CollectiveKind;
using core::Factor;
using core::Metric;

/// The least spread of a system whose rows are all on one number of ranks.
constexpr double spread_of_one_group = 0.3;

std::size_t count_of(const core::Value& value) {
  const auto* n = value.as<std::int64_t>();
  return n && *n > 0 ? static_cast<std::size_t>(*n) : 0;
}

std::optional<CollectiveKind> kind_of(std::string_view name) {
  const std::string plain = plain_name(name);
  if (plain == "allreduce") return CollectiveKind::all_reduce;
  if (plain == "reducescatter") return CollectiveKind::reduce_scatter;
  if (plain == "allgather") return CollectiveKind::all_gather;
  if (plain == "broadcast") return CollectiveKind::broadcast;
  if (plain == "alltoall") return CollectiveKind::all_to_all;
  if (plain == "sendrecv" || plain == "p2p") return CollectiveKind::send_receive;
  return std::nullopt;
}

/// The names of our schedules that stand for an algorithm: the algorithm itself, or for a library's algorithm the
/// schedules that it is known to follow.
std::vector<std::string> schedules_for(const std::string& algorithm) {
  const std::string base = core::parse_name_or_text(algorithm).base;
  for (const auto& a : allreduce::algorithms())
    if (a.name == base && a.backend == allreduce::Backend::schedule) return {algorithm};
  if (base == "ompi-ring" || base == "ompi-segmented-ring" || base == "gpu-ring") return {"ring"};
  if (base == "ompi-rabenseifner") return {"rabenseifner"};
  if (base == "ompi-recursive-doubling") return {"recursive-doubling"};
  if (base == "ompi-nonoverlapping" || base == "ompi-basic-linear") return {"binomial-tree"};
  if (base == "shm-direct" || base == "gpu-direct") return {"direct"};
  // A library, or `auto`, chooses one of these by the size of the call.
  return {"ring", "double-tree", "recursive-doubling", "pairwise", "neighbour", "binomial-tree"};
}

/// Bytes on the wire, relative to the buffer's; nothing: not known.
std::optional<double> wire_share(const MeasuredCollective& c) {
  if (c.codec.empty()) return 1;
  const auto codec = compression::find_codec(c.codec);
  if (!codec) return 1;
  if (!codec->codec || codec->exchange != compression::Exchange::schedule) return std::nullopt;
  const std::size_t n = c.bytes / sizeof(float);
  return n == 0 ? 1 : static_cast<double>(codec->codec->wire_bytes(n)) / static_cast<double>(c.bytes);
}

/// The share of a buffer's bytes that a rank decodes: those that it adds up, and those that it receives as results.
double decoded_share(double ranks) { return 2 * (ranks - 1) / ranks; }

std::array<Prior, link_term_count> link_priors(const MeasuredCollective& c) {
  constexpr double wide = 2;
  return {Prior{5e-6, wide}, Prior{c.rate_prior, wide}, Prior{3e-5, wide},
          Prior{1e9, wide},  Prior{1e10, wide},         Prior{5e-6, wide}};
}

double term(std::span<const double> log_terms, LinkTerm t) { return std::exp(log_terms[static_cast<std::size_t>(t)]); }

/// The schedules that may stand for the algorithm on this shape.
std::vector<PreparedCollective> candidates(const MeasuredCollective& c) {
  std::vector<PreparedCollective> schedules;
  for (const std::string& name : schedules_for(c.algorithm)) {
    const auto algorithm = allreduce::find_algorithm(name);
    if (!algorithm->refusal(c.shape, c.kind).empty()) continue;
    schedules.emplace_back(CollectiveCall{.algorithm = algorithm,
                                          .shape = c.shape,
                                          .bytes = c.bytes,
                                          .kind = c.kind,
                                          .message_bytes = c.message_bytes,
                                          .element_bytes = c.element_bytes});
  }
  return schedules;
}

double fastest_seconds(std::span<const PreparedCollective> candidates, const core::Machine& m) {
  double best = std::numeric_limits<double>::infinity();
  for (const auto& p : candidates) best = std::min(best, p.seconds(m));
  return best;
}

/// The time by the fitted links [s], without a codec's work. share: bytes on the wire, relative to the buffer's.
double link_seconds(const MeasuredCollective& c, std::span<const PreparedCollective> candidates, double share,
                    std::span<const double> log_terms) {
  const auto m = machine_of(log_terms, c.shape.ranks_per_node);
  return fastest_seconds(candidates, share == 1 ? m : m.with_links_faster(1 / share)) +
         term(log_terms, LinkTerm::fixed);
}

std::string key_of(const MeasuredCollective& c) {
  return fmt::format("{} {} {}", allreduce::name(c.kind), c.algorithm, c.codec);
}

}  // namespace

std::string text_of(const core::Value& value) { return value.is_null() ? "" : core::to_text(value); }

std::optional<double> noise_of(const core::Metrics& m) {
  const auto* s = m[Metric::time_s].as<core::Summary>();
  if (!s || !std::isfinite(s->relative_half_width())) return std::nullopt;
  return s->relative_half_width();
}

std::string exchange_system(const core::Factors& f) {
  std::vector<std::string> words;
  for (const Factor k : {Factor::interconnect, Factor::transport, Factor::ranks_as, Factor::device, Factor::inject})
    if (!f[k].is_null()) words.push_back(text_of(f[k]));
  return fmt::format("{}", fmt::join(words, " "));
}

std::vector<MeasuredCollective> collectives_of(std::span<const core::Run> runs, const std::string& file) {
  std::vector<MeasuredCollective> out;
  for (const core::Run& run : runs)
    for (const core::Point& p : run.points) {
      if (p.experiment != "allreduce" || p.status != core::Status::ok) continue;
      const auto& f = p.factors;
      const auto text = [&](Factor k) { return text_of(f[k]); };
      MeasuredCollective c{.id = fmt::format("{}: {}", file, f.key()),
                           .system = exchange_system(f),
                           .algorithm = text(Factor::algorithm),
                           .codec = text(Factor::codec) == "none" ? "" : text(Factor::codec),
                           .shape = {static_cast<std::uint32_t>(count_of(f[Factor::ranks])),
                                     static_cast<std::uint32_t>(count_of(f[Factor::ranks_per_node]))},
                           .bytes = count_of(f[Factor::size_bytes])};
      const auto kind = kind_of(text(Factor::collective));
      const auto* nodes = p.factors[Factor::nodes].as<std::int64_t>();
      if (nodes && *nodes > 1) c.message_bytes = std::size_t{1} << 20;
      if (const auto type = text(Factor::dtype); !type.empty())
        c.element_bytes = core::size_of(core::parse_element(type));
      c.seconds = p.metrics.number(Metric::time_s);
      c.noise = noise_of(p.metrics);
      const auto or_zero = [](double v) { return v > 0 ? v : 0; };
      c.encode_s = or_zero(p.metrics.number(Metric::encode_s));
      c.decode_s = or_zero(p.metrics.number(Metric::decode_s));
      if (!kind) c.problem = fmt::format("no model of {}", text(Factor::collective));
      if (kind) c.kind = *kind;
      if (text(Factor::overlap) == "gemm") c.problem = "a product runs beside the exchange";
      if (!f[Factor::problem].is_null()) c.problem = "calls of another form";
      if (c.shape.ranks < 2) c.problem = "one rank exchanges nothing";
      if (!(c.seconds > 0)) c.problem = "no measured time";
      out.push_back(std::move(c));
    }
  return out;
}

bool is_collective_table(std::string_view text) {
  bool has_operation = false;
  const auto head = [&](const std::vector<std::string>& names) {
    has_operation = std::ranges::find(names, "op") != names.end();
  };
  (void)core::read_csv(text, "", head, [](const auto&, std::size_t) {});
  return has_operation;
}

namespace {

/// Reads a row of a table. Throws CsvFault for a cell that must be a number and is not.
MeasuredCollective read_row(const core::CsvRow& row) {
  constexpr std::size_t most_gpus = 1 << 24;
  const std::size_t gpus = row.count("gpus", 1);
  if (gpus > most_gpus)
    throw core::CsvFault{row.begin_byte("gpus"), fmt::format("'{}' is above {} for gpus", gpus, most_gpus)};
  const auto ranks = static_cast<std::uint32_t>(gpus);
  const double nodes = row.number("nodes").value_or(0);
  const double node_gpus = row.number("gpus_per_node").value_or(nodes > 1 ? std::ceil(ranks / nodes) : ranks);
  const bool is_one_node = nodes == 1 || !(node_gpus >= 1) || node_gpus >= ranks;
  constexpr double library_link_rate = 1e11, microsecond = 1e-6;
  MeasuredCollective c{.id = row.text("id"),
                       .system = row.text("system"),
                       .algorithm = "library",
                       .shape = {ranks, is_one_node ? ranks : static_cast<std::uint32_t>(node_gpus)},
                       .bytes = row.count("bytes", 1),
                       .rate_prior = library_link_rate,
                       .seconds = microsecond * row.number("time_us").value_or(0)};
  const auto kind = kind_of(row.text("op"));
  if (kind) c.kind = *kind;
  const std::string type = plain_name(row.text("dtype"));
  if (type == "fp16" || type == "bf16" || type == "half") c.element_bytes = 2;
  if (!kind) c.problem = fmt::format("no model of the operation '{}'", row.text("op"));
  if (ranks < 2) c.problem = "one GPU exchanges nothing";
  if (!(c.seconds > 0)) c.problem = "no measured time";
  return c;
}

}  // namespace

std::vector<MeasuredCollective> read_collectives(std::string_view text, const std::string& file) {
  std::vector<MeasuredCollective> out;
  const auto head = [&](const std::vector<std::string>& names) {
    for (const char* needed : {"system", "gpus", "op", "bytes", "time_us"})
      if (std::ranges::find(names, needed) == names.end())
        throw core::UsageError(
            fmt::format("{}:1: column {} is missing; docs/predict.md lists the columns", file, needed));
  };
  const auto row = [&](const core::CsvRow& cells, std::size_t line) {
    MeasuredCollective c{};
    try {
      c = read_row(cells);
    } catch (const core::CsvFault& fault) {
      c.id = cells.text("id");
      c.problem = fault.what;
    }
    if (c.id.empty()) c.id = fmt::format("{}:{}", file, line);
    out.push_back(std::move(c));
  };
  if (const auto faults = core::read_csv(text, file, head, row); !faults.empty())
    throw core::UsageError(faults.front());
  return out;
}

core::Machine machine_of(std::span<const double> log_terms, std::uint32_t ranks_per_node) {
  core::Machine m;
  m.ranks_per_node = ranks_per_node;
  m.within_node = {.latency_s = term(log_terms, LinkTerm::within_latency),
                   .bandwidth = {{.bytes_per_s = term(log_terms, LinkTerm::within_rate)}}};
  m.between_nodes = {.latency_s = term(log_terms, LinkTerm::between_latency),
                     .bandwidth = {{.bytes_per_s = term(log_terms, LinkTerm::between_rate)}}};
  // Several ranks of a node share the node's port. A single rank has a port of its own, and the node's is left out:
  // with it, a message that waits for a busy node would hold up the sender's later messages, which go by other
  // connections.
  if (ranks_per_node > 1) m.node_port.bytes_per_s = term(log_terms, LinkTerm::between_rate);
  m.reduce_bytes_per_s = term(log_terms, LinkTerm::reduce_rate);
  return m;
}

CollectiveCalibration::CollectiveCalibration(std::vector<MeasuredCollective> rows)
    : CollectiveCalibration(std::move(rows), true) {}

CollectiveCalibration::CollectiveCalibration(std::vector<MeasuredCollective> rows, bool with_spread)
    : rows_(std::move(rows)) {
  std::erase_if(rows_, [](const MeasuredCollective& c) { return !c.problem.empty(); });
  std::set<std::string> systems;
  for (const auto& c : rows_) systems.insert(c.system);
  for (const auto& s : systems) fit(s, with_spread);
}

std::optional<double> CollectiveCalibration::by_terms(const System& system, const MeasuredCollective& c,
                                                      std::string& reason) const {
  const auto share = wire_share(c);
  const auto codec = system.codecs.find(c.codec);
  if (!share || (!c.codec.empty() && codec == system.codecs.end())) {
    reason = share ? fmt::format("codec {} was not calibrated", c.codec)
                   : fmt::format("codec {} has exchanges of its own", c.codec);
    return std::nullopt;
  }
  const auto algorithms = candidates(c);
  if (algorithms.empty()) {
    reason = fmt::format("{} refuses {} ranks", c.algorithm, c.shape.ranks);
    return std::nullopt;
  }
  double seconds = link_seconds(c, algorithms, *share, system.log_terms);
  if (!c.codec.empty())
    seconds += static_cast<double>(c.bytes) *
               (codec->second.encode_s_per_byte + decoded_share(c.shape.ranks) * codec->second.decode_s_per_byte);
  return seconds;
}

/// The error of the terms for measured calls that are the same but for ranks and bytes; the same error is expected
/// here.
Correction CollectiveCalibration::correction(const System& system, const MeasuredCollective& c) const {
  constexpr double shrinkage = 0.25;  // weight of no error at all
  double log_error = 0, squares = 0, weight = 0;
  for (const auto& r : rows_) {
    if (r.system != c.system || key_of(r) != key_of(c)) continue;
    std::string reason;
    const auto s = by_terms(system, r, reason);
    if (!s) continue;
    // Calls with similar bytes and ranks weigh most.
    const double byte_doublings = std::abs(std::log2(static_cast<double>(r.bytes) / static_cast<double>(c.bytes)));
    const double rank_doublings = std::abs(std::log2(static_cast<double>(r.shape.ranks) / c.shape.ranks));
    const double row_weight = std::exp(-2 * byte_doublings - rank_doublings);
    log_error += row_weight * std::log(r.seconds / *s);
    squares += row_weight * std::pow(r.noise.value_or(noise_without_interval), 2);
    weight += row_weight;
  }
  return {std::exp(log_error / (weight + shrinkage)), weight > 0 ? std::sqrt(squares / weight) : 0};
}

void CollectiveCalibration::fit(const std::string& name, bool with_spread) {
  System& system = systems_[name];
  std::vector<const MeasuredCollective*> rows;
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> coding_times;
  for (const auto& c : rows_) {
    if (c.system != name) continue;
    rows.push_back(&c);
    system.most_ranks = std::max(system.most_ranks, static_cast<double>(c.shape.ranks));
    system.has_within |= c.shape.ranks_per_node > 1;
    system.has_between |= c.shape.ranks > c.shape.ranks_per_node;
    if (c.codec.empty() || !(c.encode_s > 0)) continue;
    coding_times[c.codec].first.push_back(c.encode_s / static_cast<double>(c.bytes));
    coding_times[c.codec].second.push_back(c.decode_s / static_cast<double>(c.bytes) / decoded_share(c.shape.ranks));
  }
  for (const auto& [codec, times] : coding_times)
    system.codecs[codec] = {core::median(times.first), core::median(times.second)};
  const auto priors = link_priors(*rows.front());
  for (const Prior& p : priors) system.log_terms.push_back(std::log(p.middle));
  std::vector<Residual> residuals;
  for (const MeasuredCollective* c : rows) {
    std::string reason;
    if (!by_terms(system, *c, reason)) continue;
    const double coding_s = c->codec.empty()
                                ? 0
                                : static_cast<double>(c->bytes) *
                                      (system.codecs.at(c->codec).encode_s_per_byte +
                                       decoded_share(c->shape.ranks) * system.codecs.at(c->codec).decode_s_per_byte);
    residuals.emplace_back(
        [c, coding_s, algorithms = candidates(*c), share = *wire_share(*c)](std::span<const double> log_terms) {
          return std::log((link_seconds(*c, algorithms, share, log_terms) + coding_s) / c->seconds);
        });
  }
  constexpr double noise = 0.1;
  system.log_terms = fit_terms(priors, residuals, noise);
  system.spread = spread_of_one_group;
  if (!with_spread) return;
  // The fit's own errors are too small, so each row is predicted from the rows of other numbers of ranks.
  const auto leave_out = [&](const auto& group) {
    std::set<std::string> groups;
    for (const MeasuredCollective* c : rows) groups.insert(group(*c));
    for (const std::string& left_out_group : groups) {
      std::vector<MeasuredCollective> kept;
      for (const MeasuredCollective* c : rows)
        if (group(*c) != left_out_group) kept.push_back(*c);
      if (kept.empty()) return;
      const CollectiveCalibration others(std::move(kept), false);
      for (const MeasuredCollective* c : rows) {
        if (group(*c) != left_out_group) continue;
        if (const auto prediction = others.predict(*c).prediction)
          system.left_out.push_back(
              {static_cast<double>(c->bytes), std::abs(std::log(prediction->seconds / c->seconds))});
      }
    }
  };
  leave_out([](const MeasuredCollective& c) { return fmt::format("{}", c.shape.ranks); });
  if (system.left_out.empty()) {
    // Rows on one number of ranks do not say how the time grows with the ranks.
    leave_out([](const MeasuredCollective& c) { return fmt::format("{}", c.bytes); });
  } else {
    system.spread = 0;
  }
  std::ranges::sort(system.left_out, {}, &LeftOut::error);
}

/// Rows that were left out weigh the more, the more similar their bytes are. Source: localised conformal prediction
/// (Guan, Biometrika 2023). The call to be predicted counts as a row with a larger error than all others.
double CollectiveCalibration::spread_at(const System& system, std::size_t bytes) const {
  constexpr double ninety = 0.9;
  const auto weight = [&](const LeftOut& r) {
    return std::exp(-std::abs(std::log2(r.bytes / static_cast<double>(bytes))));
  };
  double total_weight = 1, weight_so_far = 0, spread = 0;
  for (const LeftOut& r : system.left_out) total_weight += weight(r);
  for (const LeftOut& r : system.left_out) {
    if (weight_so_far >= ninety * total_weight) break;
    weight_so_far += weight(r);
    spread = r.error;
  }
  return std::max({least_spread, system.spread, spread});
}

PredictionOrReason CollectiveCalibration::predict(const MeasuredCollective& c) const {
  if (!c.problem.empty()) return {{}, c.problem};
  const auto at = systems_.find(c.system);
  if (at == systems_.end()) return {{}, "no row of this system was calibrated on"};
  std::string reason;
  const auto seconds = by_terms(at->second, c, reason);
  if (!seconds) return {{}, reason};
  const Correction corrected = correction(at->second, c);
  Prediction p{.seconds = *seconds * corrected.factor};
  const double rank_ratio = c.shape.ranks / at->second.most_ranks;
  set_interval(p, spread_with(spread_at(at->second, c.bytes), corrected, rank_ratio), rank_ratio);
  p.largest_part = c.codec.empty() ? "wire" : "wire and codec";
  return {p, {}};
}

std::optional<double> CollectiveCalibration::same_busbw_seconds(const MeasuredCollective& c) const {
  const auto factor = [](const MeasuredCollective& r) {
    const double p = r.shape.ranks;
    if (r.kind == CollectiveKind::all_reduce) return 2 * (p - 1) / p;
    return r.kind == CollectiveKind::broadcast || r.kind == CollectiveKind::send_receive ? 1 : (p - 1) / p;
  };
  const MeasuredCollective* fewest = nullptr;
  for (const auto& r : rows_)
    if (r.system == c.system && key_of(r) == key_of(c) && r.bytes == c.bytes &&
        (!fewest || r.shape.ranks < fewest->shape.ranks))
      fewest = &r;
  if (!fewest) return std::nullopt;
  return fewest->seconds * factor(c) / factor(*fewest);
}

std::optional<core::Machine> CollectiveCalibration::machine(const std::string& system,
                                                            std::uint32_t ranks_per_node) const {
  const auto at = systems_.find(system);
  if (at == systems_.end()) return std::nullopt;
  return machine_of(at->second.log_terms, ranks_per_node);
}

std::optional<core::Machine> CollectiveCalibration::machine_with_most_rows(std::uint32_t ranks_per_node) const {
  std::map<std::string, std::size_t> rows;
  for (const auto& c : rows_) ++rows[c.system];
  if (rows.empty()) return std::nullopt;
  const auto most = std::ranges::max_element(rows, {}, [](const auto& r) { return r.second; });
  return machine(most->first, ranks_per_node);
}

std::map<std::string, core::CodecRates> CollectiveCalibration::codec_rates() const {
  std::map<std::string, core::CodecRates> out;
  for (const auto& [name, system] : systems_)
    for (const auto& [codec, times] : system.codecs) {
      if (!(times.encode_s_per_byte > 0) || !(times.decode_s_per_byte > 0)) continue;
      const double decode = 1 / times.decode_s_per_byte;
      out[core::parse_name_or_text(codec).base] = {
          .encode = 1 / times.encode_s_per_byte, .decode = decode, .add = decode};
    }
  return out;
}

std::string CollectiveCalibration::text() const {
  std::string out;
  for (const auto& [name, s] : systems_) {
    const auto t = [&](LinkTerm which) { return term(s.log_terms, which); };
    const auto link = [&](bool is_measured, LinkTerm latency, LinkTerm rate) {
      return is_measured ? fmt::format("{:.3g} s and {:.3g} bytes/s", t(latency), t(rate)) : "not measured";
    };
    out += fmt::format("{}: in a node {}, between nodes {}, sums {:.3g} bytes/s, {:.3g} s a call; {} {:.0f} %\n", name,
                       link(s.has_within, LinkTerm::within_latency, LinkTerm::within_rate),
                       link(s.has_between, LinkTerm::between_latency, LinkTerm::between_rate), t(LinkTerm::reduce_rate),
                       t(LinkTerm::fixed),
                       s.left_out.empty() ? "no row could be left out, and the error at 1 MiB is assumed to be within"
                                          : "rows of 1 MiB that were left out within",
                       100 * std::expm1(spread_at(s, std::size_t{1} << 20)));
  }
  return out;
}

Score score(const CollectiveCalibration& calibration, std::span<const MeasuredCollective> rows,
            const std::string& file) {
  std::vector<JudgedRow> judged;
  for (const auto& c : rows) {
    const auto [prediction, reason] = calibration.predict(c);
    judged.push_back({.id = c.id,
                      .measured_s = c.seconds,
                      .prediction = prediction,
                      .reason = reason,
                      .constant_flops_s = {},
                      .linear_s = calibration.same_busbw_seconds(c)});
  }
  return score_of(judged, file);
}

}  // namespace gradmeter::predict
