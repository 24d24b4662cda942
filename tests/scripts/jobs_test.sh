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
