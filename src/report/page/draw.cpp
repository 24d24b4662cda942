#include "report/page/draw.hpp"

#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "core/error.hpp"
#include "core/format.hpp"
#include "report/page/charts.hpp"

namespace gradmeter::report {
namespace {

namespace fs = std::filesystem;
using core::Json;

// Reads {"pictures": [{"path", "spec"}]} from standard input.
constexpr std::string_view program =
    "import json, sys, vl_convert as v\n"
    "for p in json.load(sys.stdin)[\"pictures\"]:\n"
    "    if p[\"path\"].endswith(\".svg\"):\n"
    "        open(p[\"path\"], \"w\", encoding=\"utf-8\").write(v.vegalite_to_svg(p[\"spec\"]))\n"
    "    else:\n"
    "        open(p[\"path\"], \"wb\").write(v.vegalite_to_png(p[\"spec\"], scale=2))\n";

std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string python() {
  const char* given = std::getenv("GRADMETER_CHARTS_PYTHON");
  std::string path = given && *given ? given : GRADMETER_BUILT_CHARTS_PYTHON;
  if (path.empty() || std::system(fmt::format("{} -c 'import vl_convert' 2>/dev/null", shell_quoted(path)).c_str()) != 0) {
    throw core::UsageError(
        "pictures need vl-convert, and there is none; run scripts/charts.sh, or set GRADMETER_CHARTS_PYTHON to a "
        "Python "
        "that has the package vl-convert-python");
  }
  return path;
}

/// Okabe and Ito's colours, as in the page.
Json config() {
  return {{"background", "white"},
          {"font", "sans-serif"},
          {"legend", {{"orient", "bottom"}, {"columns", 2}, {"labelLimit", 360}}},
          {"range",
           {{"category", {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5D4A00", "#000000"}}}}};
}

Json filled(const Chart& chart, const RowTable& table) {
  Json spec = chart.spec, values = Json::array();
  for (const Json& row : table.rows)
    if (chart.takes(row)) values.push_back(row);
  spec["data"] = {{"name", "points"}, {"values", std::move(values)}};
  spec["config"] = config();
  spec["title"] = {{"text", chart.title}, {"anchor", "start"}};
  spec["padding"] = 10;
  return spec;
}

void send(const std::string& command, const std::string& text) {
  std::FILE* pipe = ::popen(command.c_str(), "w");
  if (!pipe) throw core::BackendError("vl-convert", "popen", "the process could not be started");
  const bool written = std::fwrite(text.data(), 1, text.size(), pipe) == text.size();
  if (::pclose(pipe) != 0 || !written) {
    throw core::BackendError("vl-convert", "draw", "a picture could not be drawn or written; the reason stands above");
  }
}

}  // namespace

std::vector<fs::path> draw_charts(const RowTable& table, const fs::path& folder, Picture picture) {
  const std::string interpreter = python();
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
    send(fmt::format("{} -c {}", shell_quoted(interpreter), shell_quoted(program)),
         Json{{"pictures", std::move(pictures)}}.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return paths;
}

}  // namespace gradmeter::report
