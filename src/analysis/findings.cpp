#include "analysis/findings.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <optional>

#include "analysis/links.hpp"
#include "analysis/merged.hpp"
#include "analysis/soak.hpp"
#include "core/format.hpp"
#include "core/units.hpp"

namespace gradmeter::analysis {
namespace {

using core::Factor;
using core::Metric;
using core::Point;
using Points = std::vector<const Point*>;

std::string text(const Point& p, Factor f) { return core::is_null(p.factors[f]) ? "" : core::to_text(p.factors[f]); }
std::int64_t whole(const Point& p, Factor f) {
  const auto* v = std::get_if<std::int64_t>(&p.factors[f]);
  return v ? *v : 0;
}
bool is_true(const Point& p, Metric m) {
  const auto* v = std::get_if<bool>(&p.metrics[m]);
  return v && *v;
}

/// A 95 % interval; where there is none, nothing is concluded.
struct Interval {
  double low, high;
};
std::optional<Interval> interval(const Point& p, Metric m) {
  const auto* s = std::get_if<core::Summary>(&p.metrics[m]);
  if (!s || !std::isfinite(s->ci95_low) || !std::isfinite(s->ci95_high)) return std::nullopt;
  return Interval{s->ci95_low, s->ci95_high};
}
std::optional<Interval> efficiency_interval(const Point& p) {
  const Interval i{p.metrics.number(Metric::efficiency_ci95_low), p.metrics.number(Metric::efficiency_ci95_high)};
  if (!std::isfinite(i.low) || !std::isfinite(i.high)) return std::nullopt;
  return i;
}
bool surely_faster(const Point& a, const Point& b) {
  const auto x = interval(a, Metric::time_s), y = interval(b, Metric::time_s);
  return x && y && x->high < y->low;
}

Points chosen(std::span<const Point* const> points, const std::function<bool(const Point&)>& wanted) {
  Points out;
  for (const Point* p : points)
    if (p->status == core::Status::ok && wanted(*p)) out.push_back(p);
  return out;
}

std::string key_without(const Point& p, std::initializer_list<Factor> axes) {
  core::Factors f = p.factors;
  for (const Factor axis : axes) f[axis] = {};
  return f.key();
}

/// For algorithms that look for the least and the most of something.
auto by(Metric m) {
  return [m](const Point* a, const Point* b) { return a->metrics.number(m) < b->metrics.number(m); };
}
auto by(Factor f) {
  return [f](const Point* a, const Point* b) { return whole(*a, f) < whole(*b, f); };
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

// --- scale

/// Points of one curve over ranks and batches.
std::string curve_of(const Point& p) {
  return key_without(p, {Factor::ranks, Factor::nodes, Factor::ranks_per_node, Factor::mapping, Factor::batch_per_rank,
                         Factor::batch_global});
}

/// The plain exchange that has most batches at its most ranks: there, smallest batch first.
Points reference_curve(const Points& scale) {
  std::map<std::string, Points> curves;
  std::vector<std::string> order;
  for (const Point* p : scale) {
    const std::string codec = text(*p, Factor::codec);
    if (text(*p, Factor::strategy) == "independent" || (!codec.empty() && codec != "none")) continue;
    auto& curve = curves[curve_of(*p)];
    if (curve.empty()) order.push_back(curve_of(*p));
    curve.push_back(p);
  }
  Points best;
  for (const auto& key : order) {
    Points curve = curves[key];
    const auto most = whole(**std::max_element(curve.begin(), curve.end(), by(Factor::ranks)), Factor::ranks);
    std::erase_if(curve, [&](const Point* p) { return whole(*p, Factor::ranks) != most; });
    const bool more_ranks = best.empty() || most > whole(*best.front(), Factor::ranks);
    if (more_ranks || (most == whole(*best.front(), Factor::ranks) && curve.size() > best.size())) best = curve;
  }
  std::stable_sort(best.begin(), best.end(), by(Factor::batch_per_rank));
  return best;
}

std::string how_efficient(const Points& curve) {
  const Point &small = *curve.front(), &large = *curve.back();
  const double at_small = small.metrics.number(Metric::efficiency), at_large = large.metrics.number(Metric::efficiency);
  const std::string where = fmt::format("on {} ranks", whole(small, Factor::ranks));
  if (curve.size() == 1) {
    return fmt::format("{} efficiency is {} at {} samples a rank", where, percent(at_small),
                       whole(small, Factor::batch_per_rank));
  }
  const std::string as = fmt::format("as the mini-batch of a rank falls from {} to {}",
                                     whole(large, Factor::batch_per_rank), whole(small, Factor::batch_per_rank));
  const auto low = efficiency_interval(small), high = efficiency_interval(large);
  if (!low || !high || (low->low <= high->high && high->low <= low->high)) {
    return fmt::format("{} efficiency stays at {} to {} within its intervals {}", where,
                       percent(std::min(at_small, at_large)), percent(std::max(at_small, at_large)), as);
  }
  return fmt::format("{} efficiency {} from {} to {} {}", where, at_small < at_large ? "falls" : "rises",
                     percent(at_large), percent(at_small), as);
}

struct Part {
  Metric metric;
  std::string_view words;
};
constexpr std::array parts{Part{Metric::contention_s, "what ranks cost each other without any exchange"},
                           Part{Metric::straggle_s, "a rank that computes longer than the others"},
                           Part{Metric::interference_s, "kernels that the exchange makes slower"},
                           Part{Metric::wait_s, "waiting for ranks that come late"},
                           Part{Metric::wire_s, "waiting for the wire"},
                           Part{Metric::other_s, "updates, copies and bookkeeping"}};

std::string where_time_went(const Point& p) {
  const auto* bound = std::get_if<std::string>(&p.metrics[Metric::bound_by]);
  if (!bound || *bound == "compute") return "";
  if (*bound == "undecided") return "; what it is lost to is within the noise";
  double sum = 0, most = 0;
  std::string_view words;
  for (const auto& part : parts) {
    const double seconds = p.metrics.number(part.metric);
    if (!(seconds > 0)) continue;
    sum += seconds;
    if (seconds > most) {
      most = seconds;
      words = part.words;
    }
  }
  return words.empty() ? "" : fmt::format("; {} of the lost time is {}", share_in_words(most / sum), words);
}

/// "codec=qsgd4, overlap=bucketed": in what `p` differs from the reference.
std::string difference(const Point& p, const Point& reference) {
  std::string out;
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const auto f = static_cast<Factor>(i);
    const std::string value = text(p, f);
    if (value == text(reference, f) || value.empty()) continue;
    out += fmt::format("{}{}={}", out.empty() ? "" : ", ", core::name(f), value);
  }
  return out;
}

/// The best other point at the same ranks and batch, where it is surely faster.
std::string what_wins_back(const Points& scale, const Point& reference) {
  const Point* best = nullptr;
  for (const Point* p : scale) {
    const bool comparable = whole(*p, Factor::ranks) == whole(reference, Factor::ranks) &&
                            whole(*p, Factor::batch_per_rank) == whole(reference, Factor::batch_per_rank) &&
                            text(*p, Factor::model) == text(reference, Factor::model) &&
                            text(*p, Factor::strategy) != "independent";
    if (!comparable || !surely_faster(*p, reference)) continue;
    if (!best || p->metrics.number(Metric::time_s) < best->metrics.number(Metric::time_s)) best = p;
  }
  const double time = reference.metrics.number(Metric::time_s),
               base = reference.metrics.number(Metric::baseline_time_s);
  if (!best || !(time > base)) return "";
  const double share = (time - best->metrics.number(Metric::time_s)) / (time - base);
  return share >= 1 ? fmt::format("; {} wins all of it back", difference(*best, reference))
                    : fmt::format("; {} wins {} of it back", difference(*best, reference), share_in_words(share));
}

std::string remarks(const Point& p) {
  if (is_true(p, Metric::oversubscribed))
    return " (more busy threads than cores: a test of the program, not a measurement)";
  return is_true(p, Metric::emulated) ? " (emulated: not a measurement)" : "";
}

std::string about_scaling(std::span<const Point* const> points) {
  const Points scale = chosen(points, [](const Point& p) {
    return p.experiment == "scale" && std::isfinite(p.metrics.number(Metric::efficiency)) &&
           whole(p, Factor::ranks) > 1;
  });
  const Points curve = reference_curve(scale);
  if (curve.empty()) return "";
  const Point& worst = **std::min_element(curve.begin(), curve.end(), by(Metric::efficiency));
  return how_efficient(curve) + where_time_went(worst) + what_wins_back(scale, worst) + remarks(worst);
}

// --- the other experiments

const Point* fastest(const Points& points) {
  return *std::min_element(points.begin(), points.end(), by(Metric::time_s));
}

std::string fastest_exchange(const Points& all, std::int64_t size) {
  Points of_size = all;
  std::erase_if(of_size, [&](const Point* p) { return whole(*p, Factor::size_bytes) != size; });
  const Point* best = fastest(of_size);
  const bool sure = std::all_of(of_size.begin(), of_size.end(), [&](const Point* p) {
    return text(*p, Factor::algorithm) == text(*best, Factor::algorithm) || surely_faster(*best, *p);
  });
  const bool is_alone = std::all_of(of_size.begin(), of_size.end(), [&](const Point* p) {
    return text(*p, Factor::algorithm) == text(*best, Factor::algorithm);
  });
  const double limit = best->metrics.number(Metric::limit_s), time = best->metrics.number(Metric::time_s);
  return fmt::format(
      "at {} {} {}{}", core::to_text(core::Bytes{static_cast<std::size_t>(size)}),
      is_alone ? "a call takes"
               : fmt::format("{} is {}the fastest with", text(*best, Factor::algorithm), sure ? "" : "among "),
      core::to_text(core::Seconds{time}),
      std::isfinite(limit) && limit > 0 ? fmt::format(", {:.2f} times the limit", time / limit) : "");
}

std::string about_exchanges(std::span<const Point* const> points) {
  Points all = chosen(points, [](const Point& p) {
    const std::string codec = text(p, Factor::codec);
    return p.experiment == "allreduce" && (codec.empty() || codec == "none") && p.metrics.number(Metric::time_s) > 0;
  });
  if (all.empty()) return "";
  const std::string first = key_without(
      *all.front(), {Factor::size_bytes, Factor::algorithm, Factor::transport, Factor::in_place, Factor::codec});
  std::erase_if(all, [&](const Point* p) {
    return key_without(*p, {Factor::size_bytes, Factor::algorithm, Factor::transport, Factor::in_place,
                            Factor::codec}) != first;
  });
  const auto [least, most] = std::minmax_element(all.begin(), all.end(), by(Factor::size_bytes));
  std::string out =
      fmt::format("{} between {} ranks: {}", text(*all.front(), Factor::collective), whole(*all.front(), Factor::ranks),
                  fastest_exchange(all, whole(**least, Factor::size_bytes)));
  if (by(Factor::size_bytes)(*least, *most))
    out += fmt::format("; {}", fastest_exchange(all, whole(**most, Factor::size_bytes)));
  return out;
}

std::string about_kernels(std::span<const Point* const> points) {
  const Points all = chosen(
      points, [](const Point& p) { return p.experiment == "kernels" && p.metrics.number(Metric::roofline) > 0; });
  if (all.empty()) return "";
  const auto [least, most] = std::minmax_element(all.begin(), all.end(), by(Metric::roofline));
  const auto shown = [](const Point& p) {
    return fmt::format("{} ({} in {})", percent(p.metrics.number(Metric::roofline)), text(p, Factor::problem),
                       text(p, Factor::precision));
  };
  const bool is_one =
      percent((*least)->metrics.number(Metric::roofline)) == percent((*most)->metrics.number(Metric::roofline));
  return is_one ? fmt::format("kernels reach {} of what the roofline allows",
                              all.size() == 1 ? shown(**most) : percent((*most)->metrics.number(Metric::roofline)))
                : fmt::format("kernels reach from {} to {} of what the roofline allows", shown(**least), shown(**most));
}

std::string about_codecs(std::span<const Point* const> points) {
  const Points all = chosen(points, [](const Point& p) {
    return p.experiment == "codecs" && p.metrics.number(Metric::crossover_bytes_per_s) > 0;
  });
  if (all.empty()) return "";
  const Point& best = **std::max_element(all.begin(), all.end(), by(Metric::crossover_bytes_per_s));
  return fmt::format(
      "of the codecs {} pays on the fastest links: those below {:.3g} GB/s, with {:.3g} bits an element and an error "
      "of {:.2g}",
      text(best, Factor::codec), best.metrics.number(Metric::crossover_bytes_per_s) * 1e-9,
      best.metrics.number(Metric::wire_bits), best.metrics.number(Metric::error));
}

std::string about_training(std::span<const Point* const> points) {
  const Points all = chosen(points, [](const Point& p) {
    return p.experiment == "train" && std::isfinite(p.metrics.number(Metric::accuracy));
  });
  if (all.empty()) return "";
  const Point& best = **std::max_element(all.begin(), all.end(), by(Metric::accuracy));
  return fmt::format("training {} reaches an accuracy of {:.1f} % after {:.3g} epochs with {} on {} ranks",
                     text(best, Factor::model), 100 * best.metrics.number(Metric::accuracy),
                     best.metrics.number(Metric::epoch), text(best, Factor::strategy), whole(best, Factor::ranks));
}

std::string about_inference(std::span<const Point* const> points) {
  const Points all = chosen(points, [](const Point& p) {
    return p.experiment == "infer" && p.metrics.number(Metric::speedup) > 0 && text(p, Factor::precision) != "fp32";
  });
  if (all.empty()) return "";
  const Point& best = **std::max_element(all.begin(), all.end(), by(Metric::speedup));
  const double lost = best.metrics.number(Metric::accuracy_lost);
  return fmt::format("{} runs a pass of {} at batch {} in {} {:.2f} times as fast as in fp32{}",
                     whole(best, Factor::ranks) > 1 ? "each rank" : "the machine", text(best, Factor::model),
                     whole(best, Factor::batch_per_rank), text(best, Factor::precision),
                     best.metrics.number(Metric::speedup),
                     std::isfinite(lost) ? fmt::format(" and loses {:.2f} % of accuracy", 100 * lost) : "");
}

std::vector<Point> copies_of(std::span<const Point* const> points, std::string_view experiment) {
  std::vector<Point> out;
  for (const Point* p : points)
    if (p->experiment == experiment) out.push_back(*p);
  return out;
}

/// The first three of them.
std::string listed(const std::vector<std::string>& texts) {
  constexpr std::size_t most = 3;
  std::string out;
  for (std::size_t i = 0; i < std::min(most, texts.size()); ++i) out += fmt::format("{}{}", i ? "; " : "", texts[i]);
  return texts.size() > most ? fmt::format("{}; and {} more", out, texts.size() - most) : out;
}

std::string about_links(std::span<const Point* const> points) {
  const auto links = copies_of(points, "links");
  const bool has_matrix = std::any_of(links.begin(), links.end(), [](const Point& p) {
    return p.status == core::Status::ok && text(p, Factor::pattern) == "one-way";
  });
  if (!has_matrix) return "";
  std::vector<std::string> texts;
  for (const auto& f : link_findings(links)) texts.push_back(f.text);
  return texts.empty() ? "no link and no host stands out" : fmt::format("of the links stand out {}", listed(texts));
}

std::string about_soak(std::span<const Point* const> points) {
  const auto rows = copies_of(points, "soak");
  if (rows.empty()) return "";
  const auto found = soak_findings(rows);
  return fmt::format("in a soak of {:.0f} s: {}", found.seconds, listed(soak_sentences(found)));
}

std::string about_gaps(std::span<const Point* const> points) {
  std::map<core::Status, std::size_t> counts;
  for (const Point* p : points)
    if (p->status != core::Status::ok) ++counts[p->status];
  std::string out;
  for (const auto& [status, count] : counts)
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, core::name(status));
  return out.empty()
             ? ""
             : fmt::format("of {} point{} these have no figure: {}", points.size(), points.size() == 1 ? "" : "s", out);
}

std::string as_sentence(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  text += '.';
  return text;
}

}  // namespace

std::string share_in_words(double share) {
  struct Fraction {
    double value;
    std::string_view words;
  };
  static constexpr std::array fractions{Fraction{1.0 / 4, "a quarter"}, Fraction{1.0 / 3, "a third"},
                                        Fraction{1.0 / 2, "half"}, Fraction{2.0 / 3, "two thirds"},
                                        Fraction{3.0 / 4, "three quarters"}};
  constexpr double near = 0.035;
  for (const auto& f : fractions)
    if (std::abs(share - f.value) <= near) return std::string(f.words);
  return share > 0.95 ? "almost all" : percent(share);
}

std::string_view name(FindingKind kind) {
  static constexpr std::array names{
      "mixed_machines", "outlier_launch",   "shared_cores", "slow_rank",   "slow_host",     "slow_link",  "disturbance",
      "change",         "fastest_exchange", "small_batch",  "lost_to",     "nothing_wrong", "efficiency", "accuracy",
      "crossover",      "roofline",         "replayed",     "not_trusted", "no_figure"};
  return names.at(static_cast<std::size_t>(kind));
}

std::vector<Finding> findings(std::span<const core::Run> runs) {
  const auto merged = merge_launches(runs);
  Points points;
  for (const auto& m : merged) points.push_back(&m.point);
  struct Rule {
    FindingKind kind;
    std::string (*about)(std::span<const Point* const>);
  };
  std::vector<Finding> out;
  for (const auto& [kind, about] :
       {Rule{FindingKind::efficiency, about_scaling}, Rule{FindingKind::accuracy, about_training},
        Rule{FindingKind::fastest_exchange, about_exchanges}, Rule{FindingKind::crossover, about_codecs},
        Rule{FindingKind::roofline, about_kernels}, Rule{FindingKind::change, about_inference},
        Rule{FindingKind::slow_link, about_links}, Rule{FindingKind::disturbance, about_soak},
        Rule{FindingKind::no_figure, about_gaps}}) {
    if (std::string text = about(points); !text.empty())
      out.push_back({.kind = kind, .sentence = as_sentence(std::move(text))});
  }
  return out;
}

std::optional<Finding> verdict(std::span<const Point> points) {
  const core::Run run{.info = {}, .points = {points.begin(), points.end()}};
  auto found = findings({&run, 1});
  if (found.empty()) return std::nullopt;
  return std::move(found.front());
}

core::Json to_json(const Finding& f) {
  const auto number = [](double x) { return std::isfinite(x) ? core::Json(x) : core::Json(nullptr); };
  core::Json factors = core::Json::object(), figures = core::Json::object(), over = core::Json::array();
  for (std::size_t i = 0; i < core::factor_count; ++i) {
    const auto factor = static_cast<Factor>(i);
    const core::Value& value = f.factors[factor];
    const std::string key(core::name(factor));
    if (const auto* text = std::get_if<std::string>(&value)) factors[key] = *text;
    if (const auto* count = std::get_if<std::int64_t>(&value)) factors[key] = *count;
    if (const auto* truth = std::get_if<bool>(&value)) factors[key] = *truth;
    if (const auto* real = std::get_if<double>(&value)) factors[key] = number(*real);
  }
  for (const Factor factor : f.over) over.push_back(core::name(factor));
  for (const auto& [key, figure] : f.figures) {
    figures[key] = {{"value", number(figure.value)}, {"low", number(figure.low)}, {"high", number(figure.high)}};
  }
  return {{"kind", name(f.kind)},   {"experiment", f.experiment},
          {"factors", factors},     {"over", over},
          {"figures", figures},     {"probability", f.probability ? number(*f.probability) : core::Json(nullptr)},
          {"sentence", f.sentence}, {"next", f.next.empty() ? core::Json(nullptr) : core::Json(f.next)}};
}

}  // namespace gradmeter::analysis
