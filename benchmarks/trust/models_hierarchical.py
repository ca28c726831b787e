"""Hierarchies: schools, groups, crossed effects, varying slopes, items and persons."""

from typing import Any

import numpy as np

from benchmarks.trust.model import in_numpyro, in_pymc, non_centred

SCHOOL_EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SCHOOL_ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def _eight_schools_c() -> tuple[Any, ...]:
    import numpyro
    import numpyro.distributions as dist

    def model(errors, effects):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("school", len(errors)):
            theta = numpyro.sample("theta", dist.Normal(mu, tau))
            numpyro.sample("effect", dist.Normal(theta, errors), obs=effects)

    return model, SCHOOL_ERRORS, SCHOOL_EFFECTS


def _eight_schools_nc() -> tuple[Any, ...]:
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer.reparam import TransformReparam

    def model(errors, effects):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        scaled = dist.TransformedDistribution(
            dist.Normal(0, 1), dist.transforms.AffineTransform(mu, tau)
        )
        with numpyro.plate("school", len(errors)):
            with numpyro.handlers.reparam(config={"theta": TransformReparam()}):
                theta = numpyro.sample("theta", scaled)
            numpyro.sample("effect", dist.Normal(theta, errors), obs=effects)

    return model, SCHOOL_ERRORS, SCHOOL_EFFECTS


def _groups() -> tuple[np.ndarray, np.ndarray]:
    """Group and outcome of 90 observations, three in each of 30 groups."""
    rng = np.random.default_rng(57)
    group = np.repeat(np.arange(30), 3)
    return group, 1.0 + 0.4 * rng.normal(size=30)[group] + 0.8 * rng.normal(size=90)


def _pymc_centred() -> Any:
    import pymc as pm

    group, outcome = _groups()
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 1)
        sigma = pm.HalfNormal("sigma", 2)
        effect = pm.Normal("effect", mu, tau, shape=30)
        pm.Normal("outcome", effect[group], sigma, observed=outcome)
    return model


def _pymc_centred_easy() -> Any:
    import pymc as pm

    group, outcome = _groups()
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 1)
        sigma = pm.HalfNormal("sigma", 2)
        standardised = pm.Normal("standardised", 0, 1, shape=30)
        effect = pm.Deterministic("effect", mu + tau * standardised)
        pm.Normal("outcome", effect[group], sigma, observed=outcome)
    return model


def _crossed() -> Any:
    import pymc as pm

    rng = np.random.default_rng(60)
    num_subjects, num_items = 35, 20
    # Every subject sees 12 of the items.
    subject = np.repeat(np.arange(num_subjects), 12)
    item = np.concatenate([rng.permutation(num_items)[:12] for _ in range(num_subjects)])
    condition = rng.integers(0, 2, len(subject)) - 0.5
    mean = 0.5 * rng.normal(size=num_subjects)[subject] + 0.3 * rng.normal(size=num_items)[item]
    outcome = 6.0 + 0.2 * condition + mean + 0.8 * rng.normal(size=len(subject))
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, 10)
        slope = pm.Normal("slope", 0, 1)
        sigma_subject = pm.HalfNormal("sigma_subject", 1)
        sigma_item = pm.HalfNormal("sigma_item", 1)
        sigma = pm.HalfNormal("sigma", 1)
        by_subject = pm.Normal("by_subject", 0, sigma_subject, shape=num_subjects)
        by_item = pm.Normal("by_item", 0, sigma_item, shape=num_items)
        mu = intercept + slope * condition + by_subject[subject] + by_item[item]
        pm.Normal("outcome", mu, sigma, observed=outcome)
    return model


def _lkj_data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Group, predictor and outcome: 15 groups with eight observations each."""
    rng = np.random.default_rng(15)
    group = np.repeat(np.arange(15), 8)
    covariance = np.array([[0.49, -0.12], [-0.12, 0.16]])
    effects = rng.multivariate_normal([1.0, 0.5], covariance, size=15)
    predictor = rng.normal(size=len(group))
    mean = effects[group, 0] + effects[group, 1] * predictor
    return group, predictor, mean + 0.7 * rng.normal(size=len(group))


def _lkj_slopes() -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(group, predictor, outcome):
        mean = numpyro.sample("mean", dist.Normal(0, 2).expand([2]).to_event(1))
        scales = numpyro.sample("scales", dist.HalfNormal(1).expand([2]).to_event(1))
        cholesky = numpyro.sample("cholesky", dist.LKJCholesky(2, concentration=2))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1))
        spread = dist.MultivariateNormal(mean, scale_tril=jnp.diag(scales) @ cholesky)
        with numpyro.plate("groups", 15):
            effects = numpyro.sample("effects", spread)
        mu = effects[group, 0] + effects[group, 1] * predictor
        numpyro.sample("outcome", dist.Normal(mu, sigma), obs=outcome)

    return model, *_lkj_data()


def _lkj_slopes_easy() -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(group, predictor, outcome):
        mean = numpyro.sample("mean", dist.Normal(0, 2).expand([2]).to_event(1))
        scales = numpyro.sample("scales", dist.HalfNormal(1).expand([2]).to_event(1))
        cholesky = numpyro.sample("cholesky", dist.LKJCholesky(2, concentration=2))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1))
        standardised = numpyro.sample("standardised", dist.Normal(0, 1).expand([15, 2]).to_event(2))
        effects = mean + standardised @ (jnp.diag(scales) @ cholesky).T
        numpyro.deterministic("effects", effects)
        mu = effects[group, 0] + effects[group, 1] * predictor
        numpyro.sample("outcome", dist.Normal(mu, sigma), obs=outcome)

    return model, *_lkj_data()


def _irt_2pl() -> tuple[Any, ...]:
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(122)
    num_persons, num_items = 80, 20
    ability, difficulty = rng.normal(size=num_persons), 0.3 + rng.normal(size=num_items)
    discrimination = np.exp(0.4 * rng.normal(size=num_items))
    logits = discrimination * (ability[:, None] - difficulty)
    correct = (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(int)
    person, item = (index.ravel() for index in np.indices(logits.shape))

    def model(person, item, correct):
        mu = numpyro.sample("mu", dist.Normal(0, 1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1))
        with numpyro.plate("persons", num_persons):
            ability = numpyro.sample("ability", dist.Normal(0, 1))
        with numpyro.plate("items", num_items):
            difficulty = numpyro.sample("difficulty", dist.Normal(mu, sigma))
            discrimination = numpyro.sample("discrimination", dist.LogNormal(0, 0.5))
        logits = discrimination[item] * (ability[person] - difficulty[item])
        numpyro.sample("correct", dist.Bernoulli(logits=logits), obs=correct)

    return model, person, item, correct.ravel()


def _big_logistic() -> tuple[Any, ...]:
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(483)
    num_persons, num_items, num_each = 430, 50, 8
    person = np.repeat(np.arange(num_persons), num_each)
    item = np.concatenate([rng.permutation(num_items)[:num_each] for _ in range(num_persons)])
    logits = 0.5 + rng.normal(size=num_persons)[person] + 0.7 * rng.normal(size=num_items)[item]
    answer = (rng.random(len(logits)) < 1 / (1 + np.exp(-logits))).astype(int)

    def model(person, item, answer):
        intercept = numpyro.sample("intercept", dist.Normal(0, 2))
        sigma_person = numpyro.sample("sigma_person", dist.HalfNormal(1))
        sigma_item = numpyro.sample("sigma_item", dist.HalfNormal(1))
        with numpyro.plate("persons", num_persons):
            z_person = numpyro.sample("z_person", dist.Normal(0, 1))
        with numpyro.plate("items", num_items):
            z_item = numpyro.sample("z_item", dist.Normal(0, 1))
        logits = intercept + sigma_person * z_person[person] + sigma_item * z_item[item]
        numpyro.sample("answer", dist.Bernoulli(logits=logits), obs=answer)

    return model, person, item, answer


HIERARCHICAL = (
    in_numpyro("eight_schools_nc", "eight schools, non-centred", _eight_schools_nc),
    in_numpyro(
        "eight_schools_c",
        "eight schools, centred",
        _eight_schools_c,
        non_centred(_eight_schools_c, "theta"),
    ),
    in_pymc("pymc_centred", "30 groups, centred", _pymc_centred, _pymc_centred_easy),
    in_pymc("crossed", "crossed effects of subjects and items", _crossed),
    in_numpyro("lkj_slopes", "correlated varying slopes", _lkj_slopes, _lkj_slopes_easy),
    in_numpyro("irt_2pl", "item response, two parameters per item", _irt_2pl),
    in_numpyro("big_logistic", "persons and items, logistic, non-centred", _big_logistic),
)
