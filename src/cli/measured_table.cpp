#include "cli/measured_table.hpp"

#include <filesystem>
#include <fstream>

#include "allreduce/table_file.hpp"
#include "core/error.hpp"
#include "core/format.hpp"

namespace gradmeter::cli {
namespace {

using core::Factor;

template <class List>
void need_one(const char* flag, const List& values) {
  if (values.size() == 1) return;
  throw core::UsageError(
      fmt::format("--write-table holds one choice for each size, but {} has {} values; give one", flag, values.size()));
}

std::string text(const core::Point& p, Factor f) { return core::to_text(p.factors[f]); }

}  // namespace

void check_measured_table(const std::string& path, const bench::CollectiveFactors& f) {
  need_one("--collective", f.collectives);
  if (f.collectives.front()->collective_kind != allreduce::CollectiveKind::all_reduce) {
    throw core::UsageError(fmt::format("--write-table is for allreduce, not {}", f.collectives.front()->name));
  }
  need_one("--datatype", f.elements);
  need_one("--op", f.ops);
  need_one("--transport", f.transports);
  need_one("--buffers", f.buffers);
  need_one("--in-place", f.in_place);
  need_one("--cudagraph", f.cudagraphs);
  if (std::filesystem::exists(path)) {
    throw core::UsageError(fmt::format("--write-table {}: exists; remove it or give another name", path));
  }
}

void write_measured_table(const std::string& path, std::span<const core::Point> points, const core::RunInfo& run) {
  std::vector<allreduce::MeasuredSize> sizes;
  for (const auto& p : points) {
    if (p.status != core::Status::ok) continue;
    sizes.push_back({static_cast<std::uint64_t>(p.factors[Factor::size_bytes].get<std::int64_t>()),
                     text(p, Factor::algorithm), p.metrics.number(core::Metric::time_s)});
  }
  const allreduce::TableChooser table(allreduce::fit_table(sizes));
  const auto& any = points.front();
  const std::vector<std::string> comments{
      fmt::format("the fastest of each size, for gradmeter --algorithm auto:table={}", path),
      fmt::format("{} {} {} over {} ranks on {} node(s), buffers {}, in place {}", text(any, Factor::collective),
                  text(any, Factor::dtype), text(any, Factor::op), run.ranks, run.nodes, text(any, Factor::buffers),
                  text(any, Factor::in_place)),
      fmt::format("{}, {}, {}, machine {}", run.time, run.cpu, run.mpi, run.fingerprint), run.command};
  std::ofstream file(path);
  file << table_file_text(table, comments);
  file.flush();
  if (!file) throw core::BackendError("system", "write", fmt::format("{} could not be written", path));
}

}  // namespace gradmeter::cli
