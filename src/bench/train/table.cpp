// SPDX-License-Identifier: Apache-2.0
#include "bench/train/train.hpp"

#include "core/format.hpp"

namespace gradmeter::bench {

using namespace report;  // cells and columns

using core::Metric;

std::string train_header() {
  return fmt::format("{:>7} {:>9} {:>10} {:>12} {:>12} {:>12}\n{:>7} {:>9} {:>10} {:>12} {:>12} {:>12}\n", "epoch",
                     "step", "loss", "validation", "step time", "rate", "", "", "nats", "% right", "ms", "samples/s");
}

std::string train_legend() {
  return "epoch       passes over the training set, counting the samples of all workers\n"
         "loss        mean over the samples of the epoch\n"
         "validation  samples of the validation set that the model gets right\n"
         "step time   median over the epoch, on the slowest rank; of means of k steps if exchanges come every k "
         "steps;\n"
         "            on a GPU it includes the events that time each operation\n"
         "rate        samples that all workers trained on in a second, since training began\n";
}

std::string train_row(const core::Point& p) {
  if (core::is_null(p.metrics[Metric::accuracy])) return {};
  const bool is_timed = !core::is_null(p.metrics[Metric::samples_per_s]);
  return fmt::format("{:>7.2f} {:>9} {:>10.5f} {:>12.2f} {:>12} {:>12}\n", p.metrics.number(Metric::epoch),
                     core::to_text(p.metrics[Metric::step]), p.metrics.number(Metric::loss),
                     100 * p.metrics.number(Metric::accuracy),
                     is_timed ? fmt::format("{:.3f}", 1e3 * p.metrics.number(Metric::time_s)) : "-",
                     is_timed ? fmt::format("{:.0f}", p.metrics.number(Metric::samples_per_s)) : "-");
}

const CsvColumns& train_csv() {
  using core::Factor;
  using enum Metric;
  static const CsvColumns columns =
      CsvColumns()
          .add({Factor::model,          Factor::precision,    Factor::update,     Factor::batch_per_rank,
                Factor::batch_global,   Factor::accumulate,   Factor::ranks,      Factor::nodes,
                Factor::ranks_per_node, Factor::threads,      Factor::device,     Factor::strategy,
                Factor::mesh,           Factor::algorithm,    Factor::codec,      Factor::transport,
                Factor::overlap,        Factor::bucket_bytes, Factor::loss_scale, Factor::gradients,
                Factor::tuned_table,    Factor::optimizer})
          .add({epoch, step, loss, validation_loss, accuracy})
          .statistics(time_s, {"median", "ci95_low", "ci95_high"})
          .add({samples_per_s, samples_to_target, time_to_target_s, bytes_sent_per_rank_max, bytes_sent_total,
                staleness, staleness_p99, staleness_max, updates_per_s, steps_skipped, noise_scale_samples,
                peak_memory_bytes});
  return columns;
}

}  // namespace gradmeter::bench
