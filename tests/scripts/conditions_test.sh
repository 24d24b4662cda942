#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: conditions_test.sh GRADMETER MPIRUN. Runs each script that people start, with real ranks, under conditions that people have:
# a language with decimal commas, a job's name with blanks and a comma, a small /dev/shm, a working directory that cannot be written.
# CONDITIONS in the environment: only these, of comma name shm readonly. Ends with 77 where none of them can be made.
# shellcheck disable=SC2016,SC2317  # for inner shells; functions called through "condition_..."
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"
GRADMETER=$(realpath "$1")
PATH=$(dirname "$(realpath -s "$2")"):$PATH
export GRADMETER TERM=dumb
settings=(TIME_BUDGET=0.5s MODEL=mlp:784-16-10 BATCH=16 "SIZES=1K,16K" LAUNCHES=1 KERNELS="--shape gemm:m=8,n=8,k=8" LINKS="--size 8"
  "PRECISION=fp32,bf16" INTERCONNECTS="tcp shm")
made=0

# The programs' result files that have a measured point.
measured() { grep -l '"status":"ok"' "$1"/*.jsonl 2>/dev/null | wc -l; }

# Each script, by a COMMAND that makes the condition. RESULTS is new for each.
every_script() { # CONDITION COMMAND...
  local condition=$1 script
  shift
  made=$((made + 1))
  for script in jobs/{acceptance,allreduce,interconnect,kernels-all-nodes,links,precision,rank-counts,strong-scaling,weak-scaling}.sh; do
    try env RESULTS="$work/$condition/${script##*/}" "${settings[@]}" "$@" timeout 150 bash "$script"
    expect_equal "$condition: $script ends well: $(tail -n 4 <<<"$output")" 0 "$code"
    [ "$(measured "$work/$condition/${script##*/}")" -gt 0 ] || expect_equal "$condition: $script has rows" some "none: $(tail -n 4 <<<"$output")"
    [ -n "$(find "$work/$condition/${script##*/}" -name '*.html')" ] || expect_equal "$condition: $script has a page" one "none: $(tail -n 4 <<<"$output")"
  done
  mkdir -p "$work/$condition/launches"
  try "$@" timeout 150 bash scripts/launches.sh 2 -- "$GRADMETER" allreduce --thread-ranks 2 --sizes 1K --algorithm ring --time-budget 1s \
    --out "$work/$condition/launches/all.jsonl"
  expect_equal "$condition: launches.sh ends well: $(tail -n 4 <<<"$output")" "0 2" "$code $(grep -c '"kind":"run"' "$work/$condition/launches/all.jsonl")"
  try "$@" timeout 150 bash scripts/virtual-cluster.sh 2 0 -- mpirun -np 2 "$GRADMETER" allreduce --sizes 1K --algorithm ring --time-budget 1s
  [ "$code" -eq 69 ] || expect_equal "$condition: virtual-cluster.sh ends well: $(tail -n 4 <<<"$output")" 0 "$code"
}

condition_comma() {
  local language
  export LOCPATH=$work/locales
  mkdir -p "$LOCPATH"
  for language in fr_FR de_DE; do localedef -i "$language" -f UTF-8 "$LOCPATH/$language.UTF-8" 2>/dev/null; done
  if [ "$(LC_ALL=fr_FR.UTF-8 bash -c 'printf %.1f 1,5' 2>/dev/null)" != 1,5 ]; then
    echo "skipped: no language with decimal commas here (scripts/packages.sh test)"
    return
  fi
  for language in fr_FR de_DE; do
    try env LC_ALL="$language.UTF-8" bash -c 'latency= links= && . scripts/virtual-links.sh && echo $(nanoseconds 1.5ms) $(bits 2.5Gbit)'
    expect_equal "$language: a latency and a rate" "1500000 2500000000" "$output"
    try env LC_ALL="$language.UTF-8" bash "$root/tests/scripts/jobs_test.sh"
    expect_equal "$language: what the jobs are given: $(tail -n 4 <<<"$output")" 0 "$code"
    try env LC_ALL="$language.UTF-8" TIME_BUDGET=100s bash -c '. jobs/common.sh && share_of_budget 3'
    expect_equal "$language: shares of the time" 33.3333s "$output"
  done
  every_script comma env LC_ALL=fr_FR.UTF-8
  try env LC_ALL=fr_FR.UTF-8 timeout 60 scripts/virtual-cluster.sh --latency 1.5ms 2 0 -- true
  [ "$code" -eq 69 ] || expect_contains "comma: both ways take twice 1.5 ms" "of 3000" "$output"
  unset LOCPATH
}

condition_name() {
  stand_in squeue <<<'exit 1'
  every_script name env ENVIRONMENT=BATCH SLURM_JOB_NAME="my job, again" SLURM_JOB_ID=5 SLURM_JOB_NUM_NODES=1 LAUNCHER=mpirun \
    OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
  expect_equal "name: of its files" my_job__again.jsonl "$(cd "$work/name/allreduce.sh" && echo *.jsonl)"
}

in_own_mounts() { # COMMANDS-OF-MOUNT: leaves the command in the array mounts
  mounts=(unshare -m bash -c "$1"' && exec "$@"' mounts)
  "${mounts[@]}" true 2>/dev/null || ! echo "skipped: needs the right to mount: $1"
}

condition_shm() {
  local row mounts
  in_own_mounts 'mount -t tmpfs -o size=48m tmpfs /dev/shm' || return 0
  every_script shm "${mounts[@]}"
  . scripts/environment.sh
  for row in "allreduce --sizes 4K,64M --algorithm ring" "scale --ranks 2 --strategy sync --algorithm ring --batch 4 --model mlp:784-16-10,mlp:784-4096-4096-10"; do
    # shellcheck disable=SC2086  # a list of words
    try "${mounts[@]}" timeout 60 mpirun -np 2 "$GRADMETER" $row --time-budget 2s --out "$work/shm.jsonl" --force
    expect_equal "shm: what does not fit ends nothing: $(tail -n 4 <<<"$output")" 0 "$code"
    expect_contains "shm: what fits is measured" '"status":"ok"' "$(grep '"transport":"shm"' "$work/shm.jsonl")"
    expect_contains "shm: the rest says what to do" "start the container with --shm-size=" "$(grep '"status":"skipped"' "$work/shm.jsonl")"
  done
  try "${mounts[@]}" timeout 60 mpirun -np 2 "$GRADMETER" train --epochs 1 --model mlp:784-2048-2048-10
  expect_equal "shm: a training that does not fit" 3 "$code"
  expect_contains "shm: in one line" "gradmeter: train: needs " "$output"
}

condition_readonly() {
  local before mounts
  in_own_mounts "mount --bind '$PWD' '$PWD' && mount -o remount,bind,ro '$PWD' && cd '$PWD'" || return 0
  before=$(find . | sort)
  every_script readonly "${mounts[@]}"
  expect_equal "readonly: nothing is written there" "$before" "$(find . | sort)"
}

# One of them, in a folder of its own. Ends with 77 where it cannot be made.
run() { # CONDITION
  work=$work/$1
  PATH=$work/bin:$PATH
  mkdir -p "$work/bin" "$work/repo"
  cp -r "$root/jobs" "$root/scripts" "$work/repo/"
  cd "$work/repo" || exit
  "condition_$1"
  echo "$1: $SECONDS s"
  [ "$made" -gt 0 ] || exit 77
  exit $((failures > 0))
}

# Two at once: most of the time of a job is that launchers start.
read -ra conditions <<<"${CONDITIONS:-comma name shm readonly}"
for ((i = 0; i < ${#conditions[@]}; i += 2)); do
  running=()
  for condition in "${conditions[@]:i:2}"; do
    (run "$condition") &
    running+=($!)
  done
  for one in "${running[@]}"; do
    code=0
    wait "$one" || code=$?
    case $code in 0) made=1 ;; 77) ;; *) failures=$((failures + 1)) ;; esac
  done
done
[ "$made" -gt 0 ] || [ "$failures" -gt 0 ] || exit 77
finish
