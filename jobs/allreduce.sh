#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which all-reduce is the fastest for which size?
#   bash jobs/allreduce.sh [submit | chain JOBS] [SBATCH-FLAGS...]      see jobs/README.md
# Slurm reads the next lines itself, before jobs/settings.sh; flags of sbatch win over them.
#SBATCH --job-name=allreduce
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@60
set -uo pipefail
cd "${SLURM_SUBMIT_DIR:-$(dirname "${BASH_SOURCE[0]}")/..}" || exit
if ! . jobs/common.sh; then echo "no jobs/common.sh in $PWD: submit in the repository's root" >&2 && exit 2; fi
SIZES=${SIZES:-1K,16K,256K,4M,64M} # of a rank's buffer

begin allreduce "$@"
measure "" allreduce --sizes "$SIZES" ${ALGORITHM:+--algorithm "$ALGORITHM"} --in-place out --per-rank \
  --time-budget "$TIME_BUDGET" && conclude "$(result_file)"
