#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which node computes slower than the others, when all compute the same at once?
#   bash jobs/kernels-all-nodes.sh [submit | chain JOBS] [SBATCH-FLAGS...]      see jobs/README.md
# Slurm reads the next lines itself, before jobs/settings.sh; flags of sbatch win over them.
#SBATCH --job-name=kernels-all-nodes
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@60
set -uo pipefail
cd "${SLURM_SUBMIT_DIR:-$(dirname "${BASH_SOURCE[0]}")/..}" || exit
if ! . jobs/common.sh; then echo "no jobs/common.sh in $PWD: submit in the repository's root" >&2 && exit 2; fi
KERNELS=${KERNELS:---op gemm --set training --filter m=1760} # which problems, as flags of gradmeter kernels

begin kernels-all-nodes "$@"
# shellcheck disable=SC2086  # a list of words
measure "" kernels $KERNELS --threads "$THREADS" --time-budget "$TIME_BUDGET" && conclude "$(result_file)"
