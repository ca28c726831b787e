# %% [markdown]
# # The evidence of two models
#
# Is there a trend in the data, or not? You will compute the evidence of two regressions by importance
# weights, check it against the closed form, and compare the models.

# %%
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

import nvgd

random = np.random.default_rng(3)
time = np.linspace(-1, 1, 20)
values = 0.5 + 0.4 * time + 0.5 * random.normal(size=20)


def flat(position):
    return norm.logpdf(position[0], 0, 2) + norm.logpdf(values, position[0], 0.5).sum()


def trend(position):
    prior = norm.logpdf(position, 0, 2).sum()
    return prior + norm.logpdf(values, position[0] + position[1] * time, 0.5).sum()


# %% [markdown]
# Both include the constants of priors and likelihoods. Without them, the evidence is meaningless.
#
# First the posteriors, with the default method:

# %%
models = {"flat": nvgd.Target(flat, dim=1), "trend": nvgd.Target(trend, dim=2)}
posteriors = {}
for name, target in models.items():
    posteriors[name] = nvgd.sample(target)
    print(name, "-", posteriors[name].diagnose().verdict)
    print(posteriors[name].summary(), "\n")

# %% [markdown]
# ## A flow as a map
#
# Steps without noise are maps, and a chain of maps has a known density. `learn_transport` runs a flow from a base density and
# stores the map of every step. `weigh` pushes fresh draws of the base through them and weighs each by p/q; the mean weight is the
# evidence.
#
# There are two choices to make. The base should be somewhat wider than the posterior, whose covariance we know by now. The
# flow must be smooth, so we use SVGD with its kernel: the default works with ranks, which are not smooth.

# %%
flow = nvgd.SVGD(0.05, coordinates=nvgd.coordinates.Whitened())
evidences = {}
for name, target in models.items():
    particles = np.asarray(posteriors[name].particles)
    covariance = np.atleast_2d(np.cov(particles.T))
    base = nvgd.densities.Gaussian(particles.mean(axis=0), 2 * covariance)
    transport = nvgd.learn_transport(target, flow, base, num_steps=50)
    evidences[name] = transport.weigh(2000)
    print(name, evidences[name])

# %% [markdown]
# With a Pareto k̂ below 0.7, the weights and the standard error can be trusted.
#
# ## The answer
#
# For these models the evidence is known: the data are jointly normal.

# %%
columns = {"flat": np.ones((20, 1)), "trend": np.stack([np.ones(20), time], axis=1)}
for name, design in columns.items():
    covariance = 4 * design @ design.T + 0.25 * np.eye(20)
    truth = jax.scipy.stats.multivariate_normal.logpdf(
        values, jnp.zeros(20), jnp.asarray(covariance)
    )
    error = evidences[name].standard_error
    print(
        f"{name:5s}  {evidences[name].log_evidence:.3f} ± {error:.3f}   truth {truth:.3f}"
    )

difference = evidences["trend"].log_evidence - evidences["flat"].log_evidence
print(f"Bayes factor of the trend: {np.exp(difference):.2f}")

# %% [markdown]
# A Bayes factor between 1/3 and 3 is not worth mentioning: twenty points with this noise say little about a slope of 0.4. Sampling
# alone would have hidden that, since the posterior of the slope has a tidy mean and standard deviation.
#
# **Next:** [your own witness](own_witness.md).
