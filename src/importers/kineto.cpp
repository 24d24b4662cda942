#include "core/format.hpp"
#include "importers/importers.hpp"
#include "importers/traces.hpp"

namespace gradmeter::importers {

bool is_kineto(std::string_view log) {
  const std::size_t begin = log.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return false;
  return (log[begin] == '{' && log.find("\"traceEvents\"") != std::string_view::npos) ||
         (log[begin] == '[' && log.find("\"ProfilerStep#") != std::string_view::npos);  // the events alone
}

Imported read_kineto(std::string_view log, const Hints& hints) {
  const ReadTrace k = read_kineto_trace(log);
  Imported out = trace_rows(k, hints);
  out.run().info.version = "PyTorch profiler";
  out.silent += "; how long of a call its rank waited for others";
  if (k.calls_of_no_size > 0) {
    out.silent += fmt::format(
        "; {} collectives are of unknown size and count as communication only (record_shapes=True "
        "says it of gloo, PyTorch 2.2 of NCCL)",
        k.calls_of_no_size);
  }
  return out;
}

}  // namespace gradmeter::importers
