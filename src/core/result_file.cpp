#include "core/result_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "core/detail/collector.hpp"
#include "core/detail/result_line.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/printable.hpp"

namespace gradmeter::core {

namespace {

/// A torn line must be something that gradmeter itself may have begun to write. Other text at the top of a file belongs
/// to someone else, and --resume must not cut it.
bool begins_as_ours(std::string_view line) {
  constexpr std::string_view head = R"({"kind":"run","schema":)";
  const std::size_t n = std::min(head.size(), line.size());
  return line.substr(0, n) == head.substr(0, n);
}

/// A file's lines, put together.
class FileReader {
 public:
  FileReader(std::string label, Reading reading, Samples samples)
      : label_(std::move(label)), reading_(reading), lines_(reading, samples) {}

  /// ended: by a line end, as all but the last are.
  void add(std::string_view line, bool ended) {
    ++number_;
    try {
      std::visit([&](auto&& read) { collector_.add(std::forward<decltype(read)>(read)); }, lines_.read(line));
    } catch (const detail::NotJson& e) {
      if (ended || (number_ == 1 && !begins_as_ours(line))) {
        refuse(e);
        return;
      }
      collector_.file().note =
          fmt::format("{}:{}: the last line is torn (a run was killed) and was left out", label_, number_);
    } catch (const UsageError& e) {
      refuse(e);
    }
  }

  ResultFile finish() {
    ResultFile& file = collector_.file();
    if (reading_ == Reading::lenient && file.runs.empty()) {
      throw UsageError(fmt::format("{}: no line of it begins a gradmeter run; the first problem is {}", label_,
                                   file.left_out.empty() ? "that it is empty" : file.left_out.front()));
    }
    return std::move(file);
  }

 private:
  void refuse(const UsageError& e) {
    std::string message = fmt::format("{}:{}: {}", label_, number_, e.what());
    if (reading_ == Reading::strict) throw UsageError(message);
    collector_.file().left_out.push_back(std::move(message));
  }

  std::string label_;
  Reading reading_;
  detail::LineReader lines_;
  detail::Collector collector_;
  std::size_t number_ = 0;
};

}  // namespace

ResultFile parse_results(std::string_view text, const std::string& label, Reading reading) {
  FileReader file(label, reading, Samples::kept);
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const bool ended = end != std::string_view::npos;
    file.add(text.substr(0, end), ended);
    text.remove_prefix(ended ? end + 1 : text.size());
  }
  return file.finish();
}

ResultFile read_results(const std::filesystem::path& path, Reading reading, Samples samples) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    throw UsageError(fmt::format("'{}' is a directory; name a result file", path.string()));
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw UsageError(
        fmt::format("cannot read '{}': {}; name an existing result file", path.string(), std::strerror(errno)));
  }
  FileReader file(path.string(), reading, samples);
  for (std::string line; std::getline(in, line);) file.add(line, !in.eof());
  if (in.bad()) throw BackendError("file system", "read", fmt::format("'{}' broke off", path.string()));
  return file.finish();
}

RunPlan make_plan(std::size_t points, std::size_t kept) {
  return {.points = static_cast<std::int64_t>(points), .kept = static_cast<std::int64_t>(kept)};
}

namespace {

using Words = std::map<std::string, std::string>;

/// The conditions that a row's numbers depend on beside its factors, by name.
Words conditions_of(const RunInfo& info) {
  Words out{{"machine", info.fingerprint},
            {"version", info.version},
            {"commit", info.commit},
            {"MPI", info.mpi},
            {"binding", info.binding}};
  for (const auto& [name, version] : info.libraries) out["library " + name] = version;
  for (const auto& [name, value] : info.environment) {
    const bool is_number_of_job = name == "SLURM_JOB_ID" || name == "SLURM_STEP_ID";
    if (!is_number_of_job) out["environment " + printable(name)] = printable(value);  // as files are read
  }
  return out;
}

}  // namespace

std::vector<std::string> differing_conditions(const RunInfo& then, const RunInfo& now) {
  const Words before = conditions_of(then), after = conditions_of(now);
  std::vector<std::string> out;
  const auto shown = [](const Words& of, const std::string& name) {
    const auto at = of.find(name);
    return at == of.end() ? std::string("not set") : at->second;
  };
  Words names = before;
  names.insert(after.begin(), after.end());
  for (const auto& [name, unused] : names) {
    const std::string was = shown(before, name), is = shown(after, name);
    if (was != is && !was.empty() && !is.empty()) out.push_back(fmt::format("{} {} (now {})", name, was, is));
  }
  return out;
}

FinishedPoints finished_points(const ResultFile& file, const RunInfo& now, const std::string& experiment, bool any) {
  FinishedPoints out;
  for (const Run& run : file.runs) {
    const bool is_here = run.info.fingerprint == now.fingerprint;
    const auto differing = differing_conditions(run.info, now);
    for (const Point& point : run.points) {
      if (point.experiment != experiment) continue;
      if (!is_here || (!any && !differing.empty())) {
        ++out.differently[differing.empty() ? "machine" : differing.front()];
        continue;
      }
      const bool done =
          point.status == Status::ok || point.status == Status::unsupported || point.status == Status::skipped;
      if (done) {
        out.points[point.factors.key()] = point;
      } else {
        out.points.erase(point.factors.key());
      }
    }
  }
  return out;
}

}  // namespace gradmeter::core
