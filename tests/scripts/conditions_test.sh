#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: conditions_test.sh GRADMETER MPIRUN. Runs each script that people start, with real ranks, under conditions that people have:
# a language with decimal commas, a job's name with blanks and a comma, a small /dev/shm, a working directory that cannot be written.
# The language, /dev/shm and the directory at once, which takes a third of the time; where that fails, under each alone, which says whose
# fault it is. The name is that of a job of Slurm, where scripts go other ways, and for those scripts that make names of it.
# CONDITIONS in the environment: only these, of readonly comma shm name. Ends with 77 where none of them can be made.
# shellcheck disable=SC2016,SC2317  # for inner shells; functions called through their names
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"
GRADMETER=$(realpath "$1")
PATH=$(dirname "$(realpath -s "$2")"):$PATH
export GRADMETER TERM=dumb
settings=(TIME_BUDGET=0.5s MODEL=mlp:784-16-10 BATCH=16 "SIZES=1K,16K" LAUNCHES=1 KERNELS="--shape gemm:m=8,n=8,k=8" LINKS="--size 8"
  "PRECISION=fp32,bf16" INTERCONNECTS="tcp shm")

# The programs' result files that have a measured point.
measured() { grep -l '"status":"ok"' "$1"/*.jsonl 2>/dev/null | wc -l; }

# Each script, by a COMMAND that makes the condition. RESULTS is new for each.
every_script() { # CONDITION COMMAND...
  local condition=$1
  shift
  run_jobs "$condition" acceptance,allreduce,interconnect,kernels-all-nodes,links,precision,rank-counts,strong-scaling,weak-scaling "$@"
  mkdir -p "$work/$condition/launches"
  try "$@" timeout 150 bash scripts/launches.sh 2 -- "$GRADMETER" allreduce --thread-ranks 2 --sizes 1K --algorithm ring --time-budget 1s \
    --out "$work/$condition/launches/all.jsonl"
  expect_equal "$condition: launches.sh ends well: $(tail -n 4 <<<"$output")" "0 2" "$code $(grep -c '"kind":"run"' "$work/$condition/launches/all.jsonl")"
  try "$@" timeout 150 bash scripts/virtual-cluster.sh 2 0 -- mpirun -np 2 "$GRADMETER" allreduce --sizes 1K --algorithm ring --time-budget 1s
  [ "$code" -eq 69 ] || expect_equal "$condition: virtual-cluster.sh ends well: $(tail -n 4 <<<"$output")" 0 "$code"
}
run_jobs() { # CONDITION NAME,... COMMAND...
  local condition=$1 script
  local names=${2//,/ }
  shift 2
  for script in $names; do
    script=jobs/$script.sh
    try env RESULTS="$work/$condition/${script##*/}" "${settings[@]}" "$@" timeout 150 bash "$script"
    expect_equal "$condition: $script ends well: $(tail -n 4 <<<"$output")" 0 "$code"
    [ "$(measured "$work/$condition/${script##*/}")" -gt 0 ] || expect_equal "$condition: $script has rows" some "none: $(tail -n 4 <<<"$output")"
    [ -n "$(find "$work/$condition/${script##*/}" -name '*.html')" ] || expect_equal "$condition: $script has a page" one "none: $(tail -n 4 <<<"$output")"
  done
}

# What makes a condition, as the words in the array `how` that go before a command; fails where it cannot be made.
in_comma() {
  how=(env LOCPATH="$locales" LC_ALL=fr_FR.UTF-8)
  [ "$("${how[@]}" bash -c 'printf %.1f 1,5' 2>/dev/null)" = 1,5 ] ||
    ! echo "skipped: no language with decimal commas here (scripts/packages.sh test)"
}
in_name() {
  stand_in squeue <<<'exit 1'
  how=(env PATH="$work/bin:$PATH" ENVIRONMENT=BATCH SLURM_JOB_NAME="my job, again" SLURM_JOB_ID=5 SLURM_JOB_NUM_NODES=1 LAUNCHER=mpirun
    OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none)
}
in_own_mounts() { # COMMANDS-OF-MOUNT
  how=(unshare -m bash -c "$1"' && exec "$@"' mounts)
  "${how[@]}" true 2>/dev/null || ! echo "skipped: needs the right to mount: $1"
}
in_shm() { in_own_mounts 'mount -t tmpfs -o size=48m tmpfs /dev/shm'; }
in_readonly() { in_own_mounts "mount --bind '$PWD' '$PWD' && mount -o remount,bind,ro '$PWD' && cd '$PWD'"; }

# What else holds under a condition, `how`.
check_comma() {
  local language
  for language in fr_FR de_DE; do
    try env LOCPATH="$locales" LC_ALL="$language.UTF-8" bash -c 'latency= links= && . scripts/virtual-links.sh && echo $(nanoseconds 1.5ms) $(bits 2.5Gbit)'
    expect_equal "$language: a latency and a rate" "1500000 2500000000" "$output"
    try env LOCPATH="$locales" LC_ALL="$language.UTF-8" TIME_BUDGET=100s bash -c '. jobs/common.sh && share_of_budget 3'
    expect_equal "$language: shares of the time" 33.3333s "$output"
  done
  try env LOCPATH="$locales" LC_ALL=de_DE.UTF-8 bash "$root/tests/scripts/jobs_test.sh"
  expect_equal "what the jobs are given: $(tail -n 4 <<<"$output")" 0 "$code"
  try "${how[@]}" timeout 60 scripts/virtual-cluster.sh --latency 1.5ms 2 0 -- true
  [ "$code" -eq 69 ] || expect_contains "comma: both ways take twice 1.5 ms" "of 3000" "$output"
}
check_name() {
  run_jobs name allreduce,interconnect,rank-counts "${how[@]}"
  expect_equal "name: of its files" my_job__again.jsonl "$(cd "$work/name/allreduce.sh" && echo *.jsonl)"
}
check_shm() {
  local row
  . scripts/environment.sh
  for row in "allreduce --sizes 4K,64M --algorithm ring" "scale --ranks 2 --strategy sync --algorithm ring --batch 4 --model mlp:784-16-10,mlp:784-4096-4096-10"; do
    # shellcheck disable=SC2086  # a list of words
    try "${how[@]}" timeout 60 mpirun -np 2 "$GRADMETER" $row --time-budget 2s --out "$work/shm.jsonl" --force
    expect_equal "shm: what does not fit ends nothing: $(tail -n 4 <<<"$output")" 0 "$code"
    expect_contains "shm: what fits is measured" '"status":"ok"' "$(grep '"transport":"shm"' "$work/shm.jsonl")"
    expect_contains "shm: the rest says what to do" "start the container with --shm-size=" "$(grep '"status":"skipped"' "$work/shm.jsonl")"
  done
  try "${how[@]}" timeout 60 mpirun -np 2 "$GRADMETER" train --epochs 1 --model mlp:784-2048-2048-10
  expect_equal "shm: a training that does not fit" 3 "$code"
  expect_contains "shm: in one line" "gradmeter: train: needs " "$output"
}
# Before the others, which may write.
check_readonly() { expect_equal "readonly: nothing is written there" "$before" "$(find . | sort)"; }

locales=$work/locales
mkdir -p "$locales" "$work/repo"
for language in fr_FR de_DE; do localedef -i "$language" -f UTF-8 "$locales/$language.UTF-8" 2>/dev/null; done
cp -r "$root/jobs" "$root/scripts" "$work/repo/"
cd "$work/repo" || exit
before=$(find . | sort)

made=() at_once=() all=()
read -ra conditions <<<"${CONDITIONS:-readonly comma shm name}"
for condition in "${conditions[@]}"; do
  "in_$condition" || continue
  made+=("$condition")
  [ "$condition" = name ] || at_once+=("$condition") all+=("${how[@]}")
done
[ ${#made[@]} -gt 0 ] || exit 77
[ ${#at_once[@]} -eq 0 ] || every_script "${at_once[*]}" "${all[@]}"
for condition in "${made[@]}"; do
  "in_$condition"
  [ "$failures" -eq 0 ] || [ "$condition" = name ] || [ ${#at_once[@]} -eq 1 ] || every_script "$condition" "${how[@]}"
  "check_$condition"
done
finish
