// gradmeter completion: commands, flags and their values for a shell's completion, from the tables that --help prints.
#include <array>

#include "bench/engine/version.hpp"
#include "cli/command.hpp"
#include "cli/flags/flag_facts.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "core/print.hpp"

namespace gradmeter::cli {
namespace {

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

/// For words within '…' of bash and zsh.
std::string shell_quoted(const std::string& text) { return replaced(text, "'", R"('\'')"); }

std::string names_of(const std::vector<FlagFacts>& flags) {
  std::string out;
  for (const auto& f : flags) out += fmt::format("{}{}", out.empty() ? "" : " ", f.name);
  return out;
}

std::string command_names() {
  std::string out;
  for (const auto& c : commands()) out += fmt::format("{} ", c.name);
  return out + "--help --version";
}

/// Where there is nothing to offer, readline's own completion of file names follows (complete -o default).
std::string bash_completion() {
  std::string values, words;
  for (const auto& c : commands()) {
    const Usage usage = c.usage();
    const auto flags = flag_facts(usage);
    for (const auto& f : flags) {
      const std::string also = f.short_name.empty() ? "" : fmt::format("|{}:{}", c.name, f.short_name);
      const std::string offer =
          f.values.empty() ? "" : fmt::format("_gradmeter_values '{}'; ", fmt::join(f.values, " "));
      if (f.takes_value) values += fmt::format("    {}:{}{}) {}return ;;\n", c.name, f.name, also, offer);
    }
    words += fmt::format("    {}) flags='{}' words='{}' ;;\n", c.name, names_of(flags), fmt::join(usage.choices, " "));
  }
  constexpr const char* script = R"(# bash completion of gradmeter {version}, by: gradmeter completion bash
_gradmeter_values() {{ # WORDS: a comma list of these
  local before=
  case $cur in *,*) before=${{cur%,*}}, ;; esac
  mapfile -t COMPREPLY < <(compgen -P "$before" -W "$1" -- "${{cur##*,}}")
}}
_gradmeter() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} flags= words=
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W '{commands}' -- "$cur")
    return
  fi
  # --flag=value arrives as three words
  if [ "$cur" = = ]; then
    cur=
  elif [ "$prev" = = ]; then
    prev=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  case ${{COMP_WORDS[1]}}:$prev in
{values}  esac
  case ${{COMP_WORDS[1]}} in
{words}  esac
  case $cur in -*) words=$flags ;; esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}}
complete -o bashdefault -o default -F _gradmeter gradmeter
)";
  return fmt::format(fmt::runtime(script), fmt::arg("version", bench::version()), fmt::arg("commands", command_names()),
                     fmt::arg("values", values), fmt::arg("words", words));
}

/// One argument of _arguments: '--out=[help]:out:_files'.
std::string zsh_argument(const FlagFacts& f) {
  std::string help = f.help;
  for (const char* special : {"\\", "[", "]"}) help = replaced(help, special, fmt::format("\\{}", special));
  if (!f.takes_value) return fmt::format("'{}[{}]'", f.name, shell_quoted(help));
  const std::string what = f.name.substr(2);
  const std::string action =
      f.values.empty() ? "_files" : fmt::format("_sequence compadd - {}", fmt::join(f.values, " "));
  return fmt::format("'{}=[{}]:{}:{}'", f.name, shell_quoted(help), what, action);
}

std::string zsh_completion() {
  std::string out = fmt::format(
      "#compdef gradmeter\n# zsh completion of gradmeter {}, by: gradmeter completion zsh\n_gradmeter() {{\n"
      "  local -a commands=(\n",
      bench::version());
  for (const auto& c : commands()) {
    out += fmt::format("    '{}:{}'\n", c.name, shell_quoted(replaced(std::string(c.summary), ":", "\\:")));
  }
  out += R"(  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
)";
  for (const auto& c : commands()) {
    const Usage usage = c.usage();
    out += fmt::format("    {}) _arguments", c.name);
    for (const auto& f : flag_facts(usage)) out += fmt::format(" \\\n      {}", zsh_argument(f));
    if (!usage.choices.empty()) {
      out += fmt::format(" \\\n      '*:{}:({})'", usage.words, fmt::join(usage.choices, " "));
    } else if (!usage.words.empty()) {
      out += fmt::format(" \\\n      '*:{}:_files'", usage.words);
    }
    out += " ;;\n";
  }
  // Autoloaded by compinit the file is the function's body; sourced it only registers.
  return out +
         "  esac\n}\nif [[ $funcstack[1] == _gradmeter ]]; then\n  _gradmeter \"$@\"\nelse\n"
         "  compdef _gradmeter gradmeter\nfi\n";
}

/// For words within '…' of fish.
std::string fish_quoted(const std::string& text) { return replaced(replaced(text, "\\", "\\\\"), "'", "\\'"); }

std::string fish_completion() {
  std::string out = fmt::format("# fish completion of gradmeter {}, by: gradmeter completion fish\n", bench::version());
  for (const auto& c : commands()) {
    const Usage usage = c.usage();
    out += fmt::format("complete -c gradmeter -n __fish_use_subcommand -f -a {} -d '{}'\n", c.name,
                       fish_quoted(std::string(c.summary)));
    const std::string here = fmt::format("complete -c gradmeter -n '__fish_seen_subcommand_from {}'", c.name);
    for (const auto& f : flag_facts(usage)) {
      out += fmt::format("{} -l {}", here, f.name.substr(2));
      if (!f.short_name.empty()) out += fmt::format(" -s {}", f.short_name.substr(1));
      if (!f.values.empty()) {
        out += fmt::format(" -x -a \"(__fish_append , {})\"", fmt::join(f.values, " "));
      } else if (f.takes_value) {
        out += " -r";
      }
      out += fmt::format(" -d '{}'\n", fish_quoted(f.help));
    }
    if (!usage.choices.empty()) out += fmt::format("{} -f -a '{}'\n", here, fmt::join(usage.choices, " "));
  }
  return out;
}

struct Shell {
  const char* name;
  std::string (*completion)();
};
constexpr std::array shells{Shell{"bash", bash_completion}, Shell{"zsh", zsh_completion},
                            Shell{"fish", fish_completion}};

std::vector<std::string> shell_names() {
  std::vector<std::string> out;
  for (const auto& s : shells) out.emplace_back(s.name);
  return out;
}

}  // namespace

Usage completion_usage() {
  options::options_description d("Flags");
  d.add_options()("help,h", "this text");
  return {.flags = d,
          .about =
              "gradmeter completion SHELL: a script with which bash, zsh or fish completes commands, flags, values\n"
              "\n"
              "source <(gradmeter completion bash)\n"
              "gradmeter completion zsh > ~/.zfunc/_gradmeter       (a folder of fpath, before compinit)\n"
              "gradmeter completion fish > ~/.config/fish/completions/gradmeter.fish",
          .words = "shell",
          .choices = shell_names()};
}

int run_completion_command(const Flags& flags, const Invocation& invocation) {
  if (invocation.rank != 0) return 0;  // under mpirun rank 0 does everything
  const auto words = flags.words();
  if (words.size() != 1) throw core::UsageError("completion: name one shell: bash, zsh or fish");
  for (const auto& s : shells) {
    if (words[0] != s.name) continue;
    core::print("{}", s.completion());
    return static_cast<int>(core::ExitCode::done);
  }
  core::refuse_unknown("shell", words[0], shell_names());
}

}  // namespace gradmeter::cli
