"""Small versions of common models with their data, as `(model, args, kwargs)`."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer.reparam import LocScaleReparam

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def eight_schools(errors, effects=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("school", len(errors)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("effect", dist.Normal(theta, errors), obs=effects)


def eight_schools_not_centred(errors, effects=None):
    reparametrised = numpyro.handlers.reparam(eight_schools, config={"theta": LocScaleReparam(0)})
    reparametrised(errors, effects)


GROUPS = np.random.default_rng(0).integers(0, 4, 80)
FEATURES = np.random.default_rng(1).normal(size=(80, 2))
CHOICES = (np.random.default_rng(2).random(80) < 1 / (1 + np.exp(-FEATURES[:, 0]))).astype(int)


def hierarchical_logistic(features, groups, choices=None):
    num_groups = len(np.unique(groups))  # reads values, so data cannot be traced
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("group", num_groups):
        offset = numpyro.sample("offset", dist.Normal(0.0, 1.0))
    intercept = jnp.asarray(numpyro.deterministic("intercept", spread * offset))
    with numpyro.plate("row", len(features)):
        logits = intercept[groups] + features @ slope
        numpyro.sample("choice", dist.Bernoulli(logits=logits), obs=choices)


def every_support():
    numpyro.sample("simplex", dist.Dirichlet(jnp.array([2.0, 3.0, 4.0])))
    numpyro.sample("positive", dist.HalfNormal(2.0))
    lower = numpyro.sample("lower", dist.Normal(0.0, 1.0))
    numpyro.sample("bounded", dist.Uniform(lower, lower + 2.0))  # support depends on another site
    numpyro.sample("correlation", dist.LKJ(3, 2.0))
    numpyro.sample(
        "ordered",
        dist.TransformedDistribution(
            dist.Normal(0.0, 1.0).expand([3]).to_event(1), dist.transforms.OrderedTransform()
        ),
    )


MIXED = np.concatenate(
    [np.random.default_rng(3).normal(-2, 0.7, 40), np.random.default_rng(4).normal(2, 0.7, 20)]
)


def ordered_mixture(data):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    base = dist.Normal(0.0, 3.0).expand([2]).to_event(1)
    ordered = dist.TransformedDistribution(base, dist.transforms.OrderedTransform())
    means = numpyro.sample("means", ordered)
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    components = dist.Normal(means, scale)
    with numpyro.plate("row", len(data)):
        mixture = dist.MixtureSameFamily(dist.Categorical(weights), components)
        numpyro.sample("datum", mixture, obs=data)


ROWS = np.random.default_rng(5).normal(size=(60, 2)).astype(np.float32)
VALUES = (ROWS @ np.array([1.0, -0.5]) + 0.3).astype(np.float32)


def subsampled_regression(rows, values=None, batch_size=20):
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    numpyro.deterministic("length", jnp.linalg.norm(slope))
    with numpyro.plate("row", len(rows), subsample_size=batch_size) as chosen:
        mean = numpyro.deterministic("mean", rows[chosen] @ slope)
        given = None if values is None else values[chosen]
        numpyro.sample("value", dist.Normal(mean, scale), obs=given)


MODELS = {
    "eight schools": (eight_schools, (ERRORS, EFFECTS), {}),
    "eight schools, not centred": (eight_schools_not_centred, (ERRORS, EFFECTS), {}),
    "hierarchical logistic": (hierarchical_logistic, (FEATURES, GROUPS), {"choices": CHOICES}),
    "every support": (every_support, (), {}),
    "ordered mixture": (ordered_mixture, (jnp.asarray(MIXED),), {}),
}


def potential(model, args, kwargs, position):
    """NumPyro's own negative log density: the oracle."""
    from numpyro.infer.util import potential_energy

    evaluate = jax.vmap(lambda at: potential_energy(model, args, kwargs, at))
    return jax.jit(evaluate)(position)
