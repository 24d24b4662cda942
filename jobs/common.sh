# shellcheck shell=bash
# What the job scripts share; nothing to edit here. Source it after jobs/settings.sh, in the repository's root.

# The powers of two below TOTAL, then TOTAL itself, separated by commas: 6 gives 1,2,4,6.
rank_list() { # TOTAL
  local n=1 list=
  while [ "$n" -lt "$1" ]; do
    list+=$n,
    n=$((n * 2))
  done
  echo "$list$1"
}

# Sets the array measurement: gradmeter with its arguments for TOTAL ranks. Goes on with OUT where that exists.
weak_scaling() { # TOTAL
  if [ ! -x "$GRADMETER" ]; then
    local preset=release
    [ "$DEVICE" = cpu ] || preset=$DEVICE
    echo "$GRADMETER is not there to run: build it (cmake --preset $preset && cmake --build --preset $preset)" \
      "or set GRADMETER in jobs/settings.sh" >&2
    return 2
  fi
  mkdir -p "$(dirname "$OUT")" || return
  local ranks=${RANKS:-$(rank_list "$1")} algorithm=()
  # One rank makes no all-reduce, and a flag that would change nothing is refused.
  if [ -n "$ALGORITHM" ] && [ "$ranks" != 1 ]; then algorithm=(--algorithm "$ALGORITHM"); fi
  measurement=("$GRADMETER" scale --scaling weak --model "$MODEL" --batch "$BATCH" --threads "$THREADS"
    --ranks "$ranks" --strategy "$STRATEGY" ${algorithm[@]+"${algorithm[@]}"}
    --time-budget "$TIME_BUDGET" --out "$OUT")
  if [ "$DEVICE" != cpu ]; then measurement+=(--device "$DEVICE"); fi
  if [ "$DEVICE" = cuda ] && [ "$NUMA" = gpu ]; then measurement=(bash jobs/near-gpu.sh "${measurement[@]}"); fi
  if [ -e "$OUT" ]; then
    echo "$OUT exists: measuring what it lacks" >&2
    measurement+=(--resume)
  fi
}

# What sbatch and srun are told of GPUs, and the launchers of binding, in the arrays gpu_job, gpu_step and gpu_mpirun. A rank
# that near-gpu.sh binds must not be bound before: it would be left with the cores that both agree on.
gpu_flags() {
  gpu_job=() gpu_step=() gpu_mpirun=()
  [ "$DEVICE" = cuda ] || return 0
  gpu_job=(--gpus-per-node="$RANKS_PER_NODE")
  gpu_step=(--gpus-per-task=1 --gpu-bind="$GPU_BIND")
  if [ "$NUMA" = gpu ]; then
    gpu_step+=(--cpu-bind=none)
    gpu_mpirun=(--bind-to none)
  fi
}

# Outside a job of Slurm: submits SCRIPT with the settings, and does not return. Inside: measures.
slurm_job() { # SCRIPT SBATCH-FLAGS...
  local script=$1 total start cores=${CORES_PER_RANK:-$THREADS}
  shift
  gpu_flags
  if [ -z "${SLURM_JOB_ID:-}" ]; then
    mkdir -p results
    exec sbatch --nodes="$NODES" --ntasks-per-node="$RANKS_PER_NODE" --cpus-per-task="$cores" --time="$TIME_LIMIT" \
      --output=results/%x-%j.log ${gpu_job[@]+"${gpu_job[@]}"} ${ACCOUNT:+--account="$ACCOUNT"} \
      ${PARTITION:+--partition="$PARTITION"} "$@" "$script"
  fi
  NODES=$SLURM_JOB_NUM_NODES
  total=$((NODES * RANKS_PER_NODE))
  weak_scaling "$total" || return
  if [ "$LAUNCHER" = auto ]; then
    LAUNCHER=mpirun
    if srun --mpi=list 2>&1 | grep -qw pmix; then LAUNCHER=srun; fi
  fi
  case "$LAUNCHER" in
    # Without -K a job whose rank died would wait for the others until its time limit.
    srun) start=(srun --mpi=pmix -K --ntasks="$total" --ntasks-per-node="$RANKS_PER_NODE" --cpus-per-task="$cores"
      ${gpu_step[@]+"${gpu_step[@]}"}) ;;
    mpirun) start=(mpirun -np "$total" --map-by "ppr:$RANKS_PER_NODE:node" ${gpu_mpirun[@]+"${gpu_mpirun[@]}"}) ;;
    *)
      echo "LAUNCHER is '$LAUNCHER': it may be auto, srun or mpirun" >&2
      return 2
      ;;
  esac
  # shellcheck disable=SC2086  # LAUNCH_FLAGS is a list of words
  launch "${start[@]}" $LAUNCH_FLAGS "${measurement[@]}"
}

# Measures on this machine, or on the hosts of HOSTFILE.
mpirun_job() {
  local total=$((NODES * RANKS_PER_NODE)) hosts=()
  if [ -n "$HOSTFILE" ]; then
    hosts=(--hostfile "$HOSTFILE")
  elif [ "$NODES" -gt 1 ]; then
    echo "NODES is $NODES but HOSTFILE is empty: name a host file in jobs/settings.sh, one host a line" >&2
    return 2
  fi
  gpu_flags
  weak_scaling "$total" || return
  if [ ${#hosts[@]} -eq 0 ]; then
    export GRADMETER_RANKS=$total
    # shellcheck source=scripts/environment.sh
    . scripts/environment.sh
  fi
  # shellcheck disable=SC2086  # LAUNCH_FLAGS is a list of words
  launch mpirun -np "$total" --map-by "ppr:$RANKS_PER_NODE:node" ${gpu_mpirun[@]+"${gpu_mpirun[@]}"} \
    ${hosts[@]+"${hosts[@]}"} $LAUNCH_FLAGS "${measurement[@]}"
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
    echo "stopped by SIGTERM: the points in $OUT are kept, start again to measure the rest" >&2
  fi
  trap - TERM
  return "$code"
}

# Sends SIGTERM to the ranks of a launch. srun would kill them outright at a SIGTERM of its own; Slurm asks them first.
terminate() { # LAUNCHER PID
  if [ "$1" = srun ]; then scancel --signal=TERM "$SLURM_JOB_ID"; else kill -TERM "$2"; fi 2>/dev/null
}
