# %% [markdown]
# # Devices and interruptions
#
# You will split a run over two devices, then kill a run and continue it to the same result. A CPU can stand in for two
# devices if a flag is set before JAX starts.

# %%
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax

import nvgd

print(jax.devices())

# %% [markdown]
# `devices=` splits the particles. Nothing else changes.

# %%
funnel = nvgd.densities.Funnel(2)
posterior = nvgd.sample(funnel.log_density, dim=2, num_steps=600, devices=2)
print(posterior)

# %% [markdown]
# ## A run that is killed
#
# `checkpoint=` names a directory. Here is a program that writes a checkpoint every 50 steps. We start it in a process of
# its own and kill it a moment after its first checkpoint, so that it cannot clean up.

# %%
import subprocess
import sys
import tempfile
import time
from pathlib import Path

directory = Path(tempfile.mkdtemp())
program = f"""
import nvgd
nvgd.sample(
    nvgd.densities.Funnel(2).log_density,
    dim=2, num_steps=1500, checkpoint={str(directory)!r}, checkpoint_every=50,
)
"""
process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
while not any(directory.glob("*.npz")) and process.poll() is None:
    time.sleep(0.05)
time.sleep(0.5)
process.kill()
print("exit code", process.wait())
print(sorted(path.name for path in directory.iterdir()))

# %% [markdown]
# The same call, in any process, continues from the latest checkpoint and ends with the same particles as an
# undisturbed run.

# %%
options = dict(dim=2, num_steps=1500)
continued = nvgd.sample(
    funnel.log_density, **options, checkpoint=directory, checkpoint_every=50
)
undisturbed = nvgd.sample(funnel.log_density, **options)
print("largest difference:", abs(continued.particles - undisturbed.particles).max())

# %% [markdown]
# To use several hosts, see [several devices](../how-to/devices.md). For other faults, from a full disk to a lost process,
# see [faults](../reference/faults.md).
