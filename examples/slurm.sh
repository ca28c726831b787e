#!/bin/bash
# One run on several hosts: `sbatch examples/slurm.sh`. Submitted again, it continues from its last checkpoint.
#SBATCH --job-name=nvgd
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=01:00:00
#SBATCH --requeue
set -euo pipefail

# Every process must be able to reach the first host at this port; jobs on the same host need different ports.
# The whole list is read: `| head -n 1` would break the pipe of scontrol, and pipefail would end this script.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export COORDINATOR="${hosts%%$'\n'*}:$((20000 + SLURM_JOB_ID % 20000))"

# All hosts must share the directory of --out: all read its checkpoints, the first writes them.
srun bash -c 'exec nvgd sample model.py:target --out results --num-particles 1024 \
    --coordinator "$COORDINATOR" --num-processes "$SLURM_NTASKS" --process-id "$SLURM_PROCID"'
