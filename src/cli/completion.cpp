// SPDX-License-Identifier: Apache-2.0
// gradmeter completion: commands, flags and their values for a shell's completion, from the tables that --help prints.
#include <array>
#include <utility>

#include "bench/engine/flags.hpp"
#include "bench/engine/version.hpp"
#include "cli/commands.hpp"
#include "core/error.hpp"
#include "core/format.hpp"
#include "core/name.hpp"
#include "core/print.hpp"

namespace gradmeter::cli {
namespace {

/// The text with `by` in place of each `what`.
std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

/// Escapes text that stands within '…' in bash and zsh.
std::string shell_quoted(const std::string& text) { return replaced(text, "'", R"('\'')"); }

std::string names_of(const FlagList& list) {
  std::string out;
  for (const auto& f : list.flags) out += fmt::format("{}--{}", out.empty() ? "" : " ", f.name);
  return out;
}

/// The values that a flag takes, if `gradmeter list` knows them: the codecs for --codec, the strategies for --strategy.
/// Empty for numbers, files and free text.
std::vector<std::string> known_values(const FlagDescription& f) {
  if (!f.takes_value) return {};
  return member_names(f.name.ends_with('y') ? f.name.substr(0, f.name.size() - 1) + "ies" : f.name + "s");
}

std::string command_names() {
  std::string out;
  for (const Command* c : commands()) out += fmt::format("{} ", c->name);
  return out + "--help --version";
}

/// The script of bash. Where it offers nothing, bash completes file names (complete -o default).
std::string bash_completion() {
  std::string values, words;
  for (const Command* c : commands()) {
    const Usage usage = c->usage();
    for (const auto& f : usage.flags.flags) {
      const std::string also = f.short_name.empty() ? "" : fmt::format("|{}:-{}", c->name, f.short_name);
      const auto known = known_values(f);
      const std::string offer = known.empty() ? "" : fmt::format("_gradmeter_values '{}'; ", fmt::join(known, " "));
      if (f.takes_value) values += fmt::format("    {}:--{}{}) {}return ;;\n", c->name, f.name, also, offer);
    }
    words += fmt::format("    {}) flags='{}' words='{}' ;;\n", c->name, names_of(usage.flags),
                         fmt::join(usage.choices, " "));
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
_gradmeter_launched() {{ # after mpirun -np 2 PATH/gradmeter: as if the line began there
  local i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    [ "${{COMP_WORDS[i]##*/}}" = gradmeter ] || continue
    local rest=("${{COMP_WORDS[@]:i}}") at=$((COMP_CWORD - i))
    local COMP_WORDS=("${{rest[@]}}") COMP_CWORD=$at
    _gradmeter
    return
  done
}}
complete -o bashdefault -o default -F _gradmeter gradmeter
# What completes a launcher already is left alone.
for _gradmeter_launcher in mpirun mpiexec; do
  complete -p "$_gradmeter_launcher" &>/dev/null ||
    complete -o bashdefault -o default -F _gradmeter_launched "$_gradmeter_launcher"
done
unset _gradmeter_launcher
)";
  return fmt::format(fmt::runtime(script), fmt::arg("version", bench::version()), fmt::arg("commands", command_names()),
                     fmt::arg("values", values), fmt::arg("words", words));
}

/// A flag as an argument of zsh's function _arguments: '--out=[help]:out:_files'.
std::string zsh_argument(const FlagDescription& f) {
  std::string help = f.help;
  for (const char* special : {"\\", "[", "]"}) help = replaced(help, special, fmt::format("\\{}", special));
  if (!f.takes_value) return fmt::format("'--{}[{}]'", f.name, shell_quoted(help));
  const auto known = known_values(f);
  const std::string action = known.empty() ? "_files" : fmt::format("_sequence compadd - {}", fmt::join(known, " "));
  return fmt::format("'--{}=[{}]:{}:{}'", f.name, shell_quoted(help), f.name, action);
}

std::string zsh_completion() {
  std::string out = fmt::format(
      "#compdef gradmeter\n# zsh completion of gradmeter {}, by: gradmeter completion zsh\n_gradmeter() {{\n"
      "  local -a commands=(\n",
      bench::version());
  for (const Command* c : commands())
    out += fmt::format("    '{}:{}'\n", c->name, shell_quoted(replaced(std::string(c->summary), ":", "\\:")));
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
  for (const Command* c : commands()) {
    const Usage usage = c->usage();
    out += fmt::format("    {}) _arguments", c->name);
    for (const auto& f : usage.flags.flags) out += fmt::format(" \\\n      {}", zsh_argument(f));
    if (!usage.choices.empty()) {
      out += fmt::format(" \\\n      '*:{}:({})'", usage.words, fmt::join(usage.choices, " "));
    } else if (!usage.words.empty()) {
      out += fmt::format(" \\\n      '*:{}:_files'", usage.words);
    }
    out += " ;;\n";
  }
  // If compinit autoloads the file, it is the function's body; if a user sources it, it only registers the function.
  return out +
         "  esac\n}\nif [[ $funcstack[1] == _gradmeter ]]; then\n  _gradmeter \"$@\"\nelse\n"
         "  compdef _gradmeter gradmeter\nfi\n";
}

/// Escapes text that stands within '…' in fish.
std::string fish_quoted(const std::string& text) { return replaced(replaced(text, "\\", "\\\\"), "'", "\\'"); }

std::string fish_completion() {
  std::string out = fmt::format("# fish completion of gradmeter {}, by: gradmeter completion fish\n", bench::version());
  for (const Command* c : commands()) {
    const Usage usage = c->usage();
    out += fmt::format("complete -c gradmeter -n __fish_use_subcommand -f -a {} -d '{}'\n", c->name,
                       fish_quoted(std::string(c->summary)));
    const std::string complete = fmt::format("complete -c gradmeter -n '__fish_seen_subcommand_from {}'", c->name);
    for (const auto& f : usage.flags.flags) {
      out += fmt::format("{} -l {}", complete, f.name);
      if (!f.short_name.empty()) out += fmt::format(" -s {}", f.short_name);
      if (const auto known = known_values(f); !known.empty()) {
        out += fmt::format(" -x -a \"(__fish_append , {})\"", fmt::join(known, " "));
      } else if (f.takes_value) {
        out += " -r";
      }
      out += fmt::format(" -d '{}'\n", fish_quoted(f.help));
    }
    if (!usage.choices.empty()) out += fmt::format("{} -f -a '{}'\n", complete, fmt::join(usage.choices, " "));
  }
  return out;
}

constexpr std::array shells{std::pair{"bash", &bash_completion}, std::pair{"zsh", &zsh_completion},
                            std::pair{"fish", &fish_completion}};

std::vector<std::string> shell_names() {
  std::vector<std::string> out;
  for (const auto& [name, completion] : shells) out.emplace_back(name);
  return out;
}

Usage completion_usage() {
  FlagList flags("Flags");
  add_switch(flags, "help,h", "this text");
  return {.flags = flags,
          .about =
              "gradmeter completion SHELL: a script with which bash, zsh or fish completes commands, flags, values\n"
              "\n"
              "source <(gradmeter completion bash)\n"
              "gradmeter completion zsh > ~/.zfunc/_gradmeter       (a folder of fpath, before compinit)\n"
              "gradmeter completion fish > ~/.config/fish/completions/gradmeter.fish",
          .words = "shell",
          .choices = shell_names()};
}

int run_completion_command(const Flags& flags, const Invocation&) {
  const auto& words = flags.words();
  if (words.size() != 1) throw core::UsageError("completion: name one shell: bash, zsh or fish");
  for (const auto& [name, completion] : shells) {
    if (words[0] != name) continue;
    core::print("{}", completion());
    return static_cast<int>(core::ExitCode::done);
  }
  core::refuse_unknown("shell", words[0], shell_names());
}

}  // namespace

extern const Command completion_command{.name = "completion",
                                        .summary = "what bash, zsh or fish completes: commands, flags, their values",
                                        .with_ranks = false,
                                        .usage = completion_usage,
                                        .run = run_completion_command};

}  // namespace gradmeter::cli
