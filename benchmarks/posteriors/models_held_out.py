"""Models that were not used in the development, in the first form that a user of NumPyro writes.

Every model has its own data, drawn from the model. The log densities are over NumPyro's
unconstrained space.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro  # pyright: ignore[reportMissingImports]
import numpyro.distributions as dist  # pyright: ignore[reportMissingImports]
from numpyro.infer.util import (  # pyright: ignore[reportMissingImports]
    initialize_model,
    potential_energy,
)

from benchmarks.posteriors.posterior import BenchmarkPosterior, Builder, Reparametrisation


def _normals(number: int, scale: float) -> Any:
    return dist.Normal(0.0, scale).expand([number]).to_event(1)


def garch(rng: np.random.Generator) -> tuple[Callable, tuple]:
    """GARCH(1, 1) of 300 returns: parameters with bounds, one of which depends on another."""
    noise, returns, variance = rng.normal(size=300), np.zeros(300), 0.5
    for day in range(300):
        before = returns[day - 1] ** 2 if day else 0.3
        variance = 0.1 + 0.2 * before + 0.6 * variance
        returns[day] = 0.05 + np.sqrt(variance) * noise[day]

    def model(returns):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
        base = numpyro.sample("base", dist.HalfNormal(1.0))
        shock = numpyro.sample("shock", dist.Uniform(0.0, 1.0))
        memory = numpyro.sample("memory", dist.Uniform(0.0, 1.0)) * (1 - shock)

        def advance(variance, value):
            return base + shock * (value - mean) ** 2 + memory * variance, variance

        _, variances = jax.lax.scan(advance, 0.5 * jnp.ones_like(mean), returns)
        numpyro.sample("returns", dist.Normal(mean, jnp.sqrt(variances)).to_event(1), obs=returns)

    return model, (returns,)


def growth_curve(rng: np.random.Generator) -> tuple[Callable, tuple]:
    """Lengths of 27 animals by age, a − bλ^age, under vague priors."""
    ages = np.sort(rng.uniform(1.0, 30.0, 27))
    lengths = 2.65 - 0.97 * 0.87**ages + 0.1 * rng.normal(size=27)

    def model(ages, lengths):
        final = numpyro.sample("final", dist.Normal(0.0, 100.0))
        gap = numpyro.sample("gap", dist.Normal(0.0, 100.0))
        rate = numpyro.sample("rate", dist.Uniform(0.5, 1.0))
        scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
        numpyro.sample("lengths", dist.Normal(final - gap * rate**ages, scale), obs=lengths)

    return model, (ages, lengths)


def student_t_regression(rng: np.random.Generator) -> tuple[Callable, tuple]:
    """Spending by age and income in their own units, with outliers of unknown weight."""
    ages, incomes = rng.uniform(20, 70, 80), rng.lognormal(10, 0.5, 80)
    features = np.stack([np.ones(80), ages, incomes], axis=1)
    spending = features @ [1000.0, 30.0, 0.05] + 300 * rng.standard_t(2, 80)

    def model(features, spending):
        weights = numpyro.sample("weights", _normals(3, 5000.0))
        scale = numpyro.sample("scale", dist.HalfCauchy(500.0))
        freedom = numpyro.sample("freedom", dist.Gamma(2.0, 0.1))
        numpyro.sample("spending", dist.StudentT(freedom, features @ weights, scale), obs=spending)

    return model, (features, spending)


def standardised_spending(features: np.ndarray, spending: np.ndarray) -> Reparametrisation:
    """Weights about the least squares fit, in units of its errors.

    In the original units, NUTS does not find the posterior from far away.
    """
    centre, *_ = np.linalg.lstsq(features, spending, rcond=None)
    errors = 300 * np.linalg.inv(np.linalg.cholesky(features.T @ features)).T

    def restore(z):
        # Sorted by name: log freedom, log scale, then the weights.
        return jnp.concatenate([z[:1], z[1:2] + np.log(300.0), centre + errors @ z[2:]])

    return Reparametrisation(restore, lambda z: jnp.zeros((), z.dtype))


def ordered_logistic(rng: np.random.Generator) -> tuple[Callable, tuple]:
    """Four grades of 150 answers, with cut points in order."""
    features = rng.normal(size=(150, 3))
    grades = np.digitize(features @ [1.0, -0.5, 0.2] + rng.logistic(size=150), [-1.5, 0.0, 1.5])

    def model(features, grades):
        weights = numpyro.sample("weights", _normals(3, 2.0))
        ordered = dist.transforms.OrderedTransform()
        cuts = numpyro.sample("cuts", dist.TransformedDistribution(_normals(3, 3.0), ordered))
        numpyro.sample("grades", dist.OrderedLogistic(features @ weights, cuts), obs=grades)

    return model, (features, grades)


def softmax_regression(rng: np.random.Generator) -> tuple[Callable, tuple]:
    """Three classes with a weight vector each: the prior alone tells their common part."""
    features, weights = rng.normal(size=(150, 5)), rng.normal(size=(5, 3))
    noise = rng.gumbel(size=(150, 3))
    classes = np.argmax(features @ weights + noise, axis=1)

    def model(features, classes):
        weights = numpyro.sample("weights", dist.Normal(0.0, 5.0).expand([5, 3]).to_event(2))
        offsets = numpyro.sample("offsets", _normals(3, 5.0))
        logits = features @ weights + offsets
        numpyro.sample("classes", dist.Categorical(logits=logits), obs=classes)

    return model, (features, classes)


def negative_binomial_effects(rng: np.random.Generator) -> tuple[Callable, tuple]:
    """Overdispersed counts of 20 groups, group effects centred."""
    groups, feature = np.repeat(np.arange(20), 6), rng.normal(size=120)
    log_rates = 1.0 + 0.5 * feature + 0.7 * rng.normal(size=20)[groups]
    counts = rng.poisson(rng.gamma(2.0, np.exp(log_rates) / 2.0))

    def model(feature, counts):
        offset = numpyro.sample("offset", dist.Normal(0.0, 5.0))
        slope = numpyro.sample("slope", dist.Normal(0.0, 5.0))
        scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
        dispersion = numpyro.sample("dispersion", dist.HalfCauchy(3.0))
        effects = numpyro.sample("effects", dist.Normal(0.0, scale).expand([20]).to_event(1))
        rates = jnp.exp(offset + slope * feature + effects[groups])
        numpyro.sample("counts", dist.NegativeBinomial2(rates, dispersion), obs=counts)

    return model, (feature, counts)


def crossed_effects(rng: np.random.Generator) -> tuple[Callable, tuple]:
    """Ratings by 25 people of 15 things, effects of both centred."""
    people, things = np.repeat(np.arange(25), 15), np.tile(np.arange(15), 25)
    ratings = 3.0 + 1.2 * rng.normal(size=25)[people] + 0.4 * rng.normal(size=15)[things]
    ratings = ratings + rng.normal(size=375)

    def model(ratings):
        mean = numpyro.sample("mean", dist.Normal(0.0, 10.0))
        names = ("scale_of_people", "scale_of_things", "scale")
        of_people, of_things, scale = (numpyro.sample(name, dist.HalfCauchy(2.0)) for name in names)
        person = numpyro.sample("person", dist.Normal(0.0, of_people).expand([25]).to_event(1))
        thing = numpyro.sample("thing", dist.Normal(0.0, of_things).expand([15]).to_event(1))
        locations = mean + person[people] + thing[things]
        numpyro.sample("ratings", dist.Normal(locations, scale), obs=ratings)

    return model, (ratings,)


def item_response(rng: np.random.Generator) -> tuple[Callable, tuple]:
    """Answers of 40 pupils to 12 questions that differ in difficulty and sharpness."""
    abilities, difficulties = rng.normal(size=40), rng.normal(size=12)
    logits = np.exp(0.3 * rng.normal(size=12)) * (abilities[:, None] - difficulties)
    answers = (rng.random((40, 12)) < 1 / (1 + np.exp(-logits))).astype(float)

    def model(answers):
        abilities = numpyro.sample("abilities", _normals(40, 1.0))
        difficulties = numpyro.sample("difficulties", _normals(12, 2.0))
        sharpness = numpyro.sample("sharpness", dist.LogNormal(0.0, 0.5).expand([12]).to_event(1))
        logits = sharpness * (abilities[:, None] - difficulties)
        numpyro.sample("answers", dist.Bernoulli(logits=logits).to_event(2), obs=answers)

    return model, (answers,)


def local_level(rng: np.random.Generator) -> tuple[Callable, tuple]:
    """A random walk of 60 days seen through noise, both of unknown size, the walk centred."""
    values = np.cumsum(0.3 * rng.normal(size=60)) + 0.5 * rng.normal(size=60)

    def model(values):
        step = numpyro.sample("step", dist.HalfNormal(1.0))
        noise = numpyro.sample("noise", dist.HalfNormal(1.0))
        levels = numpyro.sample("levels", dist.GaussianRandomWalk(step, 60))
        numpyro.sample("values", dist.Normal(levels, noise).to_event(1), obs=values)

    return model, (values,)


def _builder(write: Callable[[np.random.Generator], tuple[Callable, tuple]], seed: int) -> Builder:
    def build(data_dir: Path | None) -> BenchmarkPosterior:
        del data_dir
        model, data = write(np.random.default_rng(seed))
        example = initialize_model(jax.random.key(0), model, model_args=data).param_info.z
        shapes = {name: np.shape(value) for name, value in sorted(example.items())}
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])

        def log_density(x):
            parts = jnp.split(x, ends[:-1])
            pairs = zip(shapes.items(), parts, strict=True)
            params = {name: part.reshape(shape) for (name, shape), part in pairs}
            return -potential_energy(model, data, {}, params)

        name, description = write.__name__, (write.__doc__ or "").rstrip(".")
        easy = EASY[name](*data) if name in EASY else None
        return BenchmarkPosterior(name, int(ends[-1]), description, log_density, easy=easy)

    return build


EASY: dict[str, Callable[..., Reparametrisation]] = {"student_t_regression": standardised_spending}

HELD_OUT: dict[str, Builder] = {
    write.__name__: _builder(write, seed)
    for seed, write in enumerate(
        (
            garch,
            growth_curve,
            student_t_regression,
            ordered_logistic,
            softmax_regression,
            negative_binomial_effects,
            crossed_effects,
            item_response,
            local_level,
        )
    )
}
