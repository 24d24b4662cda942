# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034  # what it sets is read by the tests
# What the tests of the scripts share: a scratch folder $work, stand-ins for programs, and a few checks.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# The scripts must see none of what the test itself runs under.
unset CI "${!OMPI_@}" "${!SLURM_@}" "${!GRADMETER_@}" PBS_JOBID LSB_JOBID

# Puts a program NAME first in the path that runs the shell text on standard input.
stand_in() { # NAME
  mkdir -p "$work/bin"
  { echo '#!/usr/bin/env bash' && cat; } >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}
PATH=$work/bin:$PATH

# Runs a command; leaves its exit code in $code, its output and errors in $output.
try() { # COMMAND...
  code=0
  output=$("$@" 2>&1) || code=$?
}

expect_equal() { # WHAT EXPECTED GOT
  [ "$2" = "$3" ] && return
  printf 'FAILED %s\n  expected: %s\n  got:      %s\n' "$1" "$2" "$3"
  failures=$((failures + 1))
}

expect_contains() { # WHAT PART WHOLE
  [[ $3 == *"$2"* ]] && return
  printf 'FAILED %s\n  no "%s" in: %s\n' "$1" "$2" "$3"
  failures=$((failures + 1))
}

expect_lacks() { # WHAT PART WHOLE
  [[ $3 != *"$2"* ]] && return
  printf 'FAILED %s\n  "%s" in: %s\n' "$1" "$2" "$3"
  failures=$((failures + 1))
}

finish() {
  [ "$failures" -eq 0 ] && echo passed
  exit $((failures > 0))
}
