// SPDX-License-Identifier: Apache-2.0
// Measured collectives, of our own result files or of tables in the documented columns, and predictions of others by a
// machine's links that are fitted to them.
#pragma once
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result_file.hpp"
#include "predict/collective.hpp"
#include "predict/score.hpp"

namespace gradmeter::predict {

/// One row. `problem` says why it is no time of a collective that can be predicted; empty: it is.
struct MeasuredCollective {
  std::string id = {},
              system = {};  ///< system: the machine, transport and form of the calls, by which rows are fitted together
  std::string algorithm = {};  ///< canonical; a library's too
  std::string codec = {};      ///< canonical; empty: none
  allreduce::CollectiveKind kind = allreduce::CollectiveKind::all_reduce;
  allreduce::Shape shape = {};
  std::size_t bytes = 0, element_bytes = sizeof(float);
  std::size_t message_bytes = std::size_t{256} << 10;
  double rate_prior = 1e9;                         ///< of a link in a node [bytes/s]
  double encode_s = 0, decode_s = 0, seconds = 0;  ///< as measured; 0: not measured
  std::optional<double> noise = {};                ///< half the 95 % interval of `seconds`, as a share of them
  std::string problem = {};
};

/// A factor's text; empty where it does not apply.
std::string text_of(const core::Value&);
/// Half the 95 % interval of the measured time, as a share of it; nothing where the time has no interval.
std::optional<double> noise_of(const core::Metrics&);
/// The system of a point of our own files: its link, transport and device, what the ranks are, and what was injected.
std::string exchange_system(const core::Factors&);
/// The points of `allreduce` in a result file. Predicted points, and those with a status other than ok, are no
/// measurements and are left out.
std::vector<MeasuredCollective> collectives_of(std::span<const core::Run>, const std::string& file);
/// Is this a table of collectives? One has a column `op`.
bool is_collective_table(std::string_view text);
/// Reads a table with the columns system, gpu, gpus, gpus_per_node, op, bytes, time_us. Errors: UsageError "FILE:LINE:
/// …".
std::vector<MeasuredCollective> read_collectives(std::string_view text, const std::string& file);

/// What is fitted of a machine's links, in this order.
enum class LinkTerm : std::uint8_t {
  within_latency,   ///< [s]
  within_rate,      ///< [bytes/s]
  between_latency,  ///< [s]
  between_rate,     ///< [bytes/s]
  sum_rate,         ///< [bytes/s]
  fixed             ///< of a call, whatever its ranks [s]
};
inline constexpr std::size_t link_term_count = 6;

/// The machine of `links` that all terms of one system give.
core::Machine machine_of(std::span<const double> log_terms, std::uint32_t ranks_per_node);

class CollectiveCalibration {
 public:
  explicit CollectiveCalibration(std::vector<MeasuredCollective> rows);
  /// The time of a collective with its 90 % interval, or the reason why there is none.
  PredictionOrReason predict(const MeasuredCollective&) const;
  /// Naive: the bus bandwidth of the same collective, algorithm and bytes on the fewest ranks.
  std::optional<double> same_bus_bandwidth(const MeasuredCollective&) const;
  /// The links of a system; empty: no row of it can be fitted.
  std::optional<core::Machine> machine(const std::string& system, std::uint32_t ranks_per_node) const;
  /// The links of the system with the most rows; empty: there is none.
  std::optional<core::Machine> any_machine(std::uint32_t ranks_per_node) const;
  /// By the codec's bare name: means of all systems.
  std::map<std::string, core::CodecRates> codec_rates() const;
  /// "SYSTEM: latency …" for each system, one line each.
  std::string text() const;

 private:
  struct CodecRates {
    double encode_s = 0, decode_s = 0;  ///< for one byte of a buffer [s]
  };
  /// |log(predicted ÷ measured)| of a row that others predicted.
  struct LeftOut {
    double bytes, away;
  };
  struct System {
    std::vector<double> log_terms;
    double spread = 0, most_ranks = 1;             ///< spread: the least
    std::vector<LeftOut> left_out = {};            ///< ascending by `away`
    bool has_within = false, has_between = false;  ///< rows that used links in a node, and between nodes
    std::map<std::string, CodecRates> codecs = {};
  };
  CollectiveCalibration(std::vector<MeasuredCollective> rows, bool with_spread);
  void fit(const std::string& system, bool with_spread);
  double spread_at(const System&, std::size_t bytes) const;
  std::optional<double> by_terms(const System&, const MeasuredCollective&, std::string& reason) const;
  Missed missed(const System&, const MeasuredCollective&) const;

  std::vector<MeasuredCollective> rows_;
  std::map<std::string, System> systems_;
};

Score score(const CollectiveCalibration&, std::span<const MeasuredCollective> rows, const std::string& file);

}  // namespace gradmeter::predict
