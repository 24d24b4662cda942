#!/usr/bin/env bash
# clang-tidy over C++ sources, several at once, naming each as it starts; fails when any file has a finding.
# Usage: scripts/tidy.sh [--preset NAME] [FILE.cpp ...]      (default: preset tidy, every .cpp of src/ that it compiles)
# The preset must be configured, not built: its compile_commands.json says how each file is compiled. In a preset with unity
# builds a missing include goes unseen, since other files of the unit bring it.
# Version 16: older ones do not know the std::source_location of GCC 12. It needs clang's own omp.h (libomp-16-dev).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

# One file, as called back by xargs below. A file that hangs ends after five minutes, and counts as a finding.
if [ "${1:-}" = --one ]; then
  echo "[$4/$3] clang-tidy $5"
  timeout 300 clang-tidy-16 --quiet -p "$2" "$5" 2> >(grep -v ' warnings\? generated\.$' >&2)
  exit
fi

preset=tidy
if [ "${1:-}" = --preset ]; then
  preset=${2:?"--preset needs a name"}
  shift 2
fi
if ! command -v clang-tidy-16 >/dev/null; then
  echo "tidy: no clang-tidy-16; scripts/packages.sh test installs it" >&2
  exit 2
fi
if [ ! -e "build/$preset/compile_commands.json" ]; then
  echo "tidy: build/$preset is not configured; run: cmake --preset $preset" >&2
  exit 2
fi
files=("$@")
if [ ${#files[@]} -eq 0 ]; then
  while read -r file; do
    # What this preset leaves out, such as a door to a library that it does not use, has no command to read it by.
    if grep -qF "/$file\"" "build/$preset/compile_commands.json"; then files+=("$file"); fi
  done < <(find src -name '*.cpp' | sort)
fi
if [ ${#files[@]} -eq 0 ]; then
  echo "tidy: build/$preset builds nothing of src/" >&2
  exit 2
fi
printf '%s\n' "${files[@]}" | nl -w1 -s' ' |
  xargs -P "$(nproc)" -L 1 bash scripts/tidy.sh --one "build/$preset" "${#files[@]}"
