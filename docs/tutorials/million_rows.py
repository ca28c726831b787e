# %% [markdown]
# # A million rows
#
# A logistic regression on a million rows. One gradient on all data costs as much as two thousand gradients on a batch of
# 512 rows, so each step should use only one batch. You will write the model as a prior and the likelihood of one row; the
# library does the rest.

# %%
import jax
import jax.numpy as jnp
import numpy as np

import nvgd

random = np.random.default_rng(0)
num_rows, num_features = 1_000_000, 8
x = random.normal(size=(num_rows, num_features)).astype(np.float32)
truth = np.linspace(-1, 1, num_features)
y = (random.random(num_rows) < 1 / (1 + np.exp(-(x @ truth)))).astype(np.float32)

# %% [markdown]
# The log density has two parts. The likelihood is that of **one row**, and it is not scaled: the library
# multiplies the sum over a batch by N/B.

# %%


def log_prior(weights):
    return -0.5 * jnp.sum(weights**2)


def log_likelihood(weights, row):
    logit = row["x"] @ weights
    return row["y"] * logit - jnp.logaddexp(0.0, logit)


target = nvgd.Target(
    log_prior,
    dim=num_features,
    log_likelihood=log_likelihood,
    data={"x": x, "y": y},
    batch_size=512,
)
posterior = nvgd.sample(target)
print(posterior.summary())
print(posterior.diagnose())

# %% [markdown]
# ## Is that right?
#
# With a million rows the posterior is nearly normal, so the Laplace approximation on all data is a good reference. Newton's
# method finds the mode in a few passes.

# %%


@jax.jit
def step(weights):
    chance = jax.nn.sigmoid(x @ weights)
    gradient = x.T @ (y - chance) - weights
    precision = (x.T * (chance * (1 - chance))) @ x + jnp.eye(num_features)
    return weights + jnp.linalg.solve(precision, gradient), jnp.linalg.inv(precision)


weights = jnp.zeros(num_features)
for _ in range(6):
    weights, covariance = step(weights)
sd = np.sqrt(np.diag(covariance))

draws = posterior.draws["x"].reshape(-1, num_features)
with np.printoptions(precision=2, suppress=True):
    print("error of means / sd:", np.abs(draws.mean(axis=0) - weights) / sd)
    print("ratio of sds:       ", draws.std(axis=0) / sd)

# %% [markdown]
# Means and standard deviations are those of all rows, although a step uses only 512 of them. The flow uses batches; the
# corrections that follow use a [subsample that stands for all rows](../how-it-works/index.md#minibatches), and the verdict
# says how large the error of its log densities is.
#
# ## What a step costs
#
# A step reads one batch for all particles. Data that do not fit into memory can be read from a `np.memmap` or a
# `BatchStream`, without changes to the model ([large data](../how-to/large-data.md)). How to choose the batch
# size: [batch size and N](../how-to/batch-size.md).

# %%
steps, rows = posterior.num_steps, int(posterior.history["num_rows"].sum())
particles, error = len(posterior.particles), posterior.density_error
print(f"{steps} steps of {particles} particles, {rows:,} rows, error {error:.1g} nats")

# %% [markdown]
# **Next:** [a Bayesian network, from scikit-learn](bayesian_network.md).
