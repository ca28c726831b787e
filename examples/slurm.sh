#!/bin/bash
# One run on several hosts: `sbatch examples/slurm.sh`. Submitted again, it goes on where it was.
#SBATCH --job-name=nvgd
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=01:00:00
#SBATCH --requeue
set -euo pipefail

# Every process must be able to reach the first host at this port; jobs on one host need different ones.
# The list is read to its end: a `| head -n 1` would break the pipe of scontrol, and with it this script.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export COORDINATOR="${hosts%%$'\n'*}:$((20000 + SLURM_JOB_ID % 20000))"

# The directory of --out must be one that all hosts share: all read its checkpoints, the first writes.
srun bash -c 'exec nvgd sample model.py:target --out results --num-particles 1024 \
    --coordinator "$COORDINATOR" --num-processes "$SLURM_NTASKS" --process-id "$SLURM_PROCID"'
