# %% [markdown]
# # Eight schools, from NumPyro
#
# Eight schools ran coaching programmes. Each reported an estimated effect and its standard error. A
# hierarchical model decides how much the schools should learn from each other. You will write it in
# NumPyro, sample it with `nvgd.sample`, and read the verdict.

# %%
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

import nvgd

errors = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
effects = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])


def eight_schools(errors, effects=None):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", len(errors)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("effect", dist.Normal(theta, errors), obs=effects)


# %% [markdown]
# `tau` must be positive. NumPyro maps it to an unconstrained space, and the draws come back as `tau`.

# %%
target = nvgd.from_numpyro(eight_schools, errors, effects)
posterior = nvgd.sample(target)
print(posterior.summary())

# %% [markdown]
# There was nothing to choose. 256 particles flow to the posterior; then each becomes a Markov chain whose moves are
# accepted or rejected. The run ends when the chains have mixed, or after 10,000 steps.
#
# ## Did it work?

# %%
print(posterior.diagnose())

# %% [markdown]
# The first line is the verdict. The next lines say what to do. The table gives each measure with the value that draws
# from the posterior should have ([read the verdict](../how-to/read-the-verdict.md)).
#
# This model is a hard case. Where `tau` is small, the effects `theta` are squeezed together, so the posterior is a funnel
# with an endless neck. After a first round of steps, the run notices that the precision of the effects depends on `tau`,
# and goes on in coordinates in which they are easy to sample
# ([how it works](../how-it-works/index.md#corrections)).
#
# ## An easier form of the same model
#
# You can also write the effects in units of their scale. This *non-centred* form needs no second round, and helps where
# a model has several such scales and the verdict is `not yet`:

# %%


def non_centred(errors, effects=None):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", len(errors)):
        unit = numpyro.sample("unit", dist.Normal(0, 1))
        theta = numpyro.deterministic("theta", mu + tau * unit)
        numpyro.sample("effect", dist.Normal(theta, errors), obs=effects)


centred = posterior
posterior = nvgd.sample(nvgd.from_numpyro(non_centred, errors, effects))
print(posterior.diagnose().verdict)
print("steps:", posterior.num_steps, "instead of", centred.num_steps)
print(posterior.summary(var_names=["mu", "tau", "theta"]))

# %% [markdown]
# Compare with the first summary: means, standard deviations and quantiles agree, and the run is shorter.
#
# ## What the schools learn from each other
#
# Draws have the axes (chain, draw, school). The raw estimate of the first school is 28; its posterior mean
# is much closer to the others.

# %%
import matplotlib.pyplot as plt
import numpy as np

theta = np.asarray(posterior.draws["theta"]).reshape(-1, 8)
low, middle, high = np.quantile(theta, [0.05, 0.5, 0.95], axis=0)
schools = np.arange(8)

figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.errorbar(
    schools - 0.12,
    effects,
    1.645 * errors,
    fmt="o",
    color="0.6",
    label="reported, 90 %",
)
axes.errorbar(
    schools + 0.12,
    middle,
    [middle - low, high - middle],
    fmt="o",
    color="C0",
    label="posterior, 90 %",
)
axes.axhline(float(posterior.draws["mu"].mean()), color="C1", lw=1, label="mean of mu")
axes.set(
    xticks=schools,
    xticklabels=list("ABCDEFGH"),
    xlabel="school",
    ylabel="effect, points",
)
axes.legend(ncols=3, fontsize="small")
plt.show()

# %% [markdown]
# ## A question with its error
#
# How likely is it that the programme of school A is better than that of school C? `expectation` takes any
# function of one draw and returns its posterior mean with its standard error.

# %%
print(posterior.expectation(lambda draw: draw["theta"][0] > draw["theta"][2]))

# %% [markdown]
# ## Predictions
#
# `predict` draws new data from the model. Each reported effect should look like one of its predictions.

# %%
predicted = np.asarray(posterior.predict()["effect"]).reshape(-1, 8)
print("share of predictions below the reported effect, by school:")
print((predicted < np.asarray(effects)).mean(axis=0).round(2))

# %% [markdown]
# None is close to 0 or 1, so the model does not contradict the data.
#
# **Next:** [a PyMC regression, to ArviZ](pymc_regression.md).
