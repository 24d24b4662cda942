// gradmeter manual: the manual page gradmeter(1), from the tables that --help prints.
#include <array>

#include "bench/engine/version.hpp"
#include "cli/command.hpp"
#include "cli/flags/flag_facts.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/print.hpp"

namespace gradmeter::cli {
namespace {

/// The code point that begins at `text[at]`, which moves behind it. The texts are our own, in UTF-8.
std::uint32_t next_code_point(std::string_view text, std::size_t& at) {
  const auto lead = static_cast<unsigned char>(text[at++]);
  const int more = lead < 0x80 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
  std::uint32_t code = more == 0 ? lead : lead & (0x3fU >> more);
  for (int i = 0; i < more && at < text.size(); ++i)
    code = code << 6 | (static_cast<unsigned char>(text[at++]) & 0x3fU);
  return code;
}

/// Text as roff takes it: nothing in it is a request, and a hyphen is the character that is typed.
std::string roff(std::string_view text) {
  std::string out;
  bool begins = true;  // a line, where . and ' would make a request of it
  for (std::size_t at = 0; at < text.size();) {
    const std::uint32_t code = next_code_point(text, at);
    if (begins && (code == '.' || code == '\'')) out += "\\&";
    begins = code == '\n';
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

/// As it stands, line by line. An empty line is a request of its own.
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

std::string flag_entry(const FlagFacts& f) {
  std::string out = ".TP\n";
  if (!f.short_name.empty()) out += fmt::format("\\fB{}\\fR, ", roff(f.short_name));
  out += fmt::format("\\fB{}\\fR", roff(f.name));
  if (f.takes_value) out += fmt::format(" \\fI{}\\fR", roff(f.name.substr(2)));
  if (!f.usual.empty()) out += fmt::format(" (default {})", roff(f.usual));
  return fmt::format("{}\n{}\n", out, roff(f.help));
}

std::string command_section(const Command& c) {
  const Usage usage = c.usage();
  std::string out = fmt::format(".SH {}\n{}", roff(c.name), verbatim(usage.about));
  for (const auto& f : flag_facts(usage)) out += flag_entry(f);
  return out;
}

std::string exit_codes() {
  using core::ExitCode;
  struct Meaning {
    ExitCode code;
    const char* text;
  };
  constexpr std::array meanings{
      Meaning{ExitCode::done, "done"},
      Meaning{ExitCode::below_bar, "done, but below what was asked for: train --target, compare --fail-below"},
      Meaning{ExitCode::usage, "the input is wrong: nothing was measured"},
      Meaning{ExitCode::backend, "a library, a system call or a rank failed"},
      Meaning{ExitCode::wrong_result, "a wrong result"}};
  std::string out = ".SH EXIT STATUS\n";
  for (const auto& m : meanings) out += fmt::format(".TP\n{}\n{}\n", static_cast<int>(m.code), roff(m.text));
  return out + fmt::format(".TP\n128 + signal\ninterrupted; what was measured is in the file\n");
}

std::string manual() {
  std::string out = fmt::format(
      ".TH GRADMETER 1 \"{}\" \"gradmeter {}\"\n"
      ".SH NAME\ngradmeter \\- training efficiency against mini\\-batch, gradient exchange and interconnect\n"
      ".SH SYNOPSIS\n[mpirun \\-np \\fIN\\fR] \\fBgradmeter\\fR \\fIcommand\\fR [\\fIflags\\fR]\n"
      ".SH COMMANDS\n",
      bench::commit_date(), bench::version());
  for (const auto& c : commands()) out += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(c.name), roff(c.summary));
  for (const auto& c : commands()) out += command_section(c);
  return out + exit_codes();
}

}  // namespace

Usage manual_usage() {
  options::options_description d("Flags");
  d.add_options()("help,h", "this text");
  return {.flags = d,
          .about =
              "gradmeter manual: this program's manual page, as roff\n"
              "\n"
              "gradmeter manual | man -l -"};
}

int run_manual_command(const Flags&, const Invocation& invocation) {
  if (invocation.rank == 0) core::print("{}", manual());
  return static_cast<int>(core::ExitCode::done);
}

}  // namespace gradmeter::cli
