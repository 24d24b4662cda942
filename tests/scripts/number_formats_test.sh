#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"
script=$root/scripts/number-formats.py

# Writes what a training of two epochs would: an error of SEED % in fp32, 1.5 % more with other weights, 2.5 % with other products; the first
# epoch is far worse.
stand_in gradmeter <<'END'
while [ $# -gt 0 ]; do
  case "$1" in --seed) seed=$2 ;; --update) update=$2 ;; --precision) precision=$2 ;; --out) out=$2 ;; esac
  shift
done
[ "$update" != broken ] || { echo "gradmeter: no such format" >&2; exit 2; }
more=0
[ "$update" = fp32 ] || more=15
[ "$precision" = fp32 ] || more=25
{
  echo '{"type":"run"}'
  echo '{"metrics":{"step":1,"loss":0.5}}'
  echo '{"metrics":{"accuracy":0.1}}'
  printf '{"metrics":{"accuracy":0.%03d}}\n' $((1000 - 10 * seed - more))
} >"$out"
END

try python3 "$script" --gradmeter gradmeter --formats fp32/fp32,bf16/fp32,fp32/bf16 --seeds 3 --epochs 2 --last 1 --jobs 2
expect_equal "it ends well" 0 "$code"
# Of 1, 2, 3: mean 2, standard deviation 1, t(2) = 4.303, so 4.303 / sqrt(3).
expect_contains "mean and interval by hand" "2.00 ± 2.48" "$output"
expect_contains "the difference is taken seed by seed" "+1.50 ± 0.00" "$output"
expect_contains "and of products" "bf16/fp32" "$output"
expect_contains "beyond the first format" "+2.50 ± 0.00" "$output"
expect_contains "each seed's figure" "1.00 2.00 3.00" "$output"

try python3 "$script" --gradmeter gradmeter --formats fp32/fp32 --seeds 3 --epochs 2 --last 2
expect_contains "the last two epochs' mean" "46.00" "$output"

try python3 "$script" --gradmeter gradmeter --formats fp32/broken --seeds 2 --epochs 2 --last 1
expect_equal "a failed run ends it" 1 "$code"
expect_contains "with what it said" "no such format" "$output"
try python3 "$script" --gradmeter gradmeter --epochs 2 --last 3
expect_equal "more epochs than there are" 2 "$code"
try python3 "$script" --gradmeter gradmeter --formats fp32
expect_contains "a format without weights" "PRODUCTS/WEIGHTS" "$output"
try python3 "$script" --gradmeter gradmeter --epochs 3 --last 1 --seeds 2
expect_contains "a file with other epochs than asked" "2 epochs instead of 3" "$output"
finish
