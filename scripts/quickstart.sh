#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh Debian 12 or Ubuntu 24.04 to the first scaling curve: installs what is missing, builds gradmeter, and
# measures how training of a small network scales over this machine's cores. Leaves results/quickstart.jsonl and the page
# results/quickstart.html.
# Usage: scripts/quickstart.sh
set -euo pipefail

if [ $# -gt 0 ]; then
  sed -n '3,6s/^# //p' "$0"
  [ "$1" = --help ] || [ "$1" = -h ] || exit 2
  exit 0
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/packages.sh
. scripts/packages.sh
say() { printf '\n==> %s\n' "$*"; }

# Physical cores that this process may use: two ranks on the two threads of one core share its arithmetic units, and
# the curve would show that instead of the exchange.
physical_cores() {
  local allowed cores list
  allowed=$(nproc)
  list=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "${GRADMETER_STATUS:-/proc/self/status}" 2>/dev/null) || list=
  cores=$(lscpu --parse=CPU,CORE,SOCKET 2>/dev/null | awk -F, -v list="$list" '
    BEGIN {
      parts = split(list, ranges, ",")
      for (i = 1; i <= parts; i++) {
        if (split(ranges[i], ends, "-") == 1) ends[2] = ends[1]
        for (cpu = ends[1] + 0; cpu <= ends[2] + 0; cpu++) may[cpu] = 1
      }
    }
    !/^#/ && (parts == 0 || $1 in may) && !seen[$2, $3]++ { cores++ }
    END { print cores + 0 }') || cores=0
  if [ "$cores" -gt 0 ] && [ "$cores" -lt "$allowed" ]; then echo "$cores"; else echo "$allowed"; fi
}

# The powers of two up to LIMIT, separated by commas.
powers_of_two() { # LIMIT
  local n=1 list=1
  while [ $((n * 2)) -le "$1" ]; do
    n=$((n * 2))
    list+=,$n
  done
  echo "$list"
}

say "1/3 packages"
gradmeter_install build
scripts/charts.sh || echo "quickstart: the page will have tables only"

say "2/3 build"
# The tests need GoogleTest, which only scripts/test.sh installs; a build folder that exists keeps its own choice.
configure=(cmake --preset release)
[ -e build/release/CMakeCache.txt ] || configure+=(-DGRADMETER_TESTS=OFF)
"${configure[@]}"
cmake --build --preset release --target gradmeter

cores=$(physical_cores)
limit=$((cores < 2 ? 2 : cores > 8 ? 8 : cores))
rank_list=$(powers_of_two "$limit")
export GRADMETER_RANKS=${rank_list##*,}
# shellcheck source=scripts/environment.sh
. scripts/environment.sh

out=results/quickstart.jsonl
mkdir -p results
# shellcheck disable=SC2054  # the commas belong to gradmeter's lists
command=(mpirun -np "$GRADMETER_RANKS" build/release/gradmeter scale --model mlp --batch 16,64,256 --ranks "$rank_list"
  --strategy independent,sync --algorithm mpi,ring --time-budget 75s --out "$out" --force)
say "3/3 measure, about 75 seconds: ${command[*]}"
"${command[@]}"
page=${out%.jsonl}.html
build/release/gradmeter report "$out" -o "$page"

cat <<EOF

Every point is in $out, one JSON object a line. Open the page in a browser: $PWD/$page. To go on:
  . scripts/environment.sh                            what mpirun needs in a container or with few cores
  build/release/gradmeter scale --help                models, batches, algorithms, precisions, time budget
  mpirun -np $GRADMETER_RANKS build/release/gradmeter scale --model mlp --batch 16,64,256,1024 --ranks $rank_list --out results/my.jsonl
  scripts/launches.sh 5 -- mpirun -np $GRADMETER_RANKS build/release/gradmeter scale --model mlp --ranks $rank_list --out results/five.jsonl
  \$EDITOR jobs/settings.sh; bash jobs/weak-scaling.sh submit         the same on a cluster with Slurm
EOF
