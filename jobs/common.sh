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
    echo "$GRADMETER is not there to run: build it (cmake --preset release && cmake --build --preset release)" \
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
  if [ -e "$OUT" ]; then
    echo "$OUT exists: measuring what it lacks" >&2
    measurement+=(--resume)
  fi
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
