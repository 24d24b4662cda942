#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How does efficiency depend on the ranks? An array: each rank count is a job of its own, and a last job merges their files.
#   bash jobs/rank-counts.sh [submit | chain JOBS] [SBATCH-FLAGS...]      see jobs/README.md
# Slurm reads the next lines itself, before jobs/settings.sh; flags of sbatch win over them.
#SBATCH --job-name=rank-counts
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@60
set -uo pipefail
cd "${SLURM_SUBMIT_DIR:-$(dirname "${BASH_SOURCE[0]}")/..}" || exit
if ! . jobs/common.sh; then echo "no jobs/common.sh in $PWD: submit in the repository's root" >&2 && exit 2; fi
BATCH=${BATCH:-16,64} # of a rank

prepare rank-counts
# The job that measures all counts has Slurm's nodes, whatever the settings say. A part of the array and the job that merges have
# the settings of the command that submitted them, whose list of counts they need.
if [ -n "${SLURM_JOB_ID:-}" ] && [ -z "${SLURM_ARRAY_TASK_ID:-}" ] && [ $# -eq 0 ]; then NODES=$SLURM_JOB_NUM_NODES; fi
counts=${RANKS:-$(rank_list $((NODES * RANKS_PER_NODE)))}

merge() {
  local count parts=()
  for count in ${counts//,/ }; do
    if [ -e "$(result_file "$count")" ]; then parts+=("$(result_file "$count")"); fi
  done
  cat "${parts[@]}" >"$(result_file).part" && mv "$(result_file).part" "$(result_file)" && conclude "$(result_file)"
}

if [ "${1:-}" = submit ]; then
  shift
  # Whatever became of the parts: what they have is merged, and those that are submitted again go on.
  array=$(submit --parsable --array="$counts" "$@") && echo "array ${array%%;*}" &&
    submit --dependency="afterany:${array%%;*}" --nodes=1 --ntasks-per-node=1 "$@" -- merge
  exit
fi
if [ "${1:-}" = merge ]; then
  begin rank-counts
  merge
  exit
fi
begin rank-counts "$@"
budget=$(share_of_budget "$(wc -w <<<"${counts//,/ }")") || exit
for total in ${SLURM_ARRAY_TASK_ID:-${counts//,/ }}; do
  RANKS=$total measure_curve "$total" --batch "$BATCH" --time-budget "$budget" || exit
done
[ -n "${SLURM_ARRAY_TASK_ID:-}" ] || merge
