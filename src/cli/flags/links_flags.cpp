#include "cli/flags/links_flags.hpp"

#include "cli/output.hpp"
#include "cli/row_output.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::cli {
namespace {

using core::UsageError;

runtime::TransportKind read_transport(const Flags& f, runtime::RanksAs as) {
  if (!f.has("transport")) {
    return as == runtime::RanksAs::threads ? runtime::TransportKind::shm : runtime::TransportKind::mpi;
  }
  std::vector<runtime::TransportKind> known;
  for (const auto& row : runtime::transport_table()) known.push_back(row.kind);
  const auto chosen = choose("--transport", "transport", f.text("transport"), known,
                             [](auto k) { return std::string(runtime::name(k)); });
  if (chosen.size() != 1) throw UsageError("--transport takes one value: give each a run of its own, with --append");
  if (const auto why = runtime::transport_refusal(chosen.front(), as, "cpu"); !why.empty()) throw UsageError(why);
  return chosen.front();
}

std::vector<std::size_t> read_message_sizes(const Flags& f) {
  constexpr std::size_t most = std::size_t{1} << 30;
  std::vector<std::size_t> out;
  for (const auto& item : split_list("--size", f.text("size"))) {
    const std::size_t bytes = parse_size("--size", item);
    if (bytes == 0 || bytes > most) throw UsageError(fmt::format("--size {}: a message has 1 byte to 1G", item));
    out.push_back(bytes);
  }
  return out;
}

core::Injection read_link_injection(const Flags& f, int ranks) {
  if (!f.has("inject")) return {};
  const auto injection = core::parse_injection(f.text("inject"));
  injection.check_ranks(ranks);
  if (!f.has("soak")) injection.check_lasting();
  if (injection.omit || injection.drift || injection.messages.any()) {
    throw UsageError("--inject: links has no sums, no schedules and compares no clocks; it knows slow and flip");
  }
  return injection;
}

/// A soak has one point, and goes on as long as it was told to.
void read_soak(const Flags& f, LinkRequest& r) {
  if (!f.has("soak")) return;
  r.soak = parse_time("--soak", f.text("soak"));
  auto& factors = r.options.factors;
  if (!f.given("pattern")) factors.patterns = {bench::LinkPattern::one_way};
  const auto pattern = factors.patterns.front();
  if (factors.patterns.size() != 1 || factors.sizes.size() != 1 ||
      (pattern != bench::LinkPattern::one_way && pattern != bench::LinkPattern::both_ways)) {
    throw UsageError("--soak repeats one point: give one --size and one --pattern, one-way or both-ways");
  }
  for (const char* other : {"fail-below", "time-budget", "pairs-at-once"}) {
    if (f.has(other)) throw UsageError(fmt::format("--{} has no meaning with --soak: leave it out", other));
  }
  if (f.on("resume")) throw UsageError("--resume: a soak cannot go on where it ended; --append adds another");
}

}  // namespace

options::options_description describe_links() {
  options::options_description d("Flags (a comma list makes a factor; all gives every value there is)", 110);
  d.add_options()("help,h", "this text");
  add_text(d, "pattern", "one-way,bisection",
           "one-way (latency and bandwidth of every pair), both-ways (osu_bibw), multi-pair (osu_mbw_mr), bisection, "
           "bisection-random, groups (slow ranks by groups that halve, where pairs are too many)");
  add_text(d, "size", "128K", "bytes of a message: 8,64K,1M");
  add_text(d, "outstanding", "16", "messages that a rank has under way at once: a window");
  add_text(d, "pairs-at-once", "", "at most so many pairs exchange at the same time; default half of the ranks");
  add_text(d, "transport", "", "what moves the bytes: mpi (the default), shm, hybrid, automatic");
  add_text(d, "interconnect", "", "a label of the link, for the result file");
  add_text(d, "fail-below", "",
           "end with 1 when a link has less than this share of the usual bandwidth, or a latency of more than "
           "the usual one divided by it: 0.8");
  add_text(d, "soak", "",
           "repeat one point for so long (30s, 8h), and show drift, outliers, disturbances and their hosts; "
           "--inject slow:rank=1,factor=2,after=10,for=5 disturbs a part of it");
  add_text(d, "time-budget", "", "for all points together: 90s, 10m; default 20 s for all links of a size");
  add_text(d, "min-samples", "10", "windows of each link at least");
  add_text(d, "precision-goal", "0.025",
           "half width of the median's 95 % interval, relative, at which a link has enough");
  add_injection(d);
  add_rank_flags(d);
  add_switch(d, "dry-run", "say which points and how much memory; measure nothing");
  add_format_flags(d);
  add_output_flags(d);
  return d;
}

LinkRequest read_link_request(const Flags& f, int ranks, runtime::RanksAs as) {
  if (ranks < 2) throw UsageError("links: one rank has no links; start two or more (mpirun -np 2 gradmeter links)");
  LinkRequest r;
  auto& o = r.options;
  o.factors.patterns = choose("--pattern", "pattern", f.text("pattern"), bench::link_patterns(),
                              [](auto p) { return std::string(bench::name(p)); });
  o.factors.sizes = read_message_sizes(f);
  o.factors.outstanding = parse_count("--outstanding", f.text("outstanding"), 1, 4096);
  if (f.has("pairs-at-once")) {
    o.factors.pairs_at_once = static_cast<int>(parse_count("--pairs-at-once", f.text("pairs-at-once"), 1, 1u << 20));
  }
  o.factors.transport = read_transport(f, as);
  if (f.has("interconnect")) o.factors.interconnect = read_label(f, "interconnect");
  o.factors.injection = read_link_injection(f, ranks);
  if (f.has("fail-below")) r.fail_below = parse_number("--fail-below", f.text("fail-below"), 0, 1);
  if (f.has("time-budget")) o.time_budget = parse_time("--time-budget", f.text("time-budget"));
  o.rule.min_samples = parse_count("--min-samples", f.text("min-samples"), 3, 1'000'000);
  o.rule.relative_half_width = parse_number("--precision-goal", f.text("precision-goal"), 1e-4, 1);
  read_soak(f, r);
  return r;
}

}  // namespace gradmeter::cli
