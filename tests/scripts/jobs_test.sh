#!/usr/bin/env bash
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
expect_contains "all ranks" "mpirun -np 6 --map-by ppr:6:node $GRADMETER scale --scaling weak" "$output"
expect_contains "powers of two, and all" "--ranks 1,2,4,6 " "$output"
expect_lacks "a new file is not resumed" --resume "$output"
for total in "1 1" "2 1,2" "8 1,2,4,8"; do
  RANKS_PER_NODE=${total% *} try bash jobs/weak-scaling.sh
  expect_contains "rank list" "--ranks ${total#* } " "$output"
done
try bash jobs/weak-scaling.sh
expect_contains "algorithms of two ranks" "--algorithm mpi,ring,recursive-doubling " "$output"
RANKS_PER_NODE=1 try bash jobs/weak-scaling.sh
expect_lacks "one rank makes no all-reduce" --algorithm "$output"
ALGORITHM="" STRATEGY=ps-sync try bash jobs/weak-scaling.sh
expect_lacks "no algorithm for strategies without all-reduce" --algorithm "$output"
RANKS=2,6 try bash jobs/weak-scaling.sh
expect_contains "the user's rank list" "--ranks 2,6 " "$output"
mkdir -p results && touch results/weak-scaling.jsonl
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

# --- Slurm: outside a job it submits itself
NODES=4 RANKS_PER_NODE=8 THREADS=2 PARTITION=gpu try bash jobs/weak-scaling.sbatch --test-only
expect_contains "submitted with the settings" \
  "sbatch --nodes=4 --ntasks-per-node=8 --cpus-per-task=2 --time=00:30:00 --output=results/%x-%j.log --partition=gpu --test-only jobs/weak-scaling.sbatch" \
  "$output"
expect_lacks "no account: no flag" --account "$output"

# --- Slurm: inside a job
export SLURM_JOB_ID=5 SLURM_JOB_NUM_NODES=3
cp jobs/weak-scaling.sbatch "$work/slurm_script"  # Slurm runs a copy
NODES=1 PMIX=pmix try bash "$work/slurm_script"
expect_contains "srun, with Slurm's node count" \
  "srun --mpi=pmix -K --ntasks=6 --ntasks-per-node=2 --cpus-per-task=1 $GRADMETER scale" "$output"
try bash "$work/slurm_script"
expect_contains "mpirun where srun has no PMIx" "mpirun -np 6 --map-by ppr:2:node $GRADMETER" "$output"
LAUNCHER=prun try bash "$work/slurm_script"
expect_equal "an unknown launcher is refused" 2 "$code"
cd "$work" || exit
try bash "$work/slurm_script"
expect_equal "outside the repository: refused" 2 "$code"
cd "$work/repo" || exit

# --- a GPU for each rank
unset SLURM_JOB_ID
RANKS_PER_NODE=2 try bash jobs/weak-scaling-gpu.sh
expect_contains "unbound ranks, each bound near its GPU, on the device" \
  "mpirun -np 2 --map-by ppr:2:node --bind-to none bash jobs/near-gpu.sh $GRADMETER scale " "$output"
expect_contains "the vendor's all-reduce of GPUs" "--algorithm nccl,ring,recursive-doubling " "$output"
expect_contains "on the device" "--out results/weak-scaling-gpu.jsonl --device cuda" "$output"
NUMA=launcher try bash jobs/weak-scaling-gpu.sh
expect_contains "or bound by the launcher" "mpirun -np 4 --map-by ppr:4:node $GRADMETER scale" "$output"
expect_equal "passes" 0 "$code"
env -u GRADMETER bash jobs/weak-scaling-gpu.sh >"$work/log" 2>&1
expect_equal "no program: refused" 2 $?
expect_contains "no program: says how to build it" "cmake --build --preset cuda" "$(cat "$work/log")"
RANKS_PER_NODE=8 NODES=2 try bash jobs/weak-scaling-gpu.sbatch --test-only
expect_contains "submitted with its GPUs" \
  "sbatch --nodes=2 --ntasks-per-node=8 --cpus-per-task=8 --time=00:30:00 --output=results/%x-%j.log --gpus-per-node=8 --test-only jobs/weak-scaling-gpu.sbatch" \
  "$output"
export SLURM_JOB_ID=5
cp jobs/weak-scaling-gpu.sbatch "$work/slurm_gpu_script"
PMIX=pmix try bash "$work/slurm_gpu_script"
expect_contains "srun: a GPU a task, all of them visible" \
  "srun --mpi=pmix -K --ntasks=12 --ntasks-per-node=4 --cpus-per-task=8 --gpus-per-task=1 --gpu-bind=none --cpu-bind=none bash jobs/near-gpu.sh $GRADMETER scale" \
  "$output"
PMIX=pmix GPU_BIND=per_task:1 NUMA=launcher CORES_PER_RANK=4 try bash "$work/slurm_gpu_script"
expect_contains "srun: bound by Slurm" "--cpus-per-task=4 --gpus-per-task=1 --gpu-bind=per_task:1 $GRADMETER scale" "$output"
PMIX=pmix try bash "$work/slurm_script"
expect_lacks "the other jobs know of no GPUs" "--gpu" "$output"
expect_lacks "nor of devices" "--device" "$output"

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

# --- SIGTERM: the launch is told, waited for, and the job ends with 143
stand_in mpirun <<END
trap "echo told; exit 1" TERM
touch "$work/started"
for ((i = 0; i < 100; i++)); do sleep .1; done
END
LAUNCHER=mpirun bash "$work/slurm_script" >"$work/log" 2>&1 &
job=$!
for ((i = 0; i < 100; i++)); do
  [ ! -e "$work/started" ] || break
  sleep .1
done
kill -TERM "$job"
code=0
wait "$job" || code=$?
expect_equal "stopped by SIGTERM" 143 "$code"
expect_contains "the launch is told" told "$(cat "$work/log")"
expect_contains "and the user" "start again to measure the rest" "$(cat "$work/log")"
finish
