# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034  # read by the scripts that source this file
# The one header to edit, for all scripts of this folder. A variable of the same name in the environment wins:
#   NODES=8 bash jobs/weak-scaling.sh submit
# What is particular to a question (sizes, batches, precisions) stands at the top of its script.

# --- the machine
DEVICE=${DEVICE:-cpu}                    # cpu; cuda: a GPU for each rank
NODES=${NODES:-1}
THREADS=${THREADS:-1}                    # of each rank; the same along the whole curve
ACCOUNT=${ACCOUNT:-}                     # Slurm: empty for your default account
PARTITION=${PARTITION:-}                 # Slurm: empty for the default partition
TIME_LIMIT=${TIME_LIMIT:-00:30:00}       # Slurm: h:m:s; a job that is stopped keeps its points, submit it again to go on
LAUNCHER=${LAUNCHER:-auto}               # Slurm: srun, mpirun, or auto: srun where it speaks PMIx
HOSTFILE=${HOSTFILE:-}                   # mpirun without Slurm: one host a line; empty for this machine alone
LAUNCH_FLAGS=${LAUNCH_FLAGS:-}           # more flags for mpirun or srun, such as --map-by or --cpu-bind
if [ "$DEVICE" = cuda ]; then
  RANKS_PER_NODE=${RANKS_PER_NODE:-4}    # GPUs of a node: each rank drives one
  CORES_PER_RANK=${CORES_PER_RANK:-8}    # Slurm: cores of a node over its GPUs
  GPU_BIND=${GPU_BIND:-none}             # Slurm's --gpu-bind. none: ranks see all GPUs of the job's node, each takes its own,
                                         # and they can read each other's memory; per_task:1 hides the others'
  NUMA=${NUMA:-gpu}                      # gpu: each rank on the cores nearest to its GPU (jobs/near-gpu.sh); launcher: as it binds
  GRADMETER=${GRADMETER:-build/cuda/gradmeter}
  ALGORITHM=${ALGORITHM-nccl,ring,recursive-doubling}
  export CUDA_DEVICE_ORDER=${CUDA_DEVICE_ORDER:-PCI_BUS_ID}   # numbers of GPUs as nvidia-smi has them
else
  RANKS_PER_NODE=${RANKS_PER_NODE:-2}
  CORES_PER_RANK=${CORES_PER_RANK:-$THREADS}   # Slurm: cores that it gives each rank
  GRADMETER=${GRADMETER:-build/release/gradmeter}
  ALGORITHM=${ALGORITHM-mpi,ring,recursive-doubling}   # empty for strategies that make no all-reduce
fi
# module load gcc openmpi cuda           # whatever the machine needs before gradmeter starts

# --- the measurements
MODEL=${MODEL:-mlp}
RANKS=${RANKS:-}                         # of curves: empty for 1,2,4,... up to NODES * RANKS_PER_NODE
STRATEGY=${STRATEGY:-independent,sync}
TIME_BUDGET=${TIME_BUDGET:-20m}          # of a job, as 90s, 20m or 2h; keep it below TIME_LIMIT
RESULTS=${RESULTS:-results}              # folder of result files, seen from where jobs start: on a disk that every node sees
