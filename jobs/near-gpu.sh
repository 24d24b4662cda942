#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command on those of its cores that are nearest to the GPU of this rank: the node-local rank's among the visible
# ones, as gradmeter chooses where all ranks of a node see the same. A GPU whose place is not known, or none of whose
# cores this rank may use, changes nothing but for a line that says so.
#   mpirun -np 4 --bind-to none bash jobs/near-gpu.sh COMMAND...
set -uo pipefail
if [ $# -eq 0 ]; then
  sed -n '3,6s/^# \?//p' "${BASH_SOURCE[0]}"
  exit 2
fi
devices=${GRADMETER_PCI_DEVICES:-/sys/bus/pci/devices}  # another folder in the tests
rank=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-${SLURM_LOCALID:-0}}}

# The numbers of a list such as 0-3,8, one a line, sorted as comm needs them.
numbers() { # LIST
  local range
  for range in ${1//,/ }; do seq "${range%-*}" "${range#*-}"; done | sort -u
}

# nvidia-smi's name of the GPU, then its PCI bus id as the kernel writes it: 00000000:65:00.0 there, 0000:65:00.0 here.
bus_id() {
  local visible id
  visible=${CUDA_VISIBLE_DEVICES:-$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | paste -sd,)}
  IFS=, read -ra visible <<<"$visible"
  [ ${#visible[@]} -gt 0 ] || return
  id=$(nvidia-smi --id="${visible[rank % ${#visible[@]}]// /}" --query-gpu=pci.bus_id --format=csv,noheader 2>/dev/null) || return
  id=${id,,}
  echo "${id: -12}"
}

if ! gpu=$(bus_id) || [ ! -r "$devices/$gpu/local_cpulist" ]; then
  echo "near-gpu: local rank $rank: where its GPU is cannot be told (no nvidia-smi, or no such GPU); not bound" >&2
  exec "$@"
fi
near=$(<"$devices/$gpu/local_cpulist")
allowed=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
cores=$(comm -12 <(numbers "$near") <(numbers "$allowed") | paste -sd,)
if [ -z "$cores" ]; then
  echo "near-gpu: local rank $rank: GPU $gpu is near cores $near, and this rank may use $allowed; not bound" >&2
  exec "$@"
fi
exec taskset --cpu-list "$cores" "$@"
