#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/scripts/support.sh
. "$(dirname "$0")/support.sh"

mkdir "$work/repo"
cp -r "$root/jobs" "$root/scripts" "$work/repo/"
cd "$work/repo" || exit
export GRADMETER=$work/bin/gradmeter
stand_in gradmeter <<<'exit 0'
for program in mpirun sbatch; do stand_in $program <<<"echo $program \"\$@\"; exit \${LAUNCH_CODE:-0}"; done
stand_in srun <<'END'
[ "$1" != --mpi=list ] || { echo "MPI plugin types are... none cray_shasta ${PMIX:-}"; exit; }
echo srun "$@"
END
stand_in scancel <<<'echo "scancel $*"'
stand_in nproc <<<'echo 64'

# --- mpirun alone
NODES=1 RANKS_PER_NODE=6 try bash jobs/weak-scaling.sh
expect_equal "passes" 0 "$code"
expect_contains "all ranks" "mpirun -np 6 --map-by ppr:6:node $GRADMETER scale --model mlp" "$output"
expect_contains "powers of two, and all" "--ranks 1,2,4,6 " "$output"
expect_lacks "a new file is not resumed" --resume "$output"
for total in "1 1" "2 1,2" "8 1,2,4,8"; do
  RANKS_PER_NODE=${total% *} try bash jobs/weak-scaling.sh
  expect_contains "rank list" "--ranks ${total#* } " "$output"
done
try bash jobs/weak-scaling.sh
expect_contains "algorithms of two ranks" "--algorithm mpi,ring,recursive-doubling " "$output"
expect_contains "a page at the end" "report results/weak-scaling.jsonl -o results/weak-scaling.html" "$output"
RANKS_PER_NODE=1 try bash jobs/weak-scaling.sh
expect_lacks "one rank makes no all-reduce" --algorithm "$output"
ALGORITHM="" STRATEGY=ps-sync try bash jobs/weak-scaling.sh
expect_lacks "no algorithm for strategies without all-reduce" --algorithm "$output"
RANKS=2,6 try bash jobs/weak-scaling.sh
expect_contains "the user's rank list" "--ranks 2,6 " "$output"
touch results/weak-scaling.jsonl
try bash jobs/weak-scaling.sh
expect_contains "an old file is resumed" "--out results/weak-scaling.jsonl --resume" "$output"
LAUNCH_CODE=3 try bash jobs/weak-scaling.sh
expect_equal "the launch's exit code" 3 "$code"
NODES=2 try bash jobs/weak-scaling.sh
expect_equal "several nodes need a host file" 2 "$code"
NODES=2 HOSTFILE=hosts LAUNCH_FLAGS="--bind-to core" try bash jobs/weak-scaling.sh
expect_contains "host file and flags" "ppr:2:node --hostfile hosts --bind-to core $GRADMETER" "$output"
GRADMETER=build/none try bash jobs/weak-scaling.sh
expect_equal "no program: refused" 2 "$code"
expect_contains "no program: says how to build it" "cmake --build --preset release" "$output"
try bash jobs/weak-scaling.sh sbatch
expect_equal "an unknown verb is refused" 2 "$code"

# --- each question
TIME_BUDGET=3m try bash jobs/interconnect.sh
expect_contains "over TCP" "scale --model mlp --threads 1 --ranks 1,2 --strategy independent,sync" "$output"
expect_contains "each has its share of the time" "--interconnect shm --transport shm --batch 16,64 --time-budget 60s" "$output"
TIME_BUDGET=1h30m try bash jobs/interconnect.sh
expect_contains "hours and minutes" "--time-budget 1800s" "$output"
for bad in soon 1h30 5m5m h ""; do
  # shellcheck disable=SC2016  # for the inner shell
  try bash -c '. jobs/common.sh && TIME_BUDGET=$1 && share_of_budget 3' bash "$bad"
  expect_equal "no time: '$bad'" 2 "$code"
done
RANKS_PER_NODE=1 HOSTFILE=hosts NODES=2 try bash jobs/interconnect.sh
expect_contains "no two ranks of a node: no shared memory" "shm is left out" "$output"
expect_lacks "nor a file of it" "shm.jsonl" "$output"
RANKS=1,2,4,8 RANKS_PER_NODE=2 HOSTFILE=hosts NODES=4 try bash jobs/interconnect.sh
expect_equal "rank counts beyond one node" 0 "$code"
expect_contains "all of them over TCP" "mpirun -np 8 --map-by ppr:2:node --hostfile hosts $GRADMETER scale --model mlp --threads 1 --ranks 1,2,4,8 " "$output"
expect_contains "in shared memory those of one node" "mpirun -np 2 --map-by ppr:2:node --hostfile hosts $GRADMETER scale --model mlp --threads 1 --ranks 1,2 " "$output"
expect_contains "and all of them over the fabric after it" "--ranks 1,2,4,8 --strategy independent,sync --algorithm mpi,ring,recursive-doubling --interconnect fabric" "$output"
RANKS=4,8 RANKS_PER_NODE=2 HOSTFILE=hosts NODES=4 try bash jobs/interconnect.sh
expect_contains "none of one node: no shared memory" "shm is left out: no count of RANKS=4,8 fits on one node" "$output"
INTERCONNECTS=ib try bash jobs/interconnect.sh
expect_equal "an unknown interconnect is refused" 2 "$code"
RANKS_PER_NODE=3 try bash jobs/rank-counts.sh
expect_contains "outside Slurm the counts in turn" "mpirun -np 2 --map-by ppr:3:node $GRADMETER scale --model mlp --threads 1 --ranks 2 " "$output"

# --- Slurm: submitted with the settings
NODES=4 RANKS_PER_NODE=8 THREADS=2 PARTITION=gpu try bash jobs/weak-scaling.sh submit --test-only
expect_contains "submitted with the settings" \
  "sbatch --job-name=weak-scaling --nodes=4 --ntasks-per-node=8 --cpus-per-task=2 --time=00:30:00 --output=results/%x-%j.log --partition=gpu --test-only jobs/weak-scaling.sh" \
  "$output"
expect_lacks "no account: no flag" --account "$output"
stand_in sbatch <<<'echo "sbatch $*" >&2; echo "$$;cluster"'
try bash jobs/allreduce.sh chain 3 --time=1
expect_equal "three jobs" 3 "$(grep -c sbatch <<<"$output")"
first=$(sed -n 2p <<<"$output") second=$(sed -n 4p <<<"$output")
expect_contains "the last begins where both before it failed" "--dependency=afternotok:$first:$second --kill-on-invalid-dep=yes --time=1" "$output"
try bash jobs/allreduce.sh chain
expect_equal "a chain of how many: refused" 2 "$code"
RANKS_PER_NODE=4 try bash jobs/rank-counts.sh submit
expect_contains "an array over rank counts" "--parsable --array=1,2,4 jobs/rank-counts.sh" "$output"
expect_contains "and what merges its parts" "--dependency=afterany:" "$output"
expect_contains "with one process" "--nodes=1 --ntasks-per-node=1 jobs/rank-counts.sh merge" "$output"

# --- Slurm: inside a job
export SLURM_JOB_ID=5 SLURM_JOB_NUM_NODES=3
cp jobs/weak-scaling.sh "$work/slurm_script"  # Slurm runs a copy
export SLURM_SUBMIT_DIR=$PWD
NODES=1 PMIX=pmix try bash "$work/slurm_script"
expect_contains "srun, with Slurm's node count" \
  "srun --mpi=pmix -K --nodes=3 --ntasks=6 --ntasks-per-node=2 --cpus-per-task=1 $GRADMETER scale" "$output"
try bash "$work/slurm_script"
expect_contains "mpirun where srun has no PMIx" "mpirun -np 6 --map-by ppr:2:node $GRADMETER" "$output"
LAUNCHER=prun try bash "$work/slurm_script"
expect_equal "an unknown launcher is refused" 2 "$code"
ENVIRONMENT=BATCH SLURM_JOB_NAME=tuesday try bash "$work/slurm_script"
expect_contains "results have the job's name" "--out results/tuesday.jsonl" "$output"
ENVIRONMENT=BATCH SLURM_JOB_NAME="my job, again" try bash "$work/slurm_script"
expect_contains "with neither blanks nor commas" "--out results/my_job__again.jsonl" "$output"
ENVIRONMENT=BATCH SLURM_JOB_NAME=tuesday SLURM_ARRAY_TASK_ID=2 try bash "$work/slurm_script"
expect_contains "tasks of an array are repeats with files of their own" "--out results/tuesday-2.jsonl" "$output"
RESULTS="$work/my results, old" try bash jobs/acceptance.sh
expect_equal "blanks and commas in RESULTS" 0 "$code"
NCCL_DEBUG=INFO SLURM_JWT=secret try bash "$work/slurm_script"
expect_contains "the environment is kept" NCCL_DEBUG=INFO "$(cat results/weak-scaling.environment)"
expect_lacks "no secrets" secret "$(cat results/weak-scaling.environment)"
ENVIRONMENT=BATCH SLURM_JOB_NAME=counts SLURM_ARRAY_TASK_ID=3 RANKS_PER_NODE=2 PMIX=pmix try bash jobs/rank-counts.sh
expect_contains "a part takes the nodes it needs" "--nodes=2 --ntasks=3 " "$output"
expect_contains "and has a file of its own" "--ranks 3 " "$output"
expect_contains "of the job's name" "--out results/counts-3.jsonl" "$output"
expect_lacks "which it does not merge" " report " "$output"
SLURM_SUBMIT_DIR=$work try bash "$work/slurm_script"
expect_equal "outside the repository: refused" 2 "$code"

NODES=1 PMIX=pmix try bash jobs/rank-counts.sh
for count in 1 2 4 6; do expect_contains "a plain sbatch measures all ranks of its nodes" "--ranks $count " "$output"; done
for part in 1 2 4; do echo "of $part ranks" >"results/counts-$part.jsonl"; done
NODES=2 RANKS_PER_NODE=2 SLURM_JOB_NUM_NODES=1 ENVIRONMENT=BATCH SLURM_JOB_NAME=counts try bash jobs/rank-counts.sh merge
expect_contains "the job that merges, on one node, has the parts of all" "of 4 ranks" "$(cat results/counts.jsonl)"

# --- a GPU for each rank
unset SLURM_JOB_ID SLURM_SUBMIT_DIR
export DEVICE=cuda
RANKS_PER_NODE=2 try bash jobs/weak-scaling.sh
expect_contains "unbound ranks, each bound near its GPU, on the device" \
  "mpirun -np 2 --map-by ppr:2:node --bind-to none bash jobs/near-gpu.sh $GRADMETER scale " "$output"
expect_contains "the vendor's all-reduce of GPUs" "--algorithm nccl,ring,recursive-doubling " "$output"
expect_contains "on the device" "--out results/weak-scaling-cuda.jsonl --device cuda" "$output"
ENVIRONMENT=BATCH SLURM_JOB_NAME=weak-scaling SLURM_JOB_ID=5 try bash jobs/weak-scaling.sh
expect_contains "a plain sbatch, whose name is that of the script's header, does not go on with a file of CPUs" \
  "--out results/weak-scaling-cuda.jsonl --device cuda" "$output"
NUMA=launcher try bash jobs/weak-scaling.sh
expect_contains "or bound by the launcher" "mpirun -np 4 --map-by ppr:4:node $GRADMETER scale" "$output"
expect_equal "passes" 0 "$code"
env -u GRADMETER bash jobs/weak-scaling.sh >"$work/log" 2>&1
expect_equal "no program: refused" 2 $?
expect_contains "no program: says how to build it" "cmake --build --preset cuda" "$(cat "$work/log")"
RANKS_PER_NODE=8 NODES=2 try bash jobs/weak-scaling.sh submit --test-only
expect_contains "submitted with its GPUs" \
  "sbatch --job-name=weak-scaling-cuda --nodes=2 --ntasks-per-node=8 --cpus-per-task=8 --time=00:30:00 --output=results/%x-%j.log --gpus-per-node=8 --test-only jobs/weak-scaling.sh" \
  "$output"
export SLURM_JOB_ID=5 SLURM_SUBMIT_DIR=$PWD
PMIX=pmix try bash "$work/slurm_script"
expect_contains "srun: all GPUs of the job are visible" \
  "--ntasks=12 --ntasks-per-node=4 --cpus-per-task=8 --cpu-bind=none bash jobs/near-gpu.sh $GRADMETER scale" \
  "$output"
PMIX=pmix GPU_BIND=per_task:1 NUMA=launcher CORES_PER_RANK=4 try bash "$work/slurm_script"
expect_contains "srun: bound by Slurm" "--cpus-per-task=4 --gpus-per-task=1 --gpu-bind=per_task:1 $GRADMETER scale" "$output"
PMIX=pmix DEVICE=cpu try bash "$work/slurm_script"
expect_lacks "without GPUs no flags of theirs" "--gpu" "$output"
expect_lacks "nor of devices" "--device" "$output"
unset DEVICE

# --- cores near the GPU
stand_in taskset <<<'echo "taskset $*"'
stand_in nvidia-smi <<'END'
[ "$1" = --query-gpu=index ] && { printf '0\n1\n2\n3\n'; exit; }
case "${1#--id=}" in
  [0-3]) echo "00000000:${1#--id=}A:00.0" ;;
  GPU-7) echo "00000000:7A:00.0" ;;
  *) exit 6 ;;
esac
END
allowed=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
one=${allowed%%[-,]*}
export GRADMETER_PCI_DEVICES=$work/pci
on_cores() { # BUS LIST: that GPU is near these cores
  mkdir -p "$work/pci/0000:$1:00.0"
  echo "$2" >"$work/pci/0000:$1:00.0/local_cpulist"
}
on_cores 0a "$one"
on_cores 1a 100000-100002
on_cores 7a "100000,$one"
try bash jobs/near-gpu.sh gradmeter x
expect_equal "those that are near and allowed" "taskset --cpu-list $one gradmeter x" "$output"
CUDA_VISIBLE_DEVICES=3,GPU-7 OMPI_COMM_WORLD_LOCAL_RANK=3 try bash jobs/near-gpu.sh gradmeter x
expect_equal "visible GPUs in turn, also by name" "taskset --cpu-list $one gradmeter x" "$output"
SLURM_LOCALID=1 try bash jobs/near-gpu.sh echo ran
expect_contains "none allowed: says so" "GPU 0000:1a:00.0 is near cores 100000-100002, and this rank may use" "$output"
expect_equal "and runs" ran "$(tail -n 1 <<<"$output")"
SLURM_LOCALID=2 try bash jobs/near-gpu.sh echo ran
expect_contains "a GPU whose place the kernel does not tell" "cannot be told" "$output"
stand_in nvidia-smi <<<'exit 9'
try bash jobs/near-gpu.sh echo ran
expect_contains "no driver: says so" "cannot be told" "$output"
expect_equal "and runs" ran "$(tail -n 1 <<<"$output")"
try bash jobs/near-gpu.sh
expect_equal "no command" 2 "$code"

# --- Slurm in a box: what it is asked, and that its test is skipped where there is no cluster
try bash scripts/slurm-in-a-box.sh --help
expect_equal "--help ends well" 0 "$code"
for bad in "" "start" "run" "run 2 0" "run --"; do
  # shellcheck disable=SC2086  # a list of words
  try bash scripts/slurm-in-a-box.sh $bad
  expect_equal "refused: $bad" 2 "$code"
done
mkdir -p tests/scripts && cp "$root/tests/scripts/support.sh" "$root/tests/scripts/slurm_test.sh" tests/scripts/
for program in slurmctld slurmd munged; do stand_in $program <<<''; done
echo 'echo "cluster $*"; exit ${CLUSTER_CODE:-0}' >scripts/virtual-cluster.sh
try bash scripts/slurm-in-a-box.sh run 4 1Gbit -- bash -i
expect_equal "nodes and links are the virtual cluster's" \
  "cluster 4 1Gbit -- $work/repo/scripts/slurm-in-a-box.sh --inside bash -i" "$output"
CLUSTER_CODE=69 try bash scripts/slurm-in-a-box.sh test "$GRADMETER"
expect_equal "no cluster: skipped" 77 "$code"
CLUSTER_CODE=1 try bash scripts/slurm-in-a-box.sh test "$GRADMETER"
expect_equal "a failure is none" 1 "$code"
try bash scripts/slurm-in-a-box.sh test build/none
expect_equal "no program: refused" 2 "$code"

# --- SIGTERM: the launch is told, waited for, and the job ends with 143
stand_in mpirun <<END
trap "echo told; exit 1" TERM
touch "$work/started"
for ((i = 0; i < 100; i++)); do sleep .1; done
END
stand_in scontrol <<<'echo "scontrol $*"'
# Ends the job ENDS seconds before its time limit by SIGTERM; leaves its exit code and its log.
stopped() { # SECONDS-LEFT [STATE]
  stand_in squeue <<<"case \$* in *%e) date -d '$1 seconds' +%FT%T ;; *%T) echo ${2:-RUNNING} ;; esac"
  rm -f "$work/started"
  ENVIRONMENT=BATCH LAUNCHER=mpirun bash "$work/slurm_script" >"$work/log" 2>&1 &
  local job=$! i
  for ((i = 0; i < 100; i++)); do
    [ ! -e "$work/started" ] || break
    sleep .1
  done
  kill -TERM "$job"
  code=0
  wait "$job" || code=$?
  output=$(cat "$work/log")
}
stopped 90
expect_equal "stopped by SIGTERM" 143 "$code"
expect_contains "the launch is told" told "$output"
expect_contains "and the user" "start again to measure the rest" "$output"
expect_lacks "at its limit the job ends" requeue "$output"
stopped 900 CANCELLED
expect_lacks "cancelled too" requeue "$output"
SLURM_ARRAY_JOB_ID=5 SLURM_ARRAY_TASK_ID=2 stopped 900
expect_contains "long before, it asks to be queued again, itself and not its whole array" "scontrol requeue 5_2" "$output"
finish
