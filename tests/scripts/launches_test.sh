#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"
launches=$root/scripts/launches.sh

# Adds a line with its arguments to $work/calls; launch number $FAIL_AT ends with 3.
stand_in gradmeter <<END
printf '<%s>' "\$@" >>"$work/calls"
echo >>"$work/calls"
[ "\$(wc -l <"$work/calls")" -ne "\${FAIL_AT:-0}" ] || exit 3
END

try "$launches" 3 -- gradmeter scale --model "a b" --out x.jsonl
expect_equal "every launch passing is 0" 0 "$code"
expect_equal "each launch is named" $'launch 1 of 3\nlaunch 2 of 3\nlaunch 3 of 3' "$output"
line='<scale><--model><a b><--out><x.jsonl><--append>'
expect_equal "each launch appends, arguments unbroken" "$line"$'\n'"$line"$'\n'"$line" "$(cat "$work/calls")"

rm "$work/calls"
FAIL_AT=2 try "$launches" 5 -- gradmeter scale --out x.jsonl
expect_equal "the failing launch's exit code" 3 "$code"
expect_contains "the failing launch is named" "launch 2 of 5 ended with exit code 3" "$output"
expect_equal "nothing starts after a failure" 2 "$(wc -l <"$work/calls")"

rm "$work/calls"
try "$launches" 1 -- gradmeter scale --append --out x.jsonl
expect_equal "--append is given once" '<scale><--append><--out><x.jsonl>' "$(cat "$work/calls")"

rm "$work/calls"
for bad in "0 -- gradmeter scale" "two -- gradmeter scale" "3 gradmeter scale" "3 --" "2 -- gradmeter scale --force" \
  "2 -- gradmeter scale --resume" ""; do
  # shellcheck disable=SC2086  # a list of words
  try "$launches" $bad
  expect_equal "refused: $bad" 2 "$code"
done
expect_equal "nothing started where refused" no "$([ -e "$work/calls" ] && echo yes || echo no)"
finish
