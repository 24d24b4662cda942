#include "allreduce/registry.hpp"

#include <algorithm>
#include <array>

#include "allreduce/chooser.hpp"
#include "allreduce/chosen.hpp"
#include "allreduce/cuda/gpu_direct.hpp"
#include "allreduce/cuda/nccl.hpp"
#include "allreduce/cuda/nccl_messages.hpp"
#include "allreduce/known_data.hpp"
#include "allreduce/native/gloo.hpp"
#include "allreduce/native/mpi.hpp"
#include "allreduce/native/ompi.hpp"
#include "allreduce/native/shm_direct.hpp"
#include "allreduce/predicted_table.hpp"
#include "allreduce/schedule/algorithms/bcube.hpp"
#include "allreduce/schedule/algorithms/binomial_tree.hpp"
#include "allreduce/schedule/algorithms/direct.hpp"
#include "allreduce/schedule/algorithms/double_tree.hpp"
#include "allreduce/schedule/algorithms/hierarchical_lane.hpp"
#include "allreduce/schedule/algorithms/hierarchical_leader.hpp"
#include "allreduce/schedule/algorithms/neighbour.hpp"
#include "allreduce/schedule/algorithms/one_shot.hpp"
#include "allreduce/schedule/algorithms/pairwise.hpp"
#include "allreduce/schedule/algorithms/rabenseifner.hpp"
#include "allreduce/schedule/algorithms/recursive_doubling.hpp"
#include "allreduce/schedule/algorithms/ring.hpp"
#include "allreduce/schedule/algorithms/swing.hpp"
#include "allreduce/schedule/algorithms/torus2d.hpp"
#include "allreduce/table_file.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::allreduce {
namespace {

constexpr std::array table{
    AlgorithmInfo{.name = "auto",
                  .parameters = "",
                  .cost_text = "one of the others, by bytes; auto:table=FILE, auto:machine=FILE",
                  .source = "a shipped, measured or given table",
                  .backend = Backend::selection,
                  .refusal = auto_refusal,
                  .bind = bind_auto,
                  .arena_bytes = auto_arena_bytes},
    AlgorithmInfo{.name = "bcube",
                  .parameters = "base=4",
                  .cost_text = "2·log_base p rounds, 2n(p-1)/p sent; p no power: direct",
                  .source = "gloo, gloo/allreduce.cc",
                  .refusal = bcube_refusal,
                  .make = make_bcube,
                  .cost = bcube_cost},
    AlgorithmInfo{.name = "binomial-tree",
                  .parameters = "",
                  .cost_text = "about 2·log2 p rounds, n·log2 p sent by rank 0",
                  .source = "Thakur, Rabenseifner, Gropp, IJHPCA 2005",
                  .refusal = binomial_tree_refusal,
                  .make = make_binomial_tree,
                  .cost = binomial_tree_cost},
    AlgorithmInfo{.name = "direct",
                  .parameters = "",
                  .cost_text = "2 rounds of p-1 messages, 2n(p-1)/p sent",
                  .source = "Markov et al., CGX, Middleware 2022",
                  .adds_all_at_once = true,
                  .refusal = direct_refusal,
                  .make = make_direct,
                  .cost = direct_cost},
    AlgorithmInfo{.name = "double-tree",
                  .parameters = "",
                  .cost_text = "2·log2 p rounds, 2n sent",
                  .source = "Sanders, Speck, Träff, Parallel Computing 2009",
                  .refusal = double_tree_refusal,
                  .make = make_double_tree,
                  .cost = double_tree_cost},
    AlgorithmInfo{.name = "gloo",
                  .parameters = "algorithm=ring",
                  .cost_text = "ring, or bcube: as gloo's, over TCP",
                  .source = "gloo, gloo/allreduce.cc",
                  .backend = Backend::vendor,
                  .refusal = gloo_row_refusal,
                  .bind = bind_gloo},
    AlgorithmInfo{.name = "gpu-direct",
                  .parameters = "small=262144",
                  .cost_text = "up to `small` bytes 1 barrier, n(p-1) read by each rank; beyond 2 barriers, 2n(p-1)/p",
                  .source = "own kernels over CUDA IPC; one and two shots as vLLM's custom all-reduce",
                  .backend = Backend::device,
                  .on_device = true,
                  .refusal = gpu_direct_refusal,
                  .bind = bind_gpu_direct},
    AlgorithmInfo{.name = "gpu-ring",
                  .parameters = "",
                  .cost_text = "2(p-1) barriers of neighbours, 2n(p-1)/p read by each rank",
                  .source = "own kernels over CUDA IPC; ring as Patarasuk & Yuan, JPDC 2009",
                  .backend = Backend::device,
                  .on_device = true,
                  .refusal = gpu_ring_refusal,
                  .bind = bind_gpu_ring},
    AlgorithmInfo{.name = "hierarchical-lane",
                  .parameters = "",
                  .cost_text = "2(g+p/g-2) rounds, 2n(p-1)/p sent",
                  .source = "Träff & Hunold, CLUSTER 2020",
                  .refusal = hierarchical_lane_refusal,
                  .make = make_hierarchical_lane,
                  .cost = hierarchical_lane_cost},
    AlgorithmInfo{.name = "hierarchical-leader",
                  .parameters = "",
                  .cost_text = "2(p/g-1)+2·log2 g rounds, 2n(m-1)/m+n·log2 g sent by the leader",
                  .source = "Luo et al., CLUSTER 2020",
                  .refusal = hierarchical_leader_refusal,
                  .make = make_hierarchical_leader,
                  .cost = hierarchical_leader_cost},
    AlgorithmInfo{.name = "mpi",
                  .parameters = "",
                  .cost_text = "the library's own choice",
                  .source = "MPI_Allreduce and its like as shipped",
                  .backend = Backend::vendor,
                  .refusal = mpi_refusal,
                  .bind = bind_mpi},
    AlgorithmInfo{.name = "mpi-nonblocking",
                  .parameters = "",
                  .cost_text = "the library's own choice",
                  .source = "MPI_Iallreduce and its like, MPI_Test",
                  .backend = Backend::vendor,
                  .refusal = mpi_refusal,
                  .bind = bind_mpi_nonblocking},
    AlgorithmInfo{.name = "mpi-v",
                  .parameters = "",
                  .cost_text = "the library's own choice",
                  .source = "MPI_Allgatherv, MPI_Reduce_scatter",
                  .backend = Backend::vendor,
                  .refusal = mpi_vector_refusal,
                  .bind = bind_mpi_vector},
    AlgorithmInfo{.name = "nccl",
                  .parameters = "algorithm=any,protocol=any",
                  .cost_text = "the library's own choice, or as named; between GPUs",
                  .source = "NCCL 2.18 or later",
                  .backend = Backend::vendor,
                  .on_device = true,
                  .registers_buffers = true,
                  .refusal = nccl_row_refusal,
                  .bind = bind_nccl},
    AlgorithmInfo{.name = "nccl-messages",
                  .parameters = "schedule=ring,message=4M",
                  .cost_text = "the schedule's; between GPUs, sums between the messages",
                  .source = "a schedule of ours over ncclSend and ncclRecv",
                  .backend = Backend::device,
                  .on_device = true,
                  .adds_all_at_once = true,  // where its schedule does: the refusal
                  .refusal = nccl_messages_refusal,
                  .bind = bind_nccl_messages},
    AlgorithmInfo{.name = "neighbour",
                  .parameters = "",
                  .cost_text = "1 round, n sent",
                  .source = "send-receive round a ring",
                  .refusal = neighbour_refusal,
                  .make = make_neighbour,
                  .cost = neighbour_cost},
    AlgorithmInfo{.name = "ompi-basic-linear",
                  .parameters = "",
                  .cost_text = "2(p-1) messages through rank 0",
                  .source = "Open MPI 4.1, coll/tuned algorithm 1, forced",
                  .backend = Backend::vendor,
                  .refusal = ompi_refusal,
                  .bind = bind_ompi},
    AlgorithmInfo{.name = "ompi-nonoverlapping",
                  .parameters = "",
                  .cost_text = "reduce, then broadcast",
                  .source = "Open MPI 4.1, coll/tuned algorithm 2, forced",
                  .backend = Backend::vendor,
                  .refusal = ompi_refusal,
                  .bind = bind_ompi},
    AlgorithmInfo{.name = "ompi-rabenseifner",
                  .parameters = "",
                  .cost_text = "2·log2 p rounds, 2n(p-1)/p sent",
                  .source = "Open MPI 4.1, coll/tuned algorithm 6, forced",
                  .backend = Backend::vendor,
                  .refusal = ompi_refusal,
                  .bind = bind_ompi},
    AlgorithmInfo{.name = "ompi-recursive-doubling",
                  .parameters = "",
                  .cost_text = "log2 p rounds, n·log2 p sent",
                  .source = "Open MPI 4.1, coll/tuned algorithm 3, forced",
                  .backend = Backend::vendor,
                  .refusal = ompi_refusal,
                  .bind = bind_ompi},
    AlgorithmInfo{.name = "ompi-ring",
                  .parameters = "",
                  .cost_text = "2(p-1) rounds, 2n(p-1)/p sent",
                  .source = "Open MPI 4.1, coll/tuned algorithm 4, forced",
                  .backend = Backend::vendor,
                  .refusal = ompi_refusal,
                  .bind = bind_ompi},
    AlgorithmInfo{.name = "ompi-segmented-ring",
                  .parameters = "segment=1M",
                  .cost_text = "2(p-1) rounds, 2n(p-1)/p sent",
                  .source = "Open MPI 4.1, coll/tuned algorithm 5, forced",
                  .backend = Backend::vendor,
                  .refusal = ompi_refusal,
                  .bind = bind_ompi},
    AlgorithmInfo{.name = "one-shot",
                  .parameters = "",
                  .cost_text = "1 round of p-1 messages, n(p-1) sent",
                  .source = "Chan et al., CCPE 2007, section 4",
                  .adds_all_at_once = true,
                  .refusal = one_shot_refusal,
                  .make = make_one_shot,
                  .cost = one_shot_cost},
    AlgorithmInfo{.name = "pairwise",
                  .parameters = "",
                  .cost_text = "p rounds, n(p-1)/p sent",
                  .source = "Thakur, Rabenseifner, Gropp, IJHPCA 2005",
                  .refusal = pairwise_refusal,
                  .make = make_pairwise,
                  .cost = pairwise_cost},
    AlgorithmInfo{.name = "rabenseifner",
                  .parameters = "",
                  .cost_text = "2·log2 p rounds, 2n(p-1)/p sent",
                  .source = "Thakur, Rabenseifner, Gropp, IJHPCA 2005",
                  .refusal = rabenseifner_refusal,
                  .make = make_rabenseifner,
                  .cost = rabenseifner_cost},
    AlgorithmInfo{.name = "recursive-doubling",
                  .parameters = "",
                  .cost_text = "log2 p rounds, n·log2 p sent",
                  .source = "Thakur, Rabenseifner, Gropp, IJHPCA 2005",
                  .refusal = recursive_doubling_refusal,
                  .make = make_recursive_doubling,
                  .cost = recursive_doubling_cost},
    AlgorithmInfo{.name = "ring",
                  .parameters = "",
                  .cost_text = "2(p-1) rounds, 2n(p-1)/p sent",
                  .source = "Patarasuk & Yuan, JPDC 2009",
                  .refusal = ring_refusal,
                  .make = make_ring,
                  .cost = ring_cost},
    AlgorithmInfo{.name = "shm-direct",
                  .parameters = "",
                  .cost_text = "2 barriers, p·n read and p·n written by all together",
                  .source = "own: one pass over all ranks' buffers in shared memory",
                  .backend = Backend::shared,
                  .adds_all_at_once = true,
                  .refusal = shm_direct_refusal,
                  .bind = bind_shm_direct,
                  .arena_bytes = shm_direct_arena_bytes},
    AlgorithmInfo{.name = "swing",
                  .parameters = "",
                  .cost_text = "2·log2 p rounds, 2n(p-1)/p sent",
                  .source = "De Sensi et al., NSDI 2024",
                  .refusal = swing_refusal,
                  .make = make_swing,
                  .cost = swing_cost},
    AlgorithmInfo{.name = "torus2d",
                  .parameters = "rows=0",
                  .cost_text = "2(a+b-2) rounds, 2n(p-1)/p sent",
                  .source = "Mikami et al., arXiv:1811.05233",
                  .refusal = torus2d_refusal,
                  .make = make_torus2d,
                  .cost = torus2d_cost},
};

const AlgorithmInfo& selection_row() {
  return *std::find_if(table.begin(), table.end(), [](const auto& a) { return a.backend == Backend::selection; });
}

}  // namespace

std::span<const AlgorithmInfo> algorithms() { return table; }

AlgorithmPtr choice_by(std::shared_ptr<const Chooser> chooser) {
  return std::make_shared<AlgorithmChoice>(selection_row(), std::move(chooser));
}

namespace {

/// A file may change, so the name has a hash of what it described: equal names mean the same.
AlgorithmPtr choice_by_machine(core::ParsedName parsed) {
  const std::string file = parsed.parameters.at("machine");
  core::Machine machine = read_machine_file(file);
  const std::string text = core::to_json(machine);
  const std::string id = fmt::format("{:016x}", hash_of(std::as_bytes(std::span(text))));
  const std::string given = parsed.parameters.try_emplace("id", id).first->second;
  if (parsed.parameters.size() > 2)
    throw core::UsageError("auto takes machine=FILE, and id=HASH as its name has it, and nothing beside them");
  if (given != id)
    throw core::UsageError(
        fmt::format("{} describes another machine ({}) than was asked for ({}); leave id out to take it as it is", file,
                    id, given));
  return std::make_shared<AlgorithmChoice>(selection_row(), std::move(parsed), std::move(machine));
}

}  // namespace

AlgorithmPtr find_algorithm(std::string_view text) {
  if (is_table(text)) return choice_by(std::make_shared<TableChooser>(text));
  core::ParsedName parsed = core::parse_name(text);
  if (parsed.base == selection_row().name && parsed.parameters.contains("table")) {
    if (parsed.parameters.size() > 1) throw core::UsageError("auto takes one parameter: auto:table=FILE");
    return choice_by(std::make_shared<TableChooser>(read_table_file(parsed.parameters.at("table"))));
  }
  if (parsed.base == selection_row().name && parsed.parameters.contains("machine")) {
    return choice_by_machine(std::move(parsed));
  }
  std::vector<std::string> known;
  for (const auto& a : table) {
    known.emplace_back(a.name);
    if (a.name != parsed.base) continue;
    auto choice = std::make_shared<AlgorithmChoice>(a, core::with_defaults("algorithm", a.name, a.parameters, parsed));
    (void)choice->refusal({});  // a parameter's value is wrong wherever it is to run: say so now
    return choice;
  }
  core::refuse_unknown("algorithm", parsed.base, known);
}

AlgorithmChoice::AlgorithmChoice(const AlgorithmInfo& info, core::ParsedName parsed)
    : name(parsed.canonical()), info_(info), parsed_(std::move(parsed)) {}

AlgorithmChoice::AlgorithmChoice(const AlgorithmInfo& info, std::shared_ptr<const Chooser> chooser)
    : name(chooser->name()),
      info_(info),
      parsed_{.base = std::string(info.name), .bare = {}, .parameters = {}},
      chooser_(std::move(chooser)) {}

AlgorithmChoice::AlgorithmChoice(const AlgorithmInfo& info, core::ParsedName parsed, core::Machine machine)
    : name(parsed.canonical()),
      info_(info),
      parsed_(std::move(parsed)),
      machine_(std::make_shared<core::Machine>(std::move(machine))) {}

Request AlgorithmChoice::request(Shape shape, CollectiveKind collective_kind, std::uint32_t root) const {
  return {.shape = shape,
          .collective_kind = collective_kind,
          .name = parsed_,
          .root = root,
          .chooser = chooser_,
          .machine = machine_};
}

std::string AlgorithmChoice::fault_refusal(const core::MessageFaults& f) const {
  if (!f.any() || has_schedule()) return {};
  return fmt::format(
      "--inject drop, delay and cut are of messages of our schedules, and {} has others or none: take ring", name);
}

std::string AlgorithmChoice::refusal(Shape shape, CollectiveKind collective_kind, Arithmetic arithmetic) const {
  try {
    check_supported(arithmetic.element, arithmetic.op, arithmetic.accumulate());
  } catch (const core::UsageError& e) {
    return e.what();
  }
  if (arithmetic.accumulate() != arithmetic.element && !info_.adds_all_at_once) {
    return fmt::format("{} rounds sums of {} on the way; direct and shm-direct round once", info_.name,
                       core::info(arithmetic.element).name);
  }
  Request r = request(shape, collective_kind);
  r.arithmetic = arithmetic;
  return info_.refusal ? info_.refusal(r) : "";
}

std::vector<SchedulePtr> AlgorithmChoice::make(Shape shape, CollectiveKind collective_kind, std::uint32_t root) const {
  if (!has_schedule()) throw core::UsageError(fmt::format("algorithm {} has no schedule of ours", name));
  if (const auto why = refusal(shape, collective_kind); !why.empty()) throw core::UsageError(why);
  return info_.make(request(shape, collective_kind, root));
}

StatedCost AlgorithmChoice::cost(Shape shape, CollectiveKind collective_kind) const {
  return info_.cost(request(shape, collective_kind));
}

std::string AlgorithmChoice::transport_refusal(runtime::TransportKind t) const {
  if (t != runtime::TransportKind::cuda_mpi || has_schedule()) return {};
  return fmt::format(
      "{} sends no messages of GPUs' memory, which transport cuda-mpi is for: take ring, or --transport mpi",
      info_.name);
}

std::size_t AlgorithmChoice::arena_bytes(Shape shape, std::uint32_t rank, const ExecutorOptions& options,
                                         CollectiveKind collective_kind) const {
  if (!refusal(shape, collective_kind).empty()) return 0;
  if (has_schedule()) return Executor::arena_bytes({name, make(shape, collective_kind)}, rank, options);
  return info_.arena_bytes ? info_.arena_bytes(request(shape, collective_kind), rank, options) : 0;
}

std::unique_ptr<Collective> AlgorithmChoice::bind(const Site& site, const ExecutorOptions& options,
                                                  CollectiveKind collective_kind, std::uint32_t root) const {
  const Shape shape = shape_of(site.network.nodes_of(site.communicator));
  if (const auto why = refusal(shape, collective_kind); !why.empty()) throw core::UsageError(why);
  if (!has_schedule()) return info_.bind(request(shape, collective_kind, root), site, options);
  ExecutorOptions o = options;
  o.transport_takes_device = site.network.takes_device_memory();
  return std::make_unique<Executor>(Algorithm{name, make(shape, collective_kind, root)}, site.transport,
                                    site.network.arena(), std::move(o));
}

}  // namespace gradmeter::allreduce
