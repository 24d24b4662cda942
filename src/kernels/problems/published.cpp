#include "kernels/problems/published.hpp"

#include <algorithm>
#include <array>
#include <functional>

#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "kernels/problems/problem_columns.hpp"
#include "kernels/problems/problem_file.hpp"
#include "kernels/problems/problem_text.hpp"

namespace gradmeter::kernels {
namespace {

/// One published time.
struct Entry {
  std::string set, platform, precision;
  bool training;
  Problem problem;
  double seconds;
};

/// "NV_TitanX_Pascal" is titanx-pascal: the makers' letters tell nothing more.
std::string short_platform(std::string_view platform) {
  for (const std::string_view maker : {"NV_", "AMD_", "IA_"}) {
    if (platform.starts_with(maker)) platform.remove_prefix(maker.size());
  }
  std::string out(platform);
  std::ranges::transform(out, out.begin(), [](char c) {
    return c == '_' ? '-' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return out;
}

std::string short_precision(std::string_view precision) {
  if (precision.starts_with("int8")) return "int8";
  if (precision == "fp16_in_mixed_math") return "mixed";
  return std::string(precision.substr(0, precision.find('_')));
}

struct TimeColumn {
  const char* name;
  Pass pass;
};
constexpr std::array time_columns{TimeColumn{"time_ms", Pass::forward}, TimeColumn{"sparse_time_ms", Pass::forward},
                                  TimeColumn{"fwd_ms", Pass::forward}, TimeColumn{"bwd_inputs_ms", Pass::backward_data},
                                  TimeColumn{"bwd_weights_ms", Pass::backward_weights}};

void read_entries(const EmbeddedFile& file, const std::function<void(const Entry&)>& take) {
  ShapeReader read = nullptr;
  const std::string where(file.name);
  const auto faults = read_csv(
      file.text, where, [&](const std::vector<std::string>& names) { read = shape_reader(names, where); },
      [&](const CsvRow& row, std::size_t) {
        Entry e{.set = {},
                .platform = row.text("platform"),
                .precision = row.text("precision"),
                .training = row.text("mode") == "train",
                .problem = {.shape = read(row)},
                .seconds = 0};
        e.set = fmt::format("{}-{}", short_platform(e.platform), short_precision(e.precision));
        for (const TimeColumn& t : time_columns) {
          const auto ms = row.number(t.name);
          if (!ms || !(*ms > 0)) continue;
          e.problem.pass = t.pass;
          e.seconds = *ms * 1e-3;
          take(e);
        }
      });
  if (!faults.empty()) throw core::BackendError("gradmeter", "published results", faults.front());
}

void each_entry(const std::function<void(const Entry&)>& take) {
  for (const auto& file : embedded_lists()) {
    // All-reduce has no shape of a kernel.
    if (file.name.starts_with("published_") && file.name != "published_allreduce") read_entries(file, take);
  }
}

std::string key(const Problem& p) {
  ProblemShape shape = p.shape;
  if (auto* gemm = std::get_if<GemmShape>(&shape)) gemm->packed = false;  // their library was free to choose the layout
  return fmt::format("{} {}", problem_text(shape), name(p.pass));
}

}  // namespace

std::vector<PublishedSet> published_sets() {
  std::map<std::string, PublishedSet> sets;
  each_entry([&](const Entry& e) {
    PublishedSet& s = sets[e.set];
    s.name = e.set;
    s.platform = e.platform;
    s.precision = e.precision;
    const std::array counts{&s.gemm, &s.conv, &s.rnn, &s.sparse};
    ++*counts.at(e.problem.shape.index());
  });
  std::vector<PublishedSet> out;
  for (auto& [name, set] : sets) out.push_back(std::move(set));
  return out;
}

PublishedTimes::PublishedTimes(std::string_view name) : name_(name) {
  each_entry([&](const Entry& e) {
    if (e.set == name_) (e.training ? training_ : inference_).emplace(key(e.problem), e.seconds);
  });
  if (!training_.empty() || !inference_.empty()) return;
  std::vector<std::string> names;
  for (const auto& s : published_sets()) names.push_back(s.name);
  core::refuse_unknown("published results", name_, names);
}

core::Seconds PublishedTimes::find(const Problem& p, bool training) const {
  const std::string wanted = key(p);
  for (const auto* times : {training ? &training_ : &inference_, training ? &inference_ : &training_}) {
    if (const auto it = times->find(wanted); it != times->end()) return {it->second};
  }
  return {0};
}

}  // namespace gradmeter::kernels
