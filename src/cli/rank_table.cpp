#include "cli/rank_table.hpp"

#include "core/format.hpp"
#include "core/table.hpp"

namespace gradmeter::cli {

std::string rank_table(const core::Point& p, std::span<const bench::RankTimes> ranks) {
  using core::Factor;
  using enum core::Align;
  core::Table table({{"rank", "", right},
                     {"host", "", left},
                     {"compute", "ms", right},
                     {"independent", "ms", right},
                     {"waits", "ms", right}});
  const auto ms = [](double seconds) { return fmt::format("{:.3g}", 1e3 * seconds); };
  for (const auto& r : ranks) {
    table.add_row({fmt::format("{}", r.rank), r.host, ms(r.compute), ms(r.control_compute), ms(r.wait)});
  }
  const auto& algorithm = p.factors[Factor::algorithm];
  return fmt::format("{} ranks · batch {} · {}{}\n{}\n", core::to_text(p.factors[Factor::ranks]),
                     core::to_text(p.factors[Factor::batch_per_rank]), core::to_text(p.factors[Factor::strategy]),
                     core::is_null(algorithm) ? "" : " · " + core::to_text(algorithm), table.to_string());
}

}  // namespace gradmeter::cli
