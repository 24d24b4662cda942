#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"
export_model=$root/scripts/export-model.py
models=$root/tests/scripts/models
python=$(command -v "${1:-python3}")

# recorded.json is what --record wrote of a small network with every kind of layer; tests/model reads recorded.csv.
"$python" "$export_model" --listing "$models/recorded.json" >"$work/out.csv" 2>"$work/errors"
expect_equal "a listing has a table" "" "$(diff "$models/recorded.csv" "$work/out.csv")"
expect_equal "what has no products in it is named" \
  "export-model: tensors alone, without products: (Tiny), idle (Linear)" "$(cat "$work/errors")"

# A listing of one module, and the row of its weight.
row_of() { # MODULE
  echo "{\"modules\": [$1]}" >"$work/one.json"
  try "$python" "$export_model" --listing "$work/one.json"
  sed -n 2p <<<"$output"
}
linear='"name": "fc", "type": "Linear", "parameters": {"weight": [3, 5]}'
expect_equal "a linear layer of a batch of vectors" "fc.weight,linear,3x5,15,30,5,,,,1," \
  "$(row_of "{$linear, \"input\": [1, 5]}")"
expect_equal "and of sequences" "fc.weight,linear,3x5,15,210,5,,,,7," "$(row_of "{$linear, \"input\": [1, 7, 5]}")"
conv='"name": "c", "type": "Conv2d", "parameters": {"weight": [4, 3, 3, 3]}, "input": [1, 3, 9, 9], "stride": [1, 1],
  "padding": [0, 0], "groups": 1, "padding_mode": "zeros"'
expect_equal "a convolution" "c.weight,conv,4x3x3x3,108,10584,3x9x9,1x1,0x0,1,," \
  "$(row_of "{$conv, \"dilation\": [1, 1], \"output\": [1, 4, 7, 7]}")"
expect_equal "a dilated one has its FLOP, and no geometry" "c.weight,conv,4x3x3x3,108,5400,,,,,," \
  "$(row_of "{$conv, \"dilation\": [2, 2], \"output\": [1, 4, 5, 5]}")"

echo '{"modules": [{"name": "a", "type": "MultiheadAttention", "input": [1, 4, 8], "key": [1, 5, 8], "batch_first": true,
  "heads": 2, "parameters": {}}]}' >"$work/cross.json"
try "$python" "$export_model" --listing "$work/cross.json"
expect_equal "attention over other tokens is refused" 1 "$code"
expect_equal "with the reason" "export-model: a: 4 tokens attend to 5; the format has one count of both" "$output"

for bad in 'x' '{}' '{"modules": [{"name": "a"}]}'; do
  echo "$bad" >"$work/bad.json"
  try "$python" "$export_model" --listing "$work/bad.json"
  expect_equal "'$bad' is refused" 1 "$code"
  expect_contains "'$bad' is refused in a line that names the file" "export-model: $work/bad.json" "$output"
  expect_equal "'$bad' is refused in one line" 1 "$(wc -l <<<"$output")"
done
try "$python" "$export_model" --listing /no/such/file.json
expect_contains "a file that is not there is named" "export-model: /no/such/file.json" "$output"
try "$python" "$export_model"
expect_equal "no arguments: exit 2" 2 "$code"
expect_contains "and what to give" "give MODULE:CALLABLE with --input, or --listing" "$output"

# Where PyTorch is installed, the published networks give the shipped tables' rows.
if "$python" -c 'import torchvision' 2>/dev/null; then
  for model in alexnet vgg11 vgg16 resnet50; do
    "$python" "$export_model" "torchvision.models:$model" --input 3x224x224 2>/dev/null |
      sed -E 's/,([0-9]+)x\1,([0-9]+)x\2,([0-9]+),,$/,\1,\2,\3,,/' | cut -d, -f2- >"$work/exported"
    expect_equal "$model of torchvision is the shipped one" "" \
      "$(diff "$work/exported" <(cut -d, -f2- "$root/data/models/$model.csv"))"
  done
fi
finish
