#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: slurm_test.sh [--long] [GRADMETER]. Submits the scripts of jobs/ to a real Slurm on virtual hosts, and checks what they
# leave. --long: also chains over time limits, minutes.
# PARTS in the environment: only these, of questions gpus preempted told killed. Ends with 77 (skipped) where there can be no such
# cluster.
# shellcheck disable=SC2016,SC2317  # what a job expands; functions called through others
box=$(export -p | grep -E '^declare -x (SLURM_CONF|OMPI_|GRADMETER_ENTER_HOST)')
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"
cd "$root" || exit

outside() { # [--long] [GRADMETER]
  local long=() program code=0
  if [ "${1:-}" = --long ]; then long=(--long) && shift; fi
  if ! program=$(realpath -e "${1:-build/release/gradmeter}"); then
    echo "slurm: that is no gradmeter: build it (cmake --preset release && cmake --build --preset release)" >&2
    exit 2
  fi
  timeout -k 5 900 scripts/slurm-in-a-box.sh run -- bash "$0" --inside "$program" "$work" ${long[@]+"${long[@]}"} || code=$?
  if [ "$code" -eq 69 ]; then
    echo "skipped: no Slurm in a box here (the reason stands above)"
    exit 77
  fi
  exit "$code"
}

state() { scontrol show job "$1" 2>/dev/null | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p' | head -n 1; }
log_of() { cat "$RESULTS"/*-"$1".log 2>/dev/null; }

# Waits until CONDITION holds, for a minute at most: this machine may be busy.
await() { # WHAT CONDITION...
  local what=$1 i
  shift
  for ((i = 0; i < ${patience:-600}; i++)); do
    ! "$@" || return 0
    sleep 0.1
  done
  expect_equal "in time: $what" yes no
  squeue >&2
  return 1
}
is_in() { [ "$(state "$1")" = "$2" ]; }
none_queued() { [ -z "$(squeue -h)" ]; }
logged() { [[ $(log_of "$1") == *"$2"* ]]; }
exists() { [ -e "$1" ]; }

# What of a result file its figures do not change: how many different points of each status, and the values of a factor. On a busy
# machine a figure may be mistrusted, and a later launch measures that point again.
summary() { # FILE FACTOR
  python3 - "$@" <<'PYTHON'
import collections, json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
points = list({json.dumps(p["factors"]): p for p in rows if p["kind"] == "point"}.values())
values = sorted({str(p["factors"][sys.argv[2]]) for p in points})
statuses = collections.Counter(p["status"].replace("mistrusted", "ok") for p in points)
print(" ".join(f"{statuses[s]} {s}" for s in sorted(statuses)), "of", sys.argv[2], ",".join(values))
PYTHON
}

# A result file is whole, has these points, and makes a report; its page is there.
expect_result() { # NAME FACTOR SUMMARY [PAGE]
  local file=$RESULTS/$1.jsonl
  expect_equal "$1: points" "$3" "$(summary "$file" "$2" 2>&1)"
  try "$GRADMETER_REAL" report "$file" --text
  expect_equal "$1: gradmeter report reads it" 0 "$code"
  try python3 scripts/validate-results.py "$file"
  expect_equal "$1: the file keeps to its schema ($output)" 0 "$code"
  expect_equal "$1: a page" yes "$([ -s "$RESULTS/${4:-$1}.html" ] && echo yes)"
}

# Jobs one after the other: ranks of several at once would have too few cores.
queue() { # NAME VARIABLE=VALUE...
  local name=$1
  shift
  try env "$@" bash "jobs/$name.sh" submit --exclusive
  expect_equal "$name: submitted ($output)" 0 "$code"
  [ "$code" -eq 0 ] || finish
  submitted[$name]=${output##* }
}

questions() {
  local name
  declare -A submitted=()
  queue weak-scaling BATCH=16
  queue strong-scaling BATCH=32
  queue precision BATCH=16 STRATEGY=independent ALGORITHM=
  queue allreduce SIZES=1K
  queue kernels-all-nodes KERNELS="--shape gemm:m=128,n=64,k=128"
  queue links
  queue interconnect BATCH=16 NODES=1 RANKS_PER_NODE=2 INTERCONNECTS="tcp shm fabric" LAUNCHER=mpirun
  queue acceptance BATCH=16 SIZES=64K LAUNCHES=1 KERNELS="--shape gemm:m=128,n=64,k=128"
  queue rank-counts BATCH=16 RANKS=1,2
  patience=4500 await "all questions answered" none_queued
  for name in "${!submitted[@]}"; do
    expect_equal "$name: its job's state" COMPLETED "$(state "${submitted[$name]}")"
    is_in "${submitted[$name]}" COMPLETED || log_of "${submitted[$name]}" | tail -n 15
  done
  expect_result weak-scaling ranks "4 ok of ranks 1,2"
  expect_result strong-scaling scaling "4 ok of scaling None,strong"
  expect_result precision precision "4 ok of precision bf16,fp32"
  expect_result allreduce nodes "1 ok of nodes 2"
  expect_result kernels-all-nodes nodes "1 ok of nodes 2"
  expect_result interconnect-tcp interconnect "4 ok of interconnect tcp" interconnect
  expect_result interconnect-shm transport "4 ok of transport None,shm" interconnect
  expect_result interconnect-fabric nodes "4 ok of nodes 1" interconnect
  expect_contains "interconnects are compared" "ratio" "$(log_of "${submitted[interconnect]}")"
  expect_equal "links: of two nodes" yes "$([ -s "$RESULTS/links.jsonl" ] && echo yes)"
  expect_contains "acceptance: the first is kept" "this result is its first" "$(log_of "${submitted[acceptance]}")"
  for part in kernels allreduce training; do
    expect_equal "acceptance: $part are kept" 1 "$(find "$RESULTS/history/$part" -name '*.jsonl' | wc -l)"
  done
  expect_result rank-counts-1 ranks "2 ok of ranks 1" rank-counts
  expect_result rank-counts-2 ranks "4 ok of ranks 1,2" rank-counts
  expect_result rank-counts ranks "4 ok of ranks 1,2"
  expect_equal "the parts of the array are runs of one file" 2 "$(grep -c '"kind":"run"' "$RESULTS/rank-counts.jsonl")"
  expect_contains "the environment is kept" "SLURM_JOB_NUM_NODES=2" "$(cat "$RESULTS/weak-scaling.environment")"
}

# gradmeter whose points take for ever while $work/slow exists: what it measured before can be resumed, it itself be stopped.
write_slow() {
  cat >"$work/gradmeter" <<END
#!/usr/bin/env bash
if [ "\$1" = scale ] && [ -e "$work/slow" ]; then
  exec "$GRADMETER_REAL" "\${@/#1s/20m}" --min-samples 900000 --precision-goal 0.0001
fi
exec "$GRADMETER_REAL" "\$@"
END
  chmod +x "$work/gradmeter"
}

# Jobs that stop in the middle of their second batch, whose first batch an earlier job measured. The number of the first
# is left in \$id, of all in \$output.
stopped_midway() { # NAME VERB SBATCH-FLAGS...
  local name=$1
  shift
  [ -e "$RESULTS/weak-scaling.jsonl" ] || BATCH=16 bash jobs/weak-scaling.sh submit --wait >/dev/null
  cp "$RESULTS/weak-scaling.jsonl" "$RESULTS/$name.jsonl"
  touch "$work/slow"
  try env GRADMETER="$work/gradmeter" BATCH=16,32 bash jobs/weak-scaling.sh "$@" --exclusive --job-name="$name"
  expect_equal "$name: submitted ($output)" 0 "$code"
  [ "$code" -eq 0 ] || finish
  id=$(head -n 1 <<<"$output")
  id=${id##* }
  await "$name measures" logged "$id" "measuring what it lacks"
  sleep 2
  rm "$work/slow"
}

# The file has the points of both batches, and those of the first were not measured again.
expect_resumed() { # NAME
  expect_contains "$1: earlier points are kept" "are finished ones of this machine and are kept" "$(cat "$RESULTS/$1"-*.log)"
  expect_equal "$1: all points" "8 ok of batch_per_rank 16,32" "$(summary "$RESULTS/$1.jsonl" batch_per_rank)"
}

preempted() {
  local id
  stopped_midway preempted submit
  try sbatch --partition=urgent --nodes=2 --exclusive --output="$work/urgent.log" --wrap true
  await "the preempted job is queued again" is_in "$id" PENDING
  scontrol update JobId="$id" StartTime=now+5seconds # Slurm waits two minutes; at once it would revoke the new start too
  patience=1800 await "the preempted job ends" is_in "$id" COMPLETED
  expect_equal "it is the same job, queued again" 1 "$(scontrol show job "$id" | sed -n 's/.*Restarts=\([0-9]*\).*/\1/p')"
  expect_resumed preempted
}

chained() { # NAME SBATCH-FLAGS...
  local name=$1 id ids
  shift
  stopped_midway "$name" chain 3 --time=1 "$@"
  mapfile -t ids <<<"$output"
  expect_equal "$name: three jobs" 3 "${#ids[@]}"
  patience=1800 await "$name: the second job ends" is_in "${ids[1]}" COMPLETED
  await "$name: Slurm removes the third" is_in "${ids[2]}" CANCELLED
  expect_resumed "$name"
}

# A minute's limit. Slurm tells of it up to half a minute early.
told() {
  chained told --signal=B:TERM@10
  expect_contains "told of the limit, the job ends by itself" "stopped by SIGTERM" "$(cat "$RESULTS"/told-*.log)"
}
killed() {
  chained killed --signal=B:CONT@1
  expect_contains "not told, it is killed" "DUE TO TIME LIMIT" "$(cat "$RESULTS"/killed-*.log)"
}

gpus() {
  printf '#!/usr/bin/env bash\necho "rank $SLURM_PROCID has GPU $CUDA_VISIBLE_DEVICES: $*"\n' >"$work/on-gpu"
  chmod +x "$work/on-gpu"
  try env GRADMETER="$work/on-gpu" DEVICE=cuda NODES=1 RANKS_PER_NODE=2 CORES_PER_RANK=1 bash jobs/weak-scaling.sh submit --wait
  expect_equal "a GPU for each rank ($output)" 0 "$code"
  output=$(cat "$RESULTS"/weak-scaling-cuda-[0-9]*.log)
  for rank in 0 1; do expect_contains "rank $rank sees both GPUs, and takes its own" "rank $rank has GPU 0,1: scale" "$output"; done
  expect_contains "measured on them" "--out $RESULTS/weak-scaling-cuda.jsonl --device cuda" "$output"
}

inside() { # GRADMETER WORK [--long]
  export GRADMETER=$1 GRADMETER_REAL=$1 RESULTS=$2/results MODEL=mlp:784-16-10 TIME_BUDGET=1s NODES=2 RANKS_PER_NODE=1 ALGORITHM=ring
  work=$2
  write_slow
  local part parts=(questions gpus preempted)
  [ "${3:-}" != --long ] || parts+=(told killed)
  [ -z "${PARTS:-}" ] || read -ra parts <<<"$PARTS"
  for part in "${parts[@]}"; do "$part"; done
  finish
}

if [ "${1:-}" = --inside ]; then
  shift
  trap - EXIT
  eval "$box" # support.sh takes it away
  inside "$@"
fi
outside "$@"
