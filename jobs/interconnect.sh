#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What does each interconnect cost: the same training over TCP, shared memory and what else the MPI offers?
#   bash jobs/interconnect.sh [submit | chain JOBS] [SBATCH-FLAGS...]      see jobs/README.md
# Slurm reads the next lines itself, before jobs/settings.sh; flags of sbatch win over them.
#SBATCH --job-name=interconnect
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@60
set -uo pipefail
cd "${SLURM_SUBMIT_DIR:-$(dirname "${BASH_SOURCE[0]}")/..}" || exit
if ! . jobs/common.sh; then echo "no jobs/common.sh in $PWD: submit in the repository's root" >&2 && exit 2; fi
BATCH=${BATCH:-16,64}                           # of a rank
INTERCONNECTS=${INTERCONNECTS:-tcp shm fabric}  # fabric: what Open MPI takes when it is not told

# Of the user's rank counts those that fit one node, separated by commas; nothing where the user gives none.
ranks_of_one_node() {
  local count fitting=()
  for count in ${RANKS//,/ }; do
    if [ "$count" -le "$RANKS_PER_NODE" ]; then fitting+=("$count"); fi
  done
  local IFS=,
  echo "${fitting[*]-}"
}

over() { # INTERCONNECT
  local transport=mpi
  local -x OMPI_MCA_pml=ob1 OMPI_MCA_btl NCCL_IB_DISABLE=1 NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE
  case "$1" in
    tcp) OMPI_MCA_btl=tcp,self NCCL_SHM_DISABLE=1 ;;
    shm)
      local total=$RANKS_PER_NODE # of one node
      OMPI_MCA_btl=vader,self NCCL_SHM_DISABLE=0 transport=shm
      if [ "$total" -eq 1 ]; then
        echo "shm is left out: RANKS_PER_NODE is 1, so that no two ranks share a node" >&2
        return
      fi
      local of_one_node
      of_one_node=$(ranks_of_one_node)
      if [ -n "$RANKS" ] && [ -z "$of_one_node" ]; then
        echo "shm is left out: no count of RANKS=$RANKS fits on one node of $RANKS_PER_NODE ranks" >&2
        return
      fi
      local RANKS=$of_one_node
      ;;
    fabric) unset OMPI_MCA_pml OMPI_MCA_btl NCCL_IB_DISABLE NCCL_P2P_DISABLE NCCL_SHM_DISABLE ;;
    *)
      echo "INTERCONNECTS has '$1': it may have tcp, shm and fabric" >&2
      return 2
      ;;
  esac
  measure_curve "$1" --interconnect "$1" --transport "$transport" --batch "$BATCH" --time-budget "$budget" || return
  files+=("$(result_file "$1")")
}

begin interconnect "$@"
budget=$(share_of_budget 3) || exit
files=()
for interconnect in $INTERCONNECTS; do over "$interconnect" || exit; done
conclude "${files[@]}" && "$GRADMETER" compare "${files[@]}" --by interconnect --baseline "${INTERCONNECTS%% *}" --ignore transport
