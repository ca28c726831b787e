# %% [markdown]
# # A funnel, seen as a film
#
# Neal's funnel is a hierarchical model in miniature: x₁ is a log scale, and x₂ is normal with standard deviation
# exp(x₁/2). You will watch particles fill it, and compare the result with exact draws.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import nvgd

funnel = nvgd.densities.Funnel(2)

frames = []
posterior = nvgd.sample(
    funnel.log_density,
    dim=2,
    num_steps=1000,
    metrics={"sd of x1": lambda particles: particles[:, 0].std()},
    metrics_every=20,
    callback=lambda state: frames.append(
        (int(state.step), np.asarray(state.particles))
    ),
)
print(posterior)

# %% [markdown]
# `callback` is called with the state of the run, here every 20 steps. A film is a list of such frames.

# %%
import tempfile
from pathlib import Path

from IPython.display import Image
from matplotlib.animation import FuncAnimation, PillowWriter

first, second = np.meshgrid(np.linspace(-9, 9, 181), np.linspace(-14, 14, 141))
grid = np.stack([first, second], axis=-1).reshape(-1, 2)
levels = [-12, -9, -7, -5, -4, -3]
density = np.asarray(jax.vmap(funnel.log_density)(grid)).reshape(first.shape)

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
axes.contour(first, second, density, levels, colors="0.8", linestyles="-")
dots = axes.scatter([], [], s=9, color="C0")
axes.set(xlim=(-9, 9), ylim=(-14, 14), xlabel="x₁", ylabel="x₂")


def draw(frame):
    step, particles = frame
    dots.set_offsets(particles)
    stage = "flow" if step <= posterior.stages[0].until_step else "corrections"
    axes.set_title(f"{stage}, step {step}", loc="left")
    return (dots,)


film = Path(tempfile.mkdtemp()) / "funnel.gif"
FuncAnimation(figure, draw, frames=frames).save(film, PillowWriter(fps=8), dpi=70)
plt.close(figure)
Image(film)

# %% [markdown]
# First the particles **flow**: they move together, along a learned field, and spread into neck and mouth.
# Then each becomes a Markov chain (**corrections**), so they start to move at random. The picture does not change much in
# the second part, but the draws no longer have the bias of the flow.
#
# ## How good is it?
#
# For test densities there are exact draws. The energy distance compares two samples at all scales.

# %%
exact = funnel.sample(jax.random.key(1), 5000)
same_size = funnel.sample(jax.random.key(2), len(posterior.particles))
print("NVGD         ", nvgd.metrics.energy_distance(posterior.particles, exact))
print("exact sample ", nvgd.metrics.energy_distance(same_size, exact))

# %% [markdown]
# The particles are *closer* to the target than an independent sample of the same size. They are one state of each chain,
# chosen so that together they are spread evenly.
#
# ## Other methods on the same target
#
# SVGD and Langevin dynamics follow the same flow, with a kernel or noise in place of the network. They need a step size.

# %%
figure, panels = plt.subplots(
    1, 3, figsize=(9, 3), sharex=True, sharey=True, layout="constrained"
)
methods = [nvgd.NVGD(), nvgd.SVGD(0.1), nvgd.ULA(0.01)]
for number, (panel, method) in enumerate(zip(panels, methods, strict=True)):
    with_method = nvgd.sample(funnel.log_density, method, dim=2, num_steps=1000)
    distance = nvgd.metrics.energy_distance(with_method.particles, exact)
    panel.contour(first, second, density, levels, colors="0.8", linestyles="-")
    panel.scatter(*with_method.particles.T, s=5, color=f"C{number}")
    panel.set(xlim=(-9, 9), ylim=(-14, 14), xlabel="x₁")
    panel.set_title(
        f"{type(method).__name__}, energy distance {distance:.3f}", fontsize="medium"
    )
panels[0].set_ylabel("x₂")
plt.show()

# %% [markdown]
# **Next:** [two modes](two_modes.md).
