# shellcheck shell=bash disable=SC2034  # read by the scripts that source this file
# The one header to edit, for jobs/weak-scaling.sbatch (Slurm) and its twin jobs/weak-scaling.sh (mpirun alone), and for
# the same two with a GPU for each rank, jobs/weak-scaling-gpu.sbatch and jobs/weak-scaling-gpu.sh.
# A variable of the same name in the environment wins:   NODES=8 bash jobs/weak-scaling.sbatch

# --- GPUs: what the two GPU scripts have in place of the values further down
if [ "${DEVICE:=cpu}" = cuda ]; then
  RANKS_PER_NODE=${RANKS_PER_NODE:-4}    # GPUs of a node: each rank drives one
  CORES_PER_RANK=${CORES_PER_RANK:-8}    # Slurm: cores of a node over its GPUs
  GPU_BIND=${GPU_BIND:-none}             # Slurm's --gpu-bind. none: ranks see all GPUs of the job's node, each takes its own,
                                         # and they can read each other's memory; per_task:1 hides the others'
  NUMA=${NUMA:-gpu}                      # gpu: each rank on the cores nearest to its GPU (jobs/near-gpu.sh); launcher: as it binds
  GRADMETER=${GRADMETER:-build/cuda/gradmeter}
  ALGORITHM=${ALGORITHM-nccl,ring,recursive-doubling}
  OUT=${OUT:-results/weak-scaling-gpu.jsonl}
  export CUDA_DEVICE_ORDER=${CUDA_DEVICE_ORDER:-PCI_BUS_ID}   # numbers of GPUs as nvidia-smi has them
fi

# --- the machine
NODES=${NODES:-1}
RANKS_PER_NODE=${RANKS_PER_NODE:-2}
THREADS=${THREADS:-1}                    # of each rank, and cores that Slurm gives it; the same along the whole curve
ACCOUNT=${ACCOUNT:-}                     # Slurm: empty for your default account
PARTITION=${PARTITION:-}                 # Slurm: empty for the default partition
TIME_LIMIT=${TIME_LIMIT:-00:30:00}       # Slurm: h:m:s; a job that is stopped keeps its points, submit again to go on
LAUNCHER=${LAUNCHER:-auto}               # Slurm: srun, mpirun, or auto: srun where it speaks PMIx
HOSTFILE=${HOSTFILE:-}                   # mpirun twin: one host a line; empty for this machine alone
LAUNCH_FLAGS=${LAUNCH_FLAGS:-}           # more flags for mpirun or srun, such as --map-by or --cpu-bind
# module load gcc openmpi cuda           # whatever the machine needs before gradmeter starts

# --- the measurement
GRADMETER=${GRADMETER:-build/release/gradmeter}
MODEL=${MODEL:-mlp}
BATCH=${BATCH:-16,64,256}                # per rank: the whole batch grows with the ranks
RANKS=${RANKS:-}                         # empty for 1,2,4,... up to NODES * RANKS_PER_NODE
STRATEGY=${STRATEGY:-independent,sync}
ALGORITHM=${ALGORITHM-mpi,ring,recursive-doubling}   # empty for strategies that make no all-reduce
TIME_BUDGET=${TIME_BUDGET:-20m}          # keep it below TIME_LIMIT
OUT=${OUT:-results/weak-scaling.jsonl}   # where the job starts: on a disk that every node sees
