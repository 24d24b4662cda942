#include "cli/closing.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "core/format.hpp"
#include "core/quoting.hpp"
#include "core/result_file.hpp"

namespace gradmeter::cli {
namespace {

using analysis::Finding;
using analysis::FindingKind;

/// The kinds that answer one question of an experiment: the first finding of them is printed.
struct Question {
  std::string_view experiment;
  std::vector<FindingKind> answers;
};
const std::vector<Question>& questions() {
  using enum FindingKind;
  static const std::vector<Question> all{{"scale", {change, small_batch}},
                                         {"scale", {lost_to, efficiency, not_trusted}},
                                         {"kernels", {change}},
                                         {"kernels", {roofline}},
                                         {"infer", {change}},
                                         {"codecs", {crossover}},
                                         {"links", {slow_host, slow_link, slow_rank}},
                                         {"soak", {disturbance}},
                                         {"train", {accuracy}},
                                         {"replay", {replayed}}};
  return all;
}

bool is_spoiler(const Finding& f) { return f.kind <= FindingKind::disturbance; }

/// Nothing is shown to be faster than something else: more launches would decide it.
bool is_open(const Finding& f) {
  return (f.kind == FindingKind::change || f.kind == FindingKind::fastest_exchange) && !(f.severity > 0);
}

/// Of a sweep over sizes the largest size has the answer, each placement its own.
void add_exchanges(const std::vector<Finding>& found, std::vector<const Finding*>& out) {
  const auto size = [](const Finding& f) {
    const auto* bytes = f.factors[core::Factor::size_bytes].as<std::int64_t>();
    return bytes ? *bytes : 0;
  };
  std::int64_t largest = -1;
  for (const Finding& f : found)
    if (f.kind == FindingKind::fastest_exchange) largest = std::max(largest, size(f));
  for (const Finding& f : found)
    if (f.kind == FindingKind::fastest_exchange && size(f) == largest && out.size() < 2) out.push_back(&f);
}

std::vector<const Finding*> answers(const std::vector<Finding>& found) {
  std::vector<const Finding*> out;
  add_exchanges(found, out);
  for (const Question& question : questions()) {
    const auto answer = std::find_if(found.begin(), found.end(), [&](const Finding& f) {
      return f.experiment == question.experiment &&
             std::find(question.answers.begin(), question.answers.end(), f.kind) != question.answers.end();
    });
    if (answer != found.end()) out.push_back(&*answer);
  }
  return out;
}

const Command* command_of(const std::string& line) {
  constexpr std::string_view program = "gradmeter ";
  if (!line.starts_with(program)) return nullptr;
  const std::string name = line.substr(program.size(), line.find(' ', program.size()) - program.size());
  const auto all = commands();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Command& c) { return c.name == name; });
  return found == all.end() ? nullptr : &*found;
}

bool says(const std::string& line, std::string_view words) { return line.find(words) != std::string::npos; }

/// Without a better idea: other launches, where something is open; else a page, or the rows kept for one.
std::string usual_next(const Invocation& i, const std::string& file, bool is_undecided) {
  const std::string again = with_ranks(i.command_line, i);
  const bool repeats = !says(again, " --force") && !says(again, " --resume") && !says(again, " --solo");
  const std::string kept = file.empty() ? again + " --out results.jsonl" : again;
  if (is_undecided && repeats) return fmt::format("scripts/launches.sh 5 -- {}", kept);
  return file.empty() ? kept + (says(again, " --append") ? "" : " --append")
                      : fmt::format("gradmeter report {} -o report.html", core::shell_word(file));
}

}  // namespace

std::string PointCounts::text() const {
  const auto count = [this](core::Status s) { return of_.contains(s) ? of_.at(s) : 0; };
  std::string out = fmt::format("{} points measured, {} kept", count(core::Status::ok), kept_);
  for (const auto& [status, n] : of_)
    if (status != core::Status::ok) out += fmt::format(", {} {}", n, core::name(status));
  return out;
}

std::string with_ranks(const std::string& command, const Invocation& i) {
  const Command* const c = command_of(command);
  if (!i.world || i.world->size() < 2 || !c || !c->with_ranks || says(command, "--thread-ranks")) return command;
  return i.world->ranks_as() == runtime::RanksAs::threads
             ? fmt::format("{} --thread-ranks {}", command, i.world->size())
             : fmt::format("mpirun -np {} {}", i.world->size(), command);
}

std::string closing(std::span<const core::Point> points, const Invocation& invocation, const std::string& file,
                    std::optional<Finding> answer) {
  const core::Run run{.info = {}, .points = {points.begin(), points.end()}};
  const auto found = analysis::findings({&run, 1});
  std::vector<const Finding*> said;
  if (answer) {
    said.push_back(&*answer);
  } else {
    said = answers(found);
  }
  const auto spoiler = std::find_if(found.begin(), found.end(), is_spoiler);
  if (spoiler != found.end() && std::find(said.begin(), said.end(), &*spoiler) == said.end()) said.push_back(&*spoiler);
  if (said.empty() && !found.empty()) said.push_back(&found.front());
  if (points.empty()) return "";
  std::string out = said.empty() ? "No difference is shown: nothing is concluded from these points.\n" : "", next;
  for (const Finding* f : said) {
    out += f->sentence + "\n";
    if (next.empty() && !is_open(*f) && command_of(f->next)) next = with_ranks(f->next, invocation);
  }
  if (next.empty())
    next = usual_next(invocation, file, std::any_of(said.begin(), said.end(), [](auto* f) { return is_open(*f); }));
  return fmt::format("\n{}next: {}\n", out, next);
}

}  // namespace gradmeter::cli
