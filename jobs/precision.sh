#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How does efficiency over the mini-batch depend on the precision of products?
#   bash jobs/precision.sh [submit | chain JOBS] [SBATCH-FLAGS...]      see jobs/README.md
# Slurm reads the next lines itself, before jobs/settings.sh; flags of sbatch win over them.
#SBATCH --job-name=precision
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@60
set -uo pipefail
cd "${SLURM_SUBMIT_DIR:-$(dirname "${BASH_SOURCE[0]}")/..}" || exit
if ! . jobs/common.sh; then echo "no jobs/common.sh in $PWD: submit in the repository's root" >&2 && exit 2; fi
BATCH=${BATCH:-16,64,256,1024} # of a rank
PRECISION=${PRECISION:-fp32,bf16}

begin precision "$@"
measure_curve "" --batch "$BATCH" --precision "$PRECISION" --time-budget "$TIME_BUDGET" &&
  conclude "$(result_file)" &&
  "$GRADMETER" compare "$(result_file)" --by precision --baseline "${PRECISION%%,*}"
