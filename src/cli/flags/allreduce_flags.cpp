#include "cli/flags/allreduce_flags.hpp"

#include <algorithm>

#include "cli/output.hpp"
#include "cli/row_output.hpp"
#include "compression/warm_up.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"

namespace gradmeter::cli {
namespace {

using core::UsageError;

std::vector<std::size_t> read_sizes(const Flags& f) {
  if (f.has("set")) {
    check_only("--set", f.text("set"), {"deepbench"});
    if (f.has("sizes")) throw UsageError("give one of --set and --sizes");
    return bench::deepbench_sizes();
  }
  if (f.has("sizes")) {
    std::vector<std::size_t> out;
    for (const auto& item : split_list("--sizes", f.text("sizes"))) out.push_back(parse_size("--sizes", item));
    return out;
  }
  const std::size_t step = f.has("stepbytes") ? parse_size("--stepbytes", f.text("stepbytes")) : 0;
  if (f.has("stepbytes") && step == 0) throw UsageError("--stepbytes 0: the sweep would never end; give at least 1");
  return bench::sweep_sizes(parse_size("--minbytes", f.text("minbytes")), parse_size("--maxbytes", f.text("maxbytes")),
                            step, parse_number("--stepfactor", f.text("stepfactor"), 1, 1e6));
}

template <class T, class NameOf>
std::vector<T> choose_from(const std::string& flag, std::string_view what, const std::string& text,
                           std::span<const T> all, NameOf name_of) {
  return choose<T>(flag, what, text, std::vector<T>(all.begin(), all.end()), name_of);
}

std::vector<const bench::CollectiveInfo*> read_collectives(const Flags& f) {
  std::vector<const bench::CollectiveInfo*> all;
  for (const auto& c : bench::collectives()) all.push_back(&c);
  return choose("--collective", "collective", f.text("collective"), all,
                [](const auto* c) { return std::string(c->name); });
}

std::vector<allreduce::Op> read_ops(const Flags& f) {
  using enum allreduce::Op;
  return choose("--op", "operation", f.text("op"), std::vector{sum, product, min, max, average},
                [](auto op) { return std::string(allreduce::name(op)); });
}

std::vector<core::Element> read_elements(const Flags& f) {
  std::vector<core::Element> out;
  const auto add = [&](core::Element e) {
    if (std::find(out.begin(), out.end(), e) == out.end()) out.push_back(e);
  };
  for (const auto& item : split_list("--datatype", f.text("datatype"))) {
    if (item == "all") {
      for (const auto& e : core::elements) add(e.element);
    } else {
      add(core::parse_element(item));
    }
  }
  return out;
}

std::vector<bench::Reduction> read_reductions(const Flags& f) {
  constexpr std::array as_nccl{bench::Reduction::rank0, bench::Reduction::average, bench::Reduction::min,
                               bench::Reduction::max};
  if (f.has("reduction") && f.has("average")) throw UsageError("give one of --average and --reduction");
  if (f.has("average")) return {as_nccl.at(parse_count("--average", f.text("average"), 0, 3))};
  if (!f.has("reduction")) return {bench::Reduction::max};
  return choose_from("--reduction", "reduction", f.text("reduction"), bench::reductions(),
                     [](auto r) { return std::string(bench::name(r)); });
}

std::vector<bool> read_placements(const Flags& f) {
  std::vector<bool> out;
  for (const auto& item : split_list("--in-place", f.text("in-place"))) {
    if (item != "out" && item != "in" && item != "both" && item != "all") {
      core::refuse_unknown("in-place", item, std::vector<std::string>{"both", "in", "out"});
    }
    for (const bool in : {false, true}) {
      const bool wanted = item == "both" || item == "all" || (item == "in") == in;
      if (wanted && std::find(out.begin(), out.end(), in) == out.end()) out.push_back(in);
    }
  }
  return out;
}

std::vector<bool> read_accumulation(const Flags& f) {
  const auto names = choose("--accum-dtype", "accumulation type", f.text("accum-dtype"),
                            std::vector<std::string>{"same", "fp32"}, [](const auto& n) { return n; });
  std::vector<bool> out;
  for (const auto& n : names) out.push_back(n == "fp32");
  return out;
}

std::vector<int> read_roots(const Flags& f, int ranks) {
  std::vector<int> out;
  const auto most = static_cast<std::uint64_t>(ranks - 1);
  if (f.text("root") == "all") {
    for (int r = 0; r < ranks; ++r) out.push_back(r);
    return out;
  }
  for (const auto r : parse_counts("--root", f.text("root"), 0, most)) out.push_back(static_cast<int>(r));
  return out;
}

core::Injection read_injection(const std::string& text, int ranks, const bench::CollectiveFactors& o) {
  const auto injection = core::parse_injection(text);
  injection.check_ranks(ranks);
  injection.check_lasting();
  const bool clocks_matter = std::ranges::count(o.reductions, bench::Reduction::span) > 0 ||
                             std::ranges::count(o.cadences, runtime::Cadence::window) > 0;
  if (injection.drift && !clocks_matter) {
    throw UsageError("--inject drift: these points compare no clocks; take --reduction span or --cadence window");
  }
  return injection;
}

void refuse_overlap_on_a_device(const Flags& f) {
  if (f.text("device") != "cpu" && f.text("overlap") != "none")
    throw UsageError(
        "--overlap: the product beside an exchange runs on the host; take --overlap none with --device cuda");
}

/// `all` are those of the device.
std::vector<bench::BufferKind> read_buffers(const Flags& f) {
  const auto is_of_gpus = [](bench::BufferKind b) { return b == bench::BufferKind::registered; };
  std::vector<bench::BufferKind> known(bench::buffer_kinds().begin(), bench::buffer_kinds().end());
  if (f.text("device") == "cpu" && f.text("buffers") == "all") std::erase_if(known, is_of_gpus);
  auto chosen =
      choose("--buffers", "buffers", f.text("buffers"), known, [](auto b) { return std::string(bench::name(b)); });
  if (f.text("device") == "cpu" && std::ranges::any_of(chosen, is_of_gpus))
    throw UsageError("--buffers registered: NCCL registers memory of a GPU; it needs --device cuda");
  return chosen;
}

/// 0: not captured.
std::vector<std::size_t> read_cudagraphs(const Flags& f) {
  std::vector<std::size_t> out;
  for (const auto& item : split_list("--cudagraph", f.text("cudagraph"))) {
    const std::size_t launches = item == "none" ? 0 : parse_count("--cudagraph", item, 0, 1'000'000);
    if (std::ranges::count(out, launches) == 0) out.push_back(launches);
  }
  if (f.given("cudagraph") && f.text("device") == "cpu")
    throw UsageError("--cudagraph captures calls on a GPU: it needs --device cuda; leave it out");
  return out;
}

bench::CollectiveFactors read_factors(const Flags& f, int ranks, int threads) {
  bench::CollectiveFactors o;
  o.collectives = read_collectives(f);
  o.algorithms = parse_algorithms(f.text("algorithm"));
  o.codecs = compression::as_timed(parse_codecs(f.text("codec")));
  o.transports = parse_transports(f.text("transport"));
  o.buffers = read_buffers(f);
  o.in_place = read_placements(f);
  o.sizes = read_sizes(f);
  o.elements = read_elements(f);
  o.ops = read_ops(f);
  o.accumulate_wide = read_accumulation(f);
  o.cadences = parse_cadences(f.text("cadence"));
  o.reductions = read_reductions(f);
  o.overlaps =
      choose("--overlap", "overlap", f.text("overlap"), std::vector{bench::OverlapLoad::none, bench::OverlapLoad::gemm},
             [](auto u) { return std::string(bench::name(u)); });
  o.roots = read_roots(f, ranks);
  o.cudagraphs = read_cudagraphs(f);
  o.calls = parse_count("--agg_iters", f.text("agg_iters"), 1, 1'000'000);
  o.threads = threads;
  o.device = f.text("device");
  if (f.has("interconnect")) o.interconnect = read_label(f, "interconnect");
  return o;
}

}  // namespace

options::options_description describe_allreduce() {
  options::options_description d("Flags (a comma list makes a factor; all gives every value there is)", 110);
  d.add_options()("help,h", "this text");
  add_text(d, "minbytes,b", "8", "smallest buffer of a rank");
  add_text(d, "maxbytes,e", "64M", "largest buffer");
  add_text(d, "stepbytes,i", "", "step between sizes, in bytes, instead of a factor");
  add_text(d, "stepfactor,f", "4", "factor between sizes");
  add_text(d, "sizes", "", "sizes of your own: 1M,3M");
  add_text(d, "set", "", "deepbench: the sizes of its all-reduce");
  add_text(d, "iters,n", "", "timed iterations, exactly; default until the median is known well enough");
  add_text(d, "warmup_iters,w", "", "warm-up iterations, exactly; default until times settle");
  add_text(d, "agg_iters,m", "1", "calls back to back inside one timed iteration");
  add_text(d, "check,c", "1", "check results before, while and after timing; 0: not at all");
  add_text(d, "op,o", "sum", "sum, prod, min, max, avg");
  add_text(d, "datatype,d", "fp32", "element types: gradmeter's names or nccl-tests'");
  add_text(d, "root,r", "0", "who broadcasts");
  add_text(d, "average,a", "", "ranks' times become one: 0 rank 0's, 1 average, 2 min, 3 max (the default)");
  add_text(d, "reduction", "", "the same by name: rank0, avg, min, max, span (last end - first start)");
  add_text(d, "cudagraph,G", "none",
           "none, or launches in one iteration of its calls as a CUDA graph; needs --device cuda");
  add_text(d, "collective", "allreduce", "allreduce, reduce_scatter, all_gather, broadcast, all_to_all, sendrecv");
  add_text(d, "algorithm", "mpi,auto,ring,direct", "see gradmeter list algorithms");
  add_text(d, "transport", "auto", "auto, mpi, shm, hybrid, cuda-mpi: for our own algorithms");
  add_text(d, "buffers", "arena",
           "arena (shared by a node's ranks where the transport is), plain (private, huge pages), malloc, "
           "registered (with --device cuda, by nccl)");
  add_text(d, "in-place", "both", "out, in, both");
  add_text(d, "accum-dtype", "same", "same, fp32: what sums of 16-bit and 8-bit floats are kept in");
  add_text(d, "cadence", "barrier", "between iterations: barrier, none, window");
  add_text(d, "overlap", "none", "none, gemm: under a matrix product, moved by a progress thread");
  add_text(d, "codec", "none", "what travels: none, bf16, qsgd4:bucket=512, topk …; see gradmeter list codecs");
  add_text(d, "device", "cpu", "whose memory is exchanged: cpu, cuda");
  add_text(d, "fake-nodes", "", "0,0,1,1: one host plays several, recorded in the result");
  add_text(d, "interconnect", "", "a label for what joins the ranks, kept with every point");
  add_text(d, "seed", "1", "of the random data");
  add_text(d, "time-budget", "", "for all points together: 90s, 10m; default 1 s a point at most");
  add_text(d, "min-samples", "10", "iterations a point at least");
  add_text(d, "precision-goal", "0.025", "half width of the median's 95 % interval, relative, at which a point stops");
  add_rank_flags(d);
  add_text(d, "write-table", "",
           "write the fastest algorithm of each size to this file, for --algorithm auto:table=FILE");
  add_text(
      d, "inject", "",
      "faults on purpose: slow:rank=1,factor=2 (its calls take so long), flip:call=40,rank=0 (an error in one\n"
      "element from that call on), omit:call=40,rank=0 (it gives zeros to sums),\n"
      "drop:p=0.01,timeout=200ms (messages are lost and sent again), delay:time=1ms,jitter=200us (of each message),\n"
      "cut:rank=1,at=5s,for=2s (of its link), drift:ppm=20 (of a clock; with "
      "--reduction span or --cadence window)");
  add_switch(d, "per-rank", "a table by rank below the others: each one's own calls, and its work without waiting");
  add_switch(d, "dry-run", "say which points, how long, how much memory; measure nothing");
  add_format_flags(d);
  add_output_flags(d);
  return d;
}

std::vector<int> read_fake_nodes(const Flags& f, int ranks) {
  std::vector<int> out;
  if (!f.has("fake-nodes")) return out;
  for (const auto& item : split_list("--fake-nodes", f.text("fake-nodes"))) {
    out.push_back(static_cast<int>(parse_count("--fake-nodes", item, 0, 1u << 20)));
  }
  if (ranks > 0 && out.size() != static_cast<std::size_t>(ranks)) {
    throw UsageError(fmt::format("--fake-nodes {}: names {} nodes for {} rank{}; give one number for each rank",
                                 f.text("fake-nodes"), out.size(), ranks, ranks == 1 ? "" : "s"));
  }
  return out;
}

bench::CollectiveOptions read_collective_options(const Flags& f, int ranks, int threads) {
  refuse_overlap_on_a_device(f);
  bench::CollectiveOptions o;
  o.factors = read_factors(f, ranks, threads);
  constexpr std::uint64_t most = 10'000'000;
  if (f.has("iters")) o.exact_samples = parse_count("--iters", f.text("iters"), 1, most);
  if (f.has("warmup_iters")) o.exact_warmup = parse_count("--warmup_iters", f.text("warmup_iters"), 0, most);
  o.check = parse_count("--check", f.text("check"), 0, 1) == 1;
  if (f.has("time-budget")) o.time_budget = parse_time("--time-budget", f.text("time-budget"));
  o.rule.min_samples = parse_count("--min-samples", f.text("min-samples"), 3, 1'000'000);
  o.rule.relative_half_width = parse_number("--precision-goal", f.text("precision-goal"), 1e-4, 1);
  o.seed = parse_count("--seed", f.text("seed"), 0, UINT64_MAX);
  if (f.has("inject")) o.injection = read_injection(f.text("inject"), ranks, o.factors);
  o.factors.inject = o.injection.text();
  o.factors.message_faults = o.injection.messages;
  return o;
}

}  // namespace gradmeter::cli
