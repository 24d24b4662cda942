#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"

# The script in a repository of its own, with nothing to install, a build that takes no time, and no real ranks.
mkdir -p "$work/repo/scripts" "$work/repo/build/release"
cp "$root"/scripts/{quickstart,packages,environment}.sh "$work/repo/scripts/"
echo 'exit 1' >"$work/repo/scripts/charts.sh"
echo 'echo "gradmeter $*"' >"$work/repo/build/release/gradmeter"
chmod +x "$work/repo/scripts/charts.sh" "$work/repo/build/release/gradmeter"
stand_in dpkg-query <<<'echo -n installed'
stand_in cmake <<<'echo "cmake $*"'
stand_in mpirun <<END
[ -d results ] && echo "mpirun \$*"
exit \${MPIRUN_CODE:-0}
END
export GRADMETER_STATUS=$work/status
on() { # CORES THREADS [ALLOWED]: a machine of so many cores and hardware threads, and which of these may be used
  stand_in nproc <<<"echo $2"
  stand_in lscpu <<<"echo '# comment'; for ((t = 0; t < $2; t++)); do echo \$t,\$((t % $1)),0; done"
  printf 'Cpus_allowed_list:\t%s\n' "${3:-0-$(($2 - 1))}" >"$work/status"
  try bash "$work/repo/scripts/quickstart.sh"
}
measured() { # the mpirun line as far as the rank list
  grep '^mpirun' <<<"$output" | sed -E 's/^mpirun -np ([0-9]+) .* --ranks ([0-9,]+) .*/\1: \2/'
}

on 1 1 && expect_equal "one core: two ranks all the same" "2: 1,2" "$(measured)"
on 2 4 && expect_equal "hardware threads are not cores" "2: 1,2" "$(measured)"
on 6 6 && expect_equal "six cores: powers of two" "4: 1,2,4" "$(measured)"
on 8 16 0-3,8-11 && expect_equal "both threads of four allowed cores" "4: 1,2,4" "$(measured)"
on 64 128 && expect_equal "many cores: at most eight" "8: 1,2,4,8" "$(measured)"
stand_in lscpu <<<'exit 1'
try bash "$work/repo/scripts/quickstart.sh"
expect_equal "no lscpu: what nproc says" "8: 1,2,4,8" "$(measured)"

expect_equal "passes" 0 "$code"
expect_contains "builds the program alone" "cmake --build --preset release --target gradmeter" "$output"
expect_contains "needs no GoogleTest" "cmake --preset release -DGRADMETER_TESTS=OFF" "$output"
expect_contains "the file" "--out results/quickstart.jsonl --force" "$output"
expect_contains "without the registry the page has tables" "the page will have tables only" "$output"
expect_contains "the page is written" "gradmeter report results/quickstart.jsonl -o results/quickstart.html" "$output"
expect_contains "and its path printed" "$work/repo/results/quickstart.html" "$output"
expect_contains "what to do next" "jobs/weak-scaling.sh submit" "$output"

MPIRUN_CODE=3 try bash "$work/repo/scripts/quickstart.sh"
expect_equal "a failed measurement fails with its code" 3 "$code"
expect_lacks "and suggests nothing" "To go on" "$output"
try bash "$work/repo/scripts/quickstart.sh" --what
expect_equal "unknown arguments are refused" 2 "$code"
finish
