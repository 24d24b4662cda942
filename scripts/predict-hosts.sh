#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures exchanges and steps on 1, 2 and 4 hosts of the virtual cluster, and scores the prediction of 4 hosts from 1 and 2.
# Root, ten minutes. usage: scripts/predict-hosts.sh GRADMETER FOLDER [RATE]
# What FOLDER has already is not measured again.
set -euo pipefail

if [ $# -lt 2 ]; then
  sed -n '3,5s/^# //p' "$0" >&2
  exit 2
fi
gradmeter=$(realpath "$1")
folder=$2
rate=${3:-1Gbit}
here=$(dirname "$(realpath "$0")")
mkdir -p "$folder"

measure() { # FILE HOSTS COMMAND...
  local file=$folder/$1 hosts=$2
  shift 2
  [ ! -e "$file" ] || return 0
  rm -f "$file.part.jsonl"
  "$here/virtual-cluster.sh" "$hosts" "$rate" -- mpirun --allow-run-as-root -np "$hosts" "$gradmeter" "$@" --out "$file.part.jsonl"
  mv "$file.part.jsonl" "$file"
}

# The first host makes the base of every curve: each file of scale has one rank too.
for hosts in 2 4; do
  measure "calls-$hosts.jsonl" "$hosts" allreduce --sizes 64K,1M,8M \
    --algorithm ring,rabenseifner,recursive-doubling,double-tree,direct --codec none,qsgd8,bf16 --time-budget 60s
  measure "steps-$hosts.jsonl" "$hosts" scale --ranks "1,$hosts" --batch 16,64 --strategy \
    sync,ps-sync,ps-async,model-averaging,sharded --algorithm ring,rabenseifner --codec none,qsgd8 --overlap none --time-budget 220s
done
"$gradmeter" predict --calibrate "$folder/calls-2.jsonl,$folder/steps-2.jsonl" \
  --score "$folder/calls-4.jsonl,$folder/steps-4.jsonl" --shared-cores "$(nproc)" --outliers 10
