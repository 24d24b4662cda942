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

namespace gradmeter::core {

namespace {

/// A torn line must be something that gradmeter itself may have begun to write. Other text at the top of a file belongs
/// to someone else, and --resume must not cut it.
bool begins_as_ours(std::string_view line) {
  constexpr std::string_view head = R"({"kind":"run","schema":)";
  const std::size_t n = std::min(head.size(), line.size());
  return line.substr(0, n) == head.substr(0, n);
}

std::string read_all(const std::filesystem::path& path) {
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
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) throw BackendError("file system", "read", fmt::format("'{}' broke off", path.string()));
  return text;
}

}  // namespace

ResultFile parse_results(std::string_view text, const std::string& label, Reading reading) {
  detail::Collector collector;
  std::size_t number = 0;
  const auto refuse = [&](const UsageError& e) {
    std::string message = fmt::format("{}:{}: {}", label, number, e.what());
    if (reading == Reading::strict) throw UsageError(message);
    collector.file().left_out.push_back(std::move(message));
  };
  while (!text.empty()) {
    ++number;
    const std::size_t end = text.find('\n');
    const bool ended = end != std::string_view::npos;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(ended ? end + 1 : text.size());
    try {
      std::visit([&](auto&& read) { collector.add(std::forward<decltype(read)>(read)); },
                 detail::parse_line(line, reading));
    } catch (const detail::NotJson& e) {
      if (ended || (number == 1 && !begins_as_ours(line))) {
        refuse(e);
        continue;
      }
      collector.file().note =
          fmt::format("{}:{}: the last line is torn (a run was killed) and was left out", label, number);
    } catch (const UsageError& e) {
      refuse(e);
    }
  }
  if (reading == Reading::lenient && collector.file().runs.empty()) {
    throw UsageError(
        fmt::format("{}: no line of it begins a gradmeter run; the first problem is {}", label,
                    collector.file().left_out.empty() ? "that it is empty" : collector.file().left_out.front()));
  }
  return std::move(collector.file());
}

RunPlan make_plan(std::size_t points, std::size_t kept) {
  return {.points = static_cast<std::int64_t>(points), .kept = static_cast<std::int64_t>(kept)};
}

ResultFile read_results(const std::filesystem::path& path, Reading reading) {
  return parse_results(read_all(path), path.string(), reading);
}

std::map<std::string, Point> finished_points(const ResultFile& file, const std::string& fingerprint,
                                             const std::string& experiment) {
  std::map<std::string, Point> finished;
  for (const Run& run : file.runs) {
    if (run.info.fingerprint != fingerprint) continue;
    for (const Point& point : run.points) {
      if (point.experiment != experiment) continue;
      const bool done =
          point.status == Status::ok || point.status == Status::unsupported || point.status == Status::skipped;
      if (done) {
        finished[point.factors.key()] = point;
      } else {
        finished.erase(point.factors.key());
      }
    }
  }
  return finished;
}

}  // namespace gradmeter::core
