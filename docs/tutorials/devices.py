# %% [markdown]
# # Devices and interruptions
#
# You will split a run over several devices, kill it, and continue it to the same result. A CPU can stand in for two devices; the flag has
# to be set before JAX starts.

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
# `checkpoint=` names a directory. Here is a program that samples with checkpoints every 50 steps. We start it in a process of its
# own and kill it as soon as it has written some, without giving it a chance to clean up.

# %%
import signal
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
    dim=2, num_steps=20_000, checkpoint={str(directory)!r}, checkpoint_every=50,
)
"""
process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
while not any(directory.glob("*")) and process.poll() is None:
    time.sleep(0.2)
time.sleep(5)
process.send_signal(signal.SIGKILL)
process.wait()
print("exit code", process.returncode)
print(sorted(path.name for path in directory.iterdir()))

# %% [markdown]
# The same call, in any process, continues from the latest checkpoint. Killed once more or not, it ends with the same particles as
# an undisturbed run.

# %%
run = dict(dim=2, num_steps=1000, checkpoint_every=100)
resumed_from = Path(tempfile.mkdtemp())

nvgd.sample(funnel.log_density, **{**run, "num_steps": 700}, checkpoint=resumed_from)
continued = nvgd.sample(funnel.log_density, **run, checkpoint=resumed_from)
undisturbed = nvgd.sample(funnel.log_density, **run)
print("largest difference:", abs(continued.particles - undisturbed.particles).max())

# %% [markdown]
# Several hosts: [several devices](../how-to/devices.md). What happens in other faults, from a full disk to a lost process:
# [faults](../reference/faults.md).
