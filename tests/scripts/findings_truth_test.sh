#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: findings_truth_test.sh GRADMETER PYTHON
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"

# What is written into honest rows is named first, and nothing else: scripts/findings-truth.py, without the seeds that measure. The
# script itself must see a program that names nothing, and one that names what is not there.
gradmeter=$1 python=$2
judge() { # GRADMETER SEEDS
  try "$python" "$root/scripts/findings-truth.py" "$1" --seeds "$2" --how edited --bases "$root/tests/scripts/honest_rows" --keep "$work/files"
}

judge "$gradmeter" 1-120
expect_equal "planted truths are named first: $(grep -F '**NO**' <<<"$output")" 0 "$code"
expect_contains "in files of every kind" "of 60 truths are named first, 0 files have a false finding" "$output"

stand_in silent <<'END'
echo '{"kind":"nothing_wrong","experiment":"scale","factors":{},"over":[],"figures":{},"probability":null,"sentence":"All is well.","next":null}'
END
judge "$work/bin/silent" 1-60
expect_equal "a program that sees nothing fails" 1 "$code"
expect_contains "but for the files that are in order" "4 of 30 truths are named first" "$output"

stand_in accuser <<END
"$gradmeter" "\$@"
echo '{"kind":"slow_host","experiment":"scale","factors":{},"over":[],"figures":{},"probability":null,"sentence":"It is that one.","next":null}'
END
judge "$work/bin/accuser" 1-60
expect_equal "one that accuses without a reason fails" 1 "$code"
expect_contains "in every file but those where a host's link is planted" "26 files have a false finding" "$output"

stand_in boaster <<END
"$gradmeter" "\$@"
echo '{"kind":"fastest_exchange","experiment":"scale","factors":{},"over":[],"figures":{"speed_against_mpi":{"value":700}},"probability":null,"sentence":"It wins.","next":null}'
END
judge "$work/bin/boaster" 1-6
expect_equal "one that gives a ratio which no two rows have fails" 1 "$code"

finish
