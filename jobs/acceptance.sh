#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Is the machine as fast as it was, after an update or a repair? Ends with 1 where it is not.
#   bash jobs/acceptance.sh [submit | chain JOBS] [SBATCH-FLAGS...]      see jobs/README.md
# Slurm reads the next lines itself, before jobs/settings.sh; flags of sbatch win over them.
#SBATCH --job-name=acceptance
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@60
set -uo pipefail
cd "${SLURM_SUBMIT_DIR:-$(dirname "${BASH_SOURCE[0]}")/..}" || exit
if ! . jobs/common.sh; then echo "no jobs/common.sh in $PWD: submit in the repository's root" >&2 && exit 2; fi
HISTORY=${HISTORY:-$RESULTS/history} # earlier launches on this machine; those that pass are kept there
FAIL_BELOW=${FAIL_BELOW:-0.9}        # of the earlier rate: every point's interval must lie above
LAUNCHES=${LAUNCHES:-3}              # of each measurement: differences are held against the spread between launches
KERNELS=${KERNELS:---shape gemm:m=1760,n=128,k=1760}
SIZES=${SIZES:-64K,4M}
BATCH=${BATCH:-64}

begin acceptance "$@"
name+=-${SLURM_JOB_ID:-$(date -u +%Y%m%dT%H%M%SZ)} # each is anew; one that is queued again goes on
budget=$(share_of_budget $((3 * LAUNCHES))) || exit
declare -A files=()
all=()
for ((i = 1; i <= LAUNCHES; i++)); do
  # shellcheck disable=SC2086  # a list of words
  measure "kernels-$i" kernels $KERNELS --threads "$THREADS" --time-budget "$budget" || exit
  if [ "$total" -gt 1 ]; then
    measure "allreduce-$i" allreduce --sizes "$SIZES" ${ALGORITHM:+--algorithm "$ALGORITHM"} --in-place out --time-budget "$budget" || exit
  fi
  measure_curve "training-$i" --batch "$BATCH" --time-budget "$budget" || exit
  for part in kernels allreduce training; do
    file=$(result_file "$part-$i")
    if [ -e "$file" ]; then
      all+=("$file")
      files[$part]+=${files[$part]:+,}${file##*/}
    fi
  done
done
worst=0
program=$(realpath "$GRADMETER") history=$(realpath -m "$HISTORY")
for part in "${!files[@]}"; do
  # From where the files are: a folder's name may have commas.
  (mkdir -p "$history/$part" && cd "$RESULTS" &&
    "$program" compare "${files[$part]}" --history "$history/$part" --fail-below "$FAIL_BELOW" --junit "$name-$part.xml") || worst=$?
done
conclude "${all[@]}" || exit
exit "$worst"
