# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the scripts of this folder share; nothing to edit here. They source it in the repository's root and call
#   begin QUESTION "$@"              submits and ends where that was asked for, else goes on: in a job of Slurm or outside
#   measure PART COMMAND FLAGS...    gradmeter on all ranks; its points go to the file that result_file names
#   conclude FILE...                 makes a page of them
export LC_ALL=C # numbers with a point, whatever the user's language writes
. jobs/settings.sh
# shellcheck source=scripts/environment.sh
. scripts/environment.sh

# The powers of two below TOTAL, then TOTAL itself, separated by commas: 6 gives 1,2,4,6.
rank_list() { # TOTAL
  local n=1 list=
  while [ "$n" -lt "$1" ]; do
    list+=$n,
    n=$((n * 2))
  done
  echo "$list$1"
}

# TIME_BUDGET for each of PARTS measurements, in seconds.
share_of_budget() { # PARTS
  local number='[0-9]+(\.[0-9]+)?'
  if ! [[ $TIME_BUDGET =~ ^(${number}h)?(${number}m)?(${number}s)?$|^(${number})$ && -n $TIME_BUDGET ]]; then
    echo "jobs: TIME_BUDGET is '$TIME_BUDGET', which says no time to measure in: write 90s, 20m or 1h30m" >&2
    return 2
  fi
  awk -v h="${BASH_REMATCH[1]%h}" -v m="${BASH_REMATCH[3]%m}" -v s="${BASH_REMATCH[5]%s}${BASH_REMATCH[7]}" -v parts="$1" \
    'BEGIN { printf "%gs\n", (3600 * h + 60 * m + s) / parts }'
}

# The file of a part; it has the name of the job, so that jobs of one name go on with it, and others have files of their own.
result_file() { # [PART]
  echo "$RESULTS/$name${1:+-$1}.jsonl"
}

# What sbatch and srun are told of GPUs, and the launchers of binding, in the arrays gpu_job, gpu_step and gpu_mpirun. A rank
# that near-gpu.sh binds must not be bound before: it would be left with the cores that both agree on.
gpu_flags() {
  gpu_job=() gpu_step=() gpu_mpirun=()
  [ "$DEVICE" = cuda ] || return 0
  gpu_job=(--gpus-per-node="$RANKS_PER_NODE")
  # A step that asks for nothing has all GPUs of the job. With --gpus-per-task and --gpu-bind=none Slurm 22.05 names none to its
  # ranks, which then see those of other jobs too.
  [ "$GPU_BIND" = none ] || gpu_step=(--gpus-per-task=1 --gpu-bind="$GPU_BIND")
  if [ "$NUMA" = gpu ]; then
    gpu_step+=(--cpu-bind=none)
    gpu_mpirun=(--bind-to none)
  fi
}

submit() { # SBATCH-FLAGS... [-- SCRIPT-ARGUMENTS...]
  local flags=()
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    flags+=("$1")
    shift
  done
  [ $# -eq 0 ] || shift
  mkdir -p "$RESULTS" || return
  sbatch --job-name="$name" --nodes="$NODES" --ntasks-per-node="$RANKS_PER_NODE" --cpus-per-task="$CORES_PER_RANK" \
    --time="$TIME_LIMIT" --output="$RESULTS/%x-%j.log" ${gpu_job[@]+"${gpu_job[@]}"} ${ACCOUNT:+--account="$ACCOUNT"} \
    ${PARTITION:+--partition="$PARTITION"} ${flags[@]+"${flags[@]}"} "jobs/$question.sh" "$@"
}

# Jobs each of which begins when all before it have ended without success, as at a time limit, and goes on with their file.
# The first that succeeds has Slurm remove those after it.
chain() { # JOBS SBATCH-FLAGS...
  local jobs=${1:-} id ids='' i
  if ! [[ $jobs =~ ^[1-9][0-9]*$ ]]; then
    echo "jobs: chain needs a number of jobs: bash jobs/$question.sh chain 4" >&2
    return 2
  fi
  shift
  for ((i = 0; i < jobs; i++)); do
    id=$(submit --parsable ${ids:+"--dependency=afternotok$ids" --kill-on-invalid-dep=yes} "$@") || return
    echo "${id%%;*}"
    ids+=:${id%%;*}
  done
}

# Sets question, name and what submit needs.
prepare() { # QUESTION
  question=$1 name=$1
  [ "$DEVICE" = cpu ] || name+=-$DEVICE
  # Only a batch job has a name of its own; one of salloc is called interactive.
  # That of the script's own header, with which a plain sbatch takes it, does not say the device.
  if [ "${ENVIRONMENT:-}" = BATCH ] && [ -n "${SLURM_JOB_NAME:-}" ] && [ "$SLURM_JOB_NAME" != "$question" ]; then name=$SLURM_JOB_NAME; fi
  # The tasks of an array are repeats, each with a file of its own. rank-counts makes parts of them.
  [ "$question" = rank-counts ] || name+=${SLURM_ARRAY_TASK_ID:+-$SLURM_ARRAY_TASK_ID}
  name=${name//[!a-zA-Z0-9._=+-]/_} # lists of files have commas between them
  gpu_flags
}

# Decides what the script does: submit, chain, or measure. Sets total, the number of ranks.
begin() { # QUESTION ARGUMENTS...
  prepare "$1"
  shift
  case "${1:-}" in
    submit | chain)
      "$@"
      exit
      ;;
    "") ;;
    *)
      echo "jobs: '$1': give nothing (measure here), submit [SBATCH-FLAGS...] or chain JOBS [SBATCH-FLAGS...]" >&2
      exit 2
      ;;
  esac
  if [ -n "${SLURM_JOB_ID:-}" ]; then NODES=$SLURM_JOB_NUM_NODES; fi
  # Now, since Slurm puts it forward when it preempts the job.
  if [ "${ENVIRONMENT:-}" = BATCH ]; then limit=$(date -d "$(squeue -h -j "$(this_job)" -o %e)" +%s 2>/dev/null); fi
  total=$((NODES * RANKS_PER_NODE))
  require_program && mkdir -p "$RESULTS" && record_environment || exit
}

require_program() {
  [ ! -x "$GRADMETER" ] || return 0
  local preset=release
  [ "$DEVICE" = cpu ] || preset=$DEVICE
  echo "$GRADMETER is not there to run: build it (cmake --preset $preset && cmake --build --preset $preset)" \
    "or set GRADMETER in jobs/settings.sh" >&2
  return 2
}

# Beside the results: where and under what they were measured. Result files name the variables that change figures; this has all
# that may explain them later. What may be secret is left out.
record_environment() {
  {
    echo "# $(date -u +%FT%TZ) job ${SLURM_JOB_ID:-none}, start $((${SLURM_RESTART_COUNT:-0} + 1)), on $(hostname)," \
      "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), modules ${LOADEDMODULES:-none}"
    env | grep -E '^(OMPI_|PMIX_|UCX_|FI_|I_MPI_|MPICH_|NCCL_|CUDA_|SLURM_|OMP_|KMP_|LD_LIBRARY_PATH=|GRADMETER)' |
      grep -vE '^[^=]*(TOKEN|JWT|KEY|SECRET|PASS)' | sort
  } >>"$RESULTS/$name.environment"
}

# The launcher for RANKS ranks, in the array launcher.
choose_launcher() { # RANKS
  local nodes=$((($1 + RANKS_PER_NODE - 1) / RANKS_PER_NODE)) here=()
  if [ -z "${SLURM_JOB_ID:-}" ]; then
    LAUNCHER=mpirun
    if [ -n "$HOSTFILE" ]; then
      here=(--hostfile "$HOSTFILE")
    elif [ "$NODES" -gt 1 ]; then
      echo "NODES is $NODES but HOSTFILE is empty: name a host file in jobs/settings.sh, one host a line" >&2
      return 2
    else
      export GRADMETER_RANKS=$1
      . scripts/environment.sh
    fi
  elif [ "$LAUNCHER" = auto ]; then
    LAUNCHER=mpirun
    if srun --mpi=list 2>&1 | grep -qw pmix; then LAUNCHER=srun; fi
  fi
  case "$LAUNCHER" in
    # Without -K a job whose rank died would wait for the others until its time limit.
    srun) launcher=(srun --mpi=pmix -K --nodes="$nodes" --ntasks="$1" --ntasks-per-node="$RANKS_PER_NODE"
      --cpus-per-task="$CORES_PER_RANK" ${gpu_step[@]+"${gpu_step[@]}"}) ;;
    mpirun) launcher=(mpirun -np "$1" --map-by "ppr:$RANKS_PER_NODE:node" ${gpu_mpirun[@]+"${gpu_mpirun[@]}"}
      ${here[@]+"${here[@]}"}) ;;
    *)
      echo "LAUNCHER is '$LAUNCHER': it may be auto, srun or mpirun" >&2
      return 2
      ;;
  esac
}

# gradmeter COMMAND on the first $total ranks. A file that exists is gone on with.
measure() { # PART COMMAND FLAGS...
  local out launcher near=() more=()
  out=$(result_file "$1")
  shift
  choose_launcher "$total" || return
  [ "$DEVICE" = cpu ] || more+=(--device "$DEVICE")
  if [ "$DEVICE" = cuda ] && [ "$NUMA" = gpu ]; then near=(bash jobs/near-gpu.sh); fi
  if [ -e "$out" ]; then
    echo "$out exists: measuring what it lacks" >&2
    more+=(--resume)
  fi
  # shellcheck disable=SC2086  # LAUNCH_FLAGS is a list of words
  launch "${launcher[@]}" $LAUNCH_FLAGS ${near[@]+"${near[@]}"} "$GRADMETER" "$@" --out "$out" ${more[@]+"${more[@]}"}
}

# measure for a curve over ranks: the flags that all of them have.
measure_curve() { # PART FLAGS...
  local part=$1 ranks=${RANKS:-$(rank_list "$total")} algorithm=()
  shift
  # One rank makes no all-reduce, and a flag that would change nothing is refused.
  if [ -n "$ALGORITHM" ] && [ "$ranks" != 1 ]; then algorithm=(--algorithm "$ALGORITHM"); fi
  measure "$part" scale --model "$MODEL" --threads "$THREADS" --ranks "$ranks" --strategy "$STRATEGY" \
    ${algorithm[@]+"${algorithm[@]}"} "$@"
}

conclude() { # FILE...
  echo "$GRADMETER report $* -o $RESULTS/$name.html" >&2
  "$GRADMETER" report "$@" -o "$RESULTS/$name.html"
}

# Runs a launch, passes on the SIGTERM that this script gets, and returns the launch's exit code.
launch() { # COMMAND...
  local pid code=0 stopped=false
  echo "$*" >&2
  "$@" &
  pid=$!
  trap 'stopped=true; terminate "$1" "$pid"' TERM
  wait "$pid" || code=$?
  # The trap ended that wait early; this one waits for the launch itself. Stopped by a signal mpirun ends with 1, srun
  # with the ranks' own code: both become 143, as from gradmeter.
  if $stopped; then
    code=0
    wait "$pid" || code=143
  fi
  trap - TERM
  [ "$code" -ne 143 ] || explain_stop
  return "$code"
}

# This job as Slurm's commands take it: the number of an array's last part also stands for the whole array.
this_job() {
  if [ -n "${SLURM_ARRAY_JOB_ID:-}" ]; then echo "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"; else echo "$SLURM_JOB_ID"; fi
}

# Sends SIGTERM to the ranks of a launch. srun would kill them outright at a SIGTERM of its own; Slurm asks them first.
terminate() { # LAUNCHER PID
  if [ "$1" = srun ]; then scancel --signal=TERM "$(this_job)"; else kill -TERM "$2"; fi 2>/dev/null
}

# Stopped by a time limit the job ends, and the next of its chain goes on. Stopped long before it, the job is preempted: Slurm may
# take its end within the time of grace for its last, so it asks to be queued again.
explain_stop() {
  echo "stopped by SIGTERM: the points are kept, start again to measure the rest" >&2
  # Slurm's signal before a limit comes up to a minute early. A job that was cancelled is not running.
  if [ -n "${limit:-}" ] && [ $((limit - $(date +%s))) -gt 180 ] &&
    [ "$(squeue -h -j "$(this_job)" -o %T)" = RUNNING ]; then
    echo "preempted: queued again" >&2
    scontrol requeue "$(this_job)"
  fi
}
