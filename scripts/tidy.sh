#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy over C++ sources, several at once, naming each as it starts; names the files that have a finding at the end, and fails
# when there is one.
# Usage: scripts/tidy.sh [--preset NAME] [FILE ...]      (default: preset tidy, all that it compiles of src/)
# The preset must be configured, not built: its compile_commands.json says how each file is compiled. Preset tidy has unity
# builds: most of the time goes into headers, which a unit of twelve sources reads once. A FILE stands for its unit.
# CUDA code of the host (.cpp) is read as the toolkit compiles it, where there is one; kernels (.cu) are not.
# What units hide (a missing include) scripts/compile-alone.py finds.
# Version 16: older ones do not know the std::source_location of GCC 12. It needs clang's own omp.h (libomp-16-dev).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

# One file, as called back by xargs below. A file that hangs ends after five minutes, and counts as a finding. Loops are
# looked at once, not once for each instruction set: half the time of their files.
if [ "${1:-}" = --one ]; then
  echo "[$4/$3] clang-tidy ${5#"$PWD/"}"
  timeout 300 clang-tidy-16 --quiet --checks=-bugprone-suspicious-include,-clang-diagnostic-shadow* \
    --header-filter='src/.*\.[ch]pp$' --extra-arg=-DHWY_COMPILE_ONLY_STATIC \
    --extra-arg=-Wno-unused-command-line-argument -p "$2" "$5" \
    2> >(grep -v ' warnings\? generated\.$' >&2) && exit
  echo "failed: ${5#"$PWD/"}"
  exit 1
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
# Sources that the preset compiles by themselves, and its units; no generated ones.
compiled() {
  grep -o '"file": "[^"]*"' "build/$preset/compile_commands.json" | cut -d'"' -f4 |
    grep -E "^$PWD/(src/.*\.cpp|build/$preset/src/.*/Unity/.*\.cxx)\$" | sort
}
unit_of() { # FILE
  compiled | xargs grep -lF "\"$PWD/$1\"" -- 2>/dev/null | grep 'Unity/' || echo "$PWD/$1"
}
mapfile -t files < <(if [ $# -eq 0 ]; then compiled; else for file in "$@"; do unit_of "$file"; done | sort -u; fi)
if [ ${#files[@]} -eq 0 ]; then
  echo "tidy: build/$preset builds nothing of src/" >&2
  exit 2
fi
printf '%s\n' "${files[@]}" | nl -w1 -s' ' |
  xargs -P "$(nproc)" -L 1 bash scripts/tidy.sh --one "build/$preset" "${#files[@]}"
