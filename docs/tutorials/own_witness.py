# %% [markdown]
# # Your own witness
#
# The network that NVGD trains is an Equinox module from (d,) to (d,). You will bring your own, which knows a symmetry of the
# target, and see what it learns.

# %%
import equinox as eqx
import jax
import jax.numpy as jnp

import nvgd

ring = nvgd.densities.Ring(radius=4.0, width=0.3)

# %% [markdown]
# A ring looks the same from all sides, so its field points along the radius: f(x) = g(|x|) x. A network for g alone has one
# input instead of two. It is zero at first, as the default's own network is.


# %%
class Radial(eqx.Module):
    network: eqx.nn.MLP

    def __init__(self, key):
        network = eqx.nn.MLP(
            "scalar", "scalar", width_size=32, depth=2, activation=jax.nn.silu, key=key
        )
        last = network.layers[-1]
        zero = (jnp.zeros_like(last.weight), jnp.zeros_like(last.bias))
        self.network = eqx.tree_at(
            lambda mlp: (mlp.layers[-1].weight, mlp.layers[-1].bias), network, zero
        )

    def __call__(self, x):
        return x * self.network(jnp.sqrt(x @ x + 1e-6))


# %% [markdown]
# Pass it as `witness`. `corrected=False` ends the run with the flow, so that the witness alone answers for the result.

# %%
exact = ring.sample(jax.random.key(1), 5000)
methods = {
    "default network": nvgd.NVGD(corrected=False),
    "radial network": nvgd.NVGD(corrected=False, witness=Radial(jax.random.key(0))),
}
runs = {}
for name, method in methods.items():
    runs[name] = nvgd.sample(ring.log_density, method, dim=2, num_steps=400)
    distance = nvgd.metrics.energy_distance(runs[name].particles, exact)
    print(f"{name:16s} energy distance {distance:.3f}")

same_size = ring.sample(jax.random.key(2), 256)
print(f"{'exact sample':16s} energy distance {nvgd.metrics.energy_distance(same_size, exact):.3f}")

# %%
import matplotlib.pyplot as plt

figure, panels = plt.subplots(
    1, 2, figsize=(7, 3.4), sharex=True, sharey=True, layout="constrained"
)
for panel, (name, run) in zip(panels, runs.items(), strict=True):
    panel.scatter(*run.particles.T, s=6)
    panel.set_title(name, fontsize="medium")
    panel.set_aspect("equal")

# %% [markdown]
# The witness gets weight only where it helps on particles that it was not trained on. `history["network_weight"]` is that weight:

# %%
for name, run in runs.items():
    print(name, run.history["network_weight"][[0, 50, 200, -1]].round(2))

# %% [markdown]
# A bare `nvgd.NVGD(witness=...)`, with corrections, is what to use in earnest.
#
# **Next:** [devices and interruptions](devices.md).
