#include "cli/bucket_table.hpp"

#include "core/format.hpp"
#include "core/table.hpp"

namespace gradmeter::cli {
namespace {

std::string ms(double seconds) { return fmt::format("{:.3g}", 1e3 * seconds); }

std::string head(const core::Point& p) {
  using core::Factor;
  const auto text = [&](Factor f) { return core::is_null(p.factors[f]) ? "-" : core::to_text(p.factors[f]); };
  return fmt::format("{} · {} ranks · batch {} · {} · {} · {} · codec {} · buckets on the rank that computed longest\n",
                     text(Factor::model), text(Factor::ranks), text(Factor::batch_per_rank), text(Factor::precision),
                     text(Factor::strategy), text(Factor::algorithm), text(Factor::codec));
}

}  // namespace

std::string bucket_table(const core::Point& p, std::span<const bench::BucketTimes> buckets) {
  using enum core::Align;
  if (buckets.empty())
    return head(p) + "no step exchanged each bucket in a call of its own: this strategy or codec has other calls\n\n";
  core::Table table({{"bucket", "", right},
                     {"tensors", "", right},
                     {"largest", "", left},
                     {"share", "%", right},
                     {"MiB", "", right},
                     {"ready", "ms", right},
                     {"begin", "ms", right},
                     {"end", "ms", right},
                     {"wire", "ms", right},
                     {"exposed", "ms", right},
                     {"95 %", "ms", left}});
  double exposed = 0;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const bench::BucketTimes& b = buckets[i];
    exposed += b.exposed.value;
    table.add_row({fmt::format("{}", i + 1), fmt::format("{}", b.tensors), b.largest,
                   fmt::format("{:.0f}", 100 * b.largest_share),
                   fmt::format("{:.3g}", static_cast<double>(b.bytes) / (1 << 20)), ms(b.ready.value),
                   ms(b.begin.value), ms(b.end.value), b.wire ? ms(b.wire->value) : "-", ms(b.exposed.value),
                   b.exposed.ci95 ? fmt::format("{} to {}", ms(b.exposed.ci95->low), ms(b.exposed.ci95->high)) : "-"});
  }
  return fmt::format(
      "{}{}\nexposed by bucket: {} ms, by the row: {} ms; time of several buckets counts for the first\n\n", head(p),
      table.to_string(), ms(exposed), ms(p.metrics.number(core::Metric::exposed_union_s)));
}

}  // namespace gradmeter::cli
