// SPDX-License-Identifier: Apache-2.0
#include "bench/allreduce/goal.hpp"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "allreduce/schedule/goal.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"
#include "report/cells.hpp"
#include "runtime/transport/transport.hpp"

namespace gradmeter::bench {
namespace {

using core::UsageError;

/// The facts of a point that decide its schedule, in words. Placement and transport do not change the schedule.
std::string schedule_text(const CollectivePoint& p) {
  return fmt::format("{} by {}, {} elements of {}{}", p.collective->name, p.algorithm->name, p.count,
                     core::info(p.element).name,
                     p.collective->has_root ? fmt::format(", from rank {}", p.root) : std::string());
}

/// Returns a point that has the schedule of all points.
const CollectivePoint& only_schedule(std::span<const CollectivePoint> points, allreduce::RankShape shape) {
  const CollectivePoint& p = points.front();
  for (const auto& other : points) {
    if (schedule_text(other) != schedule_text(p))
      throw UsageError(
          fmt::format("--goal holds one schedule, but these flags describe {} and {}; give one "
                      "--collective, --algorithm, --datatype, --sizes and --root",
                      schedule_text(p), schedule_text(other)));
    if (other.codec)
      throw UsageError(
          fmt::format("--goal holds the messages of plain values; leave out --codec {}", other.codec->label));
  }
  if (!p.algorithm->has_schedule())
    throw UsageError(fmt::format("--goal: {} has no schedule of ours; take ring", p.algorithm->name));
  if (const auto why = p.algorithm->refusal(shape, p.collective->collective_kind); !why.empty())
    throw UsageError(fmt::format("--goal: {}", why));
  return p;
}

/// A file that is removed again unless all of it was written.
class NewFile {
 public:
  explicit NewFile(const std::string& path) : path_(path), out_(path, std::ios::binary) { check(); }
  ~NewFile() {
    if (complete_) return;
    out_.close();
    std::error_code ignored;
    if (is_file()) std::filesystem::remove(path_, ignored);
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::string_view text) {
    out_.write(text.data(), static_cast<std::streamsize>(text.size()));
    check();
    bytes_ += text.size();
  }
  std::size_t close() {
    out_.close();
    check();
    complete_ = true;
    return bytes_;
  }

 private:
  /// False for a device such as /dev/stdout, or a link.
  bool is_file() const {
    std::error_code ignored;
    return std::filesystem::is_regular_file(std::filesystem::symlink_status(path_, ignored));
  }
  void check() const {
    if (!out_) throw core::BackendError("system", "write", fmt::format("{} could not be written", path_));
  }

  std::string path_;
  std::ofstream out_;
  std::size_t bytes_ = 0;
  bool complete_ = false;
};

}  // namespace

void write_goal_file(const GoalFile& file, std::span<const CollectivePoint> points, const NodeMap& map,
                     const std::function<int()>& pending) {
  const allreduce::RankShape shape = allreduce::shape_of(map.node_of);
  const CollectivePoint& p = only_schedule(points, shape);
  if (!file.replaces && std::filesystem::exists(file.path))
    throw UsageError(fmt::format("--goal {}: exists; give --force, or another name", core::printable(file.path)));
  const auto kind = p.collective->collective_kind;
  const allreduce::ScheduledAlgorithm algorithm{p.algorithm->name,
                                                p.algorithm->make(shape, kind, static_cast<std::uint32_t>(p.root))};
  allreduce::ExchangeSpec exchange = exchange_of(p, shape, p.bytes());
  exchange.message_bytes = runtime::longest_usual_message;
  const std::size_t width = core::size_of(p.element);
  const auto slices = allreduce::Executor::slices(algorithm, exchange, p.count, width);
  const std::uint64_t messages = p.algorithm->cost(shape, kind).messages;
  const allreduce::GoalSource source{.schedules = algorithm.schedules,
                                     .slices = slices,
                                     .element_bytes = width,
                                     .reduce_bytes_per_s = file.reduce_bytes_per_s};
  core::print(stderr, "gradmeter: {} takes at most {}\n", core::printable(file.path),
              core::to_text(core::Bytes{static_cast<std::size_t>(goal_bytes_at_most(source, messages))}));
  NewFile out(file.path);
  out.write(fmt::format(
      "// {} on {} in {}, by gradmeter. Sums read {}.\n"
      "// A label ends with the first byte in the rank's buffer: s sends, r receives, c adds.\n",
      schedule_text(p), report::counted(map.ranks(), "rank"), report::counted(slices.count(), "slice"),
      file.reduce_bytes_per_s > 0 ? core::to_text(core::BytesPerSecond{file.reduce_bytes_per_s}) : "in no time"));
  allreduce::write_goal(source, [&](std::string_view text) {
    if (const int signal = pending(); signal != 0) throw core::Interrupted(signal);
    out.write(text);
  });
  core::print("{}: {} on {}, {} in {}\n", core::printable(file.path), schedule_text(p),
              report::counted(map.ranks(), "rank"), report::counted(slices.count(), "slice"),
              core::to_text(core::Bytes{out.close()}));
}

}  // namespace gradmeter::bench
