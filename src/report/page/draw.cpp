#include "report/page/draw.hpp"

#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/quoting.hpp"
#include "report/page/charts.hpp"

namespace gradmeter::report {
namespace {

namespace fs = std::filesystem;
using core::Json;

// Reads {"pictures": [{"path", "spec"}]} from standard input. Ends with 9 where there is no vl-convert.
constexpr std::string_view program =
    "import json, sys\n"
    "try:\n"
    "    import vl_convert as v\n"
    "except ImportError:\n"
    "    sys.exit(9)\n"
    "for p in json.load(sys.stdin)[\"pictures\"]:\n"
    "    if p[\"path\"].endswith(\".svg\"):\n"
    "        open(p[\"path\"], \"w\", encoding=\"utf-8\").write(v.vegalite_to_svg(p[\"spec\"]))\n"
    "    else:\n"
    "        open(p[\"path\"], \"wb\").write(v.vegalite_to_png(p[\"spec\"], scale=2))\n";
constexpr int no_library = 9, no_program = 127;  // the latter is the shell's

std::string python() {
  const char* given = std::getenv("GRADMETER_CHARTS_PYTHON");
  return given && *given ? given : GRADMETER_BUILT_CHARTS_PYTHON;
}

[[noreturn]] void refuse_without_library() {
  throw core::UsageError(
      "pictures need vl-convert, and there is none; run scripts/charts.sh, or set GRADMETER_CHARTS_PYTHON to a Python "
      "that has the package vl-convert-python");
}

Json config() {
  return {{"background", "white"},
          {"font", "sans-serif"},
          {"legend", {{"orient", "bottom"}, {"columns", 2}, {"labelLimit", 360}, {"symbolOpacity", 1}}},
          {"header", {{"labelAnchor", "start"}, {"labelFontWeight", "bold"}, {"labelLimit", 500}}},
          {"axis", {{"labelOverlap", "greedy"}, {"labelSeparation", 6}}},
          {"tick", {{"color", "#000000"}}},
          {"range", {{"category", palette}}}};
}

Json filled(const Chart& chart, const RowTable& table) {
  Json spec = chart.spec, values = Json::array();
  for (const std::size_t i : chart.starts) values.push_back(to_json(table.curve_starts[i]));
  for (const std::size_t i : chart.rows) values.push_back(to_json(table.rows[i]));
  spec["data"] = {{"name", "points"}, {"values", std::move(values)}};
  spec["config"] = config();
  spec["title"] = {{"text", chart.title}, {"anchor", "start"}};
  spec["padding"] = 10;
  return spec;
}

/// A process that ends before it has read everything must not end this one.
class IgnoredBrokenPipe {
 public:
  IgnoredBrokenPipe() : before_(std::signal(SIGPIPE, SIG_IGN)) {}
  ~IgnoredBrokenPipe() { std::signal(SIGPIPE, before_); }
  IgnoredBrokenPipe(const IgnoredBrokenPipe&) = delete;
  IgnoredBrokenPipe& operator=(const IgnoredBrokenPipe&) = delete;

 private:
  void (*before_)(int);
};

void draw(const std::string& interpreter, const std::string& pictures) {
  const IgnoredBrokenPipe ignored;
  const std::string command = fmt::format("{} -c {}", core::shell_quoted(interpreter), core::shell_quoted(program));
  std::FILE* pipe = ::popen(command.c_str(), "w");
  if (!pipe) throw core::BackendError("vl-convert", "popen", "the process could not be started");
  const bool written = std::fwrite(pictures.data(), 1, pictures.size(), pipe) == pictures.size();
  const int status = ::pclose(pipe);
  if (WIFEXITED(status) && (WEXITSTATUS(status) == no_library || WEXITSTATUS(status) == no_program))
    refuse_without_library();
  if (status != 0 || !written) {
    throw core::BackendError("vl-convert", "draw", "a picture could not be drawn or written; the reason stands above");
  }
}

}  // namespace

std::vector<fs::path> draw_charts(const RowTable& table, const fs::path& folder, Picture picture) {
  const std::string interpreter = python();
  if (interpreter.empty()) refuse_without_library();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw core::BackendError("file system", "mkdir", fmt::format("'{}': {}", folder.string(), error.message()));
  Json pictures = Json::array();
  std::vector<fs::path> paths;
  for (const auto& chart : charts_for(table)) {
    paths.push_back(folder / (chart.name + (picture == Picture::png ? ".png" : ".svg")));
    pictures.push_back({{"path", paths.back().string()}, {"spec", filled(chart, table)}});
  }
  if (!paths.empty()) {
    draw(interpreter, Json{{"pictures", std::move(pictures)}}.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return paths;
}

}  // namespace gradmeter::report
