// SPDX-License-Identifier: Apache-2.0
// Measured collectives, read from our own result files or from tables (docs/predict.md); links of a machine that are
// fitted to them; and predictions of other collectives by these links.
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

/// One row. `problem` says why the row cannot be used: it has no measured time, or its collective cannot be predicted;
/// empty: it can be used.
struct MeasuredCollective {
  /// `system` names the links and the way of calling them (exchange_system); rows of one system are fitted together.
  std::string id = {}, system = {};
  std::string algorithm = {};  ///< canonical name; may also be a library's algorithm
  std::string codec = {};      ///< canonical name; empty: none
  allreduce::CollectiveKind kind = allreduce::CollectiveKind::all_reduce;
  allreduce::RankShape shape = {};
  std::size_t bytes = 0, element_bytes = sizeof(float);
  /// The length of messages that the model assumes: 1 MiB for points of our own files on several nodes, else 256 KiB.
  std::size_t message_bytes = std::size_t{256} << 10;
  double rate_prior = 1e9;                         ///< prior of the rate of a link in a node [bytes/s]
  double encode_s = 0, decode_s = 0, seconds = 0;  ///< as measured; 0: not measured
  /// Half the width of the 95 % interval of `seconds`, divided by `seconds`; nothing where there is no interval.
  std::optional<double> noise = {};
  std::string problem = {};
};

/// The value of a factor as text; empty for null, which means that the factor does not apply.
std::string text_of(const core::Value&);
/// Half the width of the 95 % interval of the measured time, divided by the time; nothing where there is no interval.
std::optional<double> noise_of(const core::Metrics&);
/// The system of a point of our own files: its link, transport and device, whether its ranks are processes or threads,
/// and the disturbance that was injected.
std::string exchange_system(const core::Factors&);
/// The points with status ok of experiment `allreduce` in a result file. A point that cannot be used gets a `problem`.
std::vector<MeasuredCollective> collectives_of(std::span<const core::Run>, const std::string& file);
/// True if this is a table of collectives: only such a table has a column `op`.
bool is_collective_table(std::string_view text);
/// Reads a table with the columns system, gpus, op, bytes and time_us, and optionally gpus_per_node, nodes, dtype and
/// id. Errors: UsageError "FILE:LINE: …".
std::vector<MeasuredCollective> read_collectives(std::string_view text, const std::string& file);

/// The quantities of a machine's links that are fitted. The order is that of `log_terms` below.
enum class LinkTerm : std::uint8_t {
  within_latency,   ///< [s]
  within_rate,      ///< [bytes/s]
  between_latency,  ///< [s]
  between_rate,     ///< [bytes/s]
  reduce_rate,      ///< the rate at which a rank adds up buffers [bytes/s]
  fixed             ///< the part of a call's time that depends on neither ranks nor bytes [s]
};
inline constexpr std::size_t link_term_count = 6;

/// The machine whose links have these terms. log_terms: the logarithms of all terms of one system, in the order of
/// LinkTerm.
core::Machine machine_of(std::span<const double> log_terms, std::uint32_t ranks_per_node);

class CollectiveCalibration {
 public:
  explicit CollectiveCalibration(std::vector<MeasuredCollective> rows);
  /// The time of a collective with its 90 % interval, or the reason why there is none.
  PredictionOrReason predict(const MeasuredCollective&) const;
  /// A naive prediction [s]: the bus bandwidth is assumed to be that of the same collective, algorithm, codec and bytes
  /// on the fewest measured ranks.
  std::optional<double> same_busbw_seconds(const MeasuredCollective&) const;
  /// The links of a system; empty: no usable row is of this system.
  std::optional<core::Machine> machine(const std::string& system, std::uint32_t ranks_per_node) const;
  /// The links of the system with the most rows; empty: there are no rows.
  std::optional<core::Machine> machine_with_most_rows(std::uint32_t ranks_per_node) const;
  /// The rates of codecs, by the codec's name without parameters. If several systems have rates for a name, those of
  /// the last system by name are returned; if that system has several codecs of this name, those of the last by
  /// canonical name.
  std::map<std::string, core::CodecRates> codec_rates() const;
  /// A line for each system: "SYSTEM: ", its fitted terms, and how far predictions were from rows that their fit had
  /// left out.
  std::string text() const;

 private:
  struct CodecTimes {
    double encode_s_per_byte = 0, decode_s_per_byte = 0;  ///< for one byte of the buffer
  };
  /// A row that was predicted by a fit to other rows.
  struct LeftOut {
    double bytes, error;  ///< error: |log(predicted ÷ measured)|
  };
  struct System {
    std::vector<double> log_terms;
    double spread = 0, most_ranks = 1;             ///< spread: lower bound of `spread_at`; most_ranks: of any row
    std::vector<LeftOut> left_out = {};            ///< ascending by `error`
    bool has_within = false, has_between = false;  ///< whether any row used links in a node, or between nodes
    std::map<std::string, CodecTimes> codecs = {};
  };
  CollectiveCalibration(std::vector<MeasuredCollective> rows, bool with_spread);
  /// with_spread: whether rows are left out in turn, to find how far predictions are from them.
  void fit(const std::string& system, bool with_spread);
  /// The half width of the 90 % interval of a call of so many bytes, as a difference of logarithms: |log(predicted ÷
  /// measured)| is at most this for 90 % of the left-out rows, which are weighted by how similar their bytes are.
  double spread_at(const System&, std::size_t bytes) const;
  /// The time by the fitted terms alone [s]. Empty: there is none, and `reason` says why.
  std::optional<double> by_terms(const System&, const MeasuredCollective&, std::string& reason) const;
  Correction correction(const System&, const MeasuredCollective&) const;

  std::vector<MeasuredCollective> rows_;
  std::map<std::string, System> systems_;
};

Score score(const CollectiveCalibration&, std::span<const MeasuredCollective> rows, const std::string& file);

}  // namespace gradmeter::predict
