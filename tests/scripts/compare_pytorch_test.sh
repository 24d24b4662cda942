#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"
compare=$root/scripts/compare-pytorch.py
python=$(command -v "${1:-python3}")
printf '#!/bin/sh\nexit 3\n' >"$work/gradmeter"
chmod +x "$work/gradmeter"

try "$python" "$compare" --help
expect_equal "help: exit 0" 0 "$code"
expect_contains "help says what is compared" "do the losses agree" "$output"

# -S: without what is installed, as where there is no PyTorch.
try "$python" -S "$compare" "$work/gradmeter"
expect_equal "without PyTorch: exit 2" 2 "$code"
expect_contains "and what to install" "pip install torch numpy" "$output"
expect_equal "in one line" 1 "$(wc -l <<<"$output")"

refuse() { # EXPECTED ARGUMENT...
  try "$python" "$compare" "${@:2}"
  expect_equal "'${*:2}': exit 2" 2 "$code"
  expect_contains "'${*:2}' is answered" "$1" "$output"
}
refuse "the following arguments are required: gradmeter"
refuse "is not a program" "$work/nothing"
refuse "no counterpart here; choose from mlp" "$work/gradmeter" --models mlp,resnet50
refuse "give more than 10 steps" "$work/gradmeter" --steps 10
refuse "batches and threads from 1" "$work/gradmeter" --batches 16,0
refuse "12800 samples a step at most" "$work/gradmeter" --batches 12800 --ranks 1,2
refuse "compares one rank" "$work/gradmeter" --device cuda --ranks 2
refuse "choose from fp32, tf32, bf16, fp16" "$work/gradmeter" --products fp8
refuse "invalid numbers value" "$work/gradmeter" --ranks 1,x

# Where PyTorch is installed, a program that fails is told with its exit code.
if "$python" -c 'import torch, numpy' 2>/dev/null; then
  try "$python" "$compare" "$work/gradmeter" --models mlp --ranks 1
  expect_equal "a program that fails: exit 1" 1 "$code"
  expect_contains "and which" "gradmeter train --model mlp" "$output"
  expect_contains "and how" "ended with 3" "$output"
fi
finish
