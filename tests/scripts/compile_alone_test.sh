#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"

# scripts/compile-alone.py in a small tree, with the real compiler: what a unit of several sources hides is found and named.
repo=$work/repo
mkdir -p "$repo/src/core" "$repo/build/alone"
cp -r "$root/scripts" "$repo/"
standard=$'#include <span>\n#include <string>\n#include <string_view>\n#include <vector>'
good=()
for i in $(seq 1 12); do  # as many as are worth a precompiled header
  printf '#include "core/good%s.hpp"\n\n%s\n\nint good%s(std::span<const int> s) { return std::vector<int>(s.begin(), s.end()).front(); }\n' \
    "$i" "$standard" "$i" >"$repo/src/core/good$i.cpp"
  printf '#pragma once\n%s\nint good%s(std::span<const int> s);\n' "$standard" "$i" >"$repo/src/core/good$i.hpp"
  good+=("src/core/good$i.cpp")
done

# Writes the compile commands of sources and runs the script, with the arguments `more`.
more=''
run() { # SOURCE...
  local name separator='['
  for name in "$@"; do
    printf '%s{"directory": "%s", "command": "c++ -std=c++20 -O2 -Isrc -o one.o -c %s", "file": "%s"}' \
      "$separator" "$repo" "$repo/$name" "$repo/$name"
    separator=$',\n'
  done >"$repo/build/alone/compile_commands.json"
  echo ']' >>"$repo/build/alone/compile_commands.json"
  try python3 "$repo/scripts/compile-alone.py" ${more:+"$more"}
}
failed() { grep '^failed: ' <<<"$output"; }

run "${good[@]}"
expect_equal "what includes all that it needs compiles" "0 12 sources and 0 headers compiled alone, 0 failed" "$code $output"

# A source that lacks a header of a library, and one that lacks a header of ours.
printf '#include "core/good1.hpp"\n\nint count() { return std::map<int, int>().size(); }\n' >"$repo/src/core/lacks.cpp"
printf '#include "core/good1.hpp"\n\nint twice(std::span<const int> s) { return good1(s) + good2(s); }\n' >"$repo/src/core/lacks_ours.cpp"
# A source that has what its header lacks, but behind it: precompiled headers, which come first, must not hide that.
printf '#pragma once\nstd::vector<int> order();\n' >"$repo/src/core/order.hpp"
printf '#include "core/order.hpp"\n\n%s\n\nstd::vector<int> order() { return {1}; }\n' "$standard" >"$repo/src/core/order.cpp"
# A header that lacks what stands before it, which no source includes first.
printf '#pragma once\nstd::vector<int> later();\n' >"$repo/src/core/later.hpp"
printf '#include "core/good1.hpp"\n#include "core/later.hpp"\n\nstd::vector<int> later() { return {1}; }\n' >"$repo/src/core/later.cpp"
faulty=(src/core/lacks.cpp src/core/lacks_ours.cpp src/core/order.cpp src/core/later.cpp)
run "${good[@]}" "${faulty[@]}"
expect_equal "each that lacks an include is named, with the header where that lacks it" \
  "1 failed: src/core/lacks.cpp failed: src/core/lacks_ours.cpp failed: src/core/later.hpp failed: src/core/order.cpp" \
  "$code $(failed | sort | paste -sd ' ')"
sed -i '1a #include <map>' "$repo/src/core/lacks.cpp"
sed -i '1a #include "core/good2.hpp"' "$repo/src/core/lacks_ours.cpp"
sed -i '1a #include <vector>' "$repo/src/core/order.hpp" "$repo/src/core/later.hpp"
run "${good[@]}" "${faulty[@]}"
expect_equal "mended, they compile" "0 16 sources and 1 headers compiled alone, 0 failed" "$code $output"

mkdir -p "$repo/tests/core"
printf '#include "core/good1.hpp"\n\nint count() { return std::map<int, int>().size(); }\n' >"$repo/tests/core/lacks_test.cpp"
run src/core/good1.cpp tests/core/lacks_test.cpp
expect_equal "tests are left out" "0 1 sources and 0 headers compiled alone, 0 failed" "$code $output"
more=--tests
run src/core/good1.cpp tests/core/lacks_test.cpp
expect_equal "but where they are asked for" "1 failed: tests/core/lacks_test.cpp" "$code $(failed)"
more=$repo/tests/core/lacks_test.cpp
run src/core/good1.cpp tests/core/lacks_test.cpp
expect_equal "or named" "1 failed: tests/core/lacks_test.cpp" "$code $(failed)"

finish
