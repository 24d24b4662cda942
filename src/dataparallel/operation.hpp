// A call under way, and its completion.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace gradmeter::dataparallel {

/// The times and bytes of a call, by the fabric's own clock [s]: the host's, a stream's events, or virtual time.
struct Completion {
  double posted = 0, started = 0, finished = 0;
  std::uint64_t bytes_sent = 0, bytes_between_nodes = 0;  ///< payload, by this rank
  std::optional<std::uint64_t> bytes_due;                 ///< the sum of the schedule's messages; null: a vendor's
  double encode_s = 0, decode_s = 0;                      ///< of the moving thread's time, with a codec
};

/// A call under way.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual bool done() const = 0;
  /// Errors: std::logic_error before `done`.
  virtual const Completion& completion() const = 0;
  virtual std::string_view label() const = 0;
};
using Ticket = std::shared_ptr<Operation>;

}  // namespace gradmeter::dataparallel
