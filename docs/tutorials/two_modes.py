# %% [markdown]
# # Two modes
#
# A posterior with two separate modes, of unequal weight and width. You will see how the default finds the
# weights, why no verdict on a single run can see a mode that was missed, and what to do about that.

# %%
import jax.numpy as jnp
import numpy as np

import nvgd

mixture = nvgd.densities.GaussianMixture(
    means=[[-4.0, 0.0], [4.0, 0.0]],
    weights=[0.3, 0.7],
    scales=[0.5, 1.0],
)
posterior = nvgd.sample(mixture.log_density, dim=2)


def share_on_the_right(posterior):
    return float((np.asarray(posterior.draws["x"])[..., 0] > 0).mean())


print(
    "share in the right mode:", round(share_on_the_right(posterior), 3), "(truth 0.7)"
)
print(posterior.diagnose().verdict)

# %% [markdown]
# The particles start from N(0, I), between the modes. During the flow, resampling lets modes exchange particles. During the
# corrections, *jumps* between modes are proposed, and accepted or rejected, which gives the modes their exact weights.
#
# ## A missed mode
#
# Now all particles start next to the left mode, in a target whose modes are twice as far apart.

# %%
distant = nvgd.densities.GaussianMixture(
    means=[[-8.0, 0.0], [8.0, 0.0]], weights=[0.3, 0.7], scales=[0.5, 1.0]
)
start = nvgd.Jittered(jnp.array([-8.0, 0.0]), scale=0.5)
missed = nvgd.sample(distant.log_density, dim=2, initial=start)
print("share in the right mode:", share_on_the_right(missed), "(truth 0.7)")
print(missed.diagnose().verdict)

# %% [markdown]
# The verdict cannot see a mode without particles, because the scores contain no information about it. No diagnostic of a
# single run can. What helps is to **start wide**, and to compare runs from **other starts**: `num_replicates` repeats the
# run from new draws of the same starting distribution.

# %%
wide = nvgd.Jittered(jnp.zeros(2), scale=8.0)
found = nvgd.sample(distant.log_density, dim=2, initial=wide)
print("share in the right mode:", round(share_on_the_right(found), 3), "(truth 0.7)")
print(found.diagnose(num_replicates=2).verdict)

# %%
import matplotlib.pyplot as plt

figure, panels = plt.subplots(
    1, 2, figsize=(8, 2.6), sharex=True, sharey=True, layout="constrained"
)
for panel, run, name in zip(
    panels, [missed, found], ["started left", "started wide"], strict=True
):
    draws = np.asarray(run.draws["x"]).reshape(-1, 2)[:2000]
    panel.scatter(*draws.T, s=3, alpha=0.4)
    panel.set_title(
        f"{name}: {share_on_the_right(run):.2f} on the right", fontsize="medium"
    )
    panel.set(xlabel="x₁")
panels[0].set(ylabel="x₂")
plt.show()

# %% [markdown]
# A wide start is no guarantee either: the further apart the modes are, and the more dimensions there are, the more likely
# it is that one is missed. [Several modes](../how-to/several-modes.md) lists what helps.
#
# **Next:** [the evidence of two models](evidence.md).
