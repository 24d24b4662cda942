// SPDX-License-Identifier: Apache-2.0
// gradmeter manual: the manual page gradmeter(1), from the tables that --help prints.
#include <array>
#include <utility>

#include "bench/engine/flags.hpp"
#include "bench/engine/version.hpp"
#include "cli/commands.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"

namespace gradmeter::cli {
namespace {

/// The code point that begins at `text[at]`; `at` moves to the next one. The texts are our own, so they are valid
/// UTF-8.
std::uint32_t next_code_point(std::string_view text, std::size_t& at) {
  const auto lead = static_cast<unsigned char>(text[at++]);
  const int continuations = lead < 0x80 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
  std::uint32_t code = continuations == 0 ? lead : lead & (0x3fU >> continuations);
  for (int i = 0; i < continuations && at < text.size(); ++i)
    code = code << 6 | (static_cast<unsigned char>(text[at++]) & 0x3fU);
  return code;
}

/// Escapes text for roff, so that no line of it is taken for a request, and a hyphen stays the ASCII character.
std::string roff(std::string_view text) {
  std::string out;
  bool at_line_begin = true;  // where . and ' would begin a request
  for (std::size_t at = 0; at < text.size();) {
    const std::uint32_t code = next_code_point(text, at);
    if (at_line_begin && (code == '.' || code == '\'')) out += "\\&";
    at_line_begin = code == '\n';
    if (code == '\\') {
      out += "\\e";
    } else if (code == '-') {
      out += "\\-";
    } else if (code >= 0x80) {
      out += fmt::format("\\[u{:04X}]", code);
    } else {
      out += static_cast<char>(code);
    }
  }
  return out;
}

/// The text with requests that make roff keep its lines. An empty line is replaced by a request.
std::string verbatim(std::string_view text) {
  std::string out = ".nf\n";
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string line = roff(text.substr(0, end));
    out += fmt::format("{}\n", line.empty() ? ".sp" : line);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return out + ".fi\n";
}

std::string flag_entry(const FlagDescription& f) {
  std::string out = ".TP\n";
  if (!f.short_name.empty()) out += fmt::format("\\fB{}\\fR, ", roff("-" + f.short_name));
  out += fmt::format("\\fB{}\\fR", roff("--" + f.name));
  if (f.takes_value) out += fmt::format(" \\fI{}\\fR", roff(f.name));
  if (!f.fallback.empty()) out += fmt::format(" (default {})", roff(f.fallback));
  return fmt::format("{}\n{}\n", out, roff(f.help));
}

std::string command_section(const Command& c) {
  const Usage usage = c.usage();
  std::string out = fmt::format(".SH {}\n{}", roff(c.name), verbatim(usage.about));
  for (const auto& f : usage.flags.flags) out += flag_entry(f);
  return out;
}

std::string exit_codes() {
  using core::ExitCode;
  std::string out = ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] :
       {std::pair{ExitCode::done, "done"},
        {ExitCode::missed_target, "done, but below what was asked for: train --target, compare and links --fail-below"},
        {ExitCode::usage, "the input is wrong: nothing was measured"},
        {ExitCode::backend, "a library, a system call, a rank or a point failed"},
        {ExitCode::wrong_result, "a wrong result"},
        {ExitCode::lost_gpu, "a GPU answered no call any more; the points before are in the file"}})
    out += fmt::format(".TP\n{}\n{}\n", static_cast<int>(code), roff(meaning));
  return out + fmt::format(".TP\n128 + signal\ninterrupted; what was measured is in the file\n");
}

struct Entry {
  std::string_view term, text;
};

constexpr std::array examples{
    Entry{"mpirun -np 2 gradmeter doctor",
          "what is wrong or slow with this machine, before anything is measured on it"},
    Entry{"mpirun -np 4 gradmeter scale --batch 16,64,256 --ranks 1,2,4 --out curve.jsonl",
          "a scaling curve at three mini-batches, kept in a result file"},
    Entry{"gradmeter report curve.jsonl -o curve.html", "the curve as one page of charts and findings"},
    Entry{"mpirun -np 4 gradmeter allreduce -b 8 -e 64M -f 4 --algorithm mpi,ring",
          "all-reduce by size, with the flags and columns of nccl-tests"},
    Entry{"gradmeter scale --thread-ranks 2", "ranks as threads of one process: needs neither mpirun nor MPI"},
    Entry{"mpirun -np 8 --map-by ppr:1:node gradmeter links", "every pair of eight hosts: which link or host is slow"},
    Entry{"gradmeter compare before.jsonl after.jsonl",
          "which points differ by more than repeated launches do anyway"}};

constexpr std::array variables{
    Entry{"COLUMNS", "how wide tables may be; without it the terminal says so"},
    Entry{"NO_COLOR",
          "when it is not empty, watch draws without colours; with TERM=dumb it does not redraw the screen"},
    Entry{"GRADMETER_CHARTS_PYTHON",
          "the Python with the package vl-convert-python that report writes SVG and PNG pictures with"},
    Entry{
        "ONEDNN_MAX_CPU_ISA",
        "the best instruction set that oneDNN may use, and gradmeter's own loops too, for which all of AVX-512 is one: "
        "AVX2 measures both as on a processor without AVX-512"},
    Entry{"OMP_NUM_THREADS, OMPI_MCA_*, UCX_*, NCCL_*, SLURM_*, CUDA_VISIBLE_DEVICES and the like",
          "they belong to the libraries and launchers below. Those that change a measurement are recorded in the "
          "result file, never one whose name looks like a secret; --resume measures again where they differ"}};

constexpr std::array files{
    Entry{"FILE.jsonl",
          "the result file of --out: a JSON object a line, appended as soon as its point is measured. Its format is in "
          "docs/result-file.md of the documentation"},
    Entry{"/dev/shm", "holds the memory that ranks of one node share. doctor names what killed runs have left there"},
    Entry{
        "PREFIX/share/doc/gradmeter",
        "the documentation, the schema of result files (data/schema) and job scripts (jobs). The program itself reads "
        "no file of its installation"}};

/// A section that lists terms and their meanings.
std::string entries(std::string_view title, std::span<const Entry> rows) {
  std::string out = fmt::format(".SH {}\n", title);
  for (const auto& [term, text] : rows) out += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(term), roff(text));
  return out;
}

std::string manual() {
  std::string out = fmt::format(
      ".TH GRADMETER 1 \"{}\" \"gradmeter {}\"\n"
      ".SH NAME\ngradmeter \\- training efficiency against mini\\-batch, gradient exchange and interconnect\n"
      ".SH SYNOPSIS\n[mpirun \\-np \\fIN\\fR] \\fBgradmeter\\fR \\fIcommand\\fR [\\fIflags\\fR]\n"
      ".SH COMMANDS\n",
      bench::commit_date(), bench::version());
  for (const Command* c : commands()) out += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(c->name), roff(c->summary));
  for (const Command* c : commands()) out += command_section(*c);
  return out + exit_codes() + entries("EXAMPLES", examples) + entries("ENVIRONMENT", variables) +
         entries("FILES", files);
}

Usage manual_usage() {
  FlagList flags("Flags");
  add_switch(flags, "help,h", "this text");
  return {.flags = flags,
          .about =
              "gradmeter manual: this program's manual page, as roff\n"
              "\n"
              "gradmeter manual | man -l -"};
}

int run_manual_command(const Flags&, const Invocation&) {
  core::print("{}", manual());
  return static_cast<int>(core::ExitCode::done);
}

}  // namespace

extern const Command manual_command{.name = "manual",
                                    .summary = "the manual page, as roff",
                                    .with_ranks = false,
                                    .usage = manual_usage,
                                    .run = run_manual_command};

}  // namespace gradmeter::cli
