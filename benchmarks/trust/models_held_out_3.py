"""Models that played no part in any choice: survival, recapture, ecology and heavy-tailed steps."""

from typing import Any

import numpy as np

from benchmarks.trust.model import in_numpyro, in_pymc, non_centred

NUM_WARDS, NUM_YEARS = 18, 7


def _ward_survival() -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    rng = np.random.default_rng(101)
    ward = rng.integers(0, NUM_WARDS, size=150)
    treated, age = rng.integers(0, 2, size=150), rng.normal(size=150)
    log_rate = -1.2 + 0.5 * rng.normal(size=NUM_WARDS)[ward] - 0.6 * treated + 0.3 * age
    time = rng.exponential(size=150) / np.exp(log_rate)
    is_dead = time < 5

    def model(ward, treated, age, time, is_dead):
        base = numpyro.sample("base", dist.Normal(0, 2))
        slopes = numpyro.sample("slopes", dist.Normal(0, 1).expand([2]).to_event(1))
        spread = numpyro.sample("spread", dist.HalfNormal(1))
        with numpyro.plate("wards", NUM_WARDS):
            frailty = numpyro.sample("frailty", dist.Normal(0, spread))
        log_rate = base + frailty[ward] + slopes[0] * treated + slopes[1] * age
        numpyro.factor("survival", jnp.sum(is_dead * log_rate - time * jnp.exp(log_rate)))

    return model, ward, treated, age, np.minimum(time, 5), is_dead


def _plots() -> Any:
    import pymc as pm

    rng = np.random.default_rng(102)
    shares = rng.dirichlet(6 * np.array([0.45, 0.25, 0.2, 0.07, 0.03]), size=14)
    trees = rng.integers(15, 60, size=14)
    species = np.stack([rng.multinomial(n, p) for n, p in zip(trees, shares, strict=True)])
    with pm.Model() as model:
        share = pm.Dirichlet("share", np.ones(5))
        concentration = pm.LogNormal("concentration", 1, 1)
        pm.DirichletMultinomial("species", trees, concentration * share, observed=species)
    return model


def _histories() -> tuple[np.ndarray, np.ndarray]:
    """Whether a bird was caught in each year, and the year of its first capture."""
    rng = np.random.default_rng(103)
    survival, capture = rng.uniform(0.5, 0.75, NUM_YEARS), rng.uniform(0.3, 0.7, NUM_YEARS)
    first = rng.integers(0, NUM_YEARS - 1, size=180)
    caught = np.zeros((180, NUM_YEARS), int)
    for bird, year in enumerate(first):
        caught[bird, year] = 1
        for later in range(year + 1, NUM_YEARS):
            if rng.random() > survival[later]:
                break
            caught[bird, later] = rng.random() < capture[later]
    return caught, first


def _recapture() -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    caught, first = _histories()
    last = NUM_YEARS - 1 - np.argmax(caught[:, ::-1], axis=1)

    def model(caught, first, last):
        """Cormack, Jolly and Seber; of the last year, only the product of both is determined."""
        survival = numpyro.sample("survival", dist.Uniform(0, 1).expand([NUM_YEARS - 1]))
        capture = numpyro.sample("capture", dist.Uniform(0, 1).expand([NUM_YEARS - 1]))
        # Probability of never being caught after each year.
        unseen = [jnp.array(1.0)]
        for year in reversed(range(NUM_YEARS - 1)):
            stays = survival[year] * (1 - capture[year]) * unseen[0]
            unseen.insert(0, 1 - survival[year] + stays)
        years = np.arange(1, NUM_YEARS)
        is_between = (years > first[:, None]) & (years <= last[:, None])
        seen = jnp.where(caught[:, 1:] == 1, jnp.log(capture), jnp.log1p(-capture))
        alive = jnp.where(is_between, jnp.log(survival) + seen, 0.0)
        numpyro.factor("histories", jnp.sum(alive) + jnp.sum(jnp.log(jnp.stack(unseen))[last]))

    return model, caught, first, last


def _predators() -> tuple[Any, ...]:
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def solve(rates, start):
        """Runge and Kutta's method of fourth order, ten steps per observation."""

        def slope(state):
            prey, predators = state
            growth = rates[0] * prey - rates[1] * prey * predators
            return jnp.stack([growth, rates[2] * prey * predators - rates[3] * predators])

        def step(state, _):
            k1 = slope(state)
            k2 = slope(state + 0.05 * k1)
            k3 = slope(state + 0.05 * k2)
            k4 = slope(state + 0.1 * k3)
            after = state + (k1 + 2 * k2 + 2 * k3 + k4) / 60
            return after, after

        return jax.lax.scan(step, start, None, length=200)[1][9::10]

    rng = np.random.default_rng(104)
    truth = solve(jnp.array([0.6, 0.025, 0.02, 0.8]), jnp.array([30.0, 8.0]))
    counts = np.asarray(truth) * np.exp(0.2 * rng.normal(size=(20, 2)))

    def model(counts):
        linear = numpyro.sample("linear", dist.LogNormal(jnp.log(jnp.array([0.5, 0.5])), 0.5))
        product = numpyro.sample("product", dist.LogNormal(jnp.log(jnp.array([0.03, 0.03])), 0.5))
        start = numpyro.sample("start", dist.LogNormal(jnp.log(jnp.array([20.0, 10.0])), 1))
        noise = numpyro.sample("noise", dist.HalfNormal(0.5).expand([2]))
        rates = jnp.stack([linear[0], product[0], product[1], linear[1]])
        numpyro.sample("counts", dist.LogNormal(jnp.log(solve(rates, start)), noise), obs=counts)

    return model, counts


def _price() -> np.ndarray:
    rng = np.random.default_rng(105)
    return 50 + np.cumsum(0.3 * rng.standard_t(2.5, size=50)) + 0.5 * rng.normal(size=50)


def _jumps() -> tuple[Any, ...]:
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(price):
        start = numpyro.sample("start", dist.Normal(50, 10))
        drift = numpyro.sample("drift", dist.HalfNormal(1))
        noise = numpyro.sample("noise", dist.HalfNormal(1))
        df = numpyro.sample("df", dist.Gamma(2, 0.5))
        level = numpyro.sample(
            "level", dist.ImproperUniform(dist.constraints.real_vector, (), (50,))
        )
        before = jnp.concatenate([start[None], level[:-1]])
        numpyro.factor("steps", jnp.sum(dist.StudentT(df, before, drift).log_prob(level)))
        numpyro.sample("price", dist.Normal(level, noise), obs=price)

    return model, _price()


def _jumps_easy() -> tuple[Any, ...]:
    """Steps as mixtures of normals over their precisions, and levels by conditional simulation."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def model(price):
        start = numpyro.sample("start", dist.Normal(50, 10))
        drift = numpyro.sample("drift", dist.HalfNormal(1))
        noise = numpyro.sample("noise", dist.HalfNormal(1))
        df = numpyro.sample("df", dist.Gamma(2, 0.5))
        precision = numpyro.sample("precision", dist.Gamma(df / 2, df / 2).expand([50]).to_event(1))
        root = jnp.tril(jnp.ones((50, 50))) * drift / jnp.sqrt(precision)
        covariance = root @ root.T
        total = covariance + noise**2 * jnp.eye(50)
        numpyro.sample("price", dist.MultivariateNormal(start, total), obs=price)
        z = numpyro.sample("z", dist.Normal(0, 1).expand([2, 50]).to_event(2))
        drawn = start + root @ z[0]
        gain = jnp.linalg.solve(total, price - drawn - noise * z[1])
        numpyro.deterministic("level", drawn + covariance @ gain)

    return model, _price()


HELD_OUT_3 = (
    in_numpyro(
        "ward_survival",
        "censored survival with normal frailties of wards, centred",
        _ward_survival,
        non_centred(_ward_survival, "frailty"),
    ),
    in_pymc("plots", "Dirichlet-multinomial counts of species", _plots),
    in_numpyro("recapture", "survival and recapture by year, one product determined", _recapture),
    in_numpyro("predators", "predators and prey, differential equations", _predators),
    in_numpyro(
        "jumps",
        "a level with Student-t steps of free degrees of freedom, centred",
        _jumps,
        _jumps_easy,
    ),
)
